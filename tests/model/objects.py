"""Builders of objects as the real systems show them; each is one kind, with what the tests vary as arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dispatch_gates.contract import names
from dispatch_gates.contract.objects import JsonObject

ULID: Final = "01JDQM3ZK0TB6Q8E8M2A9V4C5D"
NAME: Final = f"dj-{ULID.lower()}-s1"
TEAM: Final = "team"
QUEUE: Final = "training"
CHECK: Final = names.ADMISSION_CHECK
RUNTIME: Final = "torch"
WORKLOAD: Final = f"trainjob-{NAME}-4f1c2"
T0: Final = "2026-01-01T00:00:00Z"
_UIDS: Final = {"TrainJob": "uid-trainjob", "JobSet": "uid-jobset", "Job": "uid-job", "Workload": "uid-workload"}


def condition(kind: str, status: bool | str, *, reason: str = "Seen", message: str = "", time: str = T0) -> JsonObject:
    """One entry of status.conditions."""
    said = status if isinstance(status, str) else str(status)
    return {"type": kind, "status": said, "reason": reason, "message": message, "lastTransitionTime": time}


def conditions(found: Mapping[str, bool | str], time: str = T0) -> list[JsonObject]:
    """status.conditions, from type and status."""
    return [condition(kind, status, time=time) for kind, status in found.items()]


def owner(kind: str, name: str, uid: str, *, api_version: str | None = None, controller: bool = True) -> JsonObject:
    """An owner reference."""
    versions = {"TrainJob": names.TRAINJOBS, "Workload": names.WORKLOADS, "JobSet": names.JOBSETS, "Job": names.JOBS}
    found = api_version or (versions[kind].api_version if kind in versions else "example.org/v1")
    return {
        "apiVersion": found,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": controller,
        "blockOwnerDeletion": True,
    }


def _metadata(name: str, namespace: str, uid: str, deleting: bool = False, **more: Any) -> JsonObject:
    found: JsonObject = {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": T0}
    if deleting:
        found |= {"deletionTimestamp": "2026-01-01T00:20:00Z", "finalizers": ["example.org/keep"]}
    return found | {key: value for key, value in more.items() if value}


def counted(count: int | str | None) -> JsonObject:
    """A pod template that carries A, as it is or as text; none where it is None."""
    annotations = {} if count is None else {names.ADMISSION_COUNT: str(count)}
    return {"metadata": {"annotations": annotations}}


def patch(counts: Mapping[str, int | str | None], manager: str = names.PATCH_MANAGER) -> JsonObject:
    """A runtime patch: A by replicated job."""
    replicated = [{"name": name, "template": {"spec": {"template": counted(count)}}} for name, count in counts.items()]
    return {
        "manager": manager,
        "time": T0,
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": replicated}}},
    }


KUEUE_PATCH: Final = {
    "manager": names.KUEUE_PATCH_MANAGER,
    "time": T0,
    "trainingRuntimeSpec": {"template": {"metadata": {"labels": {"kueue.x-k8s.io/podset": "node"}}}},
}


def trainjob(
    count: int | str | None = 1,
    *,
    name: str = NAME,
    namespace: str = TEAM,
    uid: str = _UIDS["TrainJob"],
    gates: str | None = None,
    suspend: bool | None = True,
    held: bool = False,
    deleting: bool = False,
    queue: str | None = QUEUE,
    patches: Iterable[JsonObject] | None = None,
    jobs: Iterable[str] = ("node",),
    status: Mapping[str, bool | str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> JsonObject:
    """A TrainJob; `status` is its conditions, `count` the A in our patch (`patches` overrides it)."""
    marks = dict(annotations or {})
    if gates is not None:
        marks[names.ADMISSION_GATED_BY] = gates
    if held:
        marks[names.HOLD] = "true"
    spec: JsonObject = {
        "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": RUNTIME},
        "trainer": {"numNodes": 1, "image": "example.org/training:1"},
        "managedBy": names.TRAINER_MANAGER,
        "runtimePatches": list(patches) if patches is not None else [patch(dict.fromkeys(jobs, count)), KUEUE_PATCH],
    }
    if suspend is not None:
        spec["suspend"] = suspend
    labels = {names.QUEUE_NAME: queue} if queue is not None else {}
    return {
        "apiVersion": names.TRAINJOBS.api_version,
        "kind": "TrainJob",
        "metadata": _metadata(name, namespace, uid, deleting, labels=labels, annotations=marks, generation=1),
        "spec": spec,
        "status": {"conditions": conditions(status if status is not None else {"Suspended": bool(suspend)})},
    }


def check_state(
    name: str = CHECK, state: str = "Pending", message: str = "", time: str = T0, **more: Any
) -> JsonObject:
    """One entry of a Workload's status.admissionChecks."""
    return {"name": name, "state": state, "message": message, "lastTransitionTime": time, **more}


