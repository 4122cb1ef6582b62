"""What an audit log says about each job of dispatch's, and which promise was broken.

One `Timeline` takes the writes in order. A violation is what the log proves; a gap is what it cannot tell, and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dispatch_gates.audit.facts import OURS, About, JobFacts, Partial, PodFacts, TrainJobFacts, WorkloadFacts
from dispatch_gates.audit.log import Moment, Reading, Write, ordered
from dispatch_gates.contract.names import ADMISSION_CHECK, JOBS, PODS, TRAINJOBS, WORKLOADS

_NEVER_READY: Final = ("Evicted", "Admitted", "Finished", "DeactivationTarget")
"""Conditions under which no check may be set Ready."""


@dataclass(frozen=True)
class Violation:
    """A promise that was broken, by the write that broke it."""

    at: Moment
    resource: str
    namespace: str
    name: str
    what: str
    verb: str
    user: str

    def __str__(self) -> str:
        where = f"{self.resource} {self.namespace}/{self.name}"
        return f"{where}: {self.what} [{self.verb} by {self.user} at {self.at}]"


@dataclass(slots=True)
class Pod:
    """The life of one pod; None is: not seen in the log."""

    name: str
    a: int | None
    created: Moment
    running: Moment | None = None
    terminal: Moment | None = None
    gone: Moment | None = None

    @property
    def over(self) -> Moment | None:
        """Since when nothing of it runs."""
        return min((moment for moment in (self.terminal, self.gone) if moment), default=None)


@dataclass(slots=True)
class BatchJob:
    """What was last seen of one batch Job of a JobSet, and the A of each time that it was let run."""

    uid: str
    name: str
    suspended: bool
    finished: bool = False
    starts: list[int | None] = field(default_factory=list)


@dataclass(slots=True)
class Reservation:
    """One stay of a Workload in its queue's quota."""

    reserved: Moment
    ready: Moment | None = None
    admitted: Moment | None = None


@dataclass(slots=True)
class Job:
    """What the log says about one TrainJob of dispatch's.

    A name used twice is two objects, and one job: executions are compared across both.
    """

    key: str
    created: Moment | None = None
    uid: str = ""
    queued: bool = False
    created_closed: bool = False
    known: bool = False
    """Whether a write on the TrainJob itself was seen: until then nothing says that it is closed."""
    generation: int = 0
    opened: Moment | None = None
    suspended: bool | None = None
    a: int | None = None
    runs_with: int | None = None
    """The A that it was last let run with. One that was raised since is not in force before the next time."""
    raises: list[tuple[int, Moment]] = field(default_factory=list)
    resumes: list[tuple[int | None, Moment]] = field(default_factory=list)
    pods: dict[str, Pod] = field(default_factory=dict)
    batch: dict[str, BatchJob] = field(default_factory=dict)
    reservations: list[Reservation] = field(default_factory=list)

    def raised_to(self, a: int) -> Moment | None:
        """When A first became `a`."""
        return next((moment for value, moment in self.raises if value == a), None)

    def pods_of(self, a: int) -> list[Pod]:
        """Return the pods that were made with this A, in the order of their creation."""
        return sorted((pod for pod in self.pods.values() if pod.a == a), key=lambda pod: pod.created)


@dataclass(frozen=True, slots=True)
class _Workload:
    """What matters of one version of a Workload."""

    ready: bool = False
    reserved: bool = False
    admitted: bool = False


