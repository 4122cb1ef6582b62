"""The Pulumi programs of these tests, and what they left in the cluster."""

from __future__ import annotations

from typing import Any

from dispatch_gates.contract import names
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.contract.trainjob import TrainJob, parse_trainjob
from dispatch_gates.resources import GatedJob, GatedTrainJob, JobIdentity
from resources.stacks import PROJECT, Program, Stack
from world import World


def inputs(world: World, **changes: Any) -> dict[str, Any]:
    """Return the inputs that the jobs of these tests share; None takes one out."""
    plain = {
        "namespace": world.namespace,
        "queue": "queue",
        "runtime": "kwok",
        "runtime_kind": "TrainingRuntime",
        "nodes": 1,
        "resources_per_node": {"cpu": "50m"},
        "env": {"EPOCHS": "3"},
        "spec": {"trainer": {"numProcPerNode": 1}},
        "workload_timeout_seconds": 300,
    }
    return {key: value for key, value in {**plain, **changes}.items() if value is not None}


def component(given: dict[str, Any], name: str = "train", **changes: Any) -> Program:
    """Return a program of one `GatedJob`."""

    def program() -> None:
        GatedJob(name, **{**given, **changes})

    return program


def parts(given: dict[str, Any], *names: str, ulid: str | None = None, **changes: Any) -> Program:
    """Return a program of a `GatedTrainJob`, or of several, with a `JobIdentity` where no ULID is given."""

    def program() -> None:
        for name in names or ("job",):
            GatedTrainJob(name, ulid=ulid or JobIdentity("identity").ulid, **{**given, **changes})

    return program


def jobs_of(world: World, stack: Stack) -> list[JsonObject]:
    """Return the TrainJobs that a stack started."""
    mark = f"{PROJECT}/{stack.name}/"
    found = world.list(names.TRAINJOBS)
    return [raw for raw in found if raw["metadata"]["annotations"].get(names.OWNER, "").startswith(mark)]


def job_of(world: World, stack: Stack) -> TrainJob:
    """Return the one TrainJob that a stack started."""
    (raw,) = jobs_of(world, stack)
    return parse_trainjob(raw)


def remains_of(job: TrainJob, world: World) -> list[str]:
    """Return what there is of a job that should be gone."""
    found = [raw for raw in world.list(names.TRAINJOBS) if raw["metadata"]["uid"] == job.meta.uid]
    found += [raw for raw in world.list(names.JOBSETS) if raw["metadata"]["name"] == job.meta.name]
    for resource in (names.JOBS, names.PODS):
        found += world.list(resource, f"{names.JOBSET_NAME}={job.meta.name}")
    return [f"{raw.get('kind')} {raw['metadata']['name']}" for raw in found]
