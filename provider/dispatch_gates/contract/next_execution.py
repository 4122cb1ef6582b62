"""Whether the next execution of a job may begin, and with which A: the heart of both modes.

The controller asks it before it approves a readmission, the adapter before it opens or releases a job in plain mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dispatch_gates.contract.count import MAX_COUNT, Unreadable
from dispatch_gates.contract.execution import Evidence
from dispatch_gates.contract.objects import listed
from dispatch_gates.contract.trainjob import TrainJob


class Reason(StrEnum):
    """Why a job waits. The README explains each."""

    OWNER_UNREADABLE = "OwnerUnreadable"
    CONCURRENT_ADMISSION = "ConcurrentAdmission"
    DELETING = "Deleting"
    ENDED = "Ended"
    GATED = "Gated"
    HELD = "Held"
    NOT_SUSPENDED = "NotSuspended"
    STILL_RUNNING = "StillRunning"
    COUNT_UNREADABLE = "CountUnreadable"
    TRAINER_BEHIND = "TrainerBehind"
    REFUSED = "Refused"


@dataclass(frozen=True)
class NotYet:
    """The next execution must not begin."""

    reason: Reason
    why: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.why}"


def next_count(job: TrainJob, evidence: Evidence) -> int | NotYet:
    """Return the A of the next execution, higher than all that anything carries, or why it must not begin.

    `evidence` must have been read after `job`: then nothing that it shows was started by what is newer.
    """
    # Quiescent: nothing of the previous execution runs or can still start.
    if remains := evidence.remains():
        return NotYet(Reason.STILL_RUNNING, f"the previous execution may still run: {listed(remains, len(remains))}")
    jobset = evidence.jobset
    assert jobset is not None, "an execution without a JobSet is not over"
    # A must be readable everywhere, and the JobSet must carry the TrainJob's: otherwise Trainer is behind, and may
    # still act on an earlier view.
    for carrier in (job.count, jobset.count, *(batch.count for batch in evidence.jobs)):
        if isinstance(carrier, Unreadable):
            return NotYet(Reason.COUNT_UNREADABLE, f"the admission count cannot be read: {carrier.seen}")
    # A patch that was stripped cannot be carried: Trainer's apply would leave the pod template's metadata null, and
    # the API server refuses that for ever (seen with Trainer 2.3). The next raise mends it, and is waited for.
    stripped = job.count is None and isinstance(jobset.count, int)
    if jobset.count != job.count and not stripped:
        return NotYet(Reason.TRAINER_BEHIND, f"JobSet {jobset.meta.name} has A={jobset.count}, TrainJob A={job.count}")
    # A patch that was stripped is written again only where a Job shows that there was one.
    if job.count is None and not any(isinstance(batch.count, int) for batch in evidence.jobs):
        return NotYet(
            Reason.COUNT_UNREADABLE, f"TrainJob {job.meta.name} carries no admission count; was it started by dispatch?"
        )
    highest = max(evidence.highest_count(), job.count if isinstance(job.count, int) else 0)
    if highest >= MAX_COUNT:
        return NotYet(Reason.COUNT_UNREADABLE, f"A={highest} is as high as it goes")
    return highest + 1
