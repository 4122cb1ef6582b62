"""A local HTTP server for the tests of the driver: real sockets, answers by script or by the model API server."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from dispatch_gates.cluster import Connection, Driver, Target
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.requests import (
    AlreadyExistsError,
    ApiError,
    Create,
    Delete,
    Get,
    List,
    Replace,
    ReplaceStatus,
    Request,
    Watch,
)
from model.apiserver import KINDS, ApiServer

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Seen:
    """One request as it came in."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


@dataclass
class Served:
    """A server that is up, what it was asked, and a driver that is connected to it."""

    driver: Driver
    connection: Connection
    kubeconfig: Path
    host: str
    seen: list[Seen] = field(default_factory=list)


def reply(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Answer with JSON, or with the bytes given."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return web.Response(body=raw, status=status, headers=headers, content_type="application/json")


def failure(status: int, reason: str, message: str = "said the API server") -> web.Response:
    """Answer with the API server's Status object, which names the object that it speaks of."""
    said = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": status}
    return reply({**said, "details": {"name": "an-object"}}, status)


def write_kubeconfig(path: Path, host: str, token: str = "first", certificate_authority: str | None = None) -> None:
    """Write a kubeconfig with one context, `here`."""
    authority = {"certificate-authority-data": certificate_authority} if certificate_authority else {}
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "here",
                "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
                "clusters": [{"name": "here", "cluster": {"server": host, **authority}}],
                "users": [{"name": "me", "user": {"token": token}}],
            }
        )
    )


@asynccontextmanager
async def served(answer: Answer, *, attempts: int = 1) -> AsyncIterator[Served]:
    """Serve `answer` on a free local port, with a driver connected to it, until the block ends."""
    seen: list[Seen] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw) if raw else None
        seen.append(Seen(request.method, request.path, dict(request.query), dict(request.headers), body))
        return await answer(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    with tempfile.TemporaryDirectory() as directory:
        kubeconfig = Path(directory) / "config"
        write_kubeconfig(kubeconfig, host)
        connection = await Connection.open(Target(str(kubeconfig)))
        try:
            yield Served(Driver(connection, attempts=attempts), connection, kubeconfig, host, seen)
        finally:
            await connection.close()
            await runner.cleanup()


class Front:
    """The model API server, spoken to over HTTP: pages, watches as streams, and its errors as the real one's."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        """Answer one HTTP request."""
        try:
            asked = _parsed(request, await request.read())
            if isinstance(asked, Watch):
                return await self._stream(request, asked)
            if isinstance(asked, List):
                return self._page(asked, request)
            found = self.server.send(asked)
        except ApiError as error:
            reason = "AlreadyExists" if isinstance(error, AlreadyExistsError) else ""
            return failure(error.status or 500, reason, str(error))
        return reply(found if found is not None else {"kind": "Status", "status": "Success"})

    def _page(self, asked: List, request: web.Request) -> web.Response:
        listing = self.server.send(asked)
        begin = int(request.query.get("continue") or 0)
        end = begin + int(request.query.get("limit") or len(listing.items) or 1)
        metadata = {"resourceVersion": listing.resource_version}
        if end < len(listing.items):
            metadata["continue"] = str(end)
        return reply({"kind": "List", "metadata": metadata, "items": list(listing.items[begin:end])})

    async def _stream(self, request: web.Request, asked: Watch) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        version = int(asked.resource_version)
        loop = asyncio.get_running_loop()
        end = loop.time() + asked.seconds
        while loop.time() < end:
            self.server.idle(asked)
            for body, deleted, at in self.server.state.events(replace(asked, resource_version=str(version))):
                version = at
                event = {"type": "DELETED" if deleted else "MODIFIED", "object": body}
                await response.write(json.dumps(event).encode() + b"\n")
            await asyncio.sleep(0.01)
        return response


def _parsed(request: web.Request, raw: bytes) -> Request:
    """Read an HTTP request back into the request that it stands for."""
    parts = request.path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    plural, name, sub = (*parts, "", "")[:3]
    resource = next(found for found in KINDS.values() if found.plural == plural)
    body: JsonObject = json.loads(raw) if raw else {}
    match request.method:
        case "POST":
            return Create(resource, body, dry_run=request.query.get("dryRun") == "All")
        case "PUT":
            return ReplaceStatus(resource, body) if sub else Replace(resource, body)
        case "DELETE":
            wanted = body["preconditions"]
            return Delete(resource, namespace, name, wanted["uid"], wanted["resourceVersion"])
    query = request.query
    selector, by_name = query.get("labelSelector", ""), query.get("fieldSelector", "").removeprefix("metadata.name=")
    if query.get("watch"):
        seconds = float(query["timeoutSeconds"])
        return Watch(resource, namespace, query["resourceVersion"], seconds, by_name, selector)
    return Get(resource, namespace, name) if name else List(resource, namespace, selector)
