"""The model's values as the API server shows them, and what an operation writes read back as values.

A version is the number of the reply in which the operation saw the object: `actors` knows whether it is still current.
"""

from __future__ import annotations

import copy
import functools
import re
from typing import Any, Final

from dispatch_gates.contract import names
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.manifest import JobSpec, manifest
from dispatch_gates.contract.objects import JsonObject, dig
from explorer.values import Job, JobSet, Pod, TrainJob, Workload
from model import objects

ASKED: Final = JobSpec(
    identity=Identity(objects.ULID, 1),
    namespace=objects.TEAM,
    queue=objects.QUEUE,
    spec={
        "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": objects.RUNTIME},
        "trainer": {"numNodes": 1, "image": "example.org/training:1"},
    },
    owner="project/stack",
)
UID: Final = "uid-trainjob"
OTHER_UID: Final = "uid-trainjob-made-anew"
OTHER_CHECK: Final = "somebody-elses"
"""A check of another controller, on every Workload, before ours and always Pending."""
_ADMITTED_AT: Final = "2026-01-01T00:00:10Z"
_EARLIER: Final = "2026-01-01T00:00:08Z"
_LATER: Final = "2026-01-01T00:00:12Z"
_SAID: Final = "as it was said before"
"""The message of our entry. The model knows no messages: a reason to wait always looks new, and is written."""
_COUNT: Final = re.compile(r"0|[1-9][0-9]*")


class ForeignWriteError(Exception):
    """S5: an operation changed something that is not its own to change."""


@functools.cache
def _asked(kueue: bool) -> JsonObject:
    body = manifest(ASKED if kueue else plain(), ["node"])
    body["spec"]["managedBy"] = names.TRAINER_MANAGER
    body["spec"]["runtimePatches"].append(copy.deepcopy(objects.KUEUE_PATCH))
    return body


def plain() -> JobSpec:
    """What is asked for in plain mode."""
    return JobSpec(ASKED.identity, ASKED.namespace, None, ASKED.spec, ASKED.owner)


@functools.cache
def trainjob(found: TrainJob, version: int, kueue: bool) -> JsonObject:
    """Render a TrainJob. The result is shared: it is not to be changed."""
    body = copy.deepcopy(_asked(kueue))
    metadata = body["metadata"]
    metadata.update(
        uid=OTHER_UID if found.other else UID, resourceVersion=str(version), creationTimestamp=objects.T0, generation=1
    )
    if not found.gate:
        del metadata["annotations"][names.ADMISSION_GATED_BY]
    if found.held:
        metadata["annotations"][names.HOLD] = "true"
    if found.opened:
        metadata["annotations"][names.OPENED] = "true"
    if found.deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:20:00Z"
        metadata["finalizers"] = ["foregroundDeletion"]
    body["spec"]["suspend"] = found.suspend
    _annotated(body)[names.ADMISSION_COUNT] = str(found.rank)
    conditions = {"Suspended": found.suspend} | ({"Complete": True} if found.ended else {})
    body["status"] = {"conditions": objects.conditions(conditions)}
    return body


