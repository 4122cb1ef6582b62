"""Leadership by a Lease: it avoids double work, and its renewals are the heartbeat that adapters look for.

Nothing rests on it for safety. The client's own leader election is not used: an error while it reads the Lease
ends it without telling the worker.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from dispatch_admission.logs import fields
from dispatch_gates.cluster import Driver
from dispatch_gates.contract.names import LEASES
from dispatch_gates.contract.objects import JsonObject, copied, number, text
from dispatch_gates.requests import AlreadyExistsError, ApiError, ConflictError, Create, Operation, Replace, find, write

_log = logging.getLogger(__name__)

_FREE: Final = ""


@dataclass
class Lease:
    """One replica's part in the election. `identity` must differ between replicas.

    A replica leads until two thirds of `seconds` after it began the last renewal that succeeded, by its own
    monotonic clock; another takes over when it has seen no renewal for `seconds`, by its own. Clocks are not
    compared.
    """

    driver: Driver
    namespace: str
    name: str
    identity: str
    seconds: float
    may_renew: Callable[[], bool] = lambda: True
    leading: asyncio.Event = field(default_factory=asyncio.Event)
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    answered_at: float = 0.0
    _seen: tuple[str, str] = ("", "")
    _seen_at: float = 0.0

    async def run(self) -> None:
        """Take part until cancelled, or until leadership is lost: then `lost` is set and this returns."""
        clock = asyncio.get_running_loop().time
        self._seen_at = self.answered_at = clock()
        leads_until = math.inf
        while True:
            began = clock()
            try:
                # Not `wait_for`, which in Python 3.11 can swallow a cancellation that comes with the reply.
                async with asyncio.timeout_at(min(began + self.seconds / 3, leads_until)):
                    held = await self.driver.run(self._try(clock))
                self.answered_at = clock()
                if held:
                    leads_until = began + self.seconds * 2 / 3
                    self.leading.set()
                elif self.leading.is_set():
                    return self._lose("another replica holds the Lease, or this one makes no progress")
            except (ApiError, TimeoutError) as error:
                _log.warning(fields(event="lease-not-renewed", error=str(error) or "time-out"))
            if clock() >= leads_until:
                return self._lose("the Lease could not be renewed in time")
            await asyncio.sleep(max(min(began + self.seconds / 5, leads_until) - clock(), 0.01))

    async def release(self) -> None:
        """Give the Lease back, so that a standby need not wait; on the way down, with no second try."""
        if self.leading.is_set():
            try:
                async with asyncio.timeout(self.seconds / 3):
                    await self.driver.run(self._free())
            except (ApiError, TimeoutError) as error:
                _log.warning(fields(event="lease-not-released", error=str(error) or "time-out"))

    def _lose(self, why: str) -> None:
        _log.error(fields(event="leadership-lost", why=why))
        self.leading.clear()
        self.lost.set()

    def _try(self, clock: Callable[[], float]) -> Operation[bool]:
        """Create, renew or take over the Lease; return whether this replica holds it."""
        raw = yield from find(LEASES, self.namespace, self.name)
        try:
            if raw is None:
                yield from write(Create(LEASES, self._body({"metadata": self._metadata()}, 0)))
                return True
            holder = text(raw, "spec", "holderIdentity") or _FREE
            seen = (holder, text(raw, "spec", "renewTime") or "")
            if seen != self._seen:
                self._seen, self._seen_at = seen, clock()
            if holder == self.identity:
                if not self.may_renew():
                    return False
            elif holder != _FREE and clock() - self._seen_at <= self.seconds:
                return False
            changes = (number(raw, "spec", "leaseTransitions") or 0) + (holder != self.identity)
            yield from write(Replace(LEASES, self._body(raw, changes)))
        except (AlreadyExistsError, ConflictError):
            return False
        return True

    def _free(self) -> Operation[None]:
        raw = yield from find(LEASES, self.namespace, self.name)
        if raw is not None and text(raw, "spec", "holderIdentity") == self.identity:
            body = copied(raw)
            body["spec"]["holderIdentity"] = _FREE
            yield from write(Replace(LEASES, body))

    def _metadata(self) -> JsonObject:
        return {"name": self.name, "namespace": self.namespace}

    def _body(self, raw: JsonObject, transitions: int) -> JsonObject:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        body = copied(raw)
        spec = body.setdefault("spec", {})
        if spec.get("holderIdentity") != self.identity:
            spec["acquireTime"] = now
        spec.update(
            holderIdentity=self.identity,
            leaseDurationSeconds=max(round(self.seconds), 1),
            renewTime=now,
            leaseTransitions=transitions,
        )
        return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, **body}
