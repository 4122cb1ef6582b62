"""What passes share: one list as the evidence of many, and one watch in which each sees its own JobSet change.

A list by the JobSet's name costs the API server a walk over the whole namespace, whatever it finds. While one is
under way, those that other passes ask for wait, and then go out as one, for all their names. Where none is under way
a list goes out at once and as it is: a pass that is alone pays nothing.

What a pass rests on is kept. It reads its Workload first and the evidence after that, and it is answered only by a
list that was sent after it asked. The answer is taken apart by the label that the selector names, so that each pass
gets exactly what a list of its own would have found: whatever carries its label, whoever put it there.

A pass that has read a JobSet and then waits for it to change is answered from the stream in which all JobSets are
watched, where a watch of its own would cost a new connection each time. Only what is newer than what it read counts;
and what the answer says is no evidence, it only ends the waiting. Where the stream may have missed something the pass
watches by itself.
"""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeVar

from dispatch_gates.cluster import Driver, drive
from dispatch_gates.contract.names import JOBSET_NAME, JOBSETS, Resource
from dispatch_gates.contract.objects import JsonObject, text
from dispatch_gates.requests import (
    WRITES,
    ApiError,
    BadReplyError,
    Changes,
    DeniedError,
    Get,
    InvalidError,
    List,
    Listing,
    Operation,
    Request,
    Watch,
)

T = TypeVar("T")

_CLOSING_SECONDS: Final = 5.0
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


@dataclass
class _Followed:
    """A JobSet that passes have read: its last change since then, and whether changes may have been missed."""

    users: int = 0
    last: tuple[JsonObject, bool] | None = None
    missed: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def newer_than(self, version: str) -> tuple[JsonObject, bool] | None:
        """Return the last change, where it is newer than what was read."""
        found = self.last and text(self.last[0], "metadata", "resourceVersion")
        return self.last if found and int(found) > int(version) else None


class Sharing:
    """Runs operations over a driver, and shares between them what can be shared. For one event loop.

    After `close` nothing more is sent, and a write that was under way has been answered.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._lines: dict[_Place, _Line] = {}
        self._jobsets: dict[tuple[str, str], _Followed] = {}
        self._writes: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation to its end, and return its result or raise its error."""
        following: dict[tuple[str, str], _Followed] = {}

        async def perform(request: Request) -> Any:
            match request:
                case Get(resource, namespace, name) if resource == JOBSETS:
                    # From before it is read on: no change after that is missed.
                    self._follow(following, (namespace, name))
                case Watch(resource, namespace, name=name) if resource == JOBSETS and (namespace, name) in following:
                    return await self._wait(following[namespace, name], request)
            return await self.perform(request)

        try:
            return await drive(operation, perform)
        finally:
            for key, followed in following.items():
                followed.users -= 1
                if not followed.users:
                    del self._jobsets[key]

    async def perform(self, request: Request) -> Any:
        """Send one request, alone or with others of its kind; return its reply or raise an `ApiError`."""
        if self._closed:
            raise asyncio.CancelledError("closed: nothing more is sent")
        if isinstance(request, WRITES):
            return await self._write(request)
        if isinstance(request, List) and request.namespace and (found := _SHAREABLE.fullmatch(request.selector)):
            return await self._list(request, found[1])
        return await self._driver.perform(request)

    async def close(self) -> None:
        """Send nothing more, and wait, bounded, for the answers of writes that were sent."""
        self._closed = True
        if self._writes:
            await asyncio.wait(self._writes, timeout=_CLOSING_SECONDS)

    def jobset_changed(self, raw: JsonObject, deleted: bool) -> None:
        """Tell of a change in the stream of all JobSets."""
        key = text(raw, "metadata", "namespace") or "", text(raw, "metadata", "name") or ""
        if (followed := self._jobsets.get(key)) is not None:
            followed.last = (raw, deleted)
            followed.changed.set()

    def jobsets_missed(self) -> None:
        """Tell that changes of JobSets may have been missed up to now."""
        for followed in self._jobsets.values():
            followed.missed = True
            followed.changed.set()

    def _follow(self, following: dict[tuple[str, str], _Followed], key: tuple[str, str]) -> None:
        if key not in following:
            following[key] = self._jobsets.setdefault(key, _Followed())
            following[key].users += 1

    async def _wait(self, followed: _Followed, request: Watch) -> Any:
        """Answer a watch of one JobSet from the stream of all."""
        loop = asyncio.get_running_loop()
        end = loop.time() + request.seconds
        while not followed.missed:
            if (found := followed.newer_than(request.resource_version)) is not None:
                return Changes((found,), max(end - loop.time(), 0.0))
            followed.changed.clear()
            try:
                async with asyncio.timeout_at(end):
                    await followed.changed.wait()
            except TimeoutError:
                return Changes((), 0.0)
        return await self.perform(replace(request, seconds=max(end - loop.time(), 0.0)))

    async def _write(self, request: Request) -> Any:
        """Send a write, and see to it that it is answered even where nobody waits for it any more."""
        task = asyncio.ensure_future(self._driver.perform(request))
        self._writes.add(task)
        task.add_done_callback(self._written)
        return await asyncio.shield(task)

    def _written(self, task: asyncio.Task[Any]) -> None:
        self._writes.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited for it has it; where nobody did, the next pass reads what came of it

    async def _list(self, request: List, name: str) -> Any:
        place = _Place(request.resource, request.namespace)
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
