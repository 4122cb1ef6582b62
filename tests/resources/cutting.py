"""Cutting a run off at a chosen request: in the process of the provider, at the very place, with real signals.

A place is a request and how often it was made: `create trainjobs 1`, `get trainjobs 2`, counted from the begin of
the run; those of preflight apart, as in `preflight create trainjobs 1`. The provider is the product's own, under the
engine; only its driver stops to count.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from dispatch_gates.cluster import preflight
from dispatch_gates.cluster.driver import Driver
from dispatch_gates.requests import ConflictError, Pause, Request, UnreachableError

T = TypeVar("T")

VARIABLE: Final = "DISPATCH_TEST_CUT"
FOLDER: Final = Path(__file__).parent / "cut"
"""What goes on PYTHONPATH."""

How = Literal[
    "killed before", "killed after", "reply lost", "engine killed", "interrupted", "interrupted twice", "let through"
]


@dataclass(frozen=True)
class Cut:
    """Where and how a run is cut off.

    Killed before the request is sent, or once it was answered: the provider, with SIGKILL. Reply lost: it lives, and
    is told that there was no answer. Engine killed: with SIGKILL, and the provider goes on. Interrupted: the engine
    gets SIGINT, once or twice, and the request is sent after that. Let through: nothing is done; the places are noted.
    """

    place: str
    how: How

    def __str__(self) -> str:
        return f"{self.how} at {self.place}"


UNCUT: Final = Cut("any", "let through")


class Watched:
    """One run that is to be cut off: what to add to its environment, and whether it came to pass."""

    def __init__(self, cut: Cut, folder: Path) -> None:
        self._note = folder / f"cut-{time.monotonic_ns()}"
        self._cut = cut

    @property
    def environment(self) -> Mapping[str, Any]:
        """Return what the engine is to be started with."""
        asked = json.dumps({**asdict(self._cut), "note": str(self._note)})
        return {VARIABLE: asked, "PYTHONPATH": os.pathsep.join((str(FOLDER), os.environ.get("PYTHONPATH", "")))}

    def noted(self) -> list[str]:
        """Return the id of the process in which it came to pass; of a run that was let through, its places."""
        assert self._note.exists(), f"the run was never {self._cut}"
        return list(dict.fromkeys(self._note.read_text().splitlines()))

    def provider(self) -> int:
        """Return the id of the process in which it came to pass; fail where it never did."""
        (process,) = self.noted()
        return int(process)


def install() -> None:
    """Have this process cut itself off, if its environment asks for it."""
    if VARIABLE not in os.environ:
        return
    asked = json.loads(os.environ[VARIABLE])
    place, how, note = asked["place"], asked["how"], Path(asked["note"])
    counts: Counter[str] = Counter()
    perform = Driver.perform

    async def cut_off(self: Driver, request: Request) -> Any:
        made = ("preflight " if _in_preflight.get() else "") + _label(request)
        counts[made] += 1
        here = f"{made} {counts[made]}"
        if how == "let through":
            _note(note, here)
        if here == place:
            _note(note, str(os.getpid()))
            for number in _BEFORE.get(how, ()):
                os.kill(os.getpid() if how.startswith("killed") else os.getppid(), number)
                await asyncio.sleep(0.5)  # so that the engine takes two for two, and acts on them
        try:
            reply = await perform(self, request)
        except ConflictError:
            counts[made] -= 1  # somebody else was faster, and nothing was applied: the place is the next try
            raise
        if here == place and how == "killed after":
            os.kill(os.getpid(), signal.SIGKILL)
        if here == place and how == "reply lost":
            raise UnreachableError(f"{place}: no answer (lost by a test)")
        return reply

    preflight.run_preflight = _marked(preflight.run_preflight)
    Driver.perform = cut_off  # type: ignore[method-assign] # what this is for
    if how == "engine killed":
        threading.Thread(target=_outlive, args=(os.getppid(),), daemon=True).start()


_BEFORE: Final[Mapping[How, tuple[int, ...]]] = {
    "killed before": (signal.SIGKILL,),
    "engine killed": (signal.SIGKILL,),
    "interrupted": (signal.SIGINT,),
    "interrupted twice": (signal.SIGINT, signal.SIGINT),
}


_in_preflight: Final = ContextVar("in_preflight", default=False)


def _marked(function: Callable[..., T]) -> Callable[..., T]:
    """Have the requests that a function sends, from whatever thread, be known as those of preflight."""

    def marked(*args: Any, **named: Any) -> T:
        token = _in_preflight.set(True)
        try:
            return function(*args, **named)
        finally:
            _in_preflight.reset(token)

    return marked


def _label(request: Request) -> str:
    if isinstance(request, Pause):
        return "pause"
    return f"{type(request).__name__.lower()} {request.resource.plural}"


def _note(path: Path, line: str) -> None:
    with path.open("a") as notes:
        notes.write(f"{line}\n")


def _outlive(engine: int) -> None:
    """End with the engine, a little later: a provider of a killed engine would stay for ever."""
    while os.getppid() == engine:
        time.sleep(0.2)
    time.sleep(5)
    os.kill(os.getpid(), signal.SIGKILL)
