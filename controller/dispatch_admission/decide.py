"""The safety rule: what one pass over one Workload may do, decided from what the pass has read.

Pure. The pass reads the Workload first and everything else after it, so that "the Workload has not changed since
that version", which the API server checks at the write, means that no admission happened in between.
The rules stand in order, the refusals first, and the default is to wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from dispatch_gates.contract.execution import Evidence
from dispatch_gates.contract.next_execution import NotYet, Reason, next_count
from dispatch_gates.contract.times import later_than
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_gates.contract.workload import Check, State, Workload


@dataclass(frozen=True)
class Foreign:
    """The Workload is not dispatch's; `what` it belongs to."""

    what: str


@dataclass(frozen=True)
class Unknown:
    """Whose the Workload is cannot be told, or is not supported."""

    reason: Reason
    why: str


@dataclass(frozen=True)
class Ours:
    """The Workload belongs to this job of dispatch's."""

    job: TrainJob


Owner: TypeAlias = Foreign | Unknown | Ours


@dataclass(frozen=True)
class Observation:
    """What the pass has read so far, in this order; None is not read yet.

    `checks` are the AdmissionChecks whose controllerName is ours. `raised` is the A that this pass has written to
    the TrainJob; `evidence` is then what was read after it.
    """

    checks: frozenset[str]
    workload: Workload
    owner: Owner | None = None
    evidence: Evidence | None = None
    raised: int | None = None


@dataclass(frozen=True)
class Nothing:
    """Leave everything as it is: there is nothing to say, or it is not our turn."""

    why: str


@dataclass(frozen=True)
class ReadOwner:
    """Whose it is must be known first."""


@dataclass(frozen=True)
class ReadEvidence:
    """What is left of the previous execution must be known first."""


@dataclass(frozen=True)
class TakeBack:
    """Put a spent Ready back to Pending: a Ready serves one admission."""

    check: Check
    message: str


@dataclass(frozen=True)
class Wait:
    """Stay at Pending, and say why."""

    check: Check
    reason: Reason
    why: str

    @property
    def message(self) -> str:
        """What the check entry says."""
        return f"{self.reason}: {self.why}"[:MAX_MESSAGE]


@dataclass(frozen=True)
class Raise:
    """Write A to the TrainJob, for each of its replicated jobs."""

    check: Check
    count: int
    replicated_jobs: tuple[str, ...]


@dataclass(frozen=True)
class Approve:
    """Set the check Ready."""

    check: Check
    message: str


Action: TypeAlias = Nothing | ReadOwner | ReadEvidence | TakeBack | Wait | Raise | Approve

MAX_MESSAGE = 1024
"""Characters of a message; Kueue would take 32,768, but people read it in one line."""


def decide(seen: Observation) -> Action:
    """Say what to do next, from what was read so far."""
    workload = seen.workload
    # 1. Not our check: nothing.
    check = workload.entry(seen.checks)
    if check is None:
        return Nothing("our check is not listed")
    # 2. A Ready that has served its admission, or has lost its reservation, must not serve another one.
    if check.state == State.READY and _spent(workload, check):
        return TakeBack(check, "Put back to Pending: this Ready has served its reservation")
    # 3. Decided already, or in a state that we never set.
    if check.state != State.PENDING:
        return Nothing(f"the check is {check.state or 'without a state'}")
    # 4. Only an unadmitted, unevicted reservation is our turn: Kueue resets the check while an eviction still
    #    holds the quota, and a check that was put back on the queue is Pending beside a running job.
    if why := not_our_turn(workload):
        return Nothing(why)
    # 5. Whose is it? What cannot be read is never waved through.
    if seen.owner is None:
        return ReadOwner()
    if isinstance(seen.owner, Unknown):
        return Wait(check, seen.owner.reason, seen.owner.why)
    # 6. Not dispatch's: a shared queue is not held up.
    if isinstance(seen.owner, Foreign):
        return Approve(check, f"Not a job of dispatch's: {seen.owner.what}"[:MAX_MESSAGE])
    # 7. A job that must not run now.
    if wait := _must_not_run(check, seen.owner.job):
        return wait
    # 8. to 10. Never while the previous execution may still run; never under an A that was used.
    if seen.evidence is None:
        return ReadEvidence()
    return _next_execution(check, seen.owner.job, seen.evidence, seen.raised)


def not_our_turn(workload: Workload) -> str | None:
    """Return why this version of the Workload may not be admitted by us, or None."""
    for kind in ("Finished", "DeactivationTarget", "Evicted", "Admitted"):
        if not workload.conditions.clear(kind):
            return f"condition {kind} is not clear"
    if workload.meta.deleting:
        return "the Workload is being deleted"
    if not workload.active:
        return "the Workload is not active"
    if not workload.reserved:
        return "no quota is reserved"
    return None


def _spent(workload: Workload, check: Check) -> bool:
    """Whether a Ready was used up: no reservation is left, or an admission came and went since it was set."""
    if workload.meta.deleting or not all(workload.conditions.clear(kind) for kind in ("Admitted", "Finished")):
        return False
    admitted = workload.conditions.get("Admitted")
    # Both times are Kueue's: see `act.transition_time`.
    return not workload.reserved or (admitted is not None and not later_than(check.time, admitted.time))


def _must_not_run(check: Check, job: TrainJob) -> Wait | None:
    name = f"TrainJob {job.meta.name}"
    if job.meta.deleting:
        return Wait(check, Reason.DELETING, f"{name} is being deleted")
    if job.ended:
        return Wait(check, Reason.ENDED, f"{name} has ended ({job.ended})")
    if job.gates.closed:
        return Wait(check, Reason.GATED, f"{name} is gated by {', '.join(job.gates.names) or 'a blank entry'}")
    if job.held:
        return Wait(check, Reason.HELD, f"{name} is held; release it to let it run")
    if not job.suspended:
        return Wait(check, Reason.NOT_SUSPENDED, f"{name} is not suspended yet")
    return None


def _next_execution(check: Check, job: TrainJob, evidence: Evidence, raised: int | None) -> Action:
    # 8. and 9. The previous execution is over, A can be read, and Trainer is not behind.
    count = next_count(job, evidence)
    if isinstance(count, NotYet):
        return Wait(check, count.reason, count.why)
    assert evidence.jobset is not None, "an execution without a JobSet is not over"
    # 10. Raise A once in this pass, above all that anything carries; then, from evidence read after that, Ready.
    if raised is None:
        return Raise(check, count, tuple(replicated.name for replicated in evidence.jobset.replicated_jobs))
    if count != raised + 1 or any(isinstance(batch.count, int) and batch.count >= raised for batch in evidence.jobs):
        return Wait(check, Reason.COUNT_UNREADABLE, f"something carries A={count - 1} already, beside A={raised}")
    return Approve(check, f"A={raised}; the previous execution is over")
