"""Hold and Release: keep a job from running on purpose, and let it run again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from dispatch_gates.contract.count import with_count
from dispatch_gates.contract.names import HOLD, TRAINJOBS, WORKLOADS
from dispatch_gates.contract.objects import JsonObject, copied
from dispatch_gates.contract.trainjob import TrainJob, parse_trainjob
from dispatch_gates.operations.errors import RefusedError, RejectedError
from dispatch_gates.operations.evidence import await_next
from dispatch_gates.operations.jobs import read_job, read_workload
from dispatch_gates.operations.tries import Tries
from dispatch_gates.requests import ConflictError, Operation, Replace, UnreachableError, write

RELEASE_SECONDS: Final = 300.0
"""How long Release in plain mode waits for the previous execution to be over, in seconds."""
Build: TypeAlias = Callable[[TrainJob], Operation[JsonObject | None]]


def hold(namespace: str, name: str, uid: str) -> Operation[TrainJob]:
    """Keep the job from running until `release`; success without a write where it is held already.

    The mark comes first: from then on no readmission is approved. Kueue mode then deactivates the Workload, plain
    mode suspends in the same update. Pods that run are told to stop; this does not wait for them.

    Raises `RejectedError` where the job has ended or is being deleted, `RefusedError` where there is none.
    """
    job = yield from _change(namespace, name, uid, "held", _held)
    if job.kueue_mode:
        yield from _set_active(job, False, "held")
    return job


def release(namespace: str, name: str, uid: str, *, seconds: float = RELEASE_SECONDS) -> Operation[TrainJob]:
    """Take the hold away; success without a write where there is none.

    Kueue mode activates the Workload and takes the mark away: Kueue and the check do the rest. Plain mode waits
    until the previous execution is over (`seconds` at most, then `TimedOutError`), and then takes the mark away,
    lifts suspend and raises A in one update. A job that was never opened stays closed.
    """
    job = yield from _read(namespace, name, uid, "released")
    if not job.held:
        return job
    if job.kueue_mode:
        # In this order, so that whoever is cut off in between leaves the mark, and Release can be repeated.
        yield from _set_active(job, True, "released")
    return (yield from _change(namespace, name, uid, "released", lambda found: _released(found, seconds)))


def _held(job: TrainJob) -> Operation[JsonObject | None]:
    """Build the update that holds a job; None where nothing is to change."""
    if job.held and (job.kueue_mode or job.suspended):
        return None
    body = copied(job.raw)
    body["metadata"].setdefault("annotations", {})[HOLD] = "true"
    if not job.kueue_mode:
        body["spec"]["suspend"] = True
    return body
    yield  # a generator, as its counterpart is: nothing needs to be read here


def _released(job: TrainJob, seconds: float) -> Operation[JsonObject | None]:
    """Build the update that releases a job; None where nothing is to change."""
    if not job.held:
        return None
    body = copied(job.raw)
    del body["metadata"]["annotations"][HOLD]
    if job.kueue_mode or not job.past_gate:
        return body
    count, names = yield from await_next(job, seconds)
    body = with_count(body, count, names)
    body["spec"]["suspend"] = False
    return body


def _read(namespace: str, name: str, uid: str, done: str) -> Operation[TrainJob]:
    where = f"TrainJob {namespace}/{name}"
    job = yield from read_job(namespace, name, uid)
    if job is None:
        raise RefusedError(f"{where} (uid {uid}) is gone; it was not {done}.")
    if job.ended or job.meta.deleting:
        raise RejectedError(f"{where} {f'has ended ({job.ended})' if job.ended else 'is being deleted'}; not {done}.")
    return job


def _change(namespace: str, name: str, uid: str, done: str, build: Build) -> Operation[TrainJob]:
    """Read, build an update and write it; decide anew, bounded, where somebody else wrote first."""
    tries = Tries(f"TrainJob {namespace}/{name} was not {done}")
    while True:
        job = yield from _read(namespace, name, uid, done)
        try:
            body = yield from build(job)
            if body is None:
                return job
            return parse_trainjob((yield from write(Replace(TRAINJOBS, body))))
        except (ConflictError, UnreachableError) as error:
            tries.again(error)


def _set_active(job: TrainJob, active: bool, done: str) -> Operation[None]:
    """Set spec.active of the job's Workload, if there is one: a later one is kept at the check by the mark."""
    tries = Tries(f"TrainJob {job.meta.namespace}/{job.meta.name} was not {done} in its Workload")
    while True:
        workload = yield from read_workload(job)
        if workload is None or workload.active is active:
            return
        body = copied(workload.raw)
        body["spec"]["active"] = active
        try:
            yield from write(Replace(WORKLOADS, body))
        except (ConflictError, UnreachableError) as error:
            tries.again(error)
            continue
        return
