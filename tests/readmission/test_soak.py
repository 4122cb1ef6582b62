"""The plan of the soak: every kind, most of all the stall of a replica, and the same runs for the same seed."""

from __future__ import annotations

from collections import Counter

import pytest

from readmission.kinds import KINDS, Needs
from readmission.soak import STALLS, plan


@pytest.mark.parametrize("seed", range(5))
def test_plan(seed: int) -> None:
    planned = plan(240, 4, seed)
    assert planned == plan(240, 4, seed) != plan(240, 4, seed + 1)
    runs = [run for each in planned for run in each.runs]
    assert [number for number, _ in runs] == list(range(len(runs)))
    played = Counter(name for _, name in runs)
    assert set(played) == set(KINDS)
    assert played.total() >= 200
    assert played[STALLS] >= 100
    for each in planned:
        # What happens to the cluster happens to all that runs beside it.
        shared = {name for _, name in each.runs if KINDS[name].needs is Needs.CLUSTER}
        assert bool(shared) is each.together
        assert not each.together or len({name for _, name in each.runs}) == 1


def test_plan_of_some_kinds() -> None:
    assert [name for each in plan(3, 2, 1, [STALLS]) for _, name in each.runs] == [STALLS] * 3
    played = Counter(name for each in plan(8, 2, 1, ["deactivated", "two-leaders"]) for _, name in each.runs)
    assert played == {"deactivated": 4, "two-leaders": 4}