def workload(
    status: Mapping[str, bool | str] | None = None,
    *,
    checks: Iterable[JsonObject] | None = None,
    name: str = WORKLOAD,
    owned_by: JsonObject | None = None,
    owned: bool = True,
    uid: str = _UIDS["Workload"],
    active: bool | None = None,
    admission: bool | None = None,
    deleting: bool = False,
    gates: str | None = None,
    job_uid: str = _UIDS["TrainJob"],
    time: str = T0,
) -> JsonObject:
    """A Workload; by default quota is reserved and our check is Pending. `admission` follows QuotaReserved."""
    found = {"QuotaReserved": True} if status is None else dict(status)
    spec: JsonObject = {"queueName": QUEUE, "podSets": [{"name": "node", "count": 1, "template": counted(0)}]}
    if active is not None:
        spec["active"] = active
    said: JsonObject = {
        "conditions": conditions(found, time),
        "admissionChecks": list(checks) if checks is not None else [check_state()],
    }
    if admission if admission is not None else found.get("QuotaReserved") is True:
        said["admission"] = {"clusterQueue": "dispatch", "podSetAssignments": [{"name": "node", "count": 1}]}
    reference = owned_by or owner("TrainJob", NAME, _UIDS["TrainJob"])
    return {
        "apiVersion": names.WORKLOADS.api_version,
        "kind": "Workload",
        "metadata": _metadata(
            name,
            TEAM,
            uid,
            deleting,
            ownerReferences=[reference] if owned else [],
            labels={names.JOB_UID: job_uid},
            annotations={names.ADMISSION_GATED_BY: gates} if gates is not None else {},
        ),
        "spec": spec,
        "status": said,
    }


def jobset(
    count: int | str | None = 1,
    *,
    suspend: bool | None = True,
    deleting: bool = False,
    name: str = NAME,
    uid: str = _UIDS["JobSet"],
    jobs: Iterable[JsonObject] | None = None,
    owned_by: JsonObject | None = None,
) -> JsonObject:
    """A JobSet; `jobs` are its replicated jobs, one named `node` by default."""
    spec: JsonObject = {"replicatedJobs": list(jobs) if jobs is not None else [replicated("node", count)]}
    if suspend is not None:
        spec["suspend"] = suspend
    reference = owned_by or owner("TrainJob", NAME, _UIDS["TrainJob"])
    return {
        "apiVersion": names.JOBSETS.api_version,
        "kind": "JobSet",
        "metadata": _metadata(name, TEAM, uid, deleting, ownerReferences=[reference]),
        "spec": spec,
        "status": {"conditions": conditions({"Suspended": bool(suspend)})},
    }


def replicated(
    name: str, count: int | str | None = 1, *, replicas: int = 1, depends_on: Mapping[str, str] | None = None
) -> JsonObject:
    """A replicated job of a JobSet."""
    found: JsonObject = {"name": name, "replicas": replicas, "template": {"spec": {"template": counted(count)}}}
    if depends_on:
        found["dependsOn"] = [{"name": needed, "status": status} for needed, status in depends_on.items()]
    return found


