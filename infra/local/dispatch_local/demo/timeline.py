"""The timeline: what each job waited for, and which execution ran when. Facts and times in, spans out.

Facts come from a watch or, afterwards, from the API server's audit log. `svg.py` and `bars.py` draw it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from dispatch_gates.contract import names
from dispatch_gates.contract.execution import Pod, parse_pod
from dispatch_gates.contract.objects import MalformedError
from dispatch_gates.contract.trainjob import TrainJob, parse_trainjob
from dispatch_gates.contract.workload import State, Workload, parse_workload
from dispatch_local.demo.watching import Fact, Object


class Kind(StrEnum):
    """What a span of time was."""

    GATED = "gated"
    HELD = "held"
    QUOTA = "waiting for quota"
    CHECK = "waiting at the check"
    OLD_PODS = "waiting for the old pods"
    STARTING = "starting"
    RUNS = "running"
    ENDS = "told to end"


@dataclass
class Span:
    """From `begin` to `end`, in seconds on the clock of the facts; `end` is None while it lasts."""

    kind: Kind
    begin: float
    end: float | None = None
    a: str = ""


@dataclass
class Run:
    """One execution: the pods of a job that carry the same A. `pods` says of each whether it may still run."""

    a: str
    began: float | None = None
    told: float | None = None
    over: float | None = None
    pods: dict[str, bool] = field(default_factory=dict)

    def spans(self) -> Iterator[Span]:
        """Yield the time it ran, and the time it ran on after it was told to end."""
        if self.began is None:
            return
        told = self.told if self.told is not None and self.told > self.began else None
        yield Span(Kind.RUNS, self.began, self.over if told is None else told, self.a)
        if told is not None:
            yield Span(Kind.ENDS, told, self.over, self.a)


@dataclass
class Track:
    """One job: its waits one after another, and its executions, which must not overlap."""

    title: str
    waits: list[Span] = field(default_factory=list)
    runs: dict[str, Run] = field(default_factory=dict)
    recorded: float | None = None
    job: TrainJob | None = None
    workload: Workload | None = None

    def rows(self) -> tuple[list[Span], list[Span]]:
        """Return the waits and the executions."""
        return self.waits, [span for run in self.runs.values() for span in run.spans()]

    def wait(self) -> Kind | None:
        """Return what the job waits for now; None while it runs, winds down, or has ended.

        1. Ended, or gone: nothing.
        2. Not opened: the start gate. It comes before the hold, which an unopened job may carry as well.
        3. Held.
        4. Kueue mode: quota first, then the check. There, what it waits for is the old pods while any may run.
        5. Let go, and no pod of this A was seen yet: it is starting.
        """
        job, workload = self.job, self.workload
        if job is None or job.ended:
            return None
        if not job.past_gate:
            return Kind.GATED
        if job.held:
            return Kind.HELD
        busy = any(run.over is None for run in self.runs.values())
        if job.kueue_mode:
            if workload is None or not workload.reserved:
                return Kind.QUOTA
            check = workload.entry({names.ADMISSION_CHECK})
            if check is not None and check.state != State.READY:
                return Kind.OLD_PODS if busy else Kind.CHECK
        ran = str(job.count) in self.runs
        return None if busy or ran else Kind.STARTING


class Timeline:
    """All tracks, by the TrainJob's name. The label `label` names a job for people; jobs without it are left out."""

    def __init__(self, label: str) -> None:
        self._label = label
        self.tracks: dict[str, Track] = {}
        self._versions: dict[str, int] = {}

    def take(self, at: float, fact: Fact) -> None:
        """Take in one fact seen at `at` (seconds). What is older than what is known, or of no job, is left out."""
        if fact.kind == "record":
            track = self.tracks.get(str(fact.body.get("name")))
            if track is not None and track.recorded is None:
                track.recorded = at
            return
        if fact.kind not in {"trainjob", "workload", "pod"}:
            return
        try:
            track = self._taken(at, fact)
        except MalformedError:
            return
        if track is not None:
            _note(track.waits, track.wait(), at)

    def _taken(self, at: float, fact: Fact) -> Track | None:
        body = dict(fact.body)
        if fact.kind == "trainjob":
            job = parse_trainjob(body)
            title = job.meta.labels.get(self._label)
            if title is None or self._is_old(job.meta.uid, job.meta.resource_version):
                return None
            mine = self.tracks.setdefault(job.meta.name, Track(title))
            mine.job = None if fact.change == "DELETED" else job
            return mine
        if fact.kind == "workload":
            workload = parse_workload(body)
            owner = workload.meta.owner
            track = self.tracks.get(owner.name if owner else "")
            if track is None or self._is_old(workload.meta.uid, workload.meta.resource_version):
                return None
            track.workload = None if fact.change == "DELETED" else workload
            return track
        pod = parse_pod(body)
        track = self.tracks.get(pod.meta.labels.get(names.JOBSET_NAME, ""))
        if track is None or self._is_old(pod.meta.uid, pod.meta.resource_version):
            return None
        _pod(track, pod, at, fact.change == "DELETED")
        return track

    def _is_old(self, uid: str, version: str) -> bool:
        number = int(version)
        if number < self._versions.get(uid, 0):
            return True
        self._versions[uid] = number
        return False

    def begin(self) -> float:
        """Return when the first thing was seen; 0 if nothing was."""
        return min((span.begin for track in self.tracks.values() for span in track.waits), default=0.0)

    def end(self) -> float:
        """Return when the last thing seen began or ended; 0 if nothing was seen."""
        rows = [row for track in self.tracks.values() for row in track.rows()]
        return max((span.begin if span.end is None else span.end for row in rows for span in row), default=0.0)


