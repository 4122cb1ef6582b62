"""The demo as a user runs it, on a real cluster, judged by the API server's audit log.

Aspects: it ends well and says what it promises to say; create comes before Pulumi's record, the record before
Open, Open before any pod, A=1 before the first pod, the old pod's end before A=2, A=2 before the second pod;
the judge finds nothing; Ctrl-C at random moments leaves nothing behind, and the next try works, also over a cluster
that an earlier demo left up.

Nothing is asserted about the order from what the product prints: only from the audit log and from the times
at which Pulumi had written its state.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dispatch_gates.audit import Job, Moment, Timeline, read
from dispatch_local.demo.stage import NAMESPACE, Stage
from dispatch_local.layout import Layout
from interrupting import SEED
from local_cluster.surroundings import Surroundings, assert_nothing_left, interrupted, run

NAME = "demo-test"
# How many random moments, out of about how long it takes: more in `make soak-local`.
MOMENTS = int(os.environ.get("DISPATCH_MOMENTS", "1"))
STORY_SECONDS = 90.0


def recorded(folder: Path) -> dict[str, datetime]:
    """Return when Pulumi's state first held each job, by name. Every state is kept, named by when it was there."""
    seen: dict[str, datetime] = {}
    for path in folder.glob(".pulumi/stacks/**/*.json.*"):
        if not path.suffix[1:].isdecimal():
            continue
        written = datetime.fromtimestamp(int(path.suffix[1:]) / 1e9, UTC)
        for resource in (json.loads(path.read_text())["checkpoint"].get("latest") or {}).get("resources") or []:
            if resource["type"].endswith(":GatedTrainJob") and (resource.get("outputs") or {}).get("uid"):
                name = resource["outputs"]["name"]
                seen[name] = min(written, seen.get(name, written))
    return seen


@dataclass(frozen=True)
class Played:
    """What one run of the demo left to be judged."""

    output: str
    timeline: Timeline
    records: dict[str, datetime]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    stage = Stage(NAME, print)
    yield stage
    stage.cluster.down()


@pytest.fixture(scope="module")
def played(stage: Stage) -> Played:
    """Play it over a cluster that is up."""
    assert run(NAME, "up", "--without-node").code == 0
    done = run(NAME, "demo", env={"PULUMI_DIY_BACKEND_RETAIN_CHECKPOINTS": "true"})
    print(done.text)
    assert done.code == 0, done.text
    return Played(done.text, read([stage.cluster.audit_log]), recorded(stage.state))


@pytest.fixture
def jobs(played: Played) -> list[Job]:
    """Return the jobs of the demo, the one with the most executions first; probes of preflight are not jobs."""
    found = [
        job
        for job in played.timeline.jobs.values()
        if job.key.startswith(f"{NAMESPACE}/") and not job.key.endswith("-s0")
    ]
    return sorted(found, key=lambda job: -len(job.resumes))


def time_of(moment: Moment | None) -> datetime:
    assert moment is not None
    return datetime.fromisoformat(moment.time)


def test_ctrl_c_at_random_moments_leaves_nothing(stage: Stage) -> None:
    """The first test here: what follows is the next try."""
    print(f"DISPATCH_SEED={SEED}")
    moments, layout = random.Random(SEED), Layout(NAME)
    stage.cluster.down()
    before = Surroundings.see(layout)
    for _ in range(MOMENTS):
        done = interrupted(NAME, ("demo",), moments.uniform(0, STORY_SECONDS))
        if done.code == 0:
            assert run(NAME, "down").code == 0
        assert_nothing_left(layout, before)


def test_tells_the_story(played: Played) -> None:
    for said in (
        "is up from an earlier demo: taking it down first",
        "recorded: Pulumi's state on disk holds name and uid",
        "opened: the gate entry is gone from the TrainJob; no pod so far",
        "quota reserved in ClusterQueue",
        r"A=\d+: I was given this admission count",
        "evicted, Preempted",
        "check dispatch is Pending",
        "resuming after epoch",
        r"FENCED, nothing written: a checkpoint of submission 1, A=\d+, restart attempt 0 is there; "
        "this execution was given submission 1, A=1, restart attempt 0",
        "Take it all down with",
    ):
        assert re.search(said, played.output), said


def test_the_judge_finds_nothing(played: Played) -> None:
    assert played.timeline.violations() == []


def test_one_job_ran_twice_and_the_other_once(jobs: list[Job]) -> None:
    """A is higher each time: 1 and 2, unless a raise lost a race and was not used."""
    counts = [[a for a, _ in job.resumes] for job in jobs]
    assert [len(each) for each in counts] == [2, 1]
    for job, each in zip(jobs, counts, strict=True):
        assert each == sorted({a for a in each if a})
        assert sorted(pod.a or 0 for pod in job.pods.values()) == each


def test_each_job_was_created_closed_before_it_was_recorded_and_recorded_before_it_was_opened(
    jobs: list[Job], played: Played
) -> None:
    for job in jobs:
        assert job.created_closed
        recorded = played.records[job.key.partition("/")[2]]
        assert time_of(job.created) < recorded < time_of(job.opened)


def test_no_pod_before_open_and_each_count_before_its_pod(jobs: list[Job]) -> None:
    for job in jobs:
        assert job.opened is not None
        assert all(pod.created > job.opened for pod in job.pods.values())
        for a in {pod.a for pod in job.pods.values()}:
            assert a is not None
            raised = job.raised_to(a)
            assert raised is not None
            assert all(raised < pod.created for pod in job.pods_of(a))


def test_the_old_pod_was_over_before_the_count_was_raised_again(jobs: list[Job]) -> None:
    twice = jobs[0]
    first, second = (a for a, _ in twice.resumes)
    assert first is not None
    assert second is not None
    over, raised = twice.pods_of(first)[0].over, twice.raised_to(second)
    assert over is not None
    assert raised is not None
    assert over < raised
