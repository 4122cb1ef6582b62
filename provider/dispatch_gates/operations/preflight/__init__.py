"""Preflight: prove the gate before anything rests on it, and say capability by capability what there is.

One generator of requests. The probe's watches begin at versions from before its creation, so that the read-only checks
are read while the time of the watch runs, and nothing is missed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from dispatch_gates.contract import names
from dispatch_gates.contract.capability import (
    PLAIN_READMISSION_GATE,
    Answer,
    Capability,
    Name,
    in_order,
    readmission_gate,
)
from dispatch_gates.contract.guard_rails import GuardRails, Level
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.manifest import Runtime
from dispatch_gates.contract.objects import JsonObject, text
from dispatch_gates.contract.times import parse_time
from dispatch_gates.contract.trainjob import TrainJob, parse_trainjob
from dispatch_gates.operations.guard_rails import guard_rails
from dispatch_gates.operations.jobs import read_job
from dispatch_gates.operations.preflight import probe as probing
from dispatch_gates.operations.preflight.kinds import read_kinds
from dispatch_gates.operations.preflight.probe import remove_probe
from dispatch_gates.operations.preflight.proof import Seen, judge
from dispatch_gates.operations.preflight.queue import read_check, read_controller, read_lease, read_queue
from dispatch_gates.operations.preflight.rights import read_rights
from dispatch_gates.operations.preflight.runtimes import judge_runtimes, read_runtimes, read_started, suited
from dispatch_gates.operations.preflight.values import (
    OLD_PROBE_SECONDS,
    WATCH_SECONDS,
    Asked,
    Probe,
    Problem,
    Report,
    Stands,
    Tell,
    attempt,
    untold,
)
from dispatch_gates.requests import Operation, select

__all__ = ["WATCH_SECONDS", "Asked", "Probe", "Report", "Stands", "Tell", "preflight", "remove_probe"]

_MOST_OLD_PROBES: Final = 20


def preflight(
    asked: Asked, probe: Identity, *, clock: Callable[[], float], tell: Tell = lambda _: None
) -> Operation[Report]:
    """Prove the start gate by a probe and look at what the readmission gate needs; say which capabilities there are.

    `probe` is an identity of submission 0 that was never used; `clock` gives seconds that only grow. `tell` is told
    each capability as it is known, and where the probe stands: a generator that is closed cannot send requests any
    more, so whoever cuts it off has to run `remove_probe` where the probe may exist. What the API server refuses or
    does not answer becomes a capability that cannot be told; nothing of it is raised.
    """
    lines = _Lines(tell)
    runtimes = yield from attempt(read_runtimes(asked))
    if isinstance(runtimes, Problem):
        lines.add(untold(Name.RUNTIMES, runtimes))
        runtimes = ()
    else:
        lines.add(judge_runtimes(asked, runtimes))
    trial = _Trial(asked, probe, suited(runtimes, probe), lines, clock)
    yield from trial.begin()
    first, since = None, clock()
    if asked.queue is not None:
        first = yield from attempt(read_lease(asked))
        yield from trial.look()
        yield from lines.hope(read_queue(asked))
        yield from lines.hope(read_check(asked))
    guarded = yield from _guarded(asked, lines)
    yield from lines.ask(Name.RIGHTS, read_rights(asked, guarded))
    yield from trial.watch()
    jobs = yield from attempt(_jobs(asked))
    yield from trial.end(jobs)
    yield from lines.ask(Name.KINDS, read_kinds(trial.doubtful()))
    if asked.queue is not None:
        # What was not right before the watch may only just have been set up: the last look counts.
        yield from lines.ask(Name.QUEUE, read_queue(asked))
        yield from lines.ask(Name.ADMISSION_CHECK, read_check(asked))
        known = None if isinstance(first, Problem) else first
        yield from lines.ask(Name.CONTROLLER, read_controller(asked, known, since, clock))
        lines.add(
            readmission_gate(*(lines.found[part] for part in (Name.QUEUE, Name.ADMISSION_CHECK, Name.CONTROLLER)))
        )
    else:
        lines.add(PLAIN_READMISSION_GATE)
    removed: tuple[str, ...] = ()
    if not isinstance(jobs, Problem):
        removed = yield from _remove_old(jobs, trial.created)
        started = read_started(asked, jobs, runtimes)
        yield from lines.ask(Name.STARTED_JOBS, started, needed=False)
    return Report(asked, in_order(lines.found.values()), removed, trial.left_behind)


def _guarded(asked: Asked, lines: _Lines) -> Operation[bool]:
    """Note which guard rails are in force; return whether they ask who the adapter is."""
    found = yield from attempt(guard_rails(asked.namespace))
    lines.add(untold(Name.GUARD_RAILS, found, needed=False) if isinstance(found, Problem) else judge_rails(found))
    return isinstance(found, GuardRails) and found.level in (Level.ADMISSIONS, Level.EXECUTIONS)


def judge_rails(found: GuardRails) -> Capability:
    """Say which level is in force. The gates hold without: then nothing keeps people with edit rights from them."""
    why = f": {found.why}" if found.why else ""
    if found.level in (Level.ADMISSIONS, Level.EXECUTIONS):
        return Capability(Name.GUARD_RAILS, Answer.YES, f"{found.level}{why}", needed=False)
    remedy = "`pulumi up` in infra/ with its guard rails on"
    level = "not in force" if found.level is Level.NO else found.level
    return Capability(Name.GUARD_RAILS, Answer.NO, f"{level}{why}", remedy, needed=False)


class _Lines:
    """The capabilities so far."""

    def __init__(self, tell: Tell) -> None:
        self.tell = tell
        self.found: dict[Name, Capability] = {}

    def add(self, capability: Capability) -> None:
        """Note a capability, and tell it."""
        self.found[capability.name] = capability
        self.tell(capability)

    def hope(self, check: Operation[Capability]) -> Operation[None]:
        """Run a check and note its capability if it is a yes; else it is asked again."""
        found = yield from attempt(check)
        if not isinstance(found, Problem) and found.answer is Answer.YES:
            self.add(found)

    def ask(self, name: Name, check: Operation[Capability], *, needed: bool = True) -> Operation[None]:
        """Run a check and note its capability; where it cannot be read, that it cannot be told.

        What is known already is not asked again.
        """
        if name in self.found:
            return
        found = yield from attempt(check)
        self.add(untold(name, found, needed) if isinstance(found, Problem) else found)


class _Trial:
    """The probe's part of a preflight: created, watched, judged and deleted."""

    def __init__(
        self, asked: Asked, probe: Identity, runtime: Runtime | None, lines: _Lines, clock: Callable[[], float]
    ) -> None:
        assert probe.submission == 0, "submission 0 is the probes'"
        self._asked, self._identity, self._runtime = asked, probe, runtime
        self._lines, self._clock = lines, clock
        self._until = 0.0
        self._versions: probing.Versions | Problem = Problem("not read")
        self._seen: Seen | Problem = Problem("there is no runtime to make a probe with", Name.RUNTIMES)
        self._stands = Stands.GONE
        self.created: str | None = None
        self.left_behind = ""

    def begin(self) -> Operation[None]:
        """Create the probe, if its watches can begin."""
        self._versions = yield from attempt(probing.begin(self._asked, self._identity))
        if self._runtime is None:
            return
        if isinstance(self._versions, Problem):
            self._seen = self._versions  # what cannot be watched is not created
            return
        self._tell(Stands.SENT)
        self._seen = yield from attempt(probing.create(self._asked, self._identity, self._runtime))
        self._until = self._clock() + self._asked.watch_seconds
        if isinstance(self._seen, Seen):
            self._tell(Stands.THERE)
            self.created = text(self._seen.job.raw, "metadata", "creationTimestamp")
        elif not self._seen.unanswered:
            self._tell(Stands.GONE)

    def look(self) -> Operation[None]:
        """Watch what Kueue makes of the probe, until it is gated or half of the time is over."""
        if isinstance(self._seen, Seen) and not isinstance(self._versions, Problem):
            half = (self._until - self._clock()) / 2
            found = yield from attempt(probing.watch_workload(self._asked, self._seen, self._versions, half))
            if isinstance(found, Problem):
                self._seen = _with_gap(self._seen, found)
            else:
                self._seen, self._versions = found

    def watch(self) -> Operation[None]:
        """Watch the probe to the end of its time."""
        if isinstance(self._seen, Seen) and not isinstance(self._versions, Problem):
            seen = yield from attempt(probing.watch(self._asked, self._seen, self._versions, self._until, self._clock))
            self._seen = _with_gap(self._seen, seen) if isinstance(seen, Problem) else seen

    def end(self, jobs: tuple[TrainJob, ...] | Problem) -> Operation[None]:
        """Judge the probe and delete it."""
        if isinstance(self._seen, Problem):
            self._lines.add(untold(Name.START_GATE, self._seen))
        else:
            last = yield from attempt(self._find_last(self._seen, jobs))
            seen = _with_gap(self._seen, last) if isinstance(last, Problem) else replace(self._seen, last=last)
            self._lines.add(judge(self._asked, seen))
            why = yield from probing.remove(last if isinstance(last, TrainJob) else seen.job)
            if not why:
                self._tell(Stands.GONE)
        if self._stands is Stands.SENT:
            gone = yield from attempt(remove_probe(self._probe))
            if gone is True:
                self._tell(Stands.GONE)
        if self._stands is not Stands.GONE:
            self.left_behind = self._probe.delete_command

    def doubtful(self) -> tuple[names.Resource, ...]:
        """Return the kinds whose presence the requests of the probe did not show."""
        found = []
        if not isinstance(self._seen, Seen):
            found.append(names.TRAINJOBS)
        if isinstance(self._versions, Problem) and self._asked.queue is not None:
            found.append(names.WORKLOADS)
        return tuple(found)

    @property
    def _probe(self) -> Probe:
        return Probe(self._asked.namespace, self._identity.name, self._stands)

    def _tell(self, stands: Stands) -> None:
        self._stands = stands
        self._lines.tell(self._probe)

    def _find_last(self, seen: Seen, jobs: tuple[TrainJob, ...] | Problem) -> Operation[TrainJob | None]:
        if isinstance(jobs, Problem):
            return (yield from read_job(self._asked.namespace, self._identity.name, seen.job.meta.uid))
        return next((job for job in jobs if job.meta.uid == seen.job.meta.uid), None)


