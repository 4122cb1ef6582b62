"""Jobs that dispatch did not start, in a queue of dispatch's: how soon their check is Ready, and beside what."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dispatch_gates.contract import names
from dispatch_gates.contract.names import Resource
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.contract.trainjob import TrainJob
from world import World, until

CREATORS = 8


def all_frameworks(configuration: JsonObject) -> None:
    """Edit Kueue's configuration: it looks after batch Jobs and JobSets, too."""
    configuration["integrations"]["frameworks"] += ["batch/job", "jobset.x-k8s.io/jobset"]


def _pod() -> JsonObject:
    return {
        "restartPolicy": "Never",
        "nodeSelector": {"dispatch.local/node": "kwok"},
        "tolerations": [{"key": "dispatch.local/kwok", "operator": "Exists"}],
        "containers": [
            {"name": "main", "image": "dispatch.local/pause:1", "resources": {"requests": {"cpu": "10m"}}},
        ],
    }


def _trainjob() -> JsonObject:
    return {
        "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "kwok"},
        "trainer": {"resourcesPerNode": {"requests": {"cpu": "10m"}}},
    }


def _job() -> JsonObject:
    return {"suspend": True, "backoffLimit": 0, "template": {"spec": _pod()}}


def _jobset() -> JsonObject:
    return {"suspend": True, "replicatedJobs": [{"name": "main", "template": {"spec": _job() | {"suspend": False}}}]}


FOREIGN: dict[str, tuple[Resource, Callable[[], JsonObject]]] = {
    "TrainJob": (names.TRAINJOBS, _trainjob),
    "Job": (names.JOBS, _job),
    "JobSet": (names.JOBSETS, _jobset),
}


def waved_through(world: World, kind: str, name: str) -> float:
    """Create a foreign job in the queue, wait until its check is Ready and its pod is there; return the seconds."""
    resource, spec = FOREIGN[kind]
    began = time.monotonic()
    created = world.create(resource, name, metadata={"labels": {names.QUEUE_NAME: "queue"}}, spec=spec())
    uid = created["metadata"]["uid"]

    def ready() -> str | None:
        for workload in world.list(names.WORKLOADS, f"{names.JOB_UID}={uid}"):
            for entry in (workload.get("status") or {}).get("admissionChecks") or []:
                if entry["name"] == world.ours and entry["state"] == "Ready":
                    return str(entry["message"])
        return None

    message = until(f"the check of {kind} {name} to be Ready", ready)
    seconds = time.monotonic() - began
    assert message.startswith("Not a job of dispatch's"), message
    until(f"a pod of {kind} {name}", lambda: any(name in pod["metadata"]["name"] for pod in world.list(names.PODS)))
    return seconds


def keep_waiting(world: World, job: TrainJob, number: int) -> None:
    """Have so many Workloads with quota wait at the check, for the end of a job of dispatch's that does not end.

    They belong to a Job of that job, so that each is followed to its TrainJob, and its pods are looked at.
    """
    (batch,) = world.list(names.JOBS, f"{names.JOBSET_NAME}={job.meta.name}")
    metadata = batch["metadata"]
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    pod_sets: list[Any] = [{"name": "main", "count": 1, "template": {"spec": _pod()}}]

    def create(index: int) -> None:
        spec = {"queueName": "queue", "podSets": pod_sets}
        world.create(names.WORKLOADS, f"waiting-{index}", metadata={"ownerReferences": [owner]}, spec=spec)

    with ThreadPoolExecutor(CREATORS) as pool:
        list(pool.map(create, range(number)))
    until(
        f"{number} Workloads to wait at the check", lambda: waiting(world) == number, 60 + number, pause=number / 1000
    )


def waiting(world: World) -> int:
    """Count the Workloads of `keep_waiting` that have quota and whose check says what it waits for."""
    found = 0
    for workload in world.list(names.WORKLOADS):
        if workload["metadata"]["name"].startswith("waiting-"):
            entries = (workload.get("status") or {}).get("admissionChecks") or []
            found += any(
                entry["name"] == world.ours and entry["message"].startswith("StillRunning") for entry in entries
            )
    return found
