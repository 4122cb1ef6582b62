"""What a command shows in a terminal of so many columns, and a picture of it.

`python -m cli.screens WIDTH FILE.svg WORDS...` (in tests/) runs `dispatch-gates WORDS` and draws the screen.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

PROGRAM = Path(sys.executable).parent / "dispatch-gates"
_LINES = 50
_UP, _ERASED = "\x1b[1A", "\x1b[2K"


def screen(words: Sequence[str], columns: int, *, answers: bytes = b"") -> tuple[int, str]:
    """Run the program in a terminal and type `answers`; return its exit code and what it wrote, escapes and all."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, columns, 0, 0))
    unset = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
    environment = {key: value for key, value in os.environ.items() if key not in unset} | {"TERM": "xterm-256color"}
    process = subprocess.Popen([str(PROGRAM), *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    if answers:
        os.write(ours, answers)
    seen = bytearray()
    try:
        while chunk := os.read(ours, 65536):
            seen += chunk
    except OSError as error:
        if error.errno != errno.EIO:  # how Linux says that the other end is closed
            raise
    os.close(ours)
    return process.wait(), seen.decode()


def lines(written: str) -> list[str]:
    """Return the lines of a screen as they stand there in the end, without colours."""
    return [Text.from_ansi(line).plain.rstrip() for line in _standing(written)]


def _standing(written: str) -> list[str]:
    """Return the lines that are left, with their colours: progress is drawn over, and taken away at its end."""
    found: list[str] = []
    for line in written.replace("\r\n", "\n").split("\n"):
        if _UP in line:
            del found[-line.count(_UP) :]
        found.append(line.split("\r")[-1].split(_ERASED)[-1])
    return found


def picture(written: str, columns: int, title: str) -> str:
    """Return a screen as SVG."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    for line in _standing(written.rstrip()):
        text = Text.from_ansi(line)
        indent = len(text.plain) - len(text.plain.lstrip())
        # Some programs that draw SVG drop the space that a text begins with.
        console.print(Text.assemble((" " * indent, "dim"), text[indent:]), overflow="fold")
    return console.export_svg(title=title)


if __name__ == "__main__":
    width, file, *asked = sys.argv[1:]
    code, said = screen(asked, int(width))
    shown = [word for word in asked if not word.startswith("/")]
    Path(file).write_text(picture(said, int(width), f"dispatch-gates {' '.join(shown)}"))
    print(f"{file}: exit code {code}")