def _annotated(body: JsonObject) -> JsonObject:
    (patch,) = [patch for patch in body["spec"]["runtimePatches"] if patch["manager"] == names.PATCH_MANAGER]
    found = dig(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")[0]
    annotations: JsonObject = found["template"]["spec"]["template"]["metadata"]["annotations"]
    return annotations


def read_trainjob(body: JsonObject, before: TrainJob, version: int, kueue: bool) -> TrainJob:
    """Read back a TrainJob that was written over `before`; raise `ForeignWriteError` for any other change."""
    annotations = body["metadata"].get("annotations", {})
    count = _annotated(body).get(names.ADMISSION_COUNT, "")
    after = before._replace(
        suspend=body["spec"].get("suspend") is True,
        rank=int(count) if _COUNT.fullmatch(count) else -1,
        gate=names.ADMISSION_GATED_BY in annotations,
        held=names.HOLD in annotations,
        opened=names.OPENED in annotations,
    )
    expected = copy.deepcopy(trainjob(after, version, kueue))
    expected["status"] = body.get("status")
    if expected != body:
        raise ForeignWriteError("TrainJob")
    return after


def read_created(body: JsonObject, kueue: bool) -> TrainJob:
    """Read back the TrainJob that Start creates."""
    sent = copy.deepcopy(_asked(kueue))
    sent["spec"].pop("managedBy")
    sent["spec"]["runtimePatches"].pop()
    if sent != body:
        raise ForeignWriteError("TrainJob as created")
    return TrainJob(suspend=True, rank=0, gate=True)


@functools.cache
def workload(found: Workload, version: int) -> JsonObject:
    """Render a Workload. The result is shared."""
    said: dict[str, bool | str] = {"QuotaReserved": found.reserved}
    for kind, value in (("Evicted", found.evicted), ("Finished", found.finished)):
        if value:
            said[kind] = True
    checks = [objects.check_state(OTHER_CHECK, "Pending", time=_EARLIER)]
    if found.check:
        time = _LATER if found.ahead else _EARLIER
        checks.append(objects.check_state(state=found.check, message=_SAID, time=time))
    body = objects.workload(
        said,
        checks=checks,
        active=found.active,
        admission=found.reserved,
        deleting=found.deleting,
        gates=names.GATE if found.gate else None,
        job_uid=UID,
        time=_EARLIER,
    )
    if found.admitted is not None:
        body["status"]["conditions"].append(objects.condition("Admitted", found.admitted, time=_ADMITTED_AT))
    body["metadata"]["resourceVersion"] = str(version)
    return body


def read_workload_status(body: JsonObject, before: Workload, version: int) -> Workload:
    """Read back a status written over `before`."""
    ours = {entry["name"]: entry for entry in dig(body, "status", "admissionChecks")}.get(objects.CHECK, {})
    state, message, time = (ours.get(key) for key in ("state", "message", "lastTransitionTime"))
    expected = copy.deepcopy(workload(before, version))
    for entry in expected["status"]["admissionChecks"]:
        if entry["name"] == objects.CHECK:
            entry.update(state=state, message=message, lastTransitionTime=time)
    if expected != body:
        raise ForeignWriteError("Workload status")
    ahead = before.admitted is not None and str(time) > _ADMITTED_AT
    return before._replace(check=str(state), ahead=ahead)


def read_workload(body: JsonObject, before: Workload, version: int) -> Workload:
    """Read back a Workload written over `before`."""
    after = before._replace(active=body["spec"].get("active") is not False)
    if body != workload(after, version):
        raise ForeignWriteError("Workload")
    return after


@functools.cache
def jobset(found: JobSet, version: int) -> JsonObject:
    """Render a JobSet. The result is shared."""
    body = objects.jobset(found.rank, suspend=found.suspend, owned_by=objects.owner("TrainJob", objects.NAME, UID))
    body["metadata"]["resourceVersion"] = str(version)
    return body


@functools.cache
def job(found: Job, version: int) -> JsonObject:
    """Render a Job. The result is shared."""
    status = {"Suspended": found.seen} | ({"Complete": True} if found.finished else {})
    body = objects.job(
        found.rank,
        suspend=found.suspend,
        started=found.started,
        status=status,
        active=int(found.active) or None,
        terminating=int(found.terminating) or None,
    )
    body["metadata"]["resourceVersion"] = str(version)
    return body


@functools.cache
def pod(found: Pod, index: int, version: int) -> JsonObject:
    """Render a pod. The result is shared."""
    # Of one that is lost from sight nothing is known; it may have been lost before it said anything.
    containers = {"Running": ("running",), "Pending": ("waiting",)}.get(found.phase)
    body = objects.pod(
        found.phase,
        name=f"{objects.NAME}-node-0-0-{index}",
        count=found.rank,
        deleting=found.deleting,
        containers=containers,
    )
    body["metadata"]["resourceVersion"] = str(version)
    return body


def runtime() -> JsonObject:
    """The runtime that every job names."""
    return objects.runtime("node")


def same(one: Any, other: Any) -> bool:
    """Whether two bodies are equal."""
    return bool(one == other)