def _with_gap(seen: Seen, problem: Problem) -> Seen:
    return replace(seen, gaps=(*seen.gaps, problem.message))


def _jobs(asked: Asked) -> Operation[tuple[TrainJob, ...]]:
    """Read the TrainJobs of the namespace: the probe at its end, earlier probes, started jobs."""
    listing = yield from select(names.TRAINJOBS, asked.namespace, "")
    return tuple(parse_trainjob(raw) for raw in listing.items)


def _remove_old(jobs: tuple[TrainJob, ...], now: str | None) -> Operation[tuple[str, ...]]:
    """Delete probes that were left over, and return their names. Younger ones may be somebody's."""
    old = [job for job in jobs if _is_old_probe(job.meta.name, job.raw, now)]
    removed = []
    for job in old[:_MOST_OLD_PROBES]:
        if not (yield from probing.remove(job)):
            removed.append(job.meta.name)
    return tuple(removed)


def _is_old_probe(name: str, raw: JsonObject, now: str | None) -> bool:
    """Whether this is a probe older than ten minutes; `now` is when the server created ours, by its own clock."""
    identity = Identity.parse(name)
    created, reference = parse_time(text(raw, "metadata", "creationTimestamp") or ""), parse_time(now or "")
    if identity is None or identity.submission != 0 or created is None or reference is None:
        return False
    return (reference - created).total_seconds() > OLD_PROBE_SECONDS
