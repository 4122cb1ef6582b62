"""The guard rails on a test cluster, as infra/ would install them there."""

from __future__ import annotations

import os

from dispatch_gates.cluster import Target, run
from dispatch_gates.contract import names
from dispatch_gates.contract.guard_rails import Level
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.operations.guard_rails import guard_rails
from dispatch_gates.requests import Create, Operation, Replace, find, write
from dispatch_infra import guard_rails_manifests as manifests
from dispatch_infra.policies import Accounts, policies
from dispatch_local import waiting
from dispatch_local.cluster import Cluster

# The local cluster has JobSet from its own release, not from Trainer's chart.
ACCOUNTS = Accounts(jobset="jobset-system:jobset-controller-manager")
LEVEL = Level(os.environ.get("DISPATCH_LEVEL") or Level.ADMISSIONS)
"""The level that the tests run at: DISPATCH_LEVEL, or else infra's default."""


def install(cluster: Cluster, level: Level = LEVEL, check: str = names.ADMISSION_CHECK) -> None:
    """Install the guard rails for the controller's usual account, and return when they are in force."""
    target = Target(str(cluster.kubeconfig), cluster.context)
    found = policies(ACCOUNTS, check, level)
    for body in (*map(manifests.policy, found), *(manifests.binding(policy, manifests.DENY) for policy in found)):
        run(target, _put(body))
    run(target, _put(_namespace("guard-rails-probe")))
    waiting.until("the guard rails in force", lambda: run(target, guard_rails("guard-rails-probe")).level is level)


def _namespace(name: str) -> JsonObject:
    metadata = {"name": name, "labels": manifests.GUARDED}
    return {"apiVersion": names.NAMESPACES.api_version, "kind": names.NAMESPACES.kind, "metadata": metadata}


def _put(body: JsonObject) -> Operation[None]:
    kinds = {found.kind: found for found in (names.NAMESPACES, names.POLICIES, names.POLICY_BINDINGS)}
    resource = kinds[body["kind"]]
    stored = yield from find(resource, "", body["metadata"]["name"])
    if stored is None:
        yield from write(Create(resource, body))
    elif resource is not names.NAMESPACES and stored["spec"] != body["spec"]:
        yield from write(Replace(resource, {**stored, "spec": body["spec"]}))
