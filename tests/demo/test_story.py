"""The demo's story and its own criticism, by hand-made facts.

Aspects: each new fact is told once; a check's wait names the pod; a finished story has no problem, and each
way in which it can go wrong is one; the record is read from Pulumi's state files.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dispatch_gates.contract import names
from dispatch_gates.contract.count import runtime_patch
from dispatch_local.demo.play import problems
from dispatch_local.demo.story import LABEL, Execution, Job, Line, Story
from dispatch_local.demo.watching import Fact, recorded

NAME = "dj-01jdqm3zk0tb6q8e8m2a9v4c5d-s1"


class Seen:
    """A story that keeps what it says."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.now = 0.0
        self.story = Story(self._say, lambda: self.now)

    def _say(self, line: Line) -> None:
        self.lines.append(f"{line.job}: {line.text}")

    def fact(self, kind: str, body: dict[str, Any], change: str = "MODIFIED") -> list[str]:
        """Tell one fact; return what was said about it."""
        self.now += 1
        before = len(self.lines)
        body.setdefault("metadata", {}).setdefault("resourceVersion", "1")
        self.story.tell(Fact(kind, change, body))
        return self.lines[before:]

    def job(self, a: int = 0, gated: bool = True, **status: Any) -> list[str]:
        return self.fact(
            "trainjob",
            {
                "metadata": {
                    "name": NAME,
                    "uid": "u",
                    "namespace": "n",
                    "labels": {LABEL: "patient"},
                    "annotations": {names.ADMISSION_GATED_BY: names.GATE} if gated else {},
                },
                "spec": {"suspend": True, "runtimePatches": [runtime_patch(a, ["node"])]},
                "status": status,
            },
        )

    def workload(self, state: str, message: str, *true: str) -> list[str]:
        owner = {"apiVersion": "a/v1", "kind": "TrainJob", "name": NAME, "uid": "u", "controller": True}
        return self.fact(
            "workload",
            {
                "metadata": {"name": "w", "uid": "w", "ownerReferences": [owner]},
                "status": {
                    "admission": {"clusterQueue": "q"},
                    "conditions": [{"type": each, "status": "True", "reason": "Preempted"} for each in true],
                    "admissionChecks": [{"name": names.ADMISSION_CHECK, "state": state, "message": message}],
                },
            },
        )

    def pod(self, phase: str, change: str = "MODIFIED", deleting: bool = False) -> list[str]:
        meta: dict[str, Any] = {
            "name": "p1",
            "uid": "p",
            "labels": {names.JOBSET_NAME: NAME},
            "annotations": {names.ADMISSION_COUNT: "1"},
        }
        if deleting:
            meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return self.fact("pod", {"metadata": meta, "spec": {"nodeName": "real"}, "status": {"phase": phase}}, change)


def test_tells_each_fact_once() -> None:
    seen = Seen()
    assert seen.job() == [
        f"patient: started: TrainJob {NAME}",
        "patient:   suspended, gated by dispatch.phpboyscout.uk/gate, A=0, uid u",
    ]
    assert seen.job() == []
    (said,) = seen.fact("record", {"name": NAME, "uid": "u"})
    assert said.endswith("holds name and uid")
    assert seen.job(gated=False) == ["patient: opened: the gate entry is gone from the TrainJob; no pod so far"]
    assert seen.workload("Pending", "", "QuotaReserved") == ["patient: quota reserved in ClusterQueue q"]
    assert seen.job(1, gated=False) == ["patient: A=1 (was 0)"]
    assert seen.workload("Ready", "A=1", "QuotaReserved", "Admitted") == [
        "patient: check dispatch is Ready: A=1",
        "patient: admitted by Kueue",
    ]
    assert seen.pod("Pending") == ["patient: pod p1 is created and carries A=1"]
    assert seen.pod("Running") == ["patient: pod runs on node real"]
    assert seen.fact("log", {"pod": "p1", "text": "hello"}) == ["patient: its pod says: hello"]
    assert seen.pod("Running", deleting=True) == ["patient: the pod is told to end"]
    assert seen.workload("Pending", "waits for pod p1", "QuotaReserved") == [
        "patient: check dispatch is Pending: waits for pod p1"
    ]
    assert seen.story.jobs["patient"].waited_for == ["p1"]
    assert seen.pod("Failed", deleting=True) == ["patient: the pod is over (Failed)"]
    assert seen.pod("Failed", "DELETED", deleting=True) == ["patient: pod p1 is gone"]
    assert seen.job(1, gated=False, conditions=[{"type": "Complete", "status": "True"}]) == [
        "patient: TrainJob is Complete"
    ]


