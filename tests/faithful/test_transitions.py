"""The comparison of recorded transitions with the model's is worth something: the model cannot do just anything.

The comparison itself is `python -m faithful transitions LOG`, over the audit log of a real run: see tests/README.md.
"""

from __future__ import annotations

import pytest

from explorer.values import Job, Pod, TrainJob, Workload
from faithful.recorded import Transition
from faithful.transitions import possible

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
