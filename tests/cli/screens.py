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
    """Return the lines of a screen as they stand there, without escapes and without what was overwritten."""
    return [Text.from_ansi(line.split("\r")[-1]).plain.rstrip() for line in written.replace("\r\n", "\n").split("\n")]


def picture(written: str, columns: int, title: str) -> str:
    """Return a screen as SVG."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    for line in written.replace("\r\n", "\n").rstrip("\n").split("\n"):
        last = line.split("\r")[-1]
        if Text.from_ansi(last).plain.strip() or not line:
            console.print(Text.from_ansi(last), no_wrap=True, crop=False)
    return console.export_svg(title=title)


if __name__ == "__main__":
    width, file, *asked = sys.argv[1:]
    code, said = screen(asked, int(width))
    shown = [word for word in asked if not word.startswith("/")]
    Path(file).write_text(picture(said, int(width), f"dispatch-gates {' '.join(shown)}"))
    print(f"{file}: exit code {code}")
