"""How an operation says no. The message is for people: what was seen, what was expected, what to do."""

from __future__ import annotations


class OperationError(Exception):
    """Base: an operation ended without doing what it was asked for."""


class RefusedError(OperationError):
    """Nothing that could run was left behind: the request was wrong, or its gate could not be proven."""


class RejectedError(OperationError):
    """Open came too late: the job ended, or is being deleted, without ever having been opened."""


class MayExistError(OperationError):
    """The API server stopped answering half-way: the TrainJob may exist, closed. Repeating takes it over."""


class TimedOutError(OperationError):
    """A bounded wait ended; what was waited for may still come. The operation can be repeated."""
