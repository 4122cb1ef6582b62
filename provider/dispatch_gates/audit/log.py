"""Audit logs as one ordered stream of writes, read once, in memory that does not grow with the log.

Order is the resourceVersion of the object that each write returned: one etcd gives all of them, so they are one
total order. The log itself is nearly in that order: a line is written when its request ends, which is at most one
request's time after etcd took the write. So what is held back for that time comes out sorted. Time stamps only place
the few writes whose answer carries no version.
"""

from __future__ import annotations

import gzip
import heapq
import io
import json
import sys
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final, cast

from dispatch_gates.audit.facts import SHAPE_ERRORS, Facts, Object, at, facts_of
from dispatch_gates.contract.names import JOBS, PODS, TRAINJOBS, WORKLOADS

WINDOW_SECONDS: Final = 120.0
"""How long a line can come after one that is later in order: the API server ends a write within 60 s by default."""

STDIN: Final = "-"
_WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_GROUPS: Final = {each.plural: each.group for each in (TRAINJOBS, WORKLOADS, JOBS, PODS)}
_MARKS: Final = tuple(f'"{plural}"'.encode() for plural in _GROUPS)
_GZIP: Final = b"\x1f\x8b"


class LogError(Exception):
    """The log cannot be read; the message says where and why."""


@dataclass(frozen=True, order=True, slots=True)
class Moment:
    """When something was so: `order` compares across all objects, `time` is the server's clock (RFC 3339)."""

    order: int
    time: str = field(compare=False)

    def __str__(self) -> str:
        return f"{self.time} (version {self.order})"


@dataclass(frozen=True, slots=True)
class Write:
    """One successful write on an object that matters here; `facts` is None where the log has no body."""

    at: Moment
    verb: str
    resource: str
    namespace: str
    name: str
    user: str
    level: str
    facts: Facts | None
    forced: bool = False
    """A deletion that asked for no grace, as the kubelet does once a pod has ended."""


@dataclass
class Reading:
    """What was read so far: for the summary, and for who shows progress."""

    lines: int = 0
    bytes: int = 0
    """Of the files as they lie there; compressed ones count compressed."""


def ordered(
    files: Sequence[str | Path],
    *,
    namespaces: Collection[str] = (),
    reading: Reading | None = None,
    progress: Callable[[], object] = lambda: None,
) -> Iterator[Write]:
    """Yield the writes of all files, in order; `-` is standard input, gzip is told by its content.

    The files may be rotated ones or of several API servers, in any order; what is in two of them counts once.
    With `namespaces` only what is in those is read. `progress` is called now and then. Raises `LogError`.
    """
    reading = reading if reading is not None else Reading()
    window = _Window()
    with ExitStack() as stack:
        streams = [_events(name, stack, namespaces, reading, progress) for name in files]
        for event in heapq.merge(*streams, key=lambda event: event.seconds):
            window.put(event, namespaces)
            yield from window.take(event.seconds - WINDOW_SECONDS)
        yield from window.take(float("inf"))


@dataclass(frozen=True, slots=True)
class _Event:
    """One line that holds a successful write on a resource that matters."""

    seconds: float
    raw: Object
    where: str


class _Window:
    """Holds writes back until none can come that stands before them."""

    def __init__(self) -> None:
        self._held: list[tuple[int, bool, str, str, int, float, Write]] = []
        self._latest = 0
        self._number = 0
        self._last: tuple[object, ...] = ()

    def put(self, event: _Event, namespaces: Collection[str]) -> None:
        try:
            found = list(_writes(event.raw))
        except SHAPE_ERRORS as error:
            raise LogError(f"{event.where}: the object of this event is not understood ({error!r})") from error
        for uid, write in found:
            if namespaces and write.namespace not in namespaces:
                continue
            self._number += 1
            self._latest = max(self._latest, write.at.order)
            # What has no version stands after all that the server had answered before it.
            order = write.at.order or self._latest
            identity = str(event.raw.get("auditID") or self._number)
            heapq.heappush(self._held, (order, write.at.order == 0, identity, uid, self._number, event.seconds, write))

    def take(self, until: float) -> Iterator[Write]:
        """Yield what is in order and was answered before `until`."""
        while self._held and self._held[0][5] < until:
            *key, _, _, write = heapq.heappop(self._held)
            # A line that is in two files is held twice, side by side.
            if tuple(key) != self._last:
                yield write
            self._last = tuple(key)


