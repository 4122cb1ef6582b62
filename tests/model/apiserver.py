"""A small model of the API server, and of what runs an operation against it one request at a time.

`State` is never changed: `apply` takes one and a request, and gives the next one and the reply. What it keeps to:
a version that grows with every change, conflicts by version and UID, the status apart from the rest, writes that
change nothing keep the version, deletion with finalizers, watches from a log of changes. That the real one answers
the same is what `tests/faithful` checks, with random sequences of requests; of the kinds' own rules it knows the few
in `schemas`.

`ApiServer` holds the current state, lets a test interfere around each request, and records what was asked.
`Process` is one operation under way, to be moved on by one request, stalled, or crashed.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, NamedTuple, TypeVar

from dispatch_gates.contract import names
from dispatch_gates.contract.names import LEASES, PODS, Resource
from dispatch_gates.contract.objects import JsonObject, dig, text
from dispatch_gates.requests import (
    WRITES,
    AlreadyExistsError,
    ApiError,
    Changes,
    ConflictError,
    Create,
    Delete,
    ExpiredError,
    Get,
    List,
    Listing,
    NotFoundError,
    Operation,
    Pause,
    Replace,
    ReplaceStatus,
    Request,
    Watch,
)
from model import schemas

T = TypeVar("T")

_TERMS: Final = re.compile(r"(?:\([^)]*\)|[^,])+")
KINDS: Final = {found.kind: found for found in vars(names).values() if isinstance(found, Resource)}


class Key(NamedTuple):
    """Where an object is."""

    resource: Resource
    namespace: str
    name: str


class Change(NamedTuple):
    """One entry of the log that watches read: the object as it then was, or as it last was, and as it was before."""

    version: int
    key: Key
    body: JsonObject
    deleted: bool
    before: JsonObject | None = None


@dataclass(frozen=True)
class State:
    """All that the API server knows. Objects in it are never changed; the log may have been cut at `compacted`.

    `namespaces` are those that exist; None where it does not matter.
    """

    objects: Mapping[Key, JsonObject] = field(default_factory=dict)
    version: int = 100
    log: tuple[Change, ...] = ()
    compacted: int = 0
    namespaces: frozenset[str] | None = None

    def get(self, key: Key) -> JsonObject:
        """Return an object, or raise `NotFoundError`."""
        if key not in self.objects:
            raise NotFoundError(f"{key.resource} {key.name!r} not found", status=404)
        return self.objects[key]

    def store(self, key: Key, body: JsonObject) -> State:
        """Write an object as a new version of itself."""
        version = self.version + 1
        body = copy.deepcopy(body)
        body["metadata"]["resourceVersion"] = str(version)
        change = Change(version, key, body, deleted=False, before=self.objects.get(key))
        return replace(self, objects={**self.objects, key: body}, version=version, log=(*self.log, change))

    def remove(self, key: Key) -> State:
        """Take an object away."""
        version = self.version + 1
        body = copy.deepcopy(self.get(key))
        body["metadata"]["resourceVersion"] = str(version)
        objects = {other: kept for other, kept in self.objects.items() if other != key}
        return replace(self, objects=objects, version=version, log=(*self.log, Change(version, key, body, True, body)))

    def events(self, request: Watch) -> Iterator[tuple[JsonObject, bool, int]]:
        """Yield what a watch shows, in order: the object, whether it is gone, and the version of the change.

        An object that a change takes out of the selection is gone, too, and is shown as it was before.
        """
        since = int(request.resource_version)
        if since < self.compacted:
            raise ExpiredError(f"too old resource version: {since}", status=410)
        for version, key, body, deleted, before in self.log:
            here = key.resource == request.resource and request.namespace in ("", key.namespace)
            if version <= since or not here or request.name not in ("", key.name):
                continue
            if not deleted and matches(body, request.selector):
                yield copy.deepcopy(body), False, version
            elif before is not None and matches(before, request.selector):
                gone = copy.deepcopy(before)
                gone["metadata"]["resourceVersion"] = str(version)
                yield gone, True, version


def apply(state: State, request: Request) -> tuple[State, Any]:
    """Carry out one request; raise an `ApiError` where the API server would answer with one."""
    match request:
        case Get(resource, namespace, name):
            return state, copy.deepcopy(state.get(Key(resource, namespace, name)))
        case List(resource, namespace, selector):
            found = [
                _listed(resource, body)
                for key, body in sorted(state.objects.items(), key=lambda item: item[0][1:])
                if key.resource == resource and namespace in ("", key.namespace) and matches(body, selector)
            ]
            return state, Listing(tuple(found), str(state.version))
        case Watch():
            return state, _watch(state, request)
        case Create(resource, body, dry_run):
            after, stored = _create(state, resource, body)
            return (state if dry_run else after), stored
        case Replace(resource, body) | ReplaceStatus(resource, body):
            return _update(state, resource, body, status=isinstance(request, ReplaceStatus))
        case Delete():
            return _delete(state, request), None
        case Pause():
            return state, None


def matches(body: JsonObject, selector: str) -> bool:
    """Whether an object's labels match a selector: `key=value`, `key`, `key in (value,value)`, joined by commas."""
    labels = dig(body, "metadata", "labels") or {}
    return all(_holds(labels, term) for term in _TERMS.findall(selector))


