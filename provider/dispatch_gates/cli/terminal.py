"""Writing for people: lines that fit the terminal, colours where there is one, and progress."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from dispatch_gates.printable import printable

WIDE: Final = 120
"""From so many columns on, a job and all that is said about it stand in one row."""
_ENDLESS: Final = 100_000


class Terminal:
    """Standard output. Where it is no terminal nothing is coloured, wrapped or shown as progress."""

    def __init__(self) -> None:
        seen = Console(highlight=False)
        self.is_terminal = seen.is_terminal
        self._console = seen if seen.is_terminal else Console(highlight=False, width=_ENDLESS)

    @property
    def wide(self) -> bool:
        """Whether a row has room for everything."""
        return self._console.width >= WIDE

    def row(self, *cells: tuple[str, int, str]) -> None:
        """Print one line of columns: text, width (0: the rest, wrapped under itself) and style."""
        grid = Table.grid(padding=0)
        for _, width, _ in cells:
            grid.add_column(width=width or None, no_wrap=bool(width), overflow="fold")
        grid.add_row(*(Text(printable(text), style) for text, _, style in cells))
        self._print(grid)

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print a table; its last column takes the rest of the line."""
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for name in head:
            table.add_column(name, no_wrap=name != head[-1], overflow="fold")
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        self._print(table)

    def line(self, text: str, style: str = "") -> None:
        """Print a line."""
        self._print(Text(printable(text), style))

    def _print(self, what: Table | Text) -> None:
        if self.is_terminal:
            self._console.print(what)
            return
        # Without a terminal no line is padded to its width.
        with self._console.capture() as captured:
            self._console.print(what)
        for line in captured.get().splitlines():
            self._console.out(line.rstrip(), highlight=False)

    @contextmanager
    def progress(self, what: str, seconds: float) -> Iterator[None]:
        """Show that something takes about so many seconds, for as long as it does; nothing without a terminal."""
        if not self.is_terminal:
            yield
            return
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn())
        with _Timed(*columns, console=self._console, transient=True) as shown:
            shown.add_task(what, total=seconds)
            yield


class _Timed(Progress):
    """Progress by time alone."""

    def get_renderables(self):  # type: ignore[no-untyped-def]  # as rich declares it
        for task in self.tasks:
            task.completed = min(task.elapsed or 0.0, task.total or 0.0)
        return super().get_renderables()
