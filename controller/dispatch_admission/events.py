"""Kubernetes Events on Workloads and TrainJobs, for people: best effort, and never in the way of a pass.

They are written one by one beside the passes, two a second at the most. What does not fit is dropped and counted: the
log has every decision. A repetition is no Event of its own, but counted, and told from time to time.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from dispatch_admission.act import Outcome, Result
from dispatch_admission.logs import fields
from dispatch_admission.metrics import Metrics
from dispatch_admission.waiting import Key
from dispatch_gates.cluster.connection import Connection, path_of
from dispatch_gates.contract.names import CONTROLLER_NAME, EVENTS, TRAINJOBS, WORKLOADS, Resource
from dispatch_gates.contract.next_execution import Reason
from dispatch_gates.requests import AlreadyExistsError, ApiError, NotFoundError

_log = logging.getLogger(__name__)

_REMEMBERED: Final = 10_000
_WAITING: Final = 100
"""How many Events may wait to be written."""
_APART_SECONDS: Final = 0.5
"""Least time between two Events: one costs the API server as much as a third of an admission."""
REPEAT_SECONDS: Final = 1800.0
"""How often the repetitions of an Event are told; the API server forgets an Event after an hour."""
_MERGE: Final = "application/merge-patch+json"
NEEDS_A_PERSON: Final = frozenset(
    {Reason.OWNER_UNREADABLE, Reason.CONCURRENT_ADMISSION, Reason.COUNT_UNREADABLE, Reason.REFUSED}
)
"""Waits that do not end by themselves: they are Warning events."""


@dataclass(frozen=True)
class _Event:
    """One Event, as it is first written; the name is the same for a repetition, and for no other Event."""

    resource: Resource
    namespace: str
    about: str
    uid: str
    kind: str
    reason: str
    message: str

    @property
    def name(self) -> str:
        """The Event's name."""
        same = f"{self.resource}/{self.uid}/{self.reason}/{self.message}"
        return f"{self.about[:200]}.{hashlib.sha256(same.encode()).hexdigest()[:16]}"

    def body(self, identity: str, count: int, now: str) -> dict[str, object]:
        """Return the Event as the API server takes it."""
        about: Mapping[str, object] = {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "namespace": self.namespace,
            "name": self.about,
            "uid": self.uid,
        }
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"namespace": self.namespace, "name": self.name},
            "involvedObject": about,
            "type": self.kind,
            "reason": self.reason,
            "message": self.message,
            "count": count,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": CONTROLLER_NAME},
            "reportingComponent": CONTROLLER_NAME,
            "reportingInstance": identity,
        }


@dataclass
class _Told:
    """How often an Event happened, when that was last told (monotonic; None: not yet), and whether it is there."""

    count: int = 0
    at: float | None = None
    there: bool = False


class Recorder:
    """Takes note of outcomes at once, and writes Events of them while `run` runs."""

    def __init__(self, connection: Connection, identity: str, metrics: Metrics) -> None:
        self._connection = connection
        self._identity = identity
        self._metrics = metrics
        self._told: OrderedDict[tuple[str, str], _Told] = OrderedDict()
        self._waiting: asyncio.Queue[_Event] = asyncio.Queue(_WAITING)

    def note(self, workload: Key, outcome: Outcome) -> None:
        """Have Events written of what a pass did, where that is worth one and was not told of late."""
        for event in _events(workload, outcome):
            told = self._told.setdefault((event.namespace, event.name), _Told())
            self._told.move_to_end((event.namespace, event.name))
            told.count += 1
            if told.at is not None and time.monotonic() - told.at < REPEAT_SECONDS:
                continue
            try:
                self._waiting.put_nowait(event)
            except asyncio.QueueFull:
                self._metrics.events.labels("dropped").inc()
                continue
            told.at = time.monotonic()
        while len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)

    async def run(self) -> None:
        """Write Events until cancelled."""
        while True:
            event = await self._waiting.get()
            try:
                await self._write(event)
                self._metrics.events.labels("written").inc()
            except ApiError as error:
                self._metrics.events.labels("failed").inc()
                if (told := self._told.get((event.namespace, event.name))) is not None:
                    told.at = None  # the next repetition tries again
                _log.debug(fields(event="event-not-written", about=f"{event.namespace}/{event.about}", error=error))
            await asyncio.sleep(_APART_SECONDS)

    async def _write(self, event: _Event) -> None:
        """Write a first Event, or how often it happened by now."""
        told = self._told.get((event.namespace, event.name), _Told(1))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if told.there:
            again: dict[str, object] = {"count": told.count, "lastTimestamp": now}
            path = path_of(EVENTS, event.namespace, event.name)
            try:
                await self._connection.call("PATCH", path, body=again, content_type=_MERGE)
                return
            except NotFoundError:
                pass  # the API server forgets Events
        body = event.body(self._identity, told.count, now)
        with contextlib.suppress(AlreadyExistsError):  # by an earlier leader; what it says still holds
            await self._connection.call("POST", path_of(EVENTS, event.namespace), body=body)
        told.there = True


def _events(workload: Key, outcome: Outcome) -> Iterator[_Event]:
    """Return the Events that an outcome is worth; Kueue itself reports every changed message of a check."""
    if outcome.result is Result.ADMITTED:
        kind, reason = "Normal", "AdmissionCountRaised"
    elif outcome.result is Result.WAITING and outcome.reason in NEEDS_A_PERSON:
        kind, reason = "Warning", str(outcome.reason)
    else:
        return
    for resource, name, uid in (
        (TRAINJOBS, outcome.job, outcome.uid),
        (WORKLOADS, workload.name, outcome.workload),
    ):
        if name is not None and uid is not None:
            yield _Event(resource, workload.namespace, name, uid, kind, reason, outcome.detail)
