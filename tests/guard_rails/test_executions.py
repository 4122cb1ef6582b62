"""Level `executions` over a job's whole life on a real cluster: it keeps nobody from ordinary work.

Aspects: a job is started, opened, preempted, admitted again, held, released, evicted with an old pod that lingers,
finished and stopped, and the API server refuses nobody anything; a runtime that would restart inside one admission
gets no Job, and is told why.

The second level is bound for the namespaces of these tests alone, by policies of names of their own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rails
from dispatch_gates.cluster import Target, run
from dispatch_gates.contract import names
from dispatch_gates.contract.guard_rails import Level
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.requests import Create, DeniedError, write
from dispatch_infra import guard_rails_manifests as manifests
from dispatch_infra.policies import policies
from dispatch_local.cluster import Cluster
from world import Deployment, World, token_of, until, write_kubeconfig

REFUSED = "denied request: "


@pytest.fixture
def world(cluster: Cluster, tmp_path: Path) -> World:
    world = World(cluster).make()
    for policy in policies(rails.ACCOUNTS, names.ADMISSION_CHECK, Level.EXECUTIONS):
        if policy.level is Level.EXECUTIONS:
            name = f"{policy.name}-{world.namespace}"
            binding = manifests.binding(policy, manifests.DENY)["spec"] | {"policyName": name}
            binding["matchResources"] = {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}}
            }
            world.create(names.POLICIES, name, cluster_scoped=True, spec=manifests.policy(policy)["spec"])
            world.create(names.POLICY_BINDINGS, name, cluster_scoped=True, spec=binding)
    jobset = Target(str(account(world, tmp_path / "jobset", rails.ACCOUNTS.jobset)), "tests")
    until("level executions in force", lambda: "without-restarts: " in dry_run(jobset, world))
    return world


def account(world: World, path: Path, who: str) -> Path:
    """Write a kubeconfig for a manager's account."""
    namespace, _, name = who.partition(":")
    home = World(world.cluster, namespace)
    return write_kubeconfig(path, home, token_of(home, name))


def dry_run(target: Target, world: World) -> str:
    """Try to make a Job that restarts; return the refusal."""
    body = {
        "apiVersion": names.JOBS.api_version,
        "kind": names.JOBS.kind,
        "metadata": {
            "name": "probe",
            "namespace": world.namespace,
            "labels": {names.JOBSET_NAME: "dj-01arz3ndektsv4rrffq69g5fav-s1"},
        },
        "spec": {"suspend": True, "backoffLimit": 1, "template": {"spec": POD}},
    }
    try:
        run(target, write(Create(names.JOBS, body, dry_run=True)))
    except DeniedError as error:
        return str(error)
    return ""


POD: dict[str, Any] = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}


def refusals(world: World) -> list[str]:
    """Who was refused what by a policy in this namespace, as the audit log says; dry runs left out."""
    with world.cluster.audit_log.open() as log:
        events = [json.loads(line) for line in log if REFUSED in line and world.namespace in line]
    return [
        f"{event['user']['username']} {event['verb']} {event['objectRef']['resource']}: "
        f"{event['responseStatus'].get('message', '')}"
        for event in events
        if event["objectRef"].get("namespace") == world.namespace and "dryRun=All" not in event["requestURI"]
    ]


def test_a_whole_life_in_which_nobody_is_refused_anything(world: World, tmp_path: Path) -> None:
    with Deployment(world, tmp_path, lease=f"executions-{world.namespace}"):
        job = world.started_and_opened()
        world.running(job, 1)

        world.preempt()
        world.running(job, 2)

        world.hold(job)
        until("the quota to be given back", lambda: world.condition(job, "QuotaReserved") == "False")
        world.release(job)
        old = world.running(job, 3)

        world.linger(old)
        world.evict(job)
        assert old["metadata"]["name"] in world.waits(job, "StillRunning")
        world.let_go(old)
        last = world.running(job, 4)

        world.pod_ends(last, "Succeeded")
        until("the job to end", lambda: complete(world, job.meta.name))
        world.stop(job)
    assert len(world.judged(job)) == 4
    assert refusals(world) == []


def complete(world: World, name: str) -> bool:
    conditions = (world.get(names.TRAINJOBS, name) or {}).get("status", {}).get("conditions") or []
    return any(entry["type"] == "Complete" and entry["status"] == "True" for entry in conditions)


def test_a_runtime_that_restarts_gets_no_job(world: World) -> None:
    def restarts(jobset: JsonObject) -> None:
        jobset["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] = 1

    world.runtime("restarts", restarts)
    job = world.start(world.spec(runtime="restarts"))
    said = f"system:serviceaccount:{rails.ACCOUNTS.jobset} create jobs: "
    refused = until("the refusal", lambda: [line for line in refusals(world) if line.startswith(said)])
    assert "without-restarts: a replaced pod or a restarted container would run under the same" in refused[0]
    assert world.list(names.JOBS, f"{names.JOBSET_NAME}={job.meta.name}") == ()
    world.stop(job)
