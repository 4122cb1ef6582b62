"""A work queue keyed by name: a key is worked on by one worker at a time, and never forgotten while it is dirty."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_FIRST_SECONDS: Final = 0.1
_LAST_SECONDS: Final = 30.0


class WorkQueue(Generic[K]):
    """Keys in the order in which they were added, each once; memory grows with the keys that wait, and no more."""

    def __init__(self) -> None:
        self._order: asyncio.Queue[K] = asyncio.Queue()
        self._ready: set[K] = set()
        self._busy: set[K] = set()
        self._again: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._ready) + len(self._busy) + len(self._timers)

    def add(self, key: K) -> None:
        """Have the key worked on as soon as possible; while it is being worked on, once more after that."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if key in self._busy:
            self._again.add(key)
        elif key not in self._ready:
            self._ready.add(key)
            self._order.put_nowait(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Have the key worked on later, unless it is added before."""
        if key in self._ready or key in self._again or key in self._timers:
            return
        self._timers[key] = asyncio.get_running_loop().call_later(seconds, self.add, key)

    async def get(self) -> K:
        """Wait for a key and take it; `done` must follow."""
        key = await self._order.get()
        self._ready.discard(key)
        self._busy.add(key)
        return key

    def done(self, key: K) -> None:
        """Give the key back; it is worked on again at once if it was added meanwhile."""
        self._busy.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def retry(self, key: K) -> float:
        """Have the key worked on after a time that doubles with each failure, with jitter; return it in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - nothing secret about it
        seconds: float = min(_FIRST_SECONDS * 2.0 ** min(failures, 16), _LAST_SECONDS) * jitter
        self.add_after(key, seconds)
        return seconds

    def forget(self, key: K) -> None:
        """Forget the failures of a key."""
        self._failures.pop(key, None)
