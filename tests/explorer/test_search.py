"""The explorer within small bounds: the product keeps its promises, and the tables take the model's steps."""

from __future__ import annotations

from collections import deque

import pytest

from explorer.model import Model, Scenario
from explorer.search import explore

ONE = Scenario("one job, one replica", replicas=1)
TWO = Scenario("one job, two replicas")


@pytest.mark.parametrize("scenario", [ONE, TWO], ids=lambda scenario: scenario.name)
def test_no_promise_is_broken(scenario: Scenario) -> None:
    result = explore(scenario, max_states=60_000)
    assert not result.violations, str(result.violations[0])
    assert result.states > 60_000


def test_the_tables_take_the_steps_that_the_model_takes() -> None:
    """The same number of states and of steps, level by level, as a search with the model alone."""
    scenario = Scenario("few", replicas=2, crashes=1, evictions=0)
    model = Model(scenario)
    seen, frontier = {model.initial}, deque([model.initial])
    depth = 0
    while frontier and depth < 14:
        depth += 1
        for _ in range(len(frontier)):
            for step in model.successors(frontier.popleft()):
                assert not step.broken
                if step.state not in seen:
                    seen.add(step.state)
                    frontier.append(step.state)
    assert explore(scenario, max_depth=depth).states == len(seen)
