"""The controller's rights are those that it uses: none is missing and none is spare.

Aspects: over a job's whole life, from the audit log, which verbs the controller's account used and whether any was
refused. A verb that is taken away is refused here, one that is added is used by nobody here. Events are not in the
audit log; the API server's own answers are told from the events that are there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dispatch_gates.contract import names
from dispatch_gates.contract.names import Resource
from dispatch_gates.contract.objects import JsonObject
from dispatch_infra import rights
from dispatch_local.cluster import Cluster
from world import ControllerProcess, World, until

ACCOUNT = f"system:serviceaccount:{names.CONTROLLER_NAMESPACE}:{names.CONTROLLER}"
Right = tuple[str, str, str]


def granted() -> set[Right]:
    rules = [*rights.cluster_rules(names.ADMISSION_CHECK), *rights.namespace_rules("any")]
    return {
        (rule["apiGroups"][0], rule["resources"][0], verb)
        for rule in rules
        for verb in rule["verbs"]
        if rule["resources"] != [names.EVENTS.plural]
    }


def requests(log: Path, since: int) -> list[dict[str, Any]]:
    """What the controller's account asked for, from a place in the audit log on."""
    with log.open("rb") as lines:
        lines.seek(since)
        events = [json.loads(line) for line in lines if line.endswith(b"\n") and ACCOUNT.encode() in line]
    return [event for event in events if event["user"]["username"] == ACCOUNT and "objectRef" in event]


def right(event: dict[str, Any]) -> Right:
    of = event["objectRef"]
    resource = of["resource"] + (f"/{of['subresource']}" if of.get("subresource") else "")
    return of.get("apiGroup", ""), resource, event["verb"]


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

    world.change(names.ADMISSION_CHECKS, names.ADMISSION_CHECK, clear, status=True, cluster_scoped=True)
    until("the check to be Active", active)


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

    found = requests(log, since)
    refused = [event for event in found if event["responseStatus"]["code"] in (401, 403)]
    assert [(right(event), event["requestURI"]) for event in refused] == []
    used = {right(event) for event in found}
    assert used - granted() == set(), "not in the table, and done all the same"
    assert granted() - used == set(), "granted, and used by nobody"