def _holds(labels: Mapping[str, str], term: str) -> bool:
    key, among, values = term.partition(" in ")
    if among:
        return labels.get(key) in values.strip("()").split(",")
    key, equals, value = term.partition("=")
    return key in labels and (not equals or labels[key] == value)


def _listed(resource: Resource, body: JsonObject) -> JsonObject:
    """Return an object as a list shows it: in lists of the built-in kinds it does not say what it is."""
    hidden = ("apiVersion", "kind") if built_in(resource) else ()
    return {key: copy.deepcopy(value) for key, value in body.items() if key not in hidden}


def built_in(resource: Resource) -> bool:
    """Whether a kind is the API server's own, and not defined by a CRD."""
    return "." not in resource.group or resource.group.endswith(".k8s.io")


def _watch(state: State, request: Watch) -> Changes:
    for body, deleted, _ in state.events(request):
        return Changes(((body, deleted),), request.seconds)
    return Changes((), 0.0)


def _create(state: State, resource: Resource, body: JsonObject) -> tuple[State, JsonObject]:
    key = Key(resource, text(body, "metadata", "namespace") or "", str(text(body, "metadata", "name")))
    stored = copy.deepcopy(body)
    schemas.refuse_unknown(resource, stored)
    if key.namespace and state.namespaces is not None and key.namespace not in state.namespaces:
        raise NotFoundError(f"namespaces {key.namespace!r} not found", status=404)
    stored.pop("status", None)
    schemas.fill(resource, stored)
    if resource == PODS:
        stored["status"] = {"phase": "Pending"}
    schemas.check(resource, stored, None)
    if key in state.objects:
        raise AlreadyExistsError(f"{resource} {key.name!r} already exists", status=409)
    stored["metadata"].update(uid=f"uid-{state.version + 1}", creationTimestamp="2026-01-01T00:00:00Z")
    if schemas.has_generation(resource):
        stored["metadata"]["generation"] = 1
    state = state.store(key, stored)
    return state, copy.deepcopy(state.objects[key])


def _update(state: State, resource: Resource, body: JsonObject, *, status: bool) -> tuple[State, JsonObject]:
    key = Key(resource, text(body, "metadata", "namespace") or "", str(text(body, "metadata", "name")))
    if resource == LEASES and key not in state.objects:
        # A PUT could create a Lease; one that names a UID then conflicts with there being none.
        raise ConflictError(f"{resource} {key.name!r}: the precondition does not hold", status=409)
    before = state.get(key)
    for field_name in ("uid", "resourceVersion"):
        if text(body, "metadata", field_name) != text(before, "metadata", field_name):
            raise ConflictError(f"{resource} {key.name!r}: the object has been modified", status=409)
    after = _merged(resource, before, copy.deepcopy(body), status)
    schemas.fill(resource, after)
    schemas.check(resource, after, before)
    if after.get("spec") != before.get("spec") and schemas.has_generation(resource):
        after["metadata"]["generation"] = before["metadata"].get("generation", 1) + 1
    if after == before:
        return state, copy.deepcopy(before)  # the API server stores nothing, and the version stays
    metadata = after["metadata"]
    if metadata.get("deletionTimestamp") and not (
        metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    ):
        # Not stored, but removed at once: watches see the end alone, and the answer is what was sent.
        return state.remove(key), after
    state = state.store(key, after)
    return state, copy.deepcopy(state.objects[key])


def _merged(resource: Resource, before: JsonObject, sent: JsonObject, status: bool) -> JsonObject:
    """Return what a PUT would store: the status, or all but the status, and never what the server alone sets."""
    after, other = (copy.deepcopy(before), sent) if status else (sent, copy.deepcopy(before))
    if status and built_in(resource):
        after["metadata"] = sent["metadata"]  # of these kinds it may be changed beside the status, too
    after.pop("status", None)
    if "status" in other:
        after["status"] = other["status"]
    for field_name in ("generation", "deletionTimestamp", "deletionGracePeriodSeconds", "creationTimestamp"):
        after["metadata"].pop(field_name, None)
        if field_name in before["metadata"]:
            after["metadata"][field_name] = before["metadata"][field_name]
    return after


def _delete(state: State, request: Delete) -> State:
    key = Key(request.resource, request.namespace, request.name)
    metadata = state.get(key)["metadata"]
    if (metadata["uid"], metadata["resourceVersion"]) != (request.uid, request.resource_version):
        raise ConflictError(f"{request.resource} {request.name!r}: the precondition does not hold", status=409)
    grace = 30 if request.resource == PODS and _has_a_kubelet(state.objects[key]) else 0
    if not metadata.get("finalizers") and request.resource != PODS:
        return state.remove(key)
    if not metadata.get("deletionTimestamp") or grace < metadata["deletionGracePeriodSeconds"]:
        doomed = copy.deepcopy(state.objects[key])
        doomed["metadata"].update(deletionTimestamp="2026-01-01T00:30:00Z", deletionGracePeriodSeconds=grace)
        if schemas.has_generation(request.resource):
            doomed["metadata"]["generation"] = metadata.get("generation", 1) + 1
        state = state.store(key, doomed)
    return state if metadata.get("finalizers") or grace else state.remove(key)


