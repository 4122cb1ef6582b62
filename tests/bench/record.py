"""Recording one job of a real cluster, evicted and with quota reserved again, as what the bench multiplies."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from dispatch_gates.contract import names
from dispatch_local.cluster import Cluster
from world import ControllerProcess, World, until

RECORDED = Path(__file__).with_name("recorded.json")


def record(cluster: Cluster) -> None:
    """Run a job once, evict it, and write down its objects at the moment at which the controller has to decide."""
    world = World(cluster, namespace="recorded").make()
    with TemporaryDirectory() as folder, ControllerProcess(world, Path(folder)) as controller:
        job = world.started_and_opened()
        pod = world.running(job, 1)
        until("the TrainJob to say that a pod is active", lambda: _active(world, job.meta.name))
        controller.kill()
    world.set_active(job, False)
    until("the quota to be given back", lambda: world.condition(job, "QuotaReserved") == "False")
    until("the old pod to be gone", lambda: not world.pods_of(job))
    world.set_active(job, True)
    until("quota to be reserved again", lambda: world.condition(job, "QuotaReserved") == "True")
    until("the Job controller to have counted the old pod's end", lambda: not _terminating(world, job.meta.name))
    objects = {
        "Workload": world.workload(job),
        "TrainJob": world.get(names.TRAINJOBS, job.meta.name),
        "JobSet": world.get(names.JOBSETS, job.meta.name),
        "Job": world.get(names.JOBS, f"{job.meta.name}-node-0"),
        "Pod": {"apiVersion": "v1", "kind": "Pod", **pod},  # as an item of a list it has neither
    }
    RECORDED.write_text(json.dumps(objects, indent=1, sort_keys=True) + "\n")


def _active(world: World, name: str) -> bool:
    raw = world.get(names.TRAINJOBS, name) or {}
    return any(entry.get("active") for entry in (raw.get("status") or {}).get("jobsStatus") or [])


def _terminating(world: World, name: str) -> object:
    raw = world.get(names.JOBS, f"{name}-node-0") or {}
    return raw["status"].get("terminating")
