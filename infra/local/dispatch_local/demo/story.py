"""The story: what has been seen of each job, and the line that tells each new fact.

Nothing here asks anything or knows what should happen: facts go in, lines come out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dispatch_gates.contract import names
from dispatch_gates.contract.execution import parse_pod
from dispatch_gates.contract.gate import Gates
from dispatch_gates.contract.objects import text
from dispatch_gates.contract.trainjob import TrainJob, parse_trainjob
from dispatch_gates.contract.workload import Workload, parse_workload
from dispatch_local.demo.watching import Fact, Object

LABEL = "dispatch.local/demo"


@dataclass(frozen=True)
class Line:
    """One line of the story: `job` is the demo's short name of it, empty where no job is meant."""

    job: str
    text: str
    loud: bool = False


@dataclass
class Execution:
    """One pod of a job. Times are seconds since the story began."""

    pod: str
    a: str
    created: float
    started: float | None = None
    ended: float | None = None
    why: str = ""
    said: list[str] = field(default_factory=list)


@dataclass
class Job:
    """What has been seen of one job."""

    title: str
    name: str
    uid: str
    namespace: str
    ulid: str = ""
    recorded: bool = False
    opened: bool = False
    pods_when_opened: int | None = None
    held: bool = False
    a: object = 0
    ended: str | None = None
    evicted: str = ""
    waited_for: list[str] = field(default_factory=list)
    executions: dict[str, Execution] = field(default_factory=dict)
    workload: Workload | None = None

    @property
    def done(self) -> list[Execution]:
        """The executions that are over."""
        return [each for each in self.executions.values() if each.ended is not None]


class Story:
    """Takes facts and tells them through `say`; `clock` gives seconds since the beginning."""

    def __init__(self, say: Callable[[Line], None], clock: Callable[[], float]) -> None:
        self.jobs: dict[str, Job] = {}
        self.others: dict[str, list[str]] = {}
        """What pods said that belong to no job."""
        self._say, self._clock = say, clock
        self._by_name: dict[str, Job] = {}

    def tell(self, fact: Fact) -> None:
        """Take in one fact; say what is new in it."""
        {
            "trainjob": self._trainjob,
            "workload": self._workload,
            "pod": self._pod,
            "log": self._log,
            "record": self._record,
        }[fact.kind](fact.change, fact.body)

    def _trainjob(self, change: str, body: Object) -> None:
        seen = parse_trainjob(dict(body))
        job = self._by_name.get(seen.meta.name)
        if job is None:
            title = seen.meta.labels.get(LABEL)
            if title is None or change == "DELETED":
                return
            ulid = seen.meta.labels.get(names.ULID_LABEL, "")
            job = Job(title, seen.meta.name, seen.meta.uid, seen.meta.namespace, ulid)
            self.jobs[title] = self._by_name[seen.meta.name] = job
            self._say(Line(title, f"started: TrainJob {job.name}"))
            self._say(Line(title, f"  {_closed(seen)}, A={seen.count}, uid {job.uid}"))
        if not seen.gates.ours and not job.opened:
            # The record is seen a moment late; this is seen in the order in which the API server wrote it.
            job.opened, job.pods_when_opened = True, len(job.executions)
            pods = "no pod" if not job.executions else f"{len(job.executions)} pods"
            said = f"opened: the gate entry is gone from the TrainJob; {pods} so far"
            self._say(Line(job.title, said, loud=True))
        if seen.held != job.held:
            job.held = seen.held
            said = "held: the hold mark is set" if seen.held else "released: the hold mark is gone"
            self._say(Line(job.title, said, loud=True))
        if seen.count != job.a:
            self._say(Line(job.title, f"A={seen.count} (was {job.a})", loud=True))
            job.a = seen.count
        if seen.ended and not job.ended:
            job.ended = seen.ended
            self._say(Line(job.title, f"TrainJob is {seen.ended}", loud=True))

    def _record(self, _change: str, body: Object) -> None:
        job = self._by_name.get(str(body.get("name")))
        if job is None or job.recorded:
            return
        job.recorded = True
        self._say(Line(job.title, "recorded: Pulumi's state on disk holds name and uid", loud=True))

    def _workload(self, change: str, body: Object) -> None:
        seen = parse_workload(dict(body))
        job = self._by_name.get(seen.meta.owner.name if seen.meta.owner else "")
        if job is None or change == "DELETED":
            return
        before, job.workload = job.workload, seen
        evicted = seen.conditions.get("Evicted")
        if evicted is not None and evicted.status == "True" and not _true(before, "Evicted"):
            job.evicted = evicted.reason
            self._say(Line(job.title, f"evicted, {evicted.reason}: {evicted.message.split(';')[0]}", loud=True))
        if seen.reserved and not (before and before.reserved):
            queue = text(seen.raw, "status", "admission", "clusterQueue")
            self._say(Line(job.title, f"quota reserved in ClusterQueue {queue}"))
        elif before and before.reserved and not seen.reserved:
            self._say(Line(job.title, "quota given back"))
        self._check(job, before, seen)
        if _true(seen, "Admitted") and not _true(before, "Admitted"):
            self._say(Line(job.title, "admitted by Kueue"))

    def _check(self, job: Job, before: Workload | None, seen: Workload) -> None:
        now, was = seen.entry({names.ADMISSION_CHECK}), before.entry({names.ADMISSION_CHECK}) if before else None
        if now is None or (was and (was.state, was.message) == (now.state, now.message)):
            return
        if not now.message and now.state == "Pending":
            return
        self._say(Line(job.title, f"check {names.ADMISSION_CHECK} is {now.state}: {now.message}", loud=True))
        if now.state == "Pending" and seen.reserved:
            job.waited_for += [pod for pod in job.executions if pod in now.message]

    def _pod(self, change: str, body: Object) -> None:
        seen = parse_pod(dict(body))
        job = self._by_name.get(seen.meta.labels.get(names.JOBSET_NAME, ""))
        if job is None:
            return
        name = seen.meta.name
        run = job.executions.get(name)
        if run is None:
            a = seen.meta.annotations.get(names.ADMISSION_COUNT, "none")
            run = job.executions[name] = Execution(name, a, self._clock())
            self._say(Line(job.title, f"pod {name} is created and carries A={a}"))
        if seen.phase != "Pending" and run.started is None:
            run.started = self._clock()
            self._say(Line(job.title, f"pod runs on node {seen.node}"))
        if seen.meta.deleting and not run.why:
            run.why = "told to end"
            self._say(Line(job.title, "the pod is told to end"))
        if run.ended is None and (change == "DELETED" or not seen.may_run):
            run.ended = self._clock()
            run.why = (job.evicted or "stopped") if run.why else seen.phase
            self._say(Line(job.title, f"the pod is over ({seen.phase})"))
        elif change == "DELETED":
            self._say(Line(job.title, f"pod {name} is gone"))

    def _log(self, _change: str, body: Object) -> None:
        pod, said = str(body["pod"]), str(body["text"])
        for job in self.jobs.values():
            if pod in job.executions:
                job.executions[pod].said.append(said)
                self._say(Line(job.title, f"its pod says: {said}"))
                return
        self.others.setdefault(pod, []).append(said)
        self._say(Line("", f"pod {pod} says: {said}", loud=True))


def _closed(job: TrainJob) -> str:
    by = Gates(job.gates.value).names
    return f"{'suspended' if job.suspended else 'NOT SUSPENDED'}, gated by {', '.join(by) or 'NOBODY'}"


def _true(workload: Workload | None, condition: str) -> bool:
    return workload is not None and workload.conditions.true(condition)
