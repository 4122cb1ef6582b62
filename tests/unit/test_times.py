"""Times as the API server writes them: read, compared, and one second added."""

from __future__ import annotations

import pytest

from dispatch_gates.contract.times import later_than, latest, parse_time, second_after

EARLY, LATE = "2026-01-01T00:00:59Z", "2026-01-01T00:01:00Z"
NO_TIMES = ["", "soon", "2026-01-01", "2026-01-01T00:00:00", "2026-01-01T00:00:00+00:00", "2026-13-01T00:00:00Z"]


@pytest.mark.parametrize(
    ("one", "other", "expected"), [(LATE, EARLY, True), (EARLY, LATE, False), (EARLY, EARLY, False)]
)
def test_later(one: str, other: str, expected: bool) -> None:
    assert later_than(one, other) is expected


@pytest.mark.parametrize("text", NO_TIMES)
def test_no_time(text: str) -> None:
    assert parse_time(text) is None
    assert not later_than(text, EARLY)
    assert not later_than(EARLY, text)
    with pytest.raises(ValueError, match="is no time"):
        second_after(text)


def test_latest() -> None:
    assert latest([EARLY, LATE, *NO_TIMES]) == LATE
    assert latest(NO_TIMES) is None
    assert latest([]) is None


@pytest.mark.parametrize(
    ("one", "next_"), [(EARLY, LATE), ("2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z")], ids=["minute", "year"]
)
def test_second_after(one: str, next_: str) -> None:
    assert second_after(one) == next_
    assert later_than(next_, one)
