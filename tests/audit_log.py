"""Reads an API server's audit log as one ordered list of writes.

Needed of the audit policy: level RequestResponse and stage ResponseComplete for writes on trainjobs,
workloads, pods and their status.

Order is the resourceVersion of the object each write returned: one etcd gives all of them, so they are one
total order. Time stamps only place the few writes whose answer carries no object.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WRITES = {"create", "update", "patch", "delete", "deletecollection"}
RESOURCES = {"trainjobs", "workloads", "pods"}

Object = Mapping[str, Any]


@dataclass(frozen=True, order=True)
class Moment:
    """When something was so: `order` compares across all objects, `time` is the server's clock (RFC 3339)."""

    order: int
    time: str = field(compare=False)

    def __str__(self) -> str:
        return f"{self.time} (version {self.order})"


@dataclass(frozen=True)
class Write:
    """One successful write on an object that matters here."""

    at: Moment
    verb: str
    resource: str
    namespace: str
    name: str
    user: str
    body: Object | None
    forced: bool = False
    """A deletion that asked for no grace, as the kubelet does once a pod has ended."""


def writes(path: Path) -> Iterator[Write]:
    """Yield the successful writes that matter, one per object, in the order of the log."""
    for line in path.read_text().split("\n")[:-1]:
        event = json.loads(line)
        ref = event.get("objectRef") or {}
        if (
            event.get("stage") != "ResponseComplete"
            or event.get("verb") not in WRITES
            or ref.get("resource") not in RESOURCES
            or ref.get("subresource") not in (None, "status")
            or not 200 <= at(event, "responseStatus", "code") < 300
            or "dryRun=" in event.get("requestURI", "")
        ):
            continue
        answer = event.get("responseObject")
        bodies: list[Object | None] = [answer]
        if answer and "items" in answer:
            bodies = list(answer["items"])
        elif answer and answer.get("kind") == "Status":
            bodies = [None]
        for body in bodies:
            about = meta(body or {})
            yield Write(
                Moment(int(about.get("resourceVersion") or 0), event["stageTimestamp"]),
                "delete" if event["verb"] == "deletecollection" else event["verb"],
                ref["resource"],
                about.get("namespace") or ref.get("namespace", ""),
                about.get("name") or ref.get("name", ""),
                at(event, "user", "username") or "",
                body,
                at(event, "requestObject", "gracePeriodSeconds") == 0,
            )


def ordered(found: Iterable[Write]) -> list[Write]:
    """Sort by version. What has none stands after all that the server had answered before it."""
    latest, numbered = 0, []
    for write in sorted(found, key=lambda write: write.at.time):
        latest = max(latest, write.at.order)
        numbered.append((write.at.order or latest, write.at.order == 0, write.at.time, write))
    return [write for *_, write in sorted(numbered, key=lambda item: item[:3])]


def at(value: Any, *path: str) -> Any:
    """Follow `path` into nested objects; None where it ends early."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def meta(body: Object) -> Object:
    """Return the metadata of an object, empty if it has none."""
    return body.get("metadata") or {}
