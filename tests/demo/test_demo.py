"""The demo as a user runs it, on a real cluster, judged by the API server's audit log.

Aspects: it ends well and says what it promises to say; create comes before Pulumi's record, the record before
Open, Open before any pod, A=1 before the first pod, the old pod's end before A=2, A=2 before the second pod;
the judge finds nothing; Ctrl-C in the middle leaves nothing behind, and a second try works.

Nothing is asserted about the order from what the product prints: only from the audit log and from the times
at which Pulumi's state file changed.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dispatch_gates.audit import Job, Moment, Timeline, read
from dispatch_local.demo.stage import NAMESPACE, Stage

NAME = "demo-test"
SECONDS = 900  # generous: a cold cache builds images first


@dataclass
class Records:
    """When Pulumi's state file first held each job, by name: seen by looking at the file, as it changes."""

    folder: Path
    seen: dict[str, datetime] = field(default_factory=dict)
    stopped: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        while not self.stopped.wait(0.02):
            for path in self.folder.glob(".pulumi/stacks/**/*.json"):
                try:
                    written = path.stat().st_mtime
                    checkpoint = json.loads(path.read_text())["checkpoint"]
                except (OSError, ValueError, KeyError):
                    continue  # being replaced: the next look sees it
                for resource in (checkpoint.get("latest") or {}).get("resources") or []:
                    if resource["type"].endswith(":GatedTrainJob") and (resource.get("outputs") or {}).get("uid"):
                        self.seen.setdefault(resource["outputs"]["name"], datetime.fromtimestamp(written, UTC))


@dataclass(frozen=True)
class Played:
    """What one run of the demo left to be judged."""

    output: str
    code: int
    timeline: Timeline
    records: dict[str, datetime]


def start() -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dispatch_local", "--name", NAME, "demo"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    stage = Stage(NAME, print)
    yield stage
    stage.cluster.down()


@pytest.fixture(scope="module")
def played(stage: Stage) -> Played:
    records = Records(stage.state)
    watcher = threading.Thread(target=records.watch, daemon=True)
    watcher.start()
    process = start()
    try:
        output, _ = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        records.stopped.set()
        watcher.join()
    print(output)
    assert process.returncode == 0, output
    return Played(output, process.returncode, read([stage.cluster.audit_log]), records.seen)


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


def test_tells_the_story(played: Played) -> None:
    for said in (
        "recorded: Pulumi's state on disk holds name and uid; no pod so far",
        "opened: the gate entry is gone",
        "quota reserved in ClusterQueue",
        r"A=\d+: I was given this admission count",
        "evicted, Preempted",
        "check dispatch is Pending",
        "resuming after epoch",
        r"FENCED, nothing written: a checkpoint of A=\d+ is there; this execution was given A=1",
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


def test_ctrl_c_in_the_middle_leaves_nothing_behind(played: Played, stage: Stage) -> None:
    """Also the second try: the cluster of the whole run is still up when this one begins."""
    assert played.code == 0
    process = start()
    assert process.stdout is not None
    seen = []
    with process.stdout:
        for line in process.stdout:
            seen.append(line)
            if "`pulumi up` in infra/" in line:
                process.send_signal(signal.SIGINT)
                break
        seen.append(process.stdout.read())
    assert process.wait(SECONDS) == 130, "".join(seen)
    assert "Interrupted: taking the demo's cluster down." in seen[-1]
    assert "Traceback" not in seen[-1]
    assert not stage.cluster.is_up()
    assert not stage.cluster.kubeconfig.parent.exists()
