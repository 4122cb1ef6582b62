"""Long random runs, far beyond the bounds of the search: one step after the other, drawn from a seed.

The same seed gives the same run on the same commit: steps are drawn from the model's successors in their order. Where
nothing can happen any more, the run begins anew.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from typing import Final

from explorer import people
from explorer.model import Model, Scenario
from explorer.search import Violation

_ALL: Final = (people.DELETE_WORKLOAD, people.SET_ACTIVE, people.HIDE)
"""People do here what the promises are to survive. Suspending a running job by hand is not among it: README.md."""
SCENARIOS: Final = (
    Scenario("two jobs, three replicas, people, quota for one", jobs=2, replicas=3, people=_ALL, quota=1),
    Scenario(
        "two jobs started, opened, held, released, deleted; two replicas; people",
        jobs=2,
        replicas=2,
        adapters=2,
        adapter=("Start", "Open", "Hold", "Release"),
        started=False,
        people=(*_ALL, people.STRIP_GATE, people.DELETE_JOB),
    ),
    Scenario("a TrainJob that goes and comes", replicas=2, people=(*_ALL, people.GONE, people.AGAIN)),
    Scenario(
        "plain mode", kueue=False, replicas=0, adapters=2, adapter=("Start", "Open", "Hold", "Release"), started=False
    ),
)
EPISODE: Final = 600
"""After so many steps a run begins anew: a job that has ended, or is deleted, has little left to happen to it."""
_RARE: Final = (
    ("people ", 0.01),
    (" crashes in ", 0.02),
    ("evicts", 0.05),
    ("takes the reservation back", 0.05),
    ("lists the check anew", 0.02),
    (" has waited long enough", 0.1),
    ("sees that the pod has succeeded", 0.02),
    ("deletes the TrainJob", 0.02),
    (" Hold ", 0.1),
)
"""What is drawn less often than any other step, so that a run gets through many executions."""


@dataclass(frozen=True)
class Walk:
    """A run: its steps, how often it began and a Job was resumed; what it broke, with the steps since it last began."""

    steps: int
    beginnings: int
    resumes: int
    violation: Violation | None


def walk(scenario: Scenario, seed: int, steps: int) -> Walk:
    """Take so many random steps, or fewer where a promise is broken."""
    chance = random.Random(f"{scenario.name}: {seed}")
    model = Model(scenario)
    state, way, beginnings, resumes = model.initial, list[str](), 1, 0
    for number in range(1, steps + 1):
        found = model.successors(state)
        if not found or len(way) == EPISODE:
            state, way, beginnings = model.initial, [], beginnings + 1
            continue
        (step,) = chance.choices(found, [_weight(step.name) for step in found])
        way.append(step.name)
        resumes += step.label.startswith("resumes the Job")
        if step.broken:
            return Walk(number, beginnings, resumes, Violation(step.broken, tuple(way)))
        state = step.state
    return Walk(steps, beginnings, resumes, None)


@cache
def _weight(name: str) -> float:
    return min((weight for part, weight in _RARE if part in name), default=1.0)
