"""The explorer within small bounds. `make prove` searches the large ones.

Tested here: no promise is broken; once faults stop, every job comes to run; without the assumption the trace is shown,
and A still never repeats; a pass is given up only where it could do nothing any more; the search with tables takes the
steps that the model takes, no more and no fewer.
"""

from __future__ import annotations

import pytest

from explorer.__main__ import OPERATIONS, REPEATS
from explorer.actors import shipped
from explorer.liveness import stuck
from explorer.model import Model, Scenario, State, replay
from explorer.search import Search, explore, run

FEW = Scenario("one job, one replica, one eviction", replicas=1, people=(), evictions=1)
PARTLY = [
    Scenario("one job, one replica", replicas=1),
    Scenario("one job, two replicas"),
    Scenario("with an adapter", replicas=1, adapters=1, adapter=OPERATIONS, started=False),
    Scenario("plain mode, two adapters", replicas=0, kueue=False, adapters=2, adapter=OPERATIONS, started=False),
    Scenario("two jobs", jobs=2, adapters=1, adapter=OPERATIONS, quota=1, crashes=1, evictions=1),
]


@pytest.mark.parametrize("scenario", PARTLY, ids=lambda scenario: scenario.name)
def test_no_promise_is_broken_in_the_first_states(scenario: Scenario) -> None:
    result = explore(scenario, shipped(kueue=scenario.kueue, foresight=True), max_states=20_000)
    assert not result.violations, str(result.violations[0])
    assert result.states > 20_000


def test_no_promise_is_broken_and_nothing_is_stuck() -> None:
    search = Search(Model(FEW, shipped(foresight=True)))
    result = run(search)
    assert not result.violations, str(result.violations[0])
    assert result.exhausted
    found = stuck(search)
    assert not found.stuck, "\n".join(found.steps)
    passes = search.tables.model.actors[0][1]
    assert not passes.short_sighted(search.tables.met)


def test_without_the_assumption_the_trace_is_shown() -> None:
    scenario = Scenario("not assumed", replicas=1, assumed=False, evictions=1)
    (violation, *_) = explore(scenario, shipped(foresight=True)).violations
    assert violation.broken.startswith("S2")
    assert violation.steps[-1].startswith("replica 1 pass sets the check Ready")
    # A trace is a test: its steps can be taken again by their names, with the model alone and nothing given up.
    assert replay(Model(scenario), violation.steps) == {violation.broken}
    with pytest.raises(ValueError, match="step 1 cannot be taken here"):
        replay(Model(scenario), violation.steps[1:])


def test_without_the_assumption_a_never_repeats() -> None:
    scenario = Scenario("not assumed", replicas=1, people=(), assumed=False, evictions=1, judged=REPEATS)
    result = explore(scenario, shipped(foresight=True))
    assert not result.violations, str(result.violations[0])
    assert result.exhausted


@pytest.mark.parametrize(
    ("scenario", "depth"),
    [
        (FEW, 24),
        (Scenario("two jobs", jobs=2, adapters=1, adapter=("Open", "Hold"), quota=1, crashes=1, evictions=1), 5),
    ],
    ids=lambda found: found.name if isinstance(found, Scenario) else "",
)
def test_the_tables_take_the_steps_that_the_model_takes(scenario: Scenario, depth: int) -> None:
    """As many states, to the same depth, as a search with the model alone."""
    model = Model(scenario)
    seen: set[State] = {model.initial}
    frontier: list[State] = [model.initial]
    for _ in range(depth):
        steps = [step for state in frontier for step in model.successors(state)]
        assert not any(step.broken for step in steps)
        frontier = list({step.state for step in steps} - seen)
        seen.update(frontier)
    assert explore(scenario, max_depth=depth).states == len(seen)
