"""What a step is: a rule looks at one, two or three parts of a job's world and says what may become of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

TRAINJOB, WORKLOAD, JOBSET, JOB, PODS = range(5)
"""The parts of one job's world, in the order in which a state holds them."""

CHANGED_TRAINJOB, CHANGED_WORKLOAD, LATE, READY, RESERVED, EVICTED, FAULT = (1 << bit for bit in range(7))
"""Effects beside the parts: which versions operations under way can no longer write; a late act of the JobSet or Job
controller; a job was let run; quota was taken; an eviction, which may be bounded; what a world without faults, and
without people who change their minds, does not do."""
NOTED = CHANGED_TRAINJOB | CHANGED_WORKLOAD | LATE
"""The effects that operations under way notice."""


class Outcome(NamedTuple):
    """One step: who does what; the parts after it, in the rule's order; effects; and the promise it breaks, if any."""

    label: str
    after: tuple[Any, ...]
    effects: int = 0
    broken: str = ""


@dataclass(frozen=True)
class Rule:
    """A rule of one actor over some parts."""

    actor: str
    parts: tuple[int, ...]
    steps: Callable[..., Iterable[Outcome]]
