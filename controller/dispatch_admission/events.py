"""Kubernetes Events on TrainJobs, for people: best effort, repeated ones counted in one Event."""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from dispatch_admission.act import Outcome, Result
from dispatch_gates.cluster.connection import Connection, path_of
from dispatch_gates.contract.names import CONTROLLER_NAME, EVENTS, TRAINJOBS
from dispatch_gates.contract.next_execution import Reason
from dispatch_gates.requests import ApiError

_log = logging.getLogger(__name__)

_REMEMBERED: Final = 512
_MERGE: Final = "application/merge-patch+json"
NEEDS_A_PERSON: Final = frozenset(
    {Reason.OWNER_UNREADABLE, Reason.CONCURRENT_ADMISSION, Reason.COUNT_UNREADABLE, Reason.REFUSED}
)
"""Waits that do not end by themselves: they are Warning events."""


class Recorder:
    """Writes Events, and remembers the last few so that a repetition counts up instead of piling up."""

    def __init__(self, connection: Connection, identity: str) -> None:
        self._connection = connection
        self._identity = identity
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()

    async def record(self, namespace: str, outcome: Outcome) -> None:
        """Say on the TrainJob what a pass did, where that is worth an Event; never raises an `ApiError`."""
        kind, reason = _worth(outcome)
        if reason is None or outcome.job is None or outcome.uid is None:
            return
        name = f"{outcome.job}.{hashlib.sha256(f'{outcome.uid}/{reason}/{outcome.detail}'.encode()).hexdigest()[:16]}"
        count = self._count(namespace, name)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            if count > 1:
                body: dict[str, object] = {"count": count, "lastTimestamp": now}
                await self._connection.call("PATCH", path_of(EVENTS, namespace, name), body=body, content_type=_MERGE)
            else:
                body = self._event(namespace, name, kind, reason, outcome, now)
                await self._connection.call("POST", path_of(EVENTS, namespace), body=body)
        except ApiError as error:
            self._counts.pop((namespace, name), None)
            _log.debug("event not written: job=%s/%s error=%s", namespace, outcome.job, error)

    def _count(self, namespace: str, name: str) -> int:
        key = (namespace, name)
        self._counts[key] = self._counts.pop(key, 0) + 1
        if len(self._counts) > _REMEMBERED:
            self._counts.popitem(last=False)
        return self._counts[key]

    def _event(
        self, namespace: str, name: str, kind: str, reason: str, outcome: Outcome, now: str
    ) -> dict[str, object]:
        about: Mapping[str, object] = {
            "apiVersion": TRAINJOBS.api_version,
            "kind": TRAINJOBS.kind,
            "namespace": namespace,
            "name": outcome.job,
            "uid": outcome.uid,
        }
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"namespace": namespace, "name": name},
            "involvedObject": about,
            "type": kind,
            "reason": reason,
            "message": outcome.detail,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": CONTROLLER_NAME},
            "reportingComponent": CONTROLLER_NAME,
            "reportingInstance": self._identity,
        }


def _worth(outcome: Outcome) -> tuple[str, str | None]:
    """Return type and reason of the Event that an outcome is worth; Kueue itself reports every changed message."""
    if outcome.result is Result.ADMITTED:
        return "Normal", "AdmissionCountRaised"
    if outcome.result is Result.WAITING and outcome.reason in NEEDS_A_PERSON:
        return "Warning", str(outcome.reason)
    return "", None
