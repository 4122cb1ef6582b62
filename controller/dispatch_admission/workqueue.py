"""A work queue keyed by name: a key is worked on by one worker at a time, and never forgotten while it is dirty."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Hashable
from enum import IntEnum
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_FIRST_SECONDS: Final = 0.1
_LAST_SECONDS: Final = 30.0
_GRANTED_SECONDS: Final = 60.0


class Lane(IntEnum):
    """Which keys are taken first; within a lane, in the order in which they were added."""

    QUICK = 0
    USUAL = 1
    BACKGROUND = 2


class WorkQueue(Generic[K]):
    """Keys by lane and in order, each once; memory grows with the keys that wait, and no more."""

    def __init__(self) -> None:
        self._order: asyncio.PriorityQueue[tuple[Lane, int, K]] = asyncio.PriorityQueue()
        self._numbers = itertools.count()
        self._ready: dict[K, tuple[Lane, int]] = {}
        self._busy: set[K] = set()
        self._again: dict[K, Lane] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._ready) + len(self._busy) + len(self._timers)

    @property
    def pending(self) -> bool:
        """Whether a key could be worked on now."""
        return bool(self._ready)

    def add(self, key: K, lane: Lane = Lane.USUAL) -> None:
        """Have the key worked on as soon as possible; while it is being worked on, once more after that."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if key in self._busy:
            self._again[key] = min(lane, self._again.get(key, lane))
        elif key not in self._ready or lane < self._ready[key][0]:
            place = (lane, next(self._numbers))
            self._ready[key] = place
            self._order.put_nowait((*place, key))

    def add_after(self, key: K, seconds: float, lane: Lane = Lane.USUAL) -> None:
        """Have the key worked on later, unless it is added before."""
        if key in self._ready or key in self._again or key in self._timers:
            return
        self._timers[key] = asyncio.get_running_loop().call_later(seconds, self.add, key, lane)

    async def get(self) -> K:
        """Wait for a key and take it; `done` must follow."""
        while True:
            *place, key = await self._order.get()
            if self._ready.get(key) == tuple(place):  # otherwise it went ahead in a quicker lane
                break
        del self._ready[key]
        self._busy.add(key)
        return key

    def done(self, key: K) -> None:
        """Give the key back; it is worked on again at once if it was added meanwhile."""
        self._busy.discard(key)
        lane = self._again.pop(key, None)
        if lane is not None:
            self.add(key, lane)

    def retry(self, key: K, at_least: float | None = None) -> float:
        """Have the key worked on after a time that doubles with each failure, with jitter; return it in seconds.

        `at_least` is what the API server asks for; up to a minute of it is granted.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - nothing secret about it
        seconds: float = min(_FIRST_SECONDS * 2.0 ** min(failures, 16), _LAST_SECONDS) * jitter
        seconds = max(seconds, min(at_least or 0.0, _GRANTED_SECONDS))
        self.add_after(key, seconds)
        return seconds

    def failures(self, key: K) -> int:
        """Return how often the key was retried since it was forgotten."""
        return self._failures.get(key, 0)

    def forget(self, key: K) -> None:
        """Forget the failures of a key."""
        self._failures.pop(key, None)
