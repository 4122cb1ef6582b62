"""Each precondition taken away, and two wrong controllers: the explorer notices, in a short trace.

That a unit check notices each of them, too, is in `unit/test_preconditions.py`. The table of both is generated.
"""

from __future__ import annotations

import pytest

from explorer.mutations import HUNTS, MAX_STEPS, TABLE_FILE, WRONG, Hunt, as_shipped, found, found_wrong, row, wrong_row
from unit.test_preconditions import PROJECTS_LIST

_AGAIN = "tests/mutants.md is out of date: run `python -m faithful mutants` in tests/"


@pytest.mark.parametrize("hunt", HUNTS, ids=lambda hunt: hunt.mutant)
def test_a_mutant_is_noticed(hunt: Hunt) -> None:
    violation = found(hunt)
    assert violation is not None
    assert len(violation.steps) <= MAX_STEPS, str(violation)
    assert row(hunt, violation) in TABLE_FILE.read_text().splitlines(), _AGAIN


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_controller_is_noticed(name: str) -> None:
    violation = found_wrong(name)
    assert violation is not None
    assert len(violation.steps) <= MAX_STEPS, str(violation)
    assert wrong_row(name, violation) in TABLE_FILE.read_text().splitlines(), _AGAIN


def test_every_precondition_is_taken_away() -> None:
    assert [hunt.precondition for hunt in HUNTS] == list(PROJECTS_LIST)
    assert len(TABLE_FILE.read_text().split("|---|\n")[1].splitlines()) == len(HUNTS) + len(WRONG), _AGAIN


def test_the_code_as_it_is_keeps_every_promise_in_these_worlds() -> None:
    assert as_shipped(max_states=3_000) == []