def _has_a_kubelet(pod: JsonObject) -> bool:
    """Whether a pod's deletion waits for a node to say that its containers have ended."""
    return bool(dig(pod, "spec", "nodeName")) and dig(pod, "status", "phase") not in ("Succeeded", "Failed")


class Crash(BaseException):
    """Raised by a hook: the process that sent the request is gone at this moment."""


@dataclass(frozen=True)
class Entry:
    """One request that was carried out or refused, with the object before it and the reply or error after it."""

    request: Request
    before: JsonObject | None
    reply: Any


class ApiServer:
    """The current state, and the hooks around each request.

    `before(request)` may change the world, or raise what the request is then answered with. `after(request,
    reply)` may do the same once the request was applied: `UnreachableError` loses the reply, `Crash` ends the
    process. `idle(request)` moves the world on while a watch waits, and says whether it did.
    """

    def __init__(self, *objects: JsonObject) -> None:
        self.state = State()
        self.before: Callable[[Request], None] = lambda _: None
        self.after: Callable[[Request, Any], None] = lambda _, __: None
        self.idle: Callable[[Watch], bool] = lambda _: False
        self.entries: list[Entry] = []
        for body in objects:
            self.put(body)

    def key(self, body: JsonObject) -> Key:
        """Return where an object belongs."""
        return Key(KINDS[body["kind"]], text(body, "metadata", "namespace") or "", body["metadata"]["name"])

    def put(self, body: JsonObject) -> None:
        """Store an object as somebody else's write, status and all."""
        self.state = self.state.store(self.key(body), body)

    def read(self, resource: Resource, name: str, namespace: str = "team") -> JsonObject:
        """Return a copy of an object, past the hooks."""
        return copy.deepcopy(self.state.get(Key(resource, namespace, name)))

    def has(self, resource: Resource, name: str, namespace: str = "team") -> bool:
        """Whether there is such an object."""
        return Key(resource, namespace, name) in self.state.objects

    def edit(
        self, resource: Resource, name: str, change: Callable[[JsonObject], object], namespace: str = "team"
    ) -> None:
        """Change an object in place as somebody else's write; nothing is stored where nothing changes."""
        body = self.read(resource, name, namespace)
        change(body)
        if body != self.read(resource, name, namespace):
            self.put(body)

    def remove(self, resource: Resource, name: str, namespace: str = "team") -> None:
        """Take an object away as somebody else's deletion."""
        self.state = self.state.remove(Key(resource, namespace, name))

    def send(self, request: Request) -> Any:
        """Carry out one request, hooks and all."""
        before = None
        if isinstance(request, Replace | ReplaceStatus):
            before = self.state.objects.get(self.key(request.body))
        try:
            self.before(request)
            while True:
                self.state, reply = apply(self.state, request)
                if not isinstance(request, Watch) or reply.events or not self.idle(request):
                    break
        except ApiError as error:
            self.entries.append(Entry(request, before, error))
            raise
        self.entries.append(Entry(request, before, reply))
        self.after(request, reply)
        return reply

    def run(self, operation: Operation[T]) -> T:
        """Run an operation to its end."""
        return Process(self, operation).finish()

    @property
    def requests(self) -> list[Request]:
        """All requests so far, in order."""
        return [entry.request for entry in self.entries]

    @property
    def writes(self) -> list[Entry]:
        """The writes that were applied, in order."""
        done = [entry for entry in self.entries if not isinstance(entry.reply, ApiError)]
        return [entry for entry in done if isinstance(entry.request, WRITES)]


_RUNNING: Final = object()


class Process(Generic[T]):
    """An operation under way: `pending` is the request that it sends next, None once it has ended."""

    def __init__(self, server: ApiServer, operation: Operation[T]) -> None:
        self._server = server
        self._operation = operation
        self._result: Any = _RUNNING
        self.pending: Request | None = None
        self._advance(lambda: next(operation))

    def step(self) -> None:
        """Send the pending request and go on to the next one; a `Crash` ends the process and is raised."""
        assert self.pending is not None, "the operation has ended"
        request, self.pending = self.pending, None
        try:
            reply = self._server.send(request)
        except ApiError as error:
            thrown = error
            self._advance(lambda: self._operation.throw(thrown))
        except Crash:
            self._operation.close()
            raise
        else:
            self._advance(lambda: self._operation.send(reply))

    def finish(self) -> T:
        """Go on to the end; return the operation's result, or raise its error."""
        while self.pending is not None:
            self.step()
        assert self._result is not _RUNNING, "the operation ended without a result"
        result: T = self._result
        return result

    def _advance(self, move: Callable[[], Request]) -> None:
        try:
            self.pending = move()
        except StopIteration as end:
            self._result = end.value
