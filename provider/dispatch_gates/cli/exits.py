"""How the program ends: one table of exit codes for all commands."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import click

from dispatch_gates.printable import printable


class Exit(IntEnum):
    """Exit codes, the same for every command."""

    DONE = 0
    NO = 1
    USAGE = 2
    OBSERVE_ONLY = 3
    CANNOT_TELL = 4
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        """What it means, in a line."""
        return _MEANINGS[self]


_MEANINGS: Final = {
    Exit.DONE: "done; preflight: ready",
    Exit.NO: "no: refused, too late, timed out, not confirmed, or no such job",
    Exit.USAGE: "wrong usage; nothing was changed",
    Exit.OBSERVE_ONLY: "observe-only: the gate is not proven; nothing is opened or released",
    Exit.CANNOT_TELL: "cannot tell: no configuration, no answer, or no rights",
    Exit.INTERRUPTED: "interrupted by Ctrl-C or SIGTERM",
}


class Failure(click.ClickException):
    """An error for people: one message, one exit code, no stack trace."""

    exit_code = int(Exit.NO)

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class _ObserveOnlyFailure(Failure):
    exit_code = int(Exit.OBSERVE_ONLY)


class _CannotTellFailure(Failure):
    exit_code = int(Exit.CANNOT_TELL)


class _UsageFailure(Failure):
    exit_code = int(Exit.USAGE)


class InterruptedFailure(Failure):
    """Ctrl-C or SIGTERM."""

    exit_code = int(Exit.INTERRUPTED)

    def __init__(self) -> None:
        super().__init__("interrupted")


def failure(code: Exit, message: str) -> Failure:
    """Return the error that ends the program with this code."""
    kinds: tuple[type[Failure], ...] = (Failure, _ObserveOnlyFailure, _CannotTellFailure, _UsageFailure)
    return next(kind for kind in kinds if kind.exit_code == code)(message)
