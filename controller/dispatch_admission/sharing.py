"""One list as the evidence of many passes: lists that wait while one is under way are sent together, as one.

A list by the JobSet's name costs the API server a walk over the whole namespace, whatever it finds. While one is
under way, those that other passes ask for wait, and then go out as one, for all their names. Where none is under way
a list goes out at once and as it is: a pass that is alone pays nothing.

What a pass rests on is kept. It reads its Workload first and the evidence after that, and it is answered only by a
list that was sent after it asked. The answer is taken apart by the label that the selector names, so that each pass
gets exactly what a list of its own would have found: whatever carries its label, whoever put it there.
"""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from dispatch_gates.cluster import Driver, drive
from dispatch_gates.contract.names import JOBSET_NAME, Resource
from dispatch_gates.contract.objects import text
from dispatch_gates.requests import (
    ApiError,
    BadReplyError,
    DeniedError,
    InvalidError,
    List,
    Listing,
    Operation,
    Request,
)

T = TypeVar("T")

MAX_NAMES: Final = 50
"""Names in one selector; each has 63 characters at the most, so that the request line stays below 4 KB."""
_SHAREABLE: Final = re.compile(re.escape(JOBSET_NAME) + r"=([a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)", re.ASCII)


class _Place(NamedTuple):
    """What is listed, and where."""

    resource: Resource
    namespace: str


@dataclass
class _Batch:
    """Names that are asked for by one list, and its answer once there is one."""

    names: set[str] = field(default_factory=set)
    sent: bool = False
    answer: dict[str, Listing] | ApiError | None = None


@dataclass
class _Line:
    """The lists of one place: one is under way at a time, and one batch gathers behind it."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    gathering: _Batch = field(default_factory=_Batch)
    users: int = 0

    def join(self, name: str) -> _Batch:
        """Add a name to the batch that goes out next."""
        if self.gathering.sent or len(self.gathering.names) >= MAX_NAMES:
            self.gathering = _Batch()
        self.gathering.names.add(name)
        assert not self.gathering.sent, "a list answers only those who asked before it was sent"
        return self.gathering


class Sharing:
    """Runs operations over a driver, and sends the lists of several of them as one. For one event loop."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._lines: dict[_Place, _Line] = {}

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation to its end, and return its result or raise its error."""
        return await drive(operation, self.perform)

    async def perform(self, request: Request) -> Any:
        """Send one request, alone or with others of its kind; return its reply or raise an `ApiError`."""
        shareable = isinstance(request, List) and request.namespace and _SHAREABLE.fullmatch(request.selector)
        if not shareable:
            return await self._driver.perform(request)
        assert isinstance(request, List)
        name, place = shareable[1], _Place(request.resource, request.namespace)
        with self._line(place) as line:
            batch = line.join(name)
            async with line.turn:
                # The first of a batch sends its list; the next one does where that one was cancelled half-way.
                if batch.answer is None:
                    batch.sent = True
                    batch.answer = await self._answer(place, batch.names)
        if isinstance(batch.answer, DeniedError | InvalidError) and len(batch.names) > 1:
            # The API server's words end up in messages for people: they must be about this job alone.
            return await self._driver.perform(request)
        if isinstance(batch.answer, ApiError):
            raise copy.copy(batch.answer)  # one of its own for each: an exception remembers where it was raised
        return batch.answer[name]

    @contextmanager
    def _line(self, place: _Place) -> Iterator[_Line]:
        """Hand out the line of a place, and forget it with its last user."""
        line = self._lines.setdefault(place, _Line())
        line.users += 1
        try:
            yield line
        finally:
            line.users -= 1
            if not line.users:
                del self._lines[place]

    async def _answer(self, place: _Place, names: set[str]) -> dict[str, Listing] | ApiError:
        try:
            listing = await self._driver.perform(List(*place, _selector(names)))
            return _apart(listing, names)
        except ApiError as error:
            return error


def _selector(names: set[str]) -> str:
    if len(names) == 1:
        return f"{JOBSET_NAME}={next(iter(names))}"
    return f"{JOBSET_NAME} in ({','.join(sorted(names))})"


def _apart(listing: Listing, names: set[str]) -> dict[str, Listing]:
    """Take a list apart by name; every name has its own, and nothing is left over."""
    found: dict[str, list[Any]] = {name: [] for name in names}
    for item in listing.items:
        label = text(item, "metadata", "labels", JOBSET_NAME)
        if label not in found:
            raise BadReplyError(f"a list for {', '.join(sorted(names))} was answered with one of {label!r}")
        found[label].append(item)
    return {name: Listing(tuple(items), listing.resource_version) for name, items in found.items()}
