"""Ctrl-C at random moments, as a person at a terminal presses it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time

SEED = int(os.environ.get("DISPATCH_SEED", str(time.time_ns() % 1_000_000)))
"""What the moments are drawn from: tests print it, and are told it to draw the same again."""
SECONDS = 900
"""How long a program that was interrupted may take to end."""
_BEFORE_IT_IS_CAUGHT = re.compile(
    r'File "\S+/(dispatch_local/__main__|local_cluster/pretend)\.py", line \d+, in <module>\s+'
    r"(import (os|signal|sys)|from (types|pathlib|dispatch_local\.__main__) import .*)\n"
)
"""The lines of ours in a stack trace of the interpreter's own start: the imports of what catches Ctrl-C."""


def interrupted(process: subprocess.Popen[str], moment: float, where: str) -> str:
    """Press Ctrl-C `moment` seconds from now, if the program still runs; return what it said, beginning with `where`.

    `process` leads a process group. Its end must be one that a person understands.
    """
    try:
        text, _ = process.communicate(timeout=moment)
    except subprocess.TimeoutExpired:
        # As the terminal does it: to the whole process group.
        os.killpg(process.pid, signal.SIGINT)
        text, _ = process.communicate(timeout=SECONDS)
    said = f"{where}: {text}"
    # Nothing is ours to say before the interpreter runs our code, nor after the work is done.
    assert process.returncode in {130, 0, -signal.SIGINT}, said
    assert "Traceback" not in text or "dispatch_local" not in _BEFORE_IT_IS_CAUGHT.sub("", text), said
    return said