class Timeline:
    """All jobs of dispatch's in one log, by `namespace/name`, and what was wrong.

    `checks` are the names of dispatch's AdmissionChecks. Memory grows with the jobs and pods of the log, some
    hundred bytes each, and not with its length.
    """

    def __init__(self, checks: Collection[str] = (ADMISSION_CHECK,)) -> None:
        self.jobs: dict[str, Job] = {}
        self.reading = Reading()
        self._checks = frozenset(checks)
        self._wrong: list[Violation] = []
        self._gaps: list[str] = []
        self._bodiless: Counter[tuple[str, str]] = Counter()
        self._seen: Counter[str] = Counter()
        self._workloads: dict[str, _Workload] = {}
        self._pods: dict[str, Pod] = {}
        self._batch: dict[str, Job] = {}

    def violations(self) -> list[Violation]:
        """Return each promise that was broken, in the order of events; empty is good."""
        return list(self._wrong)

    def gaps(self) -> list[str]:
        """Return what the log cannot tell, in words; empty is good. Each means that a violation may be hidden."""
        gaps = list(self._gaps)
        for (resource, level), times in sorted(self._bodiless.items()):
            gaps.append(
                f"{times} writes to {resource} are in the log without their bodies (level {level or 'not said'}): "
                "the audit level is too low, RequestResponse is needed"
            )
        ran = [job for job in self.jobs.values() if job.resumes]
        needed = [PODS.plural, *([WORKLOADS.plural] if any(job.queued for job in ran) else [])]
        if not self.jobs:
            gaps.append("there is no TrainJob of dispatch's in the log: nothing was judged")
        elif ran:
            # What ran has pods, and in a queue a Workload: without a single one they were not recorded.
            gaps += [f"jobs ran, but no write to {each} is in the log" for each in needed if not self._seen[each]]
        return gaps

    def add(self, write: Write) -> None:
        """Take in the next write."""
        self._seen[write.resource] += 1
        match write.facts:
            case None:
                self._bodyless(write)
            case Partial(about):
                self._metadata(write, about)
            case TrainJobFacts():
                self._trainjob(write, write.facts)
            case WorkloadFacts():
                self._workload(write, write.facts)
            case JobFacts():
                self._batch_job(write, write.facts)
            case PodFacts():
                self._pod(write, write.facts)

    def _blame(self, write: Write, what: str) -> None:
        self._wrong.append(
            Violation(write.at, write.resource, write.namespace, write.name, what, write.verb, write.user)
        )

    def _gap(self, write: Write, what: str) -> None:
        self._gaps.append(f"{write.resource} {write.namespace}/{write.name}: {what} [at {write.at}]")

    def _bodyless(self, write: Write) -> None:
        """Take in a write of which no body is in the log; of a deletion there need not be one."""
        job = self.jobs.get(f"{write.namespace}/{write.name}")
        if write.resource == TRAINJOBS.plural and job is None and not OURS.fullmatch(write.name):
            return
        if write.verb != "delete":
            self._bodiless[write.resource, write.level] += 1
        elif write.resource == TRAINJOBS.plural and job is not None:
            job.generation = 0
        elif write.resource == JOBS.plural:
            self._forget(write)

    def _metadata(self, write: Write, about: About) -> None:
        """Take in a write that was answered with metadata alone, as the garbage collector's: all else is as it was."""
        if write.resource == TRAINJOBS.plural:
            job = self.jobs.get(f"{write.namespace}/{write.name}")
            if job is not None:
                self._follow(write, job, about)
                if job.opened is None and not about.gated:
                    job.opened = write.at
        elif write.resource == PODS.plural:
            pod = self._pods.get(about.uid)
            if pod is not None and pod.gone is None and _is_gone(write, about):
                pod.gone = write.at
        elif write.resource == JOBS.plural and _is_gone(write, about):
            self._forget(write)

    def _follow(self, write: Write, job: Job, about: About) -> None:
        """Notice writes that are missing: each change of a TrainJob's spec raises its generation by one."""
        if job.generation and about.generation > job.generation + 1 and about.uid == job.uid:
            missing = about.generation - job.generation - 1
            self._gap(write, f"{missing} changes of its specification before this one are not in the log")
        job.generation = about.generation

    def _trainjob(self, write: Write, facts: TrainJobFacts) -> None:
        key, about = f"{write.namespace}/{write.name}", facts.about
        if key not in self.jobs and not OURS.fullmatch(write.name) and not facts.counts:
            return
        job = self.jobs.setdefault(key, Job(key))
        job.queued = job.queued or facts.queued
        a = facts.counts[0] if len(set(facts.counts)) == 1 else None
        if write.verb == "create":
            job.created, job.uid, job.a, job.generation = write.at, about.uid, a, about.generation
            job.opened = job.suspended = None
            job.created_closed = facts.suspended and about.gated and a == 0
            if not job.created_closed:
                seen = f"suspend {facts.suspended}, gated {about.gated}, A {a}"
                self._blame(write, f"created open: {seen}; expected closed, A 0")
        elif job.created is None and not job.known:
            self._gap(write, "the log begins after its creation: what was before cannot be judged")
            job.uid = about.uid
            job.runs_with = None if facts.suspended else a
        job.known = True
        self._follow(write, job, about)
        if a is None:
            self._blame(write, f"A cannot be read: {list(facts.counts)}")
        if not about.gated and job.opened is None:
            job.opened = write.at
        self._count(write, job, a)
        if job.suspended and not facts.suspended:
            self._resume(write, job)
        job.suspended = facts.suspended

    def _count(self, write: Write, job: Job, a: int | None) -> None:
        """Compare A with what it was before this write."""
        if a is None or job.a is None or a == job.a:
            job.a = a if a is not None else job.a
            return
        if a < job.a:
            self._blame(write, f"A went down from {job.a} to {a}")
        else:
            self._nothing_left(write, job, f"A raised to {a}")
        job.raises.append((a, write.at))
        job.a = a

    def _resume(self, write: Write, job: Job) -> None:
        """Judge a change of suspend from true to false: the start of an execution."""
        if job.opened is None:
            self._blame(write, "resumed before it was opened")
        if job.raises and job.raises[-1][1] != write.at:
            # Trainer may start something late after the raise, but not after the check looked again.
            self._nothing_left(write, job, f"resumed with A={job.a}")
        earlier = [a for a, _ in job.resumes if a is not None]
        if job.a is None or job.a < 1 or job.a <= max(earlier, default=0):
            self._blame(write, f"resumed with A={job.a}; executions before it had {earlier}: A must be higher")
        job.resumes.append((job.a, write.at))
        job.runs_with = job.a

    def _nothing_left(self, write: Write, job: Job, what: str) -> None:
        """Blame a write that has the next execution come while something of an earlier one may run."""
        for pod in job.pods.values():
            if pod.over is None:
                self._blame(write, f"{what} while pod {pod.name} (A={pod.a}) may still run")
        for batch in job.batch.values():
            if not batch.suspended and not batch.finished:
                self._blame(write, f"{what} while Job {batch.name} is not suspended")

    @staticmethod
    def _began(job: Job) -> bool:
        """Tell whether the log says with which A the job runs."""
        return job.created is not None or job.runs_with is not None

    def _job_of(self, write: Write, jobset: str) -> Job | None:
        """Return the job that something with this JobSet's label belongs to; None where it is not dispatch's."""
        key = f"{write.namespace}/{jobset}"
        if key not in self.jobs:
            if not OURS.fullmatch(jobset):
                return None
            self.jobs[key] = Job(key)
        return self.jobs[key]

    def _pod(self, write: Write, facts: PodFacts) -> None:
        about = facts.about
        job = self._job_of(write, facts.jobset)
        if job is None:
            return
        pod = job.pods.get(about.uid)
        if pod is None:
            pod = self._pods[about.uid] = job.pods[about.uid] = Pod(about.name, facts.count, write.at)
            self._new_pod(write, job, pod)
        if pod.running is None and facts.running:
            pod.running = write.at
        if pod.terminal is None and facts.ended:
            pod.terminal = write.at
        if pod.gone is None and _is_gone(write, about):
            pod.gone = write.at

    def _new_pod(self, write: Write, job: Job, pod: Pod) -> None:
        if write.verb != "create":
            self._gap(write, "the log begins after its creation")
        elif not job.known:
            self._gap(write, "a pod of a TrainJob of which nothing is in the log before it")
        elif job.opened is None:
            self._blame(write, "created before the job was opened")
        if pod.a is None or pod.a < 1 or (self._began(job) and write.verb == "create" and pod.a != job.runs_with):
            self._blame(write, f"created with A={pod.a} while the TrainJob was last let run with A={job.runs_with}")
        for other in job.pods.values():
            if other.a != pod.a and other.over is None:
                self._blame(write, f"created while pod {other.name} (A={other.a}) may still run")

    def _batch_job(self, write: Write, facts: JobFacts) -> None:
        """Judge each time that a Job of the JobSet is let run: a resumed one needs an A of its own, too."""
        about = facts.about
        job = self._job_of(write, facts.jobset)
        if job is None:
            return
        if _is_gone(write, about):
            self._forget(write)
            return
        batch = job.batch.get(write.name)
        if batch is None or batch.uid != about.uid:
            # Created running (what waited for an initializer), or from before the log: only the former starts here.
            begun = write.verb != "create"
            batch = job.batch[write.name] = BatchJob(about.uid, write.name, suspended=not begun)
            self._batch[f"{write.namespace}/{write.name}"] = job
        if batch.suspended and not facts.suspended:
            earlier = [a for a in batch.starts if a is not None]
            if facts.count is None or facts.count < 1 or facts.count <= max(earlier, default=0):
                self._blame(write, f"let run with A={facts.count}; before it had {earlier}: A must be higher")
            elif self._began(job) and facts.count != job.runs_with:
                now = f"the TrainJob was last let run with A={job.runs_with}"
                self._blame(write, f"let run with A={facts.count} while {now}")
            batch.starts.append(facts.count)
        batch.suspended, batch.finished = facts.suspended, facts.finished

    def _forget(self, write: Write) -> None:
        """Drop a batch Job that is gone."""
        job = self._batch.pop(f"{write.namespace}/{write.name}", None)
        if job is not None:
            job.batch.pop(write.name)

    def _workload(self, write: Write, facts: WorkloadFacts) -> None:
        kind, owner = facts.about.owner
        job = self.jobs.get(f"{write.namespace}/{owner}")
        if kind != TRAINJOBS.kind or job is None:
            return
        uid = facts.about.uid
        seen = self._workloads.get(uid, _Workload())
        now = _Workload(
            ready=bool(facts.ready & self._checks),
            reserved="QuotaReserved" in facts.true,
            admitted="Admitted" in facts.true,
        )
        if now.reserved and not seen.reserved:
            job.reservations.append(Reservation(write.at))
        current = job.reservations[-1] if job.reservations and now.reserved else None
        if now.ready and not seen.ready:
            self._ready(write, job, current, facts)
        if now.admitted and not seen.admitted:
            self._admitted(write, current)
        self._workloads[uid] = now

    def _ready(self, write: Write, job: Job, current: Reservation | None, facts: WorkloadFacts) -> None:
        """Judge a Ready against the version of the Workload that it was written into."""
        for condition in _NEVER_READY:
            if condition in facts.true:
                self._blame(write, f"check set Ready while {condition}")
        if facts.about.deleting:
            self._blame(write, "check set Ready while the Workload is being deleted")
        if not facts.active:
            self._blame(write, "check set Ready while the Workload is not active")
        if current is None:
            self._blame(write, "check set Ready while no quota is reserved")
            return
        if not any(moment > current.reserved for _, moment in job.raises):
            self._blame(write, f"check set Ready, but A was not raised since the reservation at {current.reserved}")
        current.ready = write.at

    def _admitted(self, write: Write, current: Reservation | None) -> None:
        if current is None or current.ready is None:
            self._blame(write, "admitted, but the check was not set Ready in this reservation")
        if current is not None:
            current.admitted = write.at


def read(
    files: Sequence[str | Path],
    *,
    checks: Collection[str] = (ADMISSION_CHECK,),
    namespaces: Collection[str] = (),
    progress: Callable[[Reading], object] = lambda _: None,
) -> Timeline:
    """Read whole audit logs, JSON lines, gzip or not; `-` is standard input. Raises `LogError`.

    A last line that is still being written is left out. With `namespaces` only those are judged.
    """
    timeline = Timeline(checks)
    reading = timeline.reading
    for write in ordered(files, namespaces=namespaces, reading=reading, progress=lambda: progress(reading)):
        timeline.add(write)
    return timeline


def _is_gone(write: Write, about: About) -> bool:
    """Tell whether this write took the object out of the store, which needs no finalizer to be left."""
    if about.kept:
        return False
    if write.verb == "delete" and (write.forced or not about.deleting):
        return True
    return about.deleting and about.grace == 0
