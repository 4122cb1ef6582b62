"""What the driver sends and how it reads, over real sockets, as named checks: see `test_driver` and the mutants."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from dispatch_admission.act import Result, readmit
from dispatch_gates.contract.names import PODS, TRAINJOBS, WORKLOADS
from dispatch_gates.contract.next_execution import Reason
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.requests import ApiError, Get, List, Listing, UnreachableError, Watch
from model import objects
from model.http import Front, Served, failure, reply, served
from model.objects import CHECK, NAME, TEAM, WORKLOAD
from model.promises import our_entry
from unit.checks import Checks
from unit.pass_checks import scene

CHECKS = Checks()


def asking(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
    talk: Callable[[Served], Awaitable[None]],
    *,
    attempts: int = 1,
) -> None:
    """Serve `answer`, and talk to it."""

    async def main() -> None:
        async with served(answer, attempts=attempts) as found:
            await talk(found)

    asyncio.run(main())


def many_pods() -> list[JsonObject]:
    """1203 pods, all over but number 1201 (BL-26)."""
    pods = [objects.pod("Succeeded", name=f"p-{number:04d}", containers=("terminated",)) for number in range(1, 1204)]
    pods[1200] = objects.pod(name="p-1201")
    return pods


@CHECKS
def all_pages_are_read() -> None:
    """BL-26 (a): the one pod that runs is on the third page, and the pass names it."""
    server = scene(pods=many_pods())

    async def talk(found: Served) -> None:
        outcome = await found.driver.run(readmit(TEAM, WORKLOAD, frozenset({CHECK})))
        assert (outcome.result, outcome.reason) == (Result.WAITING, Reason.STILL_RUNNING)
        pages = [seen.query for seen in found.seen if seen.path.endswith("/pods")]
        assert [(page["limit"], page.get("continue")) for page in pages] == [
            ("500", None),
            ("500", "500"),
            ("500", "1000"),
        ]

    asking(Front(server), talk)
    assert "pod p-1201 (Running" in our_entry(server.read(WORKLOADS, WORKLOAD))["message"]


@CHECKS
def a_list_whose_pages_expire_begins_anew() -> None:
    """BL-26 (b): a 410 half-way; the list starts over, and nothing of the first try is in it."""
    server = scene(pods=many_pods())
    front, expired = Front(server), iter([True])

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.query.get("continue") == "1000" and next(expired, False):
            server.remove(PODS, "p-0001")
            return failure(410, "Expired")
        return await front(request)

    async def talk(found: Served) -> None:
        listing: Listing = await found.driver.perform(List(PODS, TEAM))
        names = [item["metadata"]["name"] for item in listing.items]
        assert names == [f"p-{number:04d}" for number in range(2, 1204)]
        assert len(found.seen) == 6

    asking(answer, talk)


@CHECKS
def a_page_that_fails_fails_the_list() -> None:
    """BL-26 (c): a part of a list never counts as all of it; a list that never holds gives up."""
    front = Front(scene(pods=many_pods()))

    def answering(status: int) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            return failure(status, "x") if request.query.get("continue") else await front(request)

        return answer

    async def talk(found: Served) -> None:
        try:
            listing = await found.driver.perform(List(PODS, TEAM))
        except UnreachableError:
            return
        raise AssertionError(f"a list of {len(listing.items)} came of it")

    for status in (500, 410):
        asking(answering(status), talk)


@CHECKS
def no_read_may_be_old() -> None:
    """BL-27: every read of a whole pass goes past the watch cache; only a watch names a version, and never 0."""
    server = scene(pods=[objects.pod("Succeeded", containers=("terminated",))])

    async def talk(found: Served) -> None:
        outcome = await found.driver.run(readmit(TEAM, WORKLOAD, frozenset({CHECK})))
        assert outcome.result is Result.ADMITTED
        for seen in found.seen:
            version = seen.query.get("resourceVersion")
            assert (version is not None) is ("watch" in seen.query), seen
            assert version != "0", seen
            assert "resourceVersionMatch" not in seen.query

    asking(Front(server), talk)


@CHECKS
def every_way_of_reading_is_consistent() -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return reply({"items": [], "metadata": {"resourceVersion": "7"}})

    async def talk(found: Served) -> None:
        for request in (Get(TRAINJOBS, TEAM, NAME), List(PODS, TEAM), List(PODS, "", "a=b")):
            await found.driver.perform(request)
        async for _ in found.driver.pages(List(WORKLOADS, ""), limit=1):
            pass
        assert all("resourceVersion" not in seen.query for seen in found.seen)
        assert len(found.seen) == 4

    asking(answer, talk)


@CHECKS
def a_silent_watch_ends() -> None:
    """Nothing comes: the time that was asked for is over, and that is what the reply says."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(2)
        return response

    async def talk(found: Served) -> None:
        began = asyncio.get_running_loop().time()
        try:
            changes = await found.driver.perform(Watch(PODS, TEAM, "7", 0.2))
        except ApiError as error:
            raise AssertionError(f"silence is no error: {error}") from error
        assert (changes.events, changes.seconds_left) == ((), 0.0)
        assert asyncio.get_running_loop().time() - began >= 0.2

    asking(answer, talk)
