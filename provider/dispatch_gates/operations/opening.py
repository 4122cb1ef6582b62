"""Open: let a recorded job past the start gate."""

from __future__ import annotations

from dataclasses import dataclass

from dispatch_gates.contract.count import with_count
from dispatch_gates.contract.names import OPENED, TRAINJOBS
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.contract.trainjob import TrainJob, parse_trainjob, without_gate
from dispatch_gates.operations.errors import RefusedError, RejectedError
from dispatch_gates.operations.evidence import await_next
from dispatch_gates.operations.jobs import read_job
from dispatch_gates.operations.start import WORKLOAD_SECONDS
from dispatch_gates.operations.tries import Tries
from dispatch_gates.requests import ConflictError, Operation, Replace, UnreachableError, write


@dataclass(frozen=True)
class Opened:
    """A job past its gate. `already`: it was so before."""

    job: TrainJob
    already: bool

    @property
    def held_by(self) -> tuple[str, ...]:
        """The administrators' gates that still hold the job."""
        return self.job.gates.others


def open_job(namespace: str, name: str, uid: str, *, seconds: float = WORKLOAD_SECONDS) -> Operation[Opened]:
    """Open the job of this UID; success without a write where it is past its gate already.

    Kueue mode: our entry leaves the gate, Kueue does the rest. Plain mode: in one update the entry leaves, suspend
    is lifted, the opened mark is set and A raised, once JobSet and Jobs are there (`seconds` at most). Under a hold
    the gate opens and the hold stays.

    Raises `RejectedError` where the job ended or is being deleted while still gated; `RefusedError` where there is
    no such job or, in plain mode, gates of others are on it; `TimedOutError` where others kept changing it, the API
    server did not answer, or its JobSet did not come.
    """
    tries = Tries(f"TrainJob {namespace}/{name} was not opened")
    while True:
        job = yield from read_openable(namespace, name, uid)
        if job.past_gate:
            return Opened(job, already=True)
        try:
            body = without_gate(job) if job.kueue_mode else (yield from _plain(job, seconds))
            stored = yield from write(Replace(TRAINJOBS, body))
        except (ConflictError, UnreachableError) as error:
            tries.again(error)  # somebody else wrote first, or our own write may be in
            continue
        return Opened(parse_trainjob(stored), already=False)


def read_openable(namespace: str, name: str, uid: str) -> Operation[TrainJob]:
    """Read a job that is open, or that `open_job` would open now; raise what `open_job` raises where it is neither."""
    where = f"TrainJob {namespace}/{name}"
    job = yield from read_job(namespace, name, uid)
    if job is None:
        raise RefusedError(f"{where} (uid {uid}) is gone; it was not opened. Start it as the next submission.")
    if job.past_gate:
        return job
    if job.ended or job.meta.deleting:
        state = f"ended ({job.ended})" if job.ended else "is being deleted"
        raise RejectedError(f"{where} {state} without ever having been opened; start the next submission.")
    if job.gates.others and not job.kueue_mode:
        raise RefusedError(
            f"{where} was not opened: it carries gates of others ({', '.join(job.gates.others)}), which nobody "
            "keeps in plain mode. Have them removed, then open it."
        )
    return job


def _plain(job: TrainJob, seconds: float) -> Operation[JsonObject]:
    """Build the one update that opens a job in plain mode."""
    body = without_gate(job)
    body["metadata"].setdefault("annotations", {})[OPENED] = "true"
    if job.held:
        return body
    count, names = yield from await_next(job, seconds)
    body = with_count(body, count, names)
    body["spec"]["suspend"] = False
    return body
