"""Opening recorded jobs for the engine: preflight, the operation, and its warnings; one job, or many at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Final, TypeVar

from dispatch_gates.contract.trainjob import TrainJob
from dispatch_gates.resources import _life, _preflight, _running, _telling
from dispatch_gates.resources._inputs import Props
from dispatch_gates.resources._running import GatesError

T = TypeVar("T")

_AT_ONCE: Final = 8
"""How many jobs are read, or opened, at a time."""
_TOLD_SECONDS: Final = 5.0
"""How often it is told how far it is."""
_SHOWN: Final = 3
"""Of how many jobs that are not opened it is told why."""


def open_one(props: Props) -> Props:
    """Open a recorded job; return the outputs of its opening. Raises `GatesError` where it was not opened."""
    if not _preflight.is_proven(props):
        _prove(*_read(props))
    return _open(props)


def open_all(jobs: Sequence[Props]) -> list[Props]:
    """Open recorded jobs, several at a time; return the outputs of their openings, in any order.

    All or none: what keeps one of them closed is looked for before the first is opened, since nothing is recorded of an
    opening that failed. Where the cluster changes, or does not answer, after that look, the others are opened all the
    same. `GatesError` says of how many, and why.
    """
    read, wrong = _each(jobs, _read, "are looked at")
    if wrong:
        raise GatesError(f"{_some(wrong, jobs)} cannot be opened, and so none was: {_listed(wrong)}")
    for props, job in read:
        _prove(props, job)
    opened, wrong = _each(jobs, _open, "are open")
    if wrong:
        raise GatesError(
            f"{_some(wrong, jobs)} were not opened: {_listed(wrong)} The others are, without a record of it yet: run "
            "the same again, before any refresh. One of them that is gone by then takes the next `submission`."
        )
    return opened


def _read(props: Props) -> tuple[Props, TrainJob]:
    return props, _running.run(props, _life.openable(props))


def _prove(props: Props, job: TrainJob) -> None:
    """Make sure that the gate of a job is proven, unless the job is past it; raise `GatesError` where it is not."""
    if not job.past_gate and not _preflight.is_proven(props):
        _preflight.prove(props, job.queue, job.runtime)


def _open(props: Props) -> Props:
    outs = _running.run(props, _life.opened(props))
    _telling.warn(outs)
    return outs


def _each(jobs: Sequence[Props], work: Callable[[Props], T], done: str) -> tuple[list[T], list[str]]:
    """Do this to each, several at a time, and tell how far it is; return the results, and what went wrong."""
    results: list[T] = []
    wrong: list[str] = []
    told = time.monotonic()
    with ThreadPoolExecutor(_AT_ONCE, "opening") as pool:
        for future in as_completed([pool.submit(work, job) for job in jobs]):
            try:
                results.append(future.result())
            except GatesError as error:
                wrong.append(str(error))
            if time.monotonic() - told > _TOLD_SECONDS:
                told = time.monotonic()
                _telling.say("info", f"{len(results)} of {len(jobs)} jobs {done}")
    return results, wrong


def _some(wrong: Sequence[str], jobs: Sequence[Props]) -> str:
    return f"{len(wrong)} of {len(jobs)} jobs"


def _listed(wrong: Sequence[str]) -> str:
    more = f" And {len(wrong) - _SHOWN} more." if len(wrong) > _SHOWN else ""
    return " ".join(sorted(wrong)[:_SHOWN]) + more
