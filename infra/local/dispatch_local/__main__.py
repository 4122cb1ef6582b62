"""`python -m dispatch_local`: the command line of `cli.py`, interruptible from its first moment on."""

import os
import signal
import sys
from types import FrameType


def nothing_was_begun(_number: int, _frame: FrameType | None) -> None:
    """Say so, and end: for signals before the command line has taken over."""
    # Nothing has been done yet, and a stack trace out of an import tells nobody anything.
    os.write(2, b"\ninterrupted; nothing was begun.\n")
    os._exit(130)


if __name__ == "__main__":
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, nothing_was_begun)

    from dispatch_local.cli import main

    code = main()
    # What was to be done is done, and said.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(code)
