"""What can go wrong, one class per exit code of the command line."""

from __future__ import annotations


class LocalError(Exception):
    """Something failed; the message says what was seen, what was expected and what to do next."""

    exit_code = 1


class NotUpError(LocalError):
    """The cluster this needs is not up."""

    exit_code = 3


class MissingError(LocalError):
    """The machine lacks something: Go, root, a package, a kernel feature."""

    exit_code = 4