def _note(waits: list[Span], kind: Kind | None, at: float) -> None:
    """End the last wait where another begins."""
    last = waits[-1] if waits and waits[-1].end is None else None
    if last is not None and last.kind == kind:
        return
    if last is not None:
        last.end = at
        if last.begin == at:
            waits.remove(last)
    if kind is not None:
        waits.append(Span(kind, at))


def _pod(track: Track, pod: Pod, at: float, gone: bool) -> None:
    a = str(pod.count) if isinstance(pod.count, int) else "?"
    run = track.runs.setdefault(a, Run(a))
    if pod.phase not in {"", "Pending"} and run.began is None:
        run.began = at
    if pod.meta.deleting and run.told is None and pod.may_run:
        run.told = at
    run.pods[pod.meta.uid] = pod.may_run and not gone
    run.over = None if any(run.pods.values()) else run.over or at


def from_audit_log(lines: Iterable[str]) -> Iterator[tuple[float, Fact]]:
    """Yield the writes that a timeline shows, with their times (Unix), out of an audit log with response bodies."""
    kinds = {"trainjobs": "trainjob", "workloads": "workload", "pods": "pod"}
    for line in lines:
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError:
            continue  # the last line, being written
        ref: Object = event.get("objectRef") or {}
        kind = kinds.get(str(ref.get("resource")))
        body = event.get("responseObject") or {}
        done = event.get("stage") == "ResponseComplete" and event.get("responseStatus", {}).get("code", 0) < 300
        if kind is None or not done or "metadata" not in body or ref.get("subresource") not in (None, "status"):
            continue
        if event.get("verb") in {"get", "list", "watch"} or "dryRun=" in event.get("requestURI", ""):
            continue
        # An answer with a body to a deletion is the object as it was; it is gone where no grace was asked for.
        options: Object = event.get("requestObject") or {}
        gone = event["verb"] == "delete" and (kind != "pod" or options.get("gracePeriodSeconds") == 0)
        at = datetime.fromisoformat(event["stageTimestamp"]).timestamp()
        for each in body.get("items", [body]):
            yield at, Fact(kind, "DELETED" if gone else "MODIFIED", each)
