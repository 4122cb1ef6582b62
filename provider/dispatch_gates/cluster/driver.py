"""Running an operation: each request that it yields is sent, and the reply or the error is handed back."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from dispatch_gates.cluster.connection import FIELD_MANAGER, Connection, path_of
from dispatch_gates.cluster.errors import from_event
from dispatch_gates.contract.objects import JsonObject, entries, text
from dispatch_gates.requests import (
    WRITES,
    ApiError,
    BadReplyError,
    Changes,
    Create,
    Delete,
    ExpiredError,
    Get,
    List,
    Listing,
    Operation,
    Pause,
    Replace,
    ReplaceStatus,
    Request,
    ThrottledError,
    UnreachableError,
    Watch,
)

T = TypeVar("T")

PAGE: Final = 500
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_LISTS: Final = 3
"""How often a list is begun anew where its pages expired half-way."""
_SLACK_SECONDS: Final = 5.0
"""How much longer than asked for a watch may take before the connection counts as lost."""
_backoff = wait_random_exponential(multiplier=0.2, max=5.0)


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, ApiError) else None
    return max(_backoff(state), min(asked or 0.0, 30.0))


async def drive(operation: Operation[T], perform: Callable[[Request], Awaitable[Any]]) -> T:
    """Run an operation to its end: `perform` sends each request, and returns the reply or raises an `ApiError`."""
    try:
        request = next(operation)
        while True:
            try:
                reply = await perform(request)
            except ApiError as error:
                request = operation.throw(error)
            else:
                request = operation.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        operation.close()


class Driver:
    """Runs operations over one connection. `attempts`: how often a request is sent where that is safe.

    Reads are repeated when the API server is busy or gives no answer; writes only when it said that it did
    nothing (429). The controller uses one attempt: its work queue repeats whole passes instead.
    """

    def __init__(self, connection: Connection, *, attempts: int = 5) -> None:
        self._connection = connection
        self._attempts = attempts

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation to its end, and return its result or raise its error."""
        return await drive(operation, self.perform)

    async def perform(self, request: Request) -> Any:
        """Send one request; return its reply or raise an `ApiError`."""
        if self._attempts == 1:
            return await self._once(request)  # what repeats costs as much as the request itself
        safe = (ThrottledError,) if isinstance(request, WRITES) else (ThrottledError, UnreachableError)
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(safe),
            stop=stop_after_attempt(self._attempts),
            wait=_wait,
            reraise=True,
        )
        return await retrying(self._once, request)

    async def _once(self, request: Request) -> Any:
        call = self._connection.call
        match request:
            case Get(resource, namespace, name):
                return await call("GET", path_of(resource, namespace, name))
            case List():
                return await self._list(request)
            case Watch():
                return await self._watch(request)
            case Create(resource, body, dry_run):
                # Strict: an unknown or doubled field is refused, and not dropped. The models of kubeflow-trainer-api
                # drop it too, so that the API server's own schema is the better judge of a specification.
                path = path_of(
                    resource,
                    _namespace(body),
                    fieldManager=FIELD_MANAGER,
                    fieldValidation="Strict",
                    dryRun="All" if dry_run else "",
                )
                return await call("POST", path, body=body)
            case Replace(resource, body) | ReplaceStatus(resource, body):
                sub = "status" if isinstance(request, ReplaceStatus) else ""
                name = str(text(body, "metadata", "name"))
                path = path_of(resource, _namespace(body), name, sub, fieldManager=FIELD_MANAGER)
                return await call("PUT", path, body=body)
            case Delete(resource, namespace, name, uid, version):
                options = {
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "preconditions": {"uid": uid, "resourceVersion": version},
                    "propagationPolicy": "Background",
                }
                await call("DELETE", path_of(resource, namespace, name), body=options)
                return None
            case Pause(seconds):
                await asyncio.sleep(seconds)
                return None

    async def _list(self, request: List) -> Listing:
        for _ in range(_LISTS):
            try:
                pages = [page async for page in self.pages(request)]
            except ExpiredError:
                continue  # a part of a list is never handed out: begin anew
            return Listing(tuple(item for page in pages for item in page.items), pages[-1].resource_version)
        raise UnreachableError(f"list of {request.resource}: its pages expired {_LISTS} times while they were read")

    async def pages(self, request: List, *, limit: int | None = None) -> AsyncGenerator[Listing, None]:
        """Yield the pages of a consistent list, for readers that keep none of them; raises what `perform` raises."""
        token = ""
        while True:
            query = {"labelSelector": request.selector, "limit": str(limit or PAGE), "continue": token}
            found = await self._connection.call("GET", path_of(request.resource, request.namespace, **query))
            if not isinstance(found.get("items"), list):
                raise BadReplyError(f"list of {request.resource}: the answer has no items")
            yield Listing(entries(found, "items"), text(found, "metadata", "resourceVersion") or "")
            token = text(found, "metadata", "continue") or ""
            if not token:
                return

    async def _watch(self, request: Watch) -> Changes:
        """Wait for the first change (that is wanted), or until changes have settled.

        A stream that ends early without one is watched again by whoever asked. What has come when
        the stream breaks is handed out.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + request.seconds
        events: list[tuple[JsonObject, bool]] = []
        stream = self.stream(request)
        try:
            async with asyncio.timeout(request.seconds) as limit:
                async for event in stream:
                    events.append(event)
                    if request.settle:
                        limit.reschedule(min(end, loop.time() + request.settle))
                    elif request.until is None or request.until(event[0]):
                        break
                if not events:
                    await asyncio.sleep(0.1)  # a server that closes at once must not be asked in a tight loop
        except TimeoutError:
            if not events:
                return Changes((), 0.0)
        except ApiError:
            if not events:
                raise
        finally:
            await stream.aclose()
        return Changes(tuple(events), max(end - loop.time(), 0.0))

    async def stream(
        self, request: Watch, *, metadata_only: bool = False, bookmarks: bool = False
    ) -> AsyncGenerator[tuple[JsonObject, bool], None]:
        """Yield each change (object, deleted) until the server ends the stream.

        `metadata_only` asks for metadata alone; with `bookmarks`, objects without a name tell how far the server is.
        Raises `ExpiredError` for a version that is no longer kept, and `UnreachableError` where the connection
        breaks or stays silent beyond its time.
        """
        path = path_of(
            request.resource,
            request.namespace,
            watch="true",
            resourceVersion=request.resource_version,
            timeoutSeconds=str(max(math.ceil(request.seconds), 1)),
            labelSelector=request.selector,
            fieldSelector=f"metadata.name={request.name}" if request.name else "",
            allowWatchBookmarks="true" if bookmarks else "",
        )
        rest = b""
        headers = {"Accept": _METADATA} if metadata_only else {}
        seconds = request.seconds + _SLACK_SECONDS
        async with self._connection.stream("GET", path, seconds=seconds, headers=headers) as response:
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield _event(path, line)


def _event(path: str, line: bytes) -> tuple[JsonObject, bool]:
    try:
        event = json.loads(line)
    except ValueError as error:
        raise BadReplyError(f"watch {path}: a line is not JSON: {line[:80]!r}") from error
    kind, found = text(event, "type"), event.get("object") if isinstance(event, dict) else None
    if kind == "ERROR":
        raise from_event(f"watch {path}", found)
    if kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK") or not isinstance(found, dict):
        raise BadReplyError(f"watch {path}: not an event: {line[:80]!r}")
    return found, kind == "DELETED"


def _namespace(body: JsonObject) -> str:
    return text(body, "metadata", "namespace") or ""