def _events(
    name: str | Path, stack: ExitStack, namespaces: Collection[str], reading: Reading, progress: Callable[[], object]
) -> Iterator[_Event]:
    """Yield the events of one file that matter. A last line that is still being written is left out."""
    marks = tuple(f'"{namespace}"'.encode() for namespace in namespaces)
    raw, lines = _open(name, stack)
    before = number = 0
    try:
        for line in lines:
            number += 1
            reading.lines += 1
            if number % 1000 == 0:
                before = _count(reading, raw, before)
                progress()
            if not any(mark in line for mark in _MARKS) or (marks and not any(mark in line for mark in marks)):
                continue
            if (event := _event(line, f"{name}:{number}")) is not None:
                yield event
        _count(reading, raw, before)
        progress()
    except (OSError, EOFError, zlib.error) as error:
        raise LogError(f"{name}: cannot be read: {error}") from error


def _count(reading: Reading, raw: IO[bytes], before: int) -> int:
    position = raw.tell() if raw.seekable() else before
    reading.bytes += position - before
    return position


def _open(name: str | Path, stack: ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    """Open a file; return it as it lies there, whose position tells how far reading is, and as lines."""
    try:
        raw = cast(IO[bytes], sys.stdin.buffer)
        if name != STDIN:
            raw = stack.enter_context(Path(name).open("rb"))  # noqa: SIM115 - the stack closes it
        buffered = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(cast(Any, raw))
        if buffered.peek(2)[:2] == _GZIP:
            return raw, cast(IO[bytes], stack.enter_context(gzip.open(buffered)))
        return raw, buffered
    except OSError as error:
        raise LogError(f"{name}: cannot be read: {error}") from error


def _event(line: bytes, where: str) -> _Event | None:
    try:
        event = json.loads(line)
        if not _matters(event):
            return None
        return _Event(datetime.fromisoformat(event["stageTimestamp"]).timestamp(), event, where)
    except SHAPE_ERRORS as error:
        if not line.endswith(b"\n"):
            return None
        raise LogError(f"{where}: no audit event in JSON ({error!r}): one event a line was expected") from error


def _matters(event: Object) -> bool:
    reference = event.get("objectRef") or {}
    return (
        event.get("stage") == "ResponseComplete"
        and event.get("verb") in _WRITES
        and _GROUPS.get(str(reference.get("resource"))) == (reference.get("apiGroup") or "")
        and reference.get("subresource") in (None, "status")
        and 200 <= event["responseStatus"]["code"] < 300
        and "dryRun=" not in event.get("requestURI", "")
    )


def _writes(event: Object) -> Iterator[tuple[str, Write]]:
    """Yield each object's UID and what was written to it: a deletion of a collection is many."""
    reference, answer = event["objectRef"], event.get("responseObject")
    bodies: list[Object | None] = [answer]
    if answer and "items" in answer:
        bodies = list(answer["items"])
    elif answer and answer.get("kind") == "Status":
        bodies = [None]
    for body in bodies:
        metadata = (body or {}).get("metadata") or {}
        yield (
            str(metadata.get("uid") or ""),
            Write(
                at=Moment(int(metadata.get("resourceVersion") or 0), event["stageTimestamp"]),
                verb="delete" if event["verb"] == "deletecollection" else event["verb"],
                resource=sys.intern(reference["resource"]),
                namespace=metadata.get("namespace") or reference.get("namespace", ""),
                name=metadata.get("name") or reference.get("name", ""),
                user=str(at(event, "user", "username") or ""),
                level=str(event.get("level") or ""),
                facts=facts_of(reference["resource"], body) if body is not None else None,
                forced=at(event, "requestObject", "gracePeriodSeconds") == 0,
            ),
        )
