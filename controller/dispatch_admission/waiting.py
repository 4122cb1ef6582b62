"""What is known of the Workloads that have quota and wait at the check: keys, times and reasons, no objects."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from dispatch_gates.contract.next_execution import Reason


class Key(NamedTuple):
    """An object, by namespace and name."""

    namespace: str
    name: str


@dataclass(frozen=True)
class Wait:
    """Why a Workload waits, for the end of which job where that is known, and since when (monotonic, seconds)."""

    reason: Reason
    said: str
    job: Key | None
    since: float


@dataclass
class Waiting:
    """Which Workloads wait, and which of them for what happens to a job. Grows with them, and with nothing else."""

    _waits: dict[Key, Wait] = field(default_factory=dict)
    _of_job: dict[Key, set[Key]] = field(default_factory=dict)
    _looked: OrderedDict[Key, float] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._waits)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._waits)

    def get(self, workload: Key) -> Wait | None:
        """Return what a Workload waits for, as of the last look."""
        return self._waits.get(workload)

    def put(self, workload: Key, reason: Reason, said: str, job: str | None, now: float) -> bool:
        """Note that a Workload waits, looked at just now; return whether that is news: another reason or word."""
        before = self.drop(workload)
        of = Key(workload.namespace, job) if job is not None else None
        self._waits[workload] = Wait(reason, said, of, before.since if before is not None else now)
        self._looked[workload] = now
        if of is not None:
            self._of_job.setdefault(of, set()).add(workload)
        return before is None or (before.reason, before.said) != (reason, said)

    def drop(self, workload: Key) -> Wait | None:
        """Forget a Workload that waits no more; return what it waited for."""
        wait = self._waits.pop(workload, None)
        if wait is None:
            return None
        del self._looked[workload]
        if wait.job is not None:
            self._of_job[wait.job].discard(workload)
            if not self._of_job[wait.job]:
                del self._of_job[wait.job]
        return wait

    def for_job(self, job: Key) -> tuple[Key, ...]:
        """Return the Workloads that wait for what happens to a job."""
        return tuple(self._of_job.get(job, ()))

    def longest_unseen(self) -> tuple[Key, float] | None:
        """Return the Workload that was not looked at for the longest time, and when it was."""
        return next(iter(self._looked.items()), None)

    def seen(self, workload: Key, now: float) -> None:
        """Note that a look at the Workload is under way."""
        if workload in self._looked:
            self._looked[workload] = now
            self._looked.move_to_end(workload)

    def by_reason(self) -> Counter[Reason]:
        """Count them."""
        return Counter(wait.reason for wait in self._waits.values())

    def longest(self, now: float) -> dict[Reason, float]:
        """Return for how many seconds the first of each reason has waited by now."""
        found: dict[Reason, float] = {}
        for wait in self._waits.values():
            found[wait.reason] = max(found.get(wait.reason, 0.0), now - wait.since)
        return found
