"""What the real system did over this run is something that the explorer's model can do.

Aspects: every write to a TrainJob, Workload, JobSet, Job or pod of dispatch's jobs that the run's API server has
recorded, in the model's terms; a story of this file's own, so that there is one where nothing else ran; that the model
cannot do just anything. What is left out of the comparison is in tests/README.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dispatch_local.cluster import Cluster
from explorer.values import Job, Pod, TrainJob, Workload
from faithful.recorded import Transition, recorded
from faithful.transitions import compared, possible
from world import Deployment, World, until

NAME = "dj-01jdqm3zk0tb6q8e8m2a9v4c5d-s1"
LEAST = 40
"""How many transitions the story alone makes; a whole run makes thousands."""
EVICTED = Workload(reserved=True, admitted=True, evicted=True, check="Pending")
BEYOND = {
    "the check is set Ready while an eviction is going on": Transition(
        "controller", "Workload", EVICTED, EVICTED._replace(check="Ready")
    ),
    "the check is reset by anybody but Kueue": Transition(
        "Trainer", "Workload", Workload(reserved=True, check="Ready"), Workload(reserved=True, check="Pending")
    ),
    "A is lowered": Transition(
        "controller", "TrainJob", TrainJob(suspend=True, rank=1), TrainJob(suspend=True, rank=0)
    ),
    "Kueue raises A": Transition("Kueue", "TrainJob", TrainJob(suspend=True, rank=0), TrainJob(suspend=True, rank=1)),
    "the gate comes back": Transition(
        "people", "TrainJob", TrainJob(suspend=True, rank=0), TrainJob(suspend=True, rank=0, gate=True)
    ),
    "a Job that runs is given another A": Transition(
        "JobSet", "Job", Job(suspend=False, rank=0, started=True), Job(suspend=False, rank=1, started=True)
    ),
    "a pod that is being deleted is let live": Transition(
        "kubelet", "Pod", Pod(0, "Running", deleting=True), Pod(0, "Running")
    ),
}


@pytest.fixture(scope="module")
def model() -> set[Transition]:
    return possible()


@pytest.mark.parametrize("transition", BEYOND.values(), ids=BEYOND.keys())
def test_the_model_cannot_do_anything(model: set[Transition], transition: Transition) -> None:
    assert transition not in model


def _write(version: int, user: str, verb: str, code: int, *, suspend: bool = True) -> dict[str, Any]:
    about = {"name": NAME, "namespace": "team", "uid": "one", "resourceVersion": str(version)}
    return {
        "stage": "ResponseComplete",
        "verb": verb,
        "user": {"username": user},
        "objectRef": {"resource": "trainjobs", "namespace": "team", "name": NAME},
        "responseStatus": {"code": code},
        "responseObject": {"kind": "TrainJob", "metadata": about, "spec": {"suspend": suspend}},
    }


TRAINER, ME = "system:serviceaccount:kubeflow-system:trainer", "someone"
COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"
CREATED = _write(1, ME, "create", 201)
RESUMED = _write(2, TRAINER, "patch", 200, suspend=False)
LOST = {**_write(3, ME, "patch", 504), "responseObject": {"kind": "Status"}}
REFUSED = {**LOST, "responseStatus": {"code": 500, "message": 'failed calling webhook "it"'}}


@pytest.mark.parametrize(
    ("log", "compares"),
    [
        pytest.param([CREATED, RESUMED], 2, id="all of it"),
        pytest.param([RESUMED, CREATED], 2, id="answered in another order"),
        pytest.param([RESUMED], 0, id="a create that the log does not have"),
        pytest.param([CREATED, LOST, RESUMED], 0, id="a write that may have been carried out"),
        pytest.param([CREATED, REFUSED, RESUMED], 2, id="a write that a webhook has refused"),
    ],
)
def test_what_may_lack_a_write_is_not_compared(tmp_path: Path, log: list[dict[str, Any]], compares: int) -> None:
    path = tmp_path / "audit.log"
    path.write_text("".join(f"{json.dumps(event)}\n" for event in log))
    found = [each.what.actor for each in recorded(path) if not each.left_out]
    assert found == ["people", "Trainer"][:compares]


def test_what_came_of_an_end_stands_after_it_in_whatever_order_it_was_answered(tmp_path: Path) -> None:
    ended = _write(1, ME, "delete", 200) | {"responseObject": {"kind": "Status"}}
    jobset = _write(2, TRAINER, "create", 201)
    jobset["objectRef"] = {**jobset["objectRef"], "resource": "jobsets"}
    jobset["responseObject"] = {
        **jobset["responseObject"],
        "metadata": CREATED["responseObject"]["metadata"] | {"uid": "two", "resourceVersion": "2"},
    }
    collected = {**jobset, "verb": "delete", "user": {"username": COLLECTOR}, "responseObject": {"kind": "Status"}}
    log = [
        CREATED | {"requestReceivedTimestamp": "1", "stageTimestamp": "2"},
        jobset | {"requestReceivedTimestamp": "3", "stageTimestamp": "4"},
        collected | {"requestReceivedTimestamp": "6", "stageTimestamp": "7"},
        ended | {"requestReceivedTimestamp": "5", "stageTimestamp": "8"},
    ]
    path = tmp_path / "audit.log"
    path.write_text("".join(f"{json.dumps(event)}\n" for event in log))
    assert [(each.what.kind, each.what.after is None) for each in recorded(path)] == [
        ("TrainJob", False),
        ("JobSet", False),
        ("TrainJob", True),
        ("JobSet", True),
    ]


def test_the_model_can_do_what_was_recorded(cluster: Cluster, tmp_path: Path, model: set[Transition]) -> None:
    world = World(cluster).make()
    with Deployment(world, tmp_path, "transitions"):
        job = world.started_and_opened()
        world.running(job, 1)
        world.preempt()
        world.running(job, 2)
        world.hold(job)
        # Released sooner, it may run on as it did: Kueue need not have seen the hold.
        until("the quota to be given back", lambda: world.condition(job, "QuotaReserved") == "False")
        world.release(job)
        world.running(job, 3)
        world.stop(job)
    found = compared(recorded(cluster.audit_log), model)
    print(found)
    assert not found.strange, str(found)
    assert found.same >= LEAST, str(found)
