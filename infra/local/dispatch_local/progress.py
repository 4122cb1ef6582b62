"""How a build tells of itself: one line a program; on a terminal each is there from the start and changes."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from dispatch_local.programs import Group

# Often enough that nobody thinks it hangs, seldom enough for a log.
STILL_SECONDS = 60.0


class Report(Protocol):
    """What a build calls, from any thread."""

    def begins(self, group: Group) -> None:
        """Say that a program is being built."""

    def done(self, group: Group, seconds: float, size: int) -> None:
        """Say that it is built: how long that took, how large it is in bytes."""


class Lines:
    """A line when a program is built, and now and then one that names what is being built."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._since: dict[str, float] = {}
        self._ended = threading.Event()

    def begins(self, group: Group) -> None:
        """Remember it, for the line in between."""
        self._since[group.name] = time.monotonic()

    def done(self, group: Group, seconds: float, size: int) -> None:
        """Print its line."""
        self._since.pop(group.name, None)
        self._say(f"built {group.name} {group.version}: {seconds:.0f} s, {size / 1e6:.0f} MB")

    def run(self) -> None:
        """Print the lines in between until `end` is called."""
        while not self._ended.wait(STILL_SECONDS):
            now = time.monotonic()
            running = [f"{name} ({now - since:.0f} s)" for name, since in list(self._since.items())]
            if running:
                self._say(f"  still building {', '.join(running)}")

    def end(self) -> None:
        """Let `run` return."""
        self._ended.set()


class Live:
    """A terminal: every program has its line from the beginning, with what it does and for how long."""

    def __init__(self, progress: Progress, groups: Sequence[Group]) -> None:
        self._progress = progress
        self._tasks = {
            group.name: progress.add_task(f"{group.name} {group.version}", start=False, total=1, state="waits")
            for group in groups
        }

    def begins(self, group: Group) -> None:
        """Start its clock."""
        self._progress.start_task(self._tasks[group.name])
        self._progress.update(self._tasks[group.name], state="builds")

    def done(self, group: Group, seconds: float, size: int) -> None:
        """Stop its clock."""
        self._progress.update(
            self._tasks[group.name], completed=1, state=f"built in {seconds:.0f} s, {size / 1e6:.0f} MB"
        )


@contextmanager
def report(groups: Sequence[Group], say: Callable[[str], None]) -> Iterator[Report]:
    """Tell of the build of `groups`: live on a terminal, through `say` elsewhere."""
    if sys.stdout.isatty():
        columns = (SpinnerColumn(finished_text="+"), TextColumn("{task.description:32}"), TimeElapsedColumn())
        with Progress(*columns, TextColumn("{task.fields[state]}"), console=Console()) as progress:
            yield Live(progress, groups)
        return
    lines = Lines(say)
    thread = threading.Thread(target=lines.run, daemon=True)
    thread.start()
    try:
        yield lines
    finally:
        lines.end()
        thread.join()
