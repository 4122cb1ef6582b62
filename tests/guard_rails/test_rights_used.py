"""The rights of the controller and of the adapter are those that they use: none is missing and none is spare.

Aspects: over a job's whole life, from the audit log, which verbs each account used, with a real token, and whether any
was refused. A verb that is taken away is refused here, one that is added is used by nobody here. Events are not in the
audit log; the API server's own answers are told from the events that are there.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ulid import ULID

from dispatch_gates.cluster import run
from dispatch_gates.contract import names
from dispatch_gates.contract.capability import Answer, Name
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.names import Resource
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.operations.errors import RefusedError
from dispatch_gates.operations.holding import hold, release
from dispatch_gates.operations.jobs import cluster_identity
from dispatch_gates.operations.opening import open_job
from dispatch_gates.operations.overview import overview
from dispatch_gates.operations.preflight import Asked, preflight
from dispatch_gates.operations.start import start
from dispatch_gates.operations.stop import stop
from dispatch_infra import rights
from dispatch_local.cluster import Cluster
from logged import Right, refused, requests, right
from world import ADAPTER_ACCOUNT, WAIT_SECONDS, ControllerProcess, Deployment, World, until

UNLOGGED = {
    (names.NAMESPACES.group, names.NAMESPACES.plural, "get"),
    (names.POLICIES.group, names.POLICIES.plural, "list"),
    (names.POLICY_BINDINGS.group, names.POLICY_BINDINGS.plural, "list"),
}
"""The audit log has no reads of these. What the adapter told from them shows that it could."""
ACCOUNT = f"system:serviceaccount:{names.CONTROLLER_NAMESPACE}:{names.CONTROLLER}"


def granted(rules: list[rights.Rule]) -> set[Right]:
    """Return rules one by one, without events, and without the verb that is only ever asked about."""
    return {
        (rule["apiGroups"][0], rule["resources"][0], verb)
        for rule in rules
        for verb in rule["verbs"]
        if rule["resources"] != [names.EVENTS.plural] and verb != names.ADAPTER_VERB
    }


def assert_used(found: list[dict[str, Any]], rules: list[rights.Rule]) -> None:
    """Fail unless the requests used each right of the rules, and were refused none."""
    assert refused(found) == []
    used = {right(event) for event in found}
    assert used - granted(rules) == set(), "not in the table, and done all the same"
    assert granted(rules) - used - UNLOGGED == set(), "granted, and used by nobody"


def batch() -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}
    return {"template": {"spec": pod}}


REPLICATED = {"name": "node", "template": {"spec": batch()}}


def waved_through(world: World, resource: Resource, owner: JsonObject) -> None:
    """Make a Workload that somebody else's object owns, as Kueue does for it, and wait until the check is Ready."""
    name = f"of-{resource.plural}"
    reference = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    world.create(
        names.WORKLOADS,
        name,
        metadata={"ownerReferences": [reference]},
        spec={"queueName": "queue", "podSets": [{"name": "main", "count": 1, **batch()}]},
    )

    def ready() -> bool:
        checks = (world.get(names.WORKLOADS, name) or {}).get("status", {}).get("admissionChecks") or []
        return any(entry["name"] == names.ADMISSION_CHECK and entry["state"] == "Ready" for entry in checks)

    until(f"the check of {name}", ready)


def inactive(world: World) -> None:
    """Take Active off the check, and wait until the controller has put it back."""

    def clear(body: JsonObject) -> None:
        body["status"]["conditions"] = []

    def active() -> bool:
        check = world.get(names.ADMISSION_CHECKS, names.ADMISSION_CHECK, cluster_scoped=True) or {}
        return any(each["type"] == "Active" for each in check["status"].get("conditions") or [])

    until("the check to be Active", active)
    world.change(names.ADMISSION_CHECKS, names.ADMISSION_CHECK, clear, status=True, cluster_scoped=True)
    until("the check to be Active again", active)


