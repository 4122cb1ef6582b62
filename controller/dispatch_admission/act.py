"""One pass over one Workload: read, decide, write. A generator of requests, with no memory of earlier passes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from dispatch_admission.decide import (
    Approve,
    Nothing,
    Observation,
    Ours,
    Raise,
    ReadEvidence,
    ReadOwner,
    TakeBack,
    Wait,
    decide,
    not_our_turn,
)
from dispatch_admission.observe import read_owner
from dispatch_gates.contract.count import with_count
from dispatch_gates.contract.names import TRAINJOBS, WORKLOADS
from dispatch_gates.contract.next_execution import Reason
from dispatch_gates.contract.times import later_than, latest, second_after
from dispatch_gates.contract.trainjob import TrainJob, parse_trainjob
from dispatch_gates.contract.workload import Check, State, Workload, parse_workload, with_check
from dispatch_gates.operations.evidence import await_count, read_evidence
from dispatch_gates.requests import (
    ConflictError,
    DeniedError,
    InvalidError,
    NotFoundError,
    NotServedError,
    Operation,
    Replace,
    ReplaceStatus,
    find,
    write,
)

ACKNOWLEDGE_SECONDS: Final = 10.0
"""How long Trainer may take to carry A to the JobSet; usually 0.05 s. It is a bound, not a delay."""


class Result(StrEnum):
    """What became of a pass."""

    ADMITTED = "admitted"
    FOREIGN = "foreign"
    TAKEN_BACK = "taken-back"
    WAITING = "waiting"
    NOTHING = "nothing"
    CONFLICT = "conflict"


@dataclass(frozen=True)
class Outcome:
    """The result of a pass, for logs, metrics, and for what to wake it by: the job whose end it waits for.

    `workload` and `uid` are the UIDs of the Workload and of the job.
    """

    result: Result
    detail: str
    reason: Reason | None = None
    workload: str | None = None
    job: str | None = None
    uid: str | None = None
    count: int | None = None


def readmit(
    namespace: str, name: str, checks: frozenset[str], *, acknowledge_seconds: float = ACKNOWLEDGE_SECONDS
) -> Operation[Outcome]:
    """Run one pass. A conflict ends it, and the next one starts from new reads; other errors are raised."""
    raw = yield from find(WORKLOADS, namespace, name)
    if raw is None:
        return Outcome(Result.NOTHING, "the Workload is gone")
    seen = Observation(checks, parse_workload(raw))
    try:
        outcome = yield from _pass(seen, acknowledge_seconds)
    except ConflictError as error:
        outcome = Outcome(Result.CONFLICT, str(error))
    return replace(outcome, workload=seen.workload.meta.uid)


def _pass(seen: Observation, acknowledge_seconds: float) -> Operation[Outcome]:
    workload = seen.workload
    while True:
        action = decide(seen)
        match action:
            case Nothing(why):
                return Outcome(Result.NOTHING, why)
            case ReadOwner():
                seen = replace(seen, owner=(yield from read_owner(workload)))
            case ReadEvidence():
                evidence = yield from read_evidence(workload.meta.namespace, _trainjob(seen).meta.name)
                seen = replace(seen, evidence=evidence)
            case Raise():
                try:
                    seen = yield from _raise(seen, action, acknowledge_seconds)
                except (DeniedError, InvalidError, NotFoundError, NotServedError) as error:
                    why = f"A could not be raised and seen to arrive: {error}"
                    return (yield from _wait(seen, Wait(action.check, Reason.REFUSED, why)))
            case Wait():
                return (yield from _wait(seen, action))
            case TakeBack(check, message):
                yield from _set(workload, check, State.PENDING, message)
                return Outcome(Result.TAKEN_BACK, message)
            case Approve(check, message):
                return (yield from _approve(seen, check, message))


def _raise(seen: Observation, action: Raise, acknowledge_seconds: float) -> Operation[Observation]:
    """Write A, wait until the suspended JobSet carries it, and forget the evidence: it is read again after this."""
    job, evidence = _trainjob(seen), seen.evidence
    assert evidence is not None, "A is raised from evidence"
    assert evidence.jobset is not None, "A is raised where a JobSet can carry it"
    assert not evidence.remains(), "A is never raised while the previous execution may still run"
    assert seen.raised is None, "A is raised once in a pass"
    stored = yield from write(Replace(TRAINJOBS, with_count(job.raw, action.count, action.replicated_jobs)))
    raised = parse_trainjob(stored)
    assert raised.count == action.count, f"A={action.count} was written, the API server holds {raised.count}"
    # The next decision tells from new evidence whether it arrived: the answer here only ends the waiting.
    yield from await_count(evidence.jobset, action.count, acknowledge_seconds)
    return replace(seen, owner=Ours(raised), raised=action.count, evidence=None)


def _approve(seen: Observation, check: Check, message: str) -> Operation[Outcome]:
    try:
        yield from _set(seen.workload, check, State.READY, message)
    except (DeniedError, InvalidError) as error:
        return (yield from _wait(seen, Wait(check, Reason.REFUSED, f"Ready was not set: {error}")))
    if seen.raised is None:
        return Outcome(Result.FOREIGN, message)
    meta = _trainjob(seen).meta
    return Outcome(Result.ADMITTED, message, job=meta.name, uid=meta.uid, count=seen.raised)


def _wait(seen: Observation, action: Wait) -> Operation[Outcome]:
    """Say why it waits, where the check does not say so already."""
    if action.check.message != action.message:
        yield from _set(seen.workload, action.check, State.PENDING, action.message)
    meta = seen.owner.job.meta if isinstance(seen.owner, Ours) else None
    return Outcome(
        Result.WAITING,
        action.message,
        reason=action.reason,
        job=meta.name if meta else None,
        uid=meta.uid if meta else None,
        count=seen.raised,
    )


def _set(workload: Workload, check: Check, state: State, message: str) -> Operation[None]:
    """Write our own entry, in the version of the Workload that this pass began with."""
    if state == State.READY:
        assert not_our_turn(workload) is None, "Ready is set for an unadmitted, unevicted reservation alone"
        assert check.state == State.PENDING, "Ready follows Pending"
    body = with_check(workload, check.name, state, message, transition_time(workload, check))
    stored = parse_workload((yield from write(ReplaceStatus(WORKLOADS, body))))
    entry = stored.entry({check.name})
    assert entry is not None, "the API server dropped our check's entry"
    assert (entry.state, entry.message) == (state, message), f"wrote {state}, the API server holds {entry.state}"


def transition_time(workload: Workload, check: Check) -> str:
    """Return when our entry changed, by Kueue's clock: later than all that it wrote, and than the last admission.

    Rule 2 compares this with the time at which Admitted turned False, which Kueue writes. With our own clock in
    it, a clock that is a day off would make every Ready look spent, or none.
    """
    times = [condition.time for condition in workload.conditions.found]
    moment = latest([*times, check.time]) or check.time
    admitted = workload.conditions.get("Admitted")
    if admitted is not None and latest([admitted.time]) and not later_than(moment, admitted.time):
        return second_after(admitted.time)
    return moment


def _trainjob(seen: Observation) -> TrainJob:
    assert isinstance(seen.owner, Ours), "evidence is read for a job of dispatch's alone"
    return seen.owner.job
