"""How often a write is decided anew, for the operations that read, decide and write until they are through."""

from __future__ import annotations

from typing import Final

from dispatch_gates.operations.errors import TimedOutError
from dispatch_gates.requests import ApiError, ConflictError

CONFLICTS: Final = 8
"""Races that may be lost: each means that somebody else made progress."""
_SILENCES: Final = 2
"""Writes that may remain without an answer: where a webhook hangs, each takes ten seconds and more."""


class Tries:
    """Counts the writes of one operation that failed; `failure` is what is said when it is given up."""

    def __init__(self, failure: str) -> None:
        self._failure = failure
        self._conflicts = self._silences = 0

    def again(self, error: ApiError) -> None:
        """Note a write that lost a race or got no answer: read and decide anew, or raise `TimedOutError`."""
        if isinstance(error, ConflictError):
            self._conflicts += 1
        else:
            self._silences += 1
        if self._conflicts >= CONFLICTS:
            raise TimedOutError(f"{self._failure}: it changed {CONFLICTS} times in a row. Try again.") from error
        if self._silences >= _SILENCES:
            raise TimedOutError(
                f"{self._failure}, as far as can be seen: the API server gave no answer, {_SILENCES} times ({error}). "
                "Try again: if it was done after all, nothing is done twice."
            ) from error
