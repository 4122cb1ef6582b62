"""Asking the real API server and the model the same, step by step, and saying where they differ."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from dispatch_gates.cluster import Connection, Driver, Target
from dispatch_gates.contract import names
from dispatch_gates.contract.names import Resource
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.requests import (
    ApiError,
    Changes,
    Create,
    Delete,
    Get,
    List,
    Listing,
    Replace,
    ReplaceStatus,
    Request,
    Watch,
)
from faithful.answers import Renaming, differences
from faithful.plan import NOBODY, RESOURCES, SEQUENCE, SLOTS, WITHOUT_STATUS, Slot, Step, drawn, edited, new
from model.apiserver import ApiServer, State

SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_AT_ONCE: Final = 8
_GOODBYE_SECONDS: Final = 0.5
"""How long the end of a TLS connection may take, which nothing tells of; usually a few milliseconds."""
_SILENCE_SECONDS: Final = 0.3
"""How long a watch is kept open that should see nothing."""
_EVENT_SECONDS: Final = 60.0
"""How long the real one may take to show an event; usually a hundredth of a second."""


@dataclass
class Side:
    """One of the two API servers, and what was seen of it: versions of objects, and versions to watch from."""

    bodies: dict[int, list[JsonObject]] = field(default_factory=dict)
    versions: list[str] = field(default_factory=list)

    def seen(self, reply: Any, slots: dict[tuple[str, str], int]) -> None:
        """Remember the objects of a reply."""
        found: Sequence[JsonObject] = ()
        match reply:
            case Listing(items, version):
                found = items
                self.versions.append(version)
            case Changes(events):
                found = [body for body, _ in events]
            case dict():
                found = [reply]
        for body in found:
            slot = slots.get((body.get("kind", ""), body["metadata"]["name"]))
            if slot is not None:
                self.bodies.setdefault(slot, []).append(body)
                self.versions.append(body["metadata"]["resourceVersion"])

    def version_of(self, step: Step) -> JsonObject:
        """Return what was seen of an object so many versions ago; one that never was, where there is nothing."""
        seen = self.bodies.get(step.slot, [])
        if seen:
            return seen[max(-1 - step.age, -len(seen))]
        return {}


class Played:
    """One sequence under way on both sides, in a namespace of its own."""

    def __init__(self, driver: Driver, namespace: str) -> None:
        self._driver = driver
        self.namespace = namespace
        self.server = ApiServer()
        self.server.state = State(namespaces=frozenset({namespace}), compacted=2)
        self.real, self.model = Side(), Side()
        self.renaming = Renaming()
        self._slots = {
            (slot.resource.kind, slot.name if slot.scoped else f"{namespace}-{slot.name}"): number
            for number, slot in enumerate(SLOTS)
        }

    async def run(self, steps: Sequence[Step]) -> list[str]:
        """Play all steps; return the first differences, each with the step that showed it."""
        await self._begin()
        for number, step in enumerate(steps, 1):
            if found := await self._step(step):
                return [f"step {number}, {step}: {line}" for line in found]
        return await self._end()

    async def _begin(self) -> None:
        metadata: JsonObject = {"name": self.namespace}
        made = await self._driver.perform(Create(names.NAMESPACES, _object(names.NAMESPACES, metadata)))
        account = {"name": "default", "namespace": self.namespace}
        await self._driver.perform(Create(SERVICE_ACCOUNTS, _object(SERVICE_ACCOUNTS, account)))
        self.real.versions.append(made["metadata"]["resourceVersion"])
        self.model.versions.append(str(self.server.state.version))

    async def _step(self, step: Step) -> list[str]:
        if step.action == "pages":
            return await self._pages(step)
        kind = SLOTS[step.slot].resource.kind
        asked = [self._request(step, side) for side in (self.real, self.model)]
        answer = self._of_model(asked[1])
        if isinstance(asked[0], Watch):
            seconds = _EVENT_SECONDS if isinstance(answer, ApiError) or answer.events else _SILENCE_SECONDS
            asked[0] = Watch(**{**vars(asked[0]), "seconds": seconds})
        try:
            real = await self._driver.perform(asked[0])
        except ApiError as error:
            real = error
        return self._compared(real, answer, kind)

    def _of_model(self, request: Request) -> Any:
        try:
            return self.server.send(request)
        except ApiError as error:
            return error

    def _compared(self, real: Any, model: Any, kind: str) -> list[str]:
        found = differences(self.renaming, real, model, kind)
        if not found:
            self.real.seen(real, self._slots)
            self.model.seen(model, self._slots)
        return found

    async def _pages(self, step: Step) -> list[str]:
        """Read a list in pages of one, and write between them: it is the list of the moment when it was begun."""
        request = List(SLOTS[step.slot].resource, "", self._selector(step.how))
        whole = self._of_model(request)
        found: list[JsonObject] = []
        differ: list[str] = []
        inner = iter(step.inner)
        pages = self._driver.pages(request, limit=1)
        async for page in pages:
            found.extend(page.items)
            if not differ and (between := next(inner, None)) is not None:
                differ = [f"between the pages, {between}: {line}" for line in await self._step(between)]
        return differ or self._compared(Listing(tuple(found), page.resource_version), whole, request.resource.kind)

    def _selector(self, selector: str) -> str:
        return f"{SEQUENCE}={self.namespace}" + (f",{selector}" if selector else "")

    def _request(self, step: Step, side: Side) -> Request:
        slot = SLOTS[step.slot]
        resource, namespace = slot.resource, self.namespace if slot.scoped else ""
        name = slot.name if slot.scoped else f"{self.namespace}-{slot.name}"
        match step.action:
            case "get":
                return Get(resource, namespace, name)
            case "create":
                return Create(resource, new(slot, self.namespace, step.how, step.value))
            case "list" | "watch":
                scope, _, selector = step.how.partition(": ")
                everywhere = scope == "everywhere" or not slot.scoped
                namespace, selector = ("", self._selector(selector)) if everywhere else (namespace, selector)
                if step.action == "list":
                    return List(resource, namespace, selector)
                since = side.versions[max(-1 - step.age, -len(side.versions))]
                return Watch(resource, namespace, since, 1.0, name if scope == "one" else "", selector)
            case "watch expired":
                return Watch(resource, namespace, "1", 1.0)
        body = side.version_of(step) or self._never_seen(slot)
        if step.action == "delete":
            metadata = body["metadata"]
            uid = NOBODY if step.how == "wrong uid" else metadata["uid"]
            version = "1" if step.how == "wrong version" else metadata["resourceVersion"]
            return Delete(resource, namespace, name, uid, version)
        status = step.action == "replace status" and resource not in WITHOUT_STATUS
        return (ReplaceStatus if status else Replace)(resource, edited(slot, body, step))

    def _never_seen(self, slot: Slot) -> JsonObject:
        body = new(slot, self.namespace, "", 0)
        body["metadata"] |= {"uid": NOBODY, "resourceVersion": "1"}
        body.setdefault("status", {})
        return body

    async def _end(self) -> list[str]:
        """Compare all that is stored, and all that a watch from the beginning shows, in order."""
        found = []
        for resource in RESOURCES:
            request = List(resource, "", self._selector(""))
            differ = self._compared(
                await self._driver.perform(request), self._of_model(request), resource.kind
            ) or await self._history(resource)
            found += [f"in the end, {resource}: {line}" for line in differ]
        return found

    async def _history(self, resource: Resource) -> list[str]:
        selector = self._selector("")
        expected = self.server.state.events(Watch(resource, "", self.model.versions[0], 0, selector=selector))
        model = tuple(event[:2] for event in expected)
        if not model:
            return []
        request = Watch(resource, "", self.real.versions[0], _EVENT_SECONDS, selector=selector)
        seen: list[tuple[JsonObject, bool]] = []
        stream = self._driver.stream(request)
        try:
            async for event in stream:
                seen.append(event)
                if len(seen) == len(model):
                    break
        finally:
            await stream.aclose()
        return differences(self.renaming, Changes(tuple(seen), 0), Changes(model, 0), resource.kind)


def _object(resource: Resource, metadata: JsonObject) -> JsonObject:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


@asynccontextmanager
async def connected(target: Target) -> AsyncIterator[Driver]:
    """Connect to the real API server: with the driver that ships."""
    connection = await Connection.open(target)
    try:
        yield Driver(connection)
    finally:
        await connection.close()
        await asyncio.sleep(_GOODBYE_SECONDS)


async def play(driver: Driver, steps: Sequence[Step]) -> list[str]:
    """Play a plan in a fresh namespace; return how the two sides differ, empty is good."""
    return await Played(driver, f"q-{secrets.token_hex(5)}").run(steps)


async def shrunk(driver: Driver, steps: Sequence[Step]) -> Sequence[Step]:
    """Return a plan that still differs, from which no step can be taken away."""
    size = max(len(steps) // 2, 1)
    while size:
        begin = 0
        while begin < len(steps):
            fewer = (*steps[:begin], *steps[begin + size :])
            if fewer and await play(driver, fewer):
                steps = fewer
            else:
                begin += size
        size //= 2
    return steps


async def play_seeds(target: Target, seeds: Iterable[int], *, most: int = 3) -> list[str]:
    """Play the plan of each seed; return a report for each that differs, with the fewest steps that show it.

    Nothing new is begun once `most` differ.
    """
    waiting = iter(seeds)
    reports: list[str] = []
    async with connected(target) as driver:

        async def work() -> None:
            for seed in waiting:
                if found := await play(driver, drawn(seed)):
                    steps = await shrunk(driver, drawn(seed))
                    again = await play(driver, steps) or [f"only in the first try: {line}" for line in found]
                    reports.append(f"seed {seed}:\n  " + "\n  ".join([*map(str, steps), *again]))
                if len(reports) >= most:
                    return

        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(work())
    return reports