def test_what_is_not_of_the_demo_is_not_told() -> None:
    seen = Seen()
    assert seen.pod("Running") == []
    assert seen.workload("Pending", "x", "QuotaReserved") == []
    assert seen.fact("trainjob", {"metadata": {"name": "mine", "uid": "m"}}) == []


def good() -> tuple[Job, Job]:
    def execution(pod: str, a: str, created: float) -> Execution:
        return Execution(pod, a, created, created, created + 1, said=[f"A={a}: I was given this admission count"])

    patient = Job("patient", NAME, "u", "n", pods_when_opened=0, evicted="Preempted", waited_for=["p1"])
    patient.executions = {"p1": execution("p1", "1", 1), "p2": execution("p2", "2", 3)}
    urgent = Job("urgent", "other", "v", "n", pods_when_opened=0)
    urgent.executions = {"p3": execution("p3", "1", 2)}
    return patient, urgent


def test_a_good_story_has_no_problem() -> None:
    assert problems(*good()) == []


def same_count(patient: Job, _urgent: Job) -> None:
    patient.executions["p2"].a = "1"


def overlap(patient: Job, _urgent: Job) -> None:
    patient.executions["p1"].ended = 3.5


def never_over(patient: Job, _urgent: Job) -> None:
    patient.executions["p1"].ended = None


def pod_before_open(_patient: Job, urgent: Job) -> None:
    urgent.pods_when_opened = 1


def told_another_count(patient: Job, _urgent: Job) -> None:
    patient.executions["p2"].said = ["A=1: I was given this admission count"]


def silent_wait(patient: Job, _urgent: Job) -> None:
    patient.waited_for = []


def other_eviction(patient: Job, _urgent: Job) -> None:
    patient.evicted = "PodsReadyTimeout"


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (same_count, "expected 2 executions, each with a higher A, seen ['1', '1']"),
        (overlap, "pod p2 was created before pod p1 was over"),
        (never_over, "pod p2 was created before pod p1 was over"),
        (pod_before_open, "urgent: expected no pod when it was opened, seen 1"),
        (told_another_count, "pod p2: expected it to say A=2"),
        (silent_wait, "the check never said that it waits for pod 'p1'"),
        (other_eviction, "expected to be evicted as Preempted, seen PodsReadyTimeout"),
    ],
)
def test_a_bad_story_has_a_problem(spoil: Callable[[Job, Job], None], expected: str) -> None:
    jobs = good()
    spoil(*jobs)
    assert any(expected in problem for problem in problems(*jobs))


def test_the_record_is_what_the_state_file_holds(tmp_path: Path) -> None:
    stacks = tmp_path / ".pulumi" / "stacks" / "dispatch-demo"
    stacks.mkdir(parents=True)
    job = {"type": "pulumi-python:dispatch:GatedTrainJob", "outputs": {"name": NAME, "uid": "u"}}
    other = {"type": "pulumi:pulumi:Stack"}
    (stacks / "demo.json").write_text(json.dumps({"checkpoint": {"latest": {"resources": [other, job]}}}))
    (stacks / "half.json").write_text('{"checkpoint": {"lat')
    assert [resource["outputs"] for resource in recorded(tmp_path)] == [{"name": NAME, "uid": "u"}]
