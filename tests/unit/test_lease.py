"""The election by a Lease, two replicas against the model API server, in virtual time.

Aspects: one leads, the other stands by; handing over; an API server that fails or hangs; races for the Lease; a
replica that makes no progress. At no moment do two replicas believe that they lead, as long as their clocks run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from dispatch_admission.lease import Lease
from dispatch_gates.cluster import Driver
from dispatch_gates.contract.names import LEASES
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.requests import ApiError, Operation, Replace, UnreachableError
from model.apiserver import ApiServer, Process
from model.virtual_time import run

T = TypeVar("T")
SECONDS = 15.0
NAMESPACE = "dispatch-system"


@dataclass
class Wire:
    """A driver to the model API server: each request takes a moment, and may fail or never be answered."""

    server: ApiServer
    seconds: float = 0.01
    error: ApiError | None = None
    hangs: bool = False

    async def run(self, operation: Operation[T]) -> T:
        process = Process(self.server, operation)
        while process.pending is not None:
            await asyncio.sleep(3600 if self.hangs else self.seconds)
            if self.error is not None:
                raise self.error
            process.step()
        return process.finish()


@dataclass
class Replica:
    """One replica: its wire, its part in the election, and the task that takes part."""

    lease: Lease
    wire: Wire
    task: asyncio.Task[None] = field(init=False)

    def begin(self) -> None:
        self.task = asyncio.create_task(self.lease.run())

    @property
    def leads(self) -> bool:
        return self.lease.leading.is_set()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@dataclass
class Election:
    """Two replicas; each look at them is also a look for two leaders."""

    server: ApiServer
    one: Replica
    other: Replica

    @property
    def spec(self) -> JsonObject:
        found: JsonObject = self.server.read(LEASES, "it", NAMESPACE)["spec"]
        return found

    async def passes(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(int(seconds * 20)):
            await asyncio.sleep(0.05)
            assert not (self.one.leads and self.other.leads), "two leaders"


def election(story: Callable[[Election], Coroutine[Any, Any, None]], **parts: Any) -> None:
    """Begin with one replica that leads, and another that stands by."""

    async def main() -> None:
        server = ApiServer()
        replicas = []
        for identity in ("one", "other"):
            wire = Wire(server)
            lease = Lease(cast(Driver, wire), NAMESPACE, "it", identity, SECONDS, **parts)
            replicas.append(Replica(lease, wire))
        found = Election(server, *replicas)
        found.one.begin()
        await found.passes(1)
        found.other.begin()
        await found.passes(20)
        assert (found.one.leads, found.other.leads) == (True, False)
        await story(found)
        for replica in replicas:
            await replica.stop()

    run(main())


def test_the_leader_renews_and_the_other_stands_by() -> None:
    async def story(found: Election) -> None:
        before = found.spec
        await found.passes(300)
        after = found.spec
        assert (found.one.leads, found.other.leads) == (True, False)
        assert (after["holderIdentity"], after["leaseTransitions"], after["leaseDurationSeconds"]) == ("one", 0, 15)
        assert after["acquireTime"] == before["acquireTime"]
        assert after["renewTime"] != before["renewTime"]
        renewals = [entry for entry in found.server.writes if isinstance(entry.request, Replace)]
        assert 320 / 4 < len(renewals) <= 321 / 3 + 1, "one renewal in a fifth of the time"

    election(story)


def test_a_leader_that_is_gone_is_followed_after_the_time_of_the_lease() -> None:
    async def story(found: Election) -> None:
        await found.one.stop()
        await found.passes(SECONDS - 4)
        assert not found.other.leads
        found.one.lease.leading.clear()
        await found.passes(8)
        assert found.other.leads
        assert (found.spec["holderIdentity"], found.spec["leaseTransitions"]) == ("other", 1)

    election(story)


def test_a_lease_that_is_given_back_is_taken_at_once() -> None:
    async def story(found: Election) -> None:
        await found.one.stop()
        await found.one.lease.release()
        found.one.lease.leading.clear()
        assert found.spec["holderIdentity"] == ""
        await found.passes(SECONDS / 5 + 1)
        assert found.other.leads

    election(story)


def test_only_the_leader_gives_back() -> None:
    async def story(found: Election) -> None:
        await found.other.stop()
        await found.other.lease.release()
        assert found.spec["holderIdentity"] == "one"

    election(story)


def test_a_lease_of_another_is_not_given_back() -> None:
    """It was lost without our noticing."""

    async def story(found: Election) -> None:
        await found.one.stop()
        found.server.edit(LEASES, "it", lambda body: body["spec"].update(holderIdentity="x"), NAMESPACE)
        await found.one.lease.release()
        assert found.spec["holderIdentity"] == "x"

    election(story)


def _cut_off(error: ApiError | None, hangs: bool) -> None:
    async def story(found: Election) -> None:
        clock = asyncio.get_running_loop().time
        renewed_by = found.one.lease.answered_at
        found.one.wire.error, found.one.wire.hangs = error, hangs
        while found.one.leads:
            await found.passes(0.05)
        assert clock() - renewed_by <= SECONDS * 2 / 3 + 0.05, "before the other may take over"
        assert found.one.lease.lost.is_set()
        await found.one.task
        await found.passes(SECONDS)
        assert found.other.leads
        await found.one.lease.release()
        assert found.spec["holderIdentity"] == "other"

    election(story)


def test_a_leader_that_cannot_reach_the_api_server_steps_down_first() -> None:
    _cut_off(UnreachableError("no route"), hangs=False)


def test_a_leader_whose_requests_hang_steps_down_first() -> None:
    _cut_off(None, hangs=True)


def test_a_short_break_changes_nothing() -> None:
    async def story(found: Election) -> None:
        found.one.wire.error = UnreachableError("restart")
        await found.passes(SECONDS / 3)
        found.one.wire.error = None
        await found.passes(60)
        assert (found.one.leads, found.other.leads) == (True, False)
        assert found.spec["leaseTransitions"] == 0

    election(story)


def test_nobody_can_reach_the_api_server() -> None:
    async def story(found: Election) -> None:
        for replica in (found.one, found.other):
            replica.wire.error = UnreachableError("down")
        await found.passes(60)
        assert (found.one.leads, found.other.leads) == (False, False)
        found.other.wire.error = None
        await found.passes(SECONDS + 4)
        assert found.other.leads

    election(story)


def test_a_leader_that_makes_no_progress_gives_way() -> None:
    async def story(found: Election) -> None:
        found.one.lease.may_renew = lambda: False
        await found.passes(SECONDS / 5 + 0.5)
        assert not found.one.leads
        await found.passes(SECONDS + 4)
        assert found.other.leads

    election(story)


def test_a_race_for_a_lease_that_is_free() -> None:
    """Both read it free at the same moment: the version decides."""

    async def story(found: Election) -> None:
        await found.one.stop()
        await found.other.stop()
        found.one.lease.leading.clear()
        found.server.edit(LEASES, "it", lambda body: body["spec"].update(holderIdentity=""), NAMESPACE)
        for replica in (found.one, found.other):
            replica.begin()
        await found.passes(30)
        assert found.one.leads is not found.other.leads

    election(story)


def test_a_race_for_the_creation() -> None:
    async def main() -> None:
        server = ApiServer()
        leases = [Lease(cast(Driver, Wire(server)), NAMESPACE, "it", name, SECONDS) for name in ("a", "b", "c")]
        tasks = [asyncio.create_task(lease.run()) for lease in leases]
        await asyncio.sleep(30)
        assert sum(lease.leading.is_set() for lease in leases) == 1
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(main())


def test_the_clock_in_the_lease_is_not_believed() -> None:
    """A holder whose clock is a day off renews all the same; only that it changes counts."""

    async def story(found: Election) -> None:
        await found.one.stop()
        found.one.lease.leading.clear()
        for number in range(12):
            moment = f"2020-01-01T00:00:{number:02d}.000000Z"
            found.server.edit(LEASES, "it", lambda body, m=moment: body["spec"].update(renewTime=m), NAMESPACE)  # type: ignore[misc]
            await found.passes(5)
            assert not found.other.leads
        await found.passes(SECONDS + 4)
        assert found.other.leads

    election(story)


def test_answers_are_noted_for_liveness() -> None:
    async def story(found: Election) -> None:
        clock = asyncio.get_running_loop().time
        await found.passes(30)
        assert all(clock() - replica.lease.answered_at < 4 for replica in (found.one, found.other))
        found.other.wire.error = UnreachableError("down")
        await found.passes(30)
        assert clock() - found.other.lease.answered_at > 25

    election(story)
