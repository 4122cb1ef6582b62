"""What the resources asked of the API server, by its audit log: the judge of "no writes" and "never two objects"."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from dispatch_gates.contract import names
from dispatch_gates.contract.objects import dig
from world import World

_WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class RequestsLog:
    """The audit log of one namespace, from a moment on."""

    def __init__(self, world: World) -> None:
        self._path, self._namespace = world.cluster.audit_log, world.namespace
        self._begin = self._path.stat().st_size

    def writes(self, *, refused: bool = True) -> list[str]:
        """Return the writes of the product's client, as people would say them; refused ones (conflicts) too."""
        return [
            f"{event['verb']} {event['objectRef']['resource']} {event['objectRef'].get('name', '')}"
            for event in self._events()
            if event["verb"] in _WRITES
            and event.get("userAgent", "").startswith("dispatch-gates/")
            and (refused or dig(event, "responseStatus", "code") in (200, 201))
        ]

    def received(self, verb: str, name: str) -> datetime:
        """Return when the API server received the product's first request of this verb for the TrainJob."""
        return next(
            datetime.fromisoformat(event["requestReceivedTimestamp"])
            for event in self._events()
            if (event["verb"], event["objectRef"]["resource"]) == (verb, "trainjobs")
            and name in (event["objectRef"].get("name"), dig(event, "responseObject", "metadata", "name"))
            and event.get("userAgent", "").startswith("dispatch-gates/")
        )

    def created(self, owner: str) -> Counter[str]:
        """Return how often a TrainJob of each name was created for owners that begin so."""
        return Counter(
            event["responseObject"]["metadata"]["name"]
            for event in self._events()
            if (event["verb"], event["objectRef"]["resource"]) == ("create", "trainjobs")
            and dig(event, "responseStatus", "code") == 201
            and str(dig(event, "responseObject", "metadata", "annotations", names.OWNER)).startswith(owner)
        )

    def _events(self) -> Iterator[dict[str, Any]]:
        here = self._namespace.encode()
        with self._path.open("rb") as log:
            log.seek(self._begin)
            for line in log:
                if here in line and line.endswith(b"\n"):
                    event = json.loads(line)
                    if dig(event, "objectRef", "namespace") == self._namespace:
                        yield event
