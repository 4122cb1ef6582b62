"""Open: remove dispatch's own entry from the start gate (Kueue mode)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dispatch_gates.contract.names import TRAINJOBS
from dispatch_gates.contract.trainjob import TrainJob, parse_trainjob, without_gate
from dispatch_gates.operations.errors import RefusedError, RejectedError, TimedOutError
from dispatch_gates.operations.jobs import read_job
from dispatch_gates.requests import ConflictError, Operation, Replace, UnreachableError, write

ATTEMPTS: Final = 8
"""How often a write that lost a race is decided anew. Each loss means that somebody else made progress."""


@dataclass(frozen=True)
class Opened:
    """A job past its gate. `already`: it was so before; `held_by`: the gates of administrators that remain."""

    job: TrainJob
    already: bool

    @property
    def held_by(self) -> tuple[str, ...]:
        """The administrators' gates that still hold the job."""
        return self.job.gates.others


def open_job(namespace: str, name: str, uid: str) -> Operation[Opened]:
    """Open the job of this UID; success without a write where it is past its gate already.

    Raises `RejectedError` where it ended or is being deleted while still gated, `RefusedError` where there is no
    such job, `TimedOutError` where others kept changing it.
    """
    where = f"TrainJob {namespace}/{name}"
    for _ in range(ATTEMPTS):
        job = yield from read_job(namespace, name, uid)
        if job is None:
            raise RefusedError(f"{where} (uid {uid}) is gone; it was not opened. Start it as the next submission.")
        if not job.gates.ours:
            return Opened(job, already=True)
        if job.ended or job.meta.deleting:
            state = f"ended ({job.ended})" if job.ended else "is being deleted"
            raise RejectedError(f"{where} {state} without ever having been opened; start the next submission.")
        if job.queue is None:
            raise RefusedError(f"{where} has no queue label: plain mode cannot be opened by this version.")
        try:
            stored = yield from write(Replace(TRAINJOBS, without_gate(job)))
        except (ConflictError, UnreachableError):
            continue  # somebody else wrote first, or our own write may be in: read and decide again
        return Opened(parse_trainjob(stored), already=False)
    raise TimedOutError(f"{where} was not opened: it changed, or gave no answer, {ATTEMPTS} times in a row. Try again.")