def job(
    count: int | str | None = 1,
    *,
    replicated_job: str = "node",
    index: int = 0,
    of: str = NAME,
    jobset_uid: str = _UIDS["JobSet"],
    suspend: bool | None = True,
    started: bool = False,
    status: Mapping[str, bool | str] | None = None,
    active: int | None = None,
    terminating: int | None = None,
    ready: int | None = None,
    parallelism: int = 1,
    labelled: bool = True,
) -> JsonObject:
    """A batch Job of a JobSet; by default suspended, and seen to be."""
    said: JsonObject = {"conditions": conditions({"Suspended": True} if status is None else status)}
    numbers = {"active": active, "terminating": terminating, "ready": ready}
    said |= {key: value for key, value in numbers.items() if value is not None}
    if started:
        said["startTime"] = T0
    spec: JsonObject = {"parallelism": parallelism, "template": counted(count)}
    if suspend is not None:
        spec["suspend"] = suspend
    name = f"{of}-{replicated_job}-{index}"
    labels = {names.JOBSET_NAME: of, names.REPLICATED_JOB: replicated_job} if labelled else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(
            name,
            TEAM,
            f"{_UIDS['Job']}-{replicated_job}-{index}",
            labels=labels,
            ownerReferences=[owner("JobSet", of, jobset_uid)],
        ),
        "spec": spec,
        "status": said,
    }


def pod(
    phase: str | None = "Running",
    *,
    name: str = f"{NAME}-node-0-0-x7k2p",
    namespace: str = TEAM,
    count: int | str | None = 1,
    node: str | None = "node-a",
    deleting: bool = False,
    containers: Iterable[str] | None = ("running",),
    jobset_uid: str = _UIDS["JobSet"],
    of: str = NAME,
    owned: bool = True,
    gates: Iterable[str] = (),
) -> JsonObject:
    """A pod of a job; `containers` are the states of its containers, None where none is reported."""
    labels = {
        names.JOBSET_NAME: of,
        "jobset.sigs.k8s.io/jobset-uid": jobset_uid,
        names.REPLICATED_JOB: "node",
        names.RESTART_ATTEMPT: "0",
    }
    said: JsonObject = {} if phase is None else {"phase": phase}
    if containers is not None:
        said["containerStatuses"] = [
            {"name": f"c{index}", "state": {state: {}} if state else {}} for index, state in enumerate(containers)
        ]
    spec: JsonObject = {"containers": [{"name": "c0"}]}
    if node is not None:
        spec["nodeName"] = node
    if gates:
        spec["schedulingGates"] = [{"name": gate} for gate in gates]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(
            name,
            namespace,
            f"uid-{name}",
            deleting,
            labels=labels,
            annotations={} if count is None else {names.ADMISSION_COUNT: str(count)},
            ownerReferences=[owner("Job", f"{of}-node-0", "uid-job-node-0")] if owned else [],
        ),
        "spec": spec,
        "status": said,
    }


def runtime(*jobs: str, kind: str = "ClusterTrainingRuntime", name: str = RUNTIME) -> JsonObject:
    """A training runtime with these replicated jobs."""
    metadata: JsonObject = {"name": name, "uid": f"uid-{name}"}
    if kind == names.TRAINING_RUNTIMES.kind:
        metadata["namespace"] = TEAM
    replicated_jobs = [{"name": job_name, "replicas": 1} for job_name in jobs or ("node",)]
    return {
        "apiVersion": names.TRAINING_RUNTIMES.api_version,
        "kind": kind,
        "metadata": metadata,
        "spec": {"template": {"spec": {"replicatedJobs": replicated_jobs}}},
    }


def admission_check(name: str = CHECK, controller: str = names.CONTROLLER_NAME, **status: Any) -> JsonObject:
    """An AdmissionCheck."""
    return {
        "apiVersion": names.ADMISSION_CHECKS.api_version,
        "kind": "AdmissionCheck",
        "metadata": {"name": name, "uid": f"uid-{name}", "generation": 1},
        "spec": {"controllerName": controller},
        "status": status,
    }
