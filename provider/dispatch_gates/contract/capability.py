"""Capabilities: what preflight found out, line by line, and the verdict that follows from the lines alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Answer(StrEnum):
    """The answer of one capability. `UNKNOWN`: something kept preflight from looking."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "cannot tell"


class Name(StrEnum):
    """The capabilities, in the order of the report. What each means: provider/README.md."""

    KINDS = "Kinds"
    START_GATE = "StartGate"
    READMISSION_GATE = "ReadmissionGate"
    QUEUE = "Queue"
    ADMISSION_CHECK = "AdmissionCheck"
    CONTROLLER = "Controller"
    RUNTIMES = "Runtimes"
    STARTED_JOBS = "StartedJobs"
    RIGHTS = "Rights"
    GUARD_RAILS = "GuardRails"


class Verdict(StrEnum):
    """Whether jobs may be started, opened and released. `OBSERVE_ONLY`: the gate is not proven."""

    READY = "ready"
    OBSERVE_ONLY = "observe-only"


@dataclass(frozen=True)
class Capability:
    """One line of preflight. `needed`: without a yes, the verdict is observe-only. `remedy`: what mends a no."""

    name: Name
    answer: Answer
    reason: str
    remedy: str = ""
    needed: bool = True

    @property
    def blocks(self) -> bool:
        """Whether it stands in the way of ready."""
        return self.needed and self.answer is not Answer.YES


def in_order(found: Iterable[Capability]) -> tuple[Capability, ...]:
    """Sort by the order of the report."""
    order = list(Name)
    return tuple(sorted(found, key=lambda capability: order.index(capability.name)))


def cannot_tell(found: Iterable[Capability]) -> bool:
    """Whether all that stands in the way is that preflight could not look, or that its caller lacks rights."""
    blocking = [capability for capability in found if capability.blocks]
    return bool(blocking) and all(
        capability.answer is Answer.UNKNOWN or capability.name is Name.RIGHTS for capability in blocking
    )


def readmission_gate(queue: Capability, check: Capability, controller: Capability) -> Capability:
    """Say whether a readmission gate runs: the queue has the check, the check is ours and Active, and it is served."""
    missing = [capability for capability in (queue, check, controller) if capability.answer is not Answer.YES]
    if not missing:
        return Capability(Name.READMISSION_GATE, Answer.YES, "every admission of this queue waits for dispatch's check")
    answer = Answer.NO if any(part.answer is Answer.NO for part in missing) else Answer.UNKNOWN
    return Capability(Name.READMISSION_GATE, answer, f"see {', '.join(part.name for part in missing)}")


PLAIN_READMISSION_GATE = Capability(
    Name.READMISSION_GATE,
    Answer.NO,
    "not needed: in plain mode nobody but dispatch itself starts a job's next execution",
    needed=False,
)