def test_each_right_is_used_and_none_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    log = cluster.audit_log
    since = log.stat().st_size
    world = World(cluster, pods=10).make()
    with ControllerProcess(world, tmp_path, lease=f"rights-{world.namespace}"):
        inactive(world)
        job = world.started_and_opened()
        old = world.running(job, 1)
        world.linger(old)
        world.set_active(job, False)
        until("the quota to be given back", lambda: world.condition(job, "QuotaReserved") == "False")
        world.set_active(job, True)
        until("the check to name the old pod", lambda: old["metadata"]["name"] in world.check(job).get("message", ""))
        world.let_go(old)
        world.running(job, 2)
        told = [event for event in world.list(names.EVENTS) if event.get("reportingComponent") == names.CONTROLLER_NAME]
        assert told, "no event"
        world.stop(job)
        for resource, spec in ((names.JOBS, batch()), (names.JOBSETS, {"replicatedJobs": [REPLICATED]})):
            owner = world.create(resource, "foreign", spec={"suspend": True, **spec})
            waved_through(world, resource, owner)

    rules = [*rights.cluster_rules(names.ADMISSION_CHECK), *rights.namespace_rules("any")]
    assert_used(requests(log, since, ACCOUNT), rules)


def test_each_right_of_the_adapter_is_used_and_none_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    world = World(cluster, pods=10).make()
    me = world.adapter
    log = cluster.audit_log
    since = log.stat().st_size
    with Deployment(world, tmp_path, lease=f"adapter-{world.namespace}"):
        assert run(me, cluster_identity())
        asked = Asked(world.namespace, "queue", watch_seconds=0.2)
        report = run(me, preflight(asked, Identity(str(ULID()), 0), clock=time.monotonic))
        (rails,) = (found for found in report.capabilities if found.name is Name.GUARD_RAILS)
        assert rails.answer is Answer.YES, rails
        of_cluster = {"runtimeRef": {"kind": names.CLUSTER_TRAINING_RUNTIMES.kind, "name": "absent"}}
        with pytest.raises(RefusedError):
            run(me, start(replace(world.spec(), spec=of_cluster)))

        job = run(me, start(world.spec(), workload_seconds=WAIT_SECONDS)).job
        name, uid = job.meta.name, job.meta.uid
        run(me, open_job(world.namespace, name, uid))
        world.running(job, 1)
        run(me, hold(world.namespace, name, uid))
        until("the quota to be given back", lambda: world.condition(job, "QuotaReserved") == "False")
        run(me, release(world.namespace, name, uid))
        pod = world.running(job, 2)
        assert len(run(me, overview(world.namespace)).jobs) == 1

        # Each of what it waits for stays until it is seen to wait for it.
        world.linger(pod)
        stays = [(names.TRAINJOBS, name), (names.JOBSETS, name), (names.JOBS, f"{name}-node-0")]
        for resource, kept in stays:
            world.change(resource, kept, lambda body: body["metadata"].update(finalizers=["dispatch.local/rights"]))
        with ThreadPoolExecutor(1) as pool:
            stopped = pool.submit(run, me, stop(world.namespace, name, uid, seconds=WAIT_SECONDS))
            before = log.stat().st_size
            for resource, kept in stays:
                until(f"it to watch {resource}", partial(watched, log, before, ADAPTER_ACCOUNT, resource))
                world.change(resource, kept, lambda body: body["metadata"].pop("finalizers"))
            until("it to watch pods", partial(watched, log, before, ADAPTER_ACCOUNT, names.PODS))
            world.let_go(pod)
            stopped.result()
    assert_used(requests(log, since, ADAPTER_ACCOUNT), [*rights.adapter_rules(), *rights.adapter_cluster_rules()])


def watched(log: Path, since: int, account: str, resource: Resource) -> bool:
    wanted = (resource.group, resource.plural, "watch")
    return any(right(event) == wanted for event in requests(log, since, account))
