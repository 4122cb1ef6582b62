"""The requests that operations yield, and the replies and errors that they get: the only way to the API server.

An operation is a generator of requests: it yields one, is sent the reply or has an error thrown in, and returns
its result. What runs it (`cluster` against a real API server, the explorer of the tests against a model) decides
when, and what else happens in between.

Every write carries the resourceVersion that it was decided on: `Replace` and `ReplaceStatus` in the object,
`Delete` beside the UID. Only `Create` has none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from dispatch_gates.contract.names import Resource
from dispatch_gates.contract.objects import JsonObject, text

T = TypeVar("T")


@dataclass(frozen=True)
class Get:
    """Read one object, consistently. Replied with the object."""

    resource: Resource
    namespace: str
    name: str


@dataclass(frozen=True)
class List:
    """Read all objects that match, all pages, consistently. Replied with a `Listing`."""

    resource: Resource
    namespace: str
    selector: str = ""


@dataclass(frozen=True)
class Watch:
    """Wait for changes after `resource_version`, `seconds` at most. Replied with `Changes`, at the first of them.

    One object by `name`, or those that match `selector`. With `settle` the reply comes once no more changes came for
    so many seconds, and holds them all. With `until` it comes at the first object that this is true of, and holds those
    before it, too; or earlier, so whoever asked has to look. Each reply ends a stream, and with it a connection.
    """

    resource: Resource
    namespace: str
    resource_version: str
    seconds: float
    name: str = ""
    selector: str = ""
    settle: float = 0.0
    until: Callable[[JsonObject], bool] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Create:
    """Create an object. Replied with the object as stored.

    With `dry_run` nothing is stored: webhooks and policies say what they would say, and that is all.
    """

    resource: Resource
    body: JsonObject = field(hash=False)
    dry_run: bool = False


@dataclass(frozen=True)
class Replace:
    """Replace an object of the version that the body names. Replied with the object as stored."""

    resource: Resource
    body: JsonObject = field(hash=False)

    def __post_init__(self) -> None:
        _assert_versioned(self.body)


@dataclass(frozen=True)
class ReplaceStatus:
    """Replace the status of an object of the version that the body names. Replied with the object as stored."""

    resource: Resource
    body: JsonObject = field(hash=False)

    def __post_init__(self) -> None:
        _assert_versioned(self.body)


@dataclass(frozen=True)
class Delete:
    """Delete an object of this UID and version; what it owns goes after it. Replied with None once accepted.

    Not in the foreground: Trainer 2.3 works on for a TrainJob that is being deleted, and makes its JobSet anew as
    often as the garbage collector removes it.
    """

    resource: Resource
    namespace: str
    name: str
    uid: str
    resource_version: str

    def __post_init__(self) -> None:
        assert self.uid, "a deletion without the UID of what it deletes"
        assert self.resource_version, "a deletion without the version that it was decided on"


@dataclass(frozen=True)
class Pause:
    """Wait for some seconds. Replied with None."""

    seconds: float


Request: TypeAlias = Get | List | Watch | Create | Replace | ReplaceStatus | Delete | Pause
WRITES = (Create, Replace, ReplaceStatus, Delete)


def _assert_versioned(body: JsonObject) -> None:
    assert text(body, "metadata", "resourceVersion"), "a write without the version that it was decided on"
    assert text(body, "metadata", "uid"), "a write without the UID of what it changes"


@dataclass(frozen=True)
class Listing:
    """All objects of a list, and the version at which it was taken."""

    items: tuple[JsonObject, ...]
    resource_version: str


@dataclass(frozen=True)
class Changes:
    """What a watch saw: objects in order, with whether each was deleted; and how much of its time was left."""

    events: tuple[tuple[JsonObject, bool], ...]
    seconds_left: float


Operation: TypeAlias = Generator[Request, Any, T]


def get(resource: Resource, namespace: str, name: str) -> Operation[JsonObject]:
    """Read one object; raises `NotFoundError` where there is none."""
    found: JsonObject = yield Get(resource, namespace, name)
    return found


def find(resource: Resource, namespace: str, name: str) -> Operation[JsonObject | None]:
    """Read one object, or return None where there is none. Raises `NotServedError` where nobody can say so."""
    try:
        return (yield from get(resource, namespace, name))
    except NotFoundError:
        return None


def select(resource: Resource, namespace: str, selector: str) -> Operation[Listing]:
    """Read all objects that match."""
    found: Listing = yield List(resource, namespace, selector)
    return found


def write(request: Create | Replace | ReplaceStatus) -> Operation[JsonObject]:
    """Send a write and return the object as stored, which must be the one that was meant, in a newer version."""
    stored: JsonObject = yield request
    for key in ("name", "namespace") + (() if isinstance(request, Create) else ("uid",)):
        sent, found = text(request.body, "metadata", key), text(stored, "metadata", key)
        assert sent == found, f"{request.resource}: wrote {key} {sent!r}, the API server answered with {found!r}"
    return stored


class ApiError(Exception):
    """The API server did not do what a request asked; the message is for people. Base of all below."""

    def __init__(self, message: str, *, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class ConflictError(ApiError):
    """409: the object is not of the version or UID that the request was decided on. Read and decide again."""


class AlreadyExistsError(ApiError):
    """409: there is an object of that name."""


class NotFoundError(ApiError):
    """404 about an object, by its name: there is none."""


class NotServedError(ApiError):
    """404 without the API server's word about an object: objects of this kind may be there all the same.

    The kind is not served (not installed, its version gone, an API server that has only begun to start), or something
    in between has answered.
    """


class ExpiredError(ApiError):
    """410: the version to watch or list from is no longer kept."""


class DeniedError(ApiError):
    """401 or 403: no valid credentials, no right, or a webhook or policy said no."""


class InvalidError(ApiError):
    """400 or 422: the API server refused the content."""


class ThrottledError(ApiError):
    """429: nothing was done; try again later, after `retry_after` seconds where given."""


class UnreachableError(ApiError):
    """No usable answer: a lost connection, a time-out, a 5xx. A write may have been applied all the same."""


class BadReplyError(ApiError):
    """An answer that is not what the API promises: not JSON, cut off, of a wrong shape."""
