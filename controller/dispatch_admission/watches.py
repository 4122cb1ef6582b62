"""Watches: wake-ups, never evidence. What they show is used to know where to look, and for nothing else."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dispatch_admission.logs import fields
from dispatch_gates.cluster import Driver
from dispatch_gates.contract.names import Resource
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.requests import ApiError, ExpiredError, List, Watch

_log = logging.getLogger(__name__)

WATCH_SECONDS: Final = 60.0
"""How long one watch lasts before it is begun anew from where it was; silence beyond that is a lost connection."""
_PAGE: Final = 100
"""Objects in a page of a list of which nothing is kept: a page is all of it that is in memory at a time."""
_FIRST_BACKOFF: Final = 0.5
_LAST_BACKOFF: Final = 20.0
_GRANTED_SECONDS: Final = 60.0
"""How long a pause the API server may ask for."""


@dataclass
class WatchLoop:
    """Keeps one resource watched for ever: list, watch, and list anew whenever events may have been missed.

    `listed` is called with each object of a list, which is read whole only where this is given, `gap` after a list
    that replaces missed events, `changed` with each event and whether it is a deletion, `restarted` after each break.
    """

    driver: Driver
    resource: Resource
    changed: Callable[[JsonObject, bool], None]
    listed: Callable[[JsonObject], None] | None = None
    gap: Callable[[], None] = lambda: None
    selector: str = ""
    metadata_only: bool = False
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    alive_at: float = field(default_factory=time.monotonic)
    restarted: Callable[[], None] = lambda: None

    async def run(self) -> None:
        """Watch until cancelled. No answer of the API server ends this."""
        backoff = _FIRST_BACKOFF
        while True:
            try:
                version = await self.list_once()
                self.synced.set()
                self.gap()
                while True:
                    began = time.monotonic()
                    version = await self._watch(version)
                    if time.monotonic() - began > _LAST_BACKOFF:
                        backoff = _FIRST_BACKOFF
                    else:
                        # A server that ends each watch at once must not be asked in a tight loop.
                        await asyncio.sleep(_FIRST_BACKOFF)
            except ApiError as error:
                # An expired version is all in a day's work; whatever else it is, missed events are read by a list.
                level = logging.INFO if isinstance(error, ExpiredError) else logging.WARNING
                pause = max(backoff, min(error.retry_after or 0.0, _GRANTED_SECONDS))
                _log.log(level, fields(event="watch-ended", resource=self.resource, again=f"{pause:.1f}s", error=error))
            self.restarted()
            await asyncio.sleep(pause)
            backoff = min(backoff * 2, _LAST_BACKOFF)

    async def list_once(self) -> str:
        """Read where to watch from; and everything, page by page and kept nowhere, where somebody wants it."""
        version = ""
        request = List(self.resource, "", self.selector)
        async for page in self.driver.pages(request, limit=_PAGE if self.listed else 1):
            version = page.resource_version
            for item in page.items:
                if self.listed is not None:
                    self.listed(item)
            if self.listed is None:
                break
        self.alive_at = time.monotonic()
        return version

    async def _watch(self, version: str) -> str:
        request = Watch(self.resource, "", version, WATCH_SECONDS, selector=self.selector)
        async for raw, deleted in self.driver.stream(request, metadata_only=self.metadata_only, bookmarks=True):
            self.alive_at = time.monotonic()
            version = str(raw["metadata"]["resourceVersion"])
            if raw["metadata"].get("name"):  # a bookmark has none
                self.changed(raw, deleted)
        self.alive_at = time.monotonic()
        return version
