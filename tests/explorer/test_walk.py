"""Long random runs: short ones here, long ones with `python -m faithful simulate`; each is played again by its seed."""

from __future__ import annotations

import pytest

from explorer import people
from explorer.model import Scenario
from explorer.walk import EPISODE, SCENARIOS, walk

STEPS = 3_000


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_no_promise_is_broken(scenario: Scenario) -> None:
    found = walk(scenario, 0, STEPS)
    assert found.violation is None, str(found.violation)
    assert found.resumes


def test_a_run_is_played_again_by_its_seed() -> None:
    """With what the promises do not survive, so that there is something to compare: a job is suspended by hand."""
    scenario = Scenario("a job is suspended by hand", replicas=1, people=(people.SUSPEND,))
    first, again, other = (walk(scenario, seed, 100 * EPISODE) for seed in (2, 2, 3))
    assert first == again != other
    assert first.violation is not None
