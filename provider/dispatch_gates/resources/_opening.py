"""Opening recorded jobs for the engine: preflight, the operation, and its warnings; one job, or many at once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Final

from dispatch_gates.resources import _life, _preflight, _running, _telling
from dispatch_gates.resources._inputs import Props
from dispatch_gates.resources._running import GatesError

_AT_ONCE: Final = 8
"""How many jobs are opened at a time: each is two reads and a write."""
_TOLD_SECONDS: Final = 5.0
"""How often it is told how many are open."""
_SHOWN: Final = 3
"""Of how many jobs that were not opened it is told why."""


def open_one(props: Props) -> Props:
    """Open a recorded job; return the outputs of its opening. Raises `GatesError` where it was not opened."""
    prove(props)
    return _open(props)


def open_all(jobs: Sequence[Props]) -> Mapping[str, Props]:
    """Open recorded jobs, several at a time; return the outputs of each opening by the job's name.

    Where some cannot be opened the others are all the same; `GatesError` then says how many were not, and why.
    """
    for job in jobs:
        prove(job)  # here, one after the other: of those with the same gate the first proves it
    opened: dict[str, Props] = {}
    wrong: list[str] = []
    told = time.monotonic()
    with ThreadPoolExecutor(_AT_ONCE, "opening") as pool:
        for future in as_completed([pool.submit(_open, job) for job in jobs]):
            try:
                outs = future.result()
            except GatesError as error:
                wrong.append(str(error))
            else:
                opened[outs["name"]] = outs
            if time.monotonic() - told > _TOLD_SECONDS:
                told = time.monotonic()
                _telling.say("info", f"{len(opened)} of {len(jobs)} jobs are open")
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise GatesError(
            f"{len(wrong)} of {len(jobs)} jobs were not opened: {'; '.join(sorted(wrong)[:_SHOWN])}{more}. The others "
            "are open. Run the same again once that is mended: what is open stays so."
        )
    return opened


def prove(props: Props) -> None:
    """Make sure that the gate of a recorded job is proven, unless it is past it; raise `GatesError` where it is not."""
    if _preflight.is_proven(props):
        return
    job = _running.run(props, _life.to_prove(props, {**props, "opened": True}))
    if job is not None:
        _preflight.prove(props, job.queue, job.runtime)


def _open(props: Props) -> Props:
    outs = _running.run(props, _life.opened(props))
    _telling.warn(outs)
    return outs
