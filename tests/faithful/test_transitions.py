"""What the real system did over this run is something that the explorer's model can do.

Aspects: every write to a TrainJob, Workload, JobSet, Job or pod of dispatch's jobs that the run's API server has
recorded, in the model's terms; a story of this file's own, so that there is one where nothing else ran; that the model
cannot do just anything. What is left out of the comparison is in tests/README.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatch_gates.cluster import run
from dispatch_gates.operations.holding import hold, release
from dispatch_local.cluster import Cluster
from explorer.values import Job, Pod, TrainJob, Workload
from faithful.recorded import Transition, recorded
from faithful.transitions import compared, possible
from world import Deployment, World, until

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


def test_the_model_can_do_what_was_recorded(cluster: Cluster, tmp_path: Path, model: set[Transition]) -> None:
    world = World(cluster).make()
    with Deployment(world, tmp_path, "transitions"):
        job = world.started_and_opened()
        world.running(job, 1)
        world.preempt()
        world.running(job, 2)
        run(world.target, hold(world.namespace, job.meta.name, job.meta.uid))
        # Released sooner, it may run on as it did: Kueue need not have seen the hold.
        until("the quota to be given back", lambda: world.condition(job, "QuotaReserved") == "False")
        run(world.target, release(world.namespace, job.meta.name, job.meta.uid))
        world.running(job, 3)
        world.stop(job)
    found = compared(recorded(cluster.audit_log), model)
    print(found)
    assert not found.strange, str(found)
    assert found.same >= LEAST, str(found)
