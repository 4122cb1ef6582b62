"""A driver to the model API server without sockets, for virtual time. A watch looks twice a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any, TypeVar

from dispatch_gates.cluster import drive
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.requests import List, Listing, Operation, Request, Watch
from model.apiserver import ApiServer

T = TypeVar("T")
_REQUEST_SECONDS = 0.01
_LOOK_SECONDS = 0.5


class ModelDriver:
    """What the controller needs of a driver."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation to its end."""
        return await drive(operation, self.perform)

    async def perform(self, request: Request) -> Any:
        """Send one request."""
        await asyncio.sleep(_REQUEST_SECONDS)
        return self._server.send(request)

    async def pages(self, request: List, *, limit: int | None = None) -> AsyncGenerator[Listing, None]:
        """Yield the pages of a list."""
        await asyncio.sleep(_REQUEST_SECONDS)
        found: Listing = self._server.send(request)
        size = limit or 500
        for begin in range(0, max(len(found.items), 1), size):
            yield Listing(found.items[begin : begin + size], found.resource_version)

    async def stream(self, request: Watch, **_: bool) -> AsyncGenerator[tuple[JsonObject, bool], None]:
        """Yield each change until the time of the watch is over."""
        loop = asyncio.get_running_loop()
        end, version, looked = loop.time() + request.seconds, int(request.resource_version), -1
        while loop.time() < end:
            await asyncio.sleep(_LOOK_SECONDS)
            if looked != self._server.state.version:  # nobody acts where nothing happened
                self._server.idle(request)
                looked = self._server.state.version
            for body, deleted, at in self._server.state.events(replace(request, resource_version=str(version))):
                version = at
                yield body, deleted
