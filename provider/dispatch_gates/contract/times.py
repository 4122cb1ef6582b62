"""Times as the API server writes them (RFC 3339, whole seconds, UTC). No clock is read here."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"


def parse_time(value: str) -> datetime | None:
    """Read a time, or return None where it is none."""
    try:
        return datetime.strptime(value, _FORMAT)
    except ValueError:
        return None


def later_than(one: str, other: str) -> bool:
    """Whether `one` is later than `other`; False where either cannot be read."""
    first, second = parse_time(one), parse_time(other)
    return first is not None and second is not None and first > second


def latest(values: Iterable[str]) -> str | None:
    """Return the latest of the times that can be read, or None."""
    return max((value for value in values if parse_time(value) is not None), default=None)


def second_after(value: str) -> str:
    """Return the time one second later; `value` must be a time."""
    found = parse_time(value)
    if found is None:
        raise ValueError(f"{value!r} is no time of the form 2026-01-31T12:00:00Z")
    return (found + timedelta(seconds=1)).strftime(_FORMAT)
