"""What passes share, in virtual time, as named checks: see `test_sharing` and the mutants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

from aiohttp import web

from dispatch_admission.sharing import MAX_NAMES, Sharing
from dispatch_gates.cluster import Driver
from dispatch_gates.contract.names import ADMISSION_COUNT, JOBS, JOBSET_NAME, JOBSETS, PODS, TRAINJOBS
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.requests import (
    ApiError,
    BadReplyError,
    Changes,
    DeniedError,
    Get,
    InvalidError,
    List,
    Listing,
    NotFoundError,
    Operation,
    Replace,
    Request,
    ThrottledError,
    UnreachableError,
    Watch,
)
from model import objects, virtual_time
from model.apiserver import ApiServer
from model.driver import ModelDriver
from model.http import Front, failure, served
from model.objects import TEAM
from unit.checks import Checks

CHECKS = Checks()
_LIST_SECONDS = 1.0


class Slow(ModelDriver):
    """Carries a list out half-way through the time that it takes; keeps when each was asked for, and what for."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        self.server = server
        self.asked: list[Request] = []
        self.fail: Callable[[Request], ApiError | None] = lambda _: None

    async def perform(self, request: Request) -> Any:
        self.asked.append(request)
        await asyncio.sleep(_LIST_SECONDS / 2)
        error = self.fail(request)
        reply = None if error is not None else self.server.send(request)
        await asyncio.sleep(_LIST_SECONDS / 2)
        if error is not None:
            raise error
        return reply


def pod(job: str, name: str) -> JsonObject:
    """A pod that carries the label of a job, whoever put it there."""
    body = objects.pod(name=name)
    body["metadata"]["labels"] = {JOBSET_NAME: job}
    return body


def of(job: str) -> List:
    """What a pass asks for."""
    return List(PODS, TEAM, f"{JOBSET_NAME}={job}")


def names(listing: Listing) -> list[str]:
    return [item["metadata"]["name"] for item in listing.items]


def telling(
    story: Callable[[Sharing, Slow], Coroutine[Any, Any, None]], *bodies: JsonObject
) -> tuple[ApiServer, list[Request]]:
    """Run a story in virtual time; return the server and what reached the driver."""
    server = ApiServer(*bodies)
    driver = Slow(server)

    async def main() -> None:
        sharing = Sharing(cast(Driver, driver))
        await story(sharing, driver)
        assert vars(sharing)["_lines"] == {}, "nothing is kept of what was asked"

    virtual_time.run(main())
    return server, driver.asked


@CHECKS
def one_that_is_alone_goes_out_at_once_and_as_it_is() -> None:
    async def story(sharing: Sharing, _: Slow) -> None:
        for _round in range(2):
            began = asyncio.get_running_loop().time()
            assert names(await sharing.perform(of("a"))) == ["a-0"]
            assert asyncio.get_running_loop().time() - began == _LIST_SECONDS

    _, asked = telling(story, pod("a", "a-0"), pod("b", "b-0"))
    assert asked == [of("a"), of("a")]


@CHECKS
def those_that_wait_go_out_together_and_each_gets_its_own() -> None:
    async def story(sharing: Sharing, _: Slow) -> None:
        first = asyncio.create_task(sharing.perform(of("a")))
        await asyncio.sleep(0.1)
        rest = await asyncio.gather(*(sharing.perform(of(job)) for job in ("b", "a", "c", "b", "none")))
        assert names(await first) == ["a-0"]
        assert [names(listing) for listing in rest] == [["b-0", "b-1"], ["a-0"], ["c-0"], ["b-0", "b-1"], []]
        assert asyncio.get_running_loop().time() == 2 * _LIST_SECONDS

    bodies = [pod(job, name) for job, name in (("a", "a-0"), ("b", "b-1"), ("b", "b-0"), ("c", "c-0"), ("d", "d-0"))]
    _, asked = telling(story, *bodies)
    assert asked == [of("a"), List(PODS, TEAM, f"{JOBSET_NAME} in (a,b,c,none)")]


@CHECKS
def a_list_answers_only_those_who_asked_before_it_was_sent() -> None:
    """Asked for while one for the same name is under way: what is there by then must be seen."""

    async def story(sharing: Sharing, driver: Slow) -> None:
        early = asyncio.create_task(sharing.perform(of("a")))
        await asyncio.sleep(_LIST_SECONDS * 3 / 4)  # the list was carried out, and its answer is on its way
        driver.server.put(pod("a", "a-late"))
        late = await sharing.perform(of("a"))
        assert (names(await early), names(late)) == (["a-0"], ["a-0", "a-late"])

    telling(story, pod("a", "a-0"))


@CHECKS
def whoever_asks_whenever_is_answered_from_then_on() -> None:
    """Many passes at odd moments over a world that changes: no answer is older than its question, or another's."""

    async def story(sharing: Sharing, driver: Slow) -> None:
        async def ask(number: int) -> None:
            await asyncio.sleep(number * 0.13)
            job = f"job-{number % 7}"
            driver.server.put(pod(job, f"{job}-{number}"))
            since = driver.server.state.version
            found = await sharing.perform(of(job))
            assert int(found.resource_version) >= since
            assert f"{job}-{number}" in names(found)
            assert all(name.startswith(f"{job}-") for name in names(found))

        await asyncio.gather(*(ask(number) for number in range(200)))

    _, asked = telling(story)
    assert len(asked) < 40, "200 questions"


@CHECKS
def a_forged_label_counts_and_one_that_is_missing_does_not() -> None:
    """As with a list of its own: a pod without the label is seen in its Job's counts instead."""
    forged, stripped = pod("b", "forged"), pod("b", "stripped")
    forged["metadata"]["ownerReferences"] = [objects.owner("Job", "elsewhere", "uid-elsewhere")]
    stripped["metadata"]["labels"] = {}

    async def story(sharing: Sharing, _: Slow) -> None:
        found = await asyncio.gather(*(sharing.perform(of(job)) for job in ("a", "b", "c")))
        assert [names(listing) for listing in found] == [["a-0"], ["forged"], []]

    telling(story, pod("a", "a-0"), forged, stripped)


@CHECKS
def an_answer_that_was_not_asked_for_is_none() -> None:
    class Odd(Slow):
        async def perform(self, request: Request) -> Any:
            await super().perform(request)
            return Listing((pod("other", "x"),), "7")

    async def main() -> None:
        sharing = Sharing(cast(Driver, Odd(ApiServer())))
        found = await asyncio.gather(*(sharing.perform(of(job)) for job in ("a", "b")), return_exceptions=True)
        assert [type(error) for error in found] == [BadReplyError] * 2

    virtual_time.run(main())


@CHECKS
def a_failure_reaches_each_and_is_not_remembered() -> None:
    for error in (ThrottledError("busy", status=429, retry_after=7), UnreachableError("gone", status=503)):

        async def story(sharing: Sharing, driver: Slow, error: ApiError = error) -> None:
            driver.fail = lambda request: error if "in (" in getattr(request, "selector", "") else None
            jobs = ("a", "b", "c")
            found = await asyncio.gather(*(sharing.perform(of(job)) for job in jobs), return_exceptions=True)
            assert names(cast(Listing, found[0])) == ["a-0"]
            for seen in found[1:]:
                assert isinstance(seen, type(error))
                assert isinstance(seen, ApiError)
                assert (str(seen), seen.status, seen.retry_after) == (str(error), error.status, error.retry_after)
            assert found[1] is not found[2]
            driver.fail = lambda _: None
            assert names(await sharing.perform(of("a"))) == ["a-0"]

        telling(story, pod("a", "a-0"))


@CHECKS
def a_refusal_is_asked_for_alone() -> None:
    """Its words reach people as the reason of a wait: they must not name other jobs, and not change each time."""
    for kind in (DeniedError, InvalidError):

        async def story(sharing: Sharing, driver: Slow, kind: type[ApiError] = kind) -> None:
            driver.fail = lambda request: kind(f"no: {getattr(request, 'selector', '')}")
            jobs = ("a", "b", "c")
            found = await asyncio.gather(*(sharing.perform(of(job)) for job in jobs), return_exceptions=True)
            assert [type(error) for error in found] == [kind] * 3
            assert [str(error) for error in found] == [f"no: {JOBSET_NAME}={job}" for job in jobs]

        telling(story)


@CHECKS
def one_that_is_cancelled_takes_no_other_along() -> None:
    """Leadership is lost, or a worker ends: whoever sends the list of all, or waits for it."""
    for gone in (0, 1, 2):

        async def story(sharing: Sharing, _: Slow, gone: int = gone) -> None:
            tasks = [asyncio.create_task(sharing.perform(of(job))) for job in ("a", "b", "c")]
            await asyncio.sleep(_LIST_SECONDS * (0.25 if gone == 0 else 1.25))
            tasks[gone].cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            for number, job in enumerate("abc"):
                if number == gone:
                    assert isinstance(found[number], asyncio.CancelledError)
                else:
                    assert names(cast(Listing, found[number])) == [f"{job}-0"]
            assert names(await sharing.perform(of("a"))) == ["a-0"]

        telling(story, *(pod(job, f"{job}-0") for job in "abc"))


@CHECKS
def nothing_is_sent_for_those_who_are_all_gone() -> None:
    async def story(sharing: Sharing, _: Slow) -> None:
        tasks = [asyncio.create_task(sharing.perform(of(job))) for job in ("a", "b", "c")]
        await asyncio.sleep(_LIST_SECONDS / 4)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(10)

    _, asked = telling(story)
    assert asked == [of("a")]


@CHECKS
def a_selector_has_a_bounded_length() -> None:
    jobs = [f"{'x' * 59}-{number:03d}" for number in range(2 * MAX_NAMES + 5)]

    async def story(sharing: Sharing, _: Slow) -> None:
        found = await asyncio.gather(*(sharing.perform(of(job)) for job in jobs))
        assert [names(listing) for listing in found] == [[f"p-{number:03d}"] for number in range(len(jobs))]

    _, asked = telling(story, *(pod(job, f"p-{number:03d}") for number, job in enumerate(jobs)))
    assert len(asked) == 4  # the first one alone, then two full ones and the rest
    assert all(len(cast(List, request).selector) < 4096 for request in asked)


@CHECKS
def what_is_of_another_kind_is_left_alone() -> None:
    """Other places are not waited for, and what no label can hold would spoil the list of all others."""
    requests: list[Request] = [
        of("a"),
        List(PODS, "other", f"{JOBSET_NAME}=a"),
        List(JOBS, TEAM, f"{JOBSET_NAME}=a"),
        List(PODS, "", f"{JOBSET_NAME}=a"),
        List(PODS, TEAM, JOBSET_NAME),
        List(PODS, TEAM, f"{JOBSET_NAME}=a,x=y"),
        List(PODS, TEAM, f"{JOBSET_NAME}=a)"),
        List(PODS, TEAM, f"{JOBSET_NAME}=A_b"),
        List(PODS, TEAM, f"{JOBSET_NAME}={'a' * 64}"),
        List(PODS, TEAM, f"{JOBSET_NAME}=\u0661"),
        List(PODS, TEAM),
    ]

    async def story(sharing: Sharing, _: Slow) -> None:
        await asyncio.gather(*(sharing.perform(request) for request in requests))
        assert asyncio.get_running_loop().time() == _LIST_SECONDS, "none waits for another"
        found = await asyncio.gather(sharing.perform(Get(TRAINJOBS, TEAM, "none")), return_exceptions=True)
        assert isinstance(found[0], NotFoundError)

    _, asked = telling(story)
    assert asked[:-1] == requests


def reading(*steps: Request) -> Operation[list[Any]]:
    """An operation that asks for one thing after the other."""
    found = []
    for step in steps:
        found.append((yield step))
    return found


def jobset(version: int, **labels: str) -> JsonObject:
    body = objects.jobset()
    body["metadata"].update(resourceVersion=str(version), labels=labels)
    return body


READ = Get(JOBSETS, TEAM, objects.NAME)


def change_of(version: str = "101", seconds: float = 10.0) -> Watch:
    """What a pass asks for that has read a JobSet and waits for it to change."""
    return Watch(JOBSETS, TEAM, version, seconds, name=objects.NAME)


@CHECKS
def a_jobset_that_changes_is_seen_in_the_stream_of_all() -> None:
    async def story(sharing: Sharing, _: Slow) -> None:
        passing = asyncio.create_task(sharing.run(reading(READ, change_of())))
        await asyncio.sleep(3)
        assert not passing.done()
        sharing.jobset_changed(jobset(102), False)
        _, changes = await passing
        assert [body["metadata"]["resourceVersion"] for body, _ in changes.events] == ["102"]
        assert changes.seconds_left == 8
        assert asyncio.get_running_loop().time() == 3
        assert vars(sharing)["_jobsets"] == {}, "nothing is kept of a pass that has ended"

    _, asked = telling(story, objects.jobset())
    assert asked == [READ], "no watch of its own"


@CHECKS
def a_change_between_the_read_and_the_wait_is_not_missed() -> None:
    other = Get(TRAINJOBS, TEAM, objects.NAME)

    async def story(sharing: Sharing, _: Slow) -> None:
        passing = asyncio.create_task(sharing.run(reading(READ, other, change_of())))
        await asyncio.sleep(1.5)  # it reads something else now
        sharing.jobset_changed(jobset(102), True)
        changes = (await passing)[-1]
        assert [deleted for _, deleted in changes.events] == [True]
        assert asyncio.get_running_loop().time() == 2

    telling(story, objects.jobset(), objects.trainjob())


@CHECKS
def what_is_not_newer_than_what_was_read_is_no_change() -> None:
    """The stream may lag: it tells of what the pass has read already, or of what was before it."""

    async def story(sharing: Sharing, _: Slow) -> None:
        passing = asyncio.create_task(sharing.run(reading(READ, change_of("101", 5))))
        await asyncio.sleep(2)
        sharing.jobset_changed(jobset(99), False)
        sharing.jobset_changed(jobset(101), False)
        other = jobset(105)
        other["metadata"]["namespace"] = "other"
        sharing.jobset_changed(other, False)
        changes = (await passing)[-1]
        assert changes == Changes((), 0.0)
        assert asyncio.get_running_loop().time() == 6, "its own time is a bound"

    telling(story, objects.jobset())


@CHECKS
def where_the_stream_may_have_missed_something_a_pass_watches_by_itself() -> None:
    async def story(sharing: Sharing, driver: Slow) -> None:
        passing = asyncio.create_task(sharing.run(reading(READ, change_of())))
        await asyncio.sleep(3)
        driver.server.put(jobset(0, n="1"))
        sharing.jobsets_missed()
        changes = (await passing)[-1]
        assert [body["metadata"]["resourceVersion"] for body, _ in changes.events] == ["102"]

    _, asked = telling(story, objects.jobset())
    assert asked == [READ, change_of(seconds=8)]


@CHECKS
def a_jobset_that_was_not_read_is_watched_as_asked() -> None:
    elsewhere = Watch(PODS, TEAM, "0", 5)

    async def story(sharing: Sharing, _: Slow) -> None:
        await sharing.run(reading(change_of("0")))
        await sharing.run(reading(READ, elsewhere))

    _, asked = telling(story, objects.jobset())
    assert asked == [change_of("0"), READ, elsewhere]


@CHECKS
def after_the_close_nothing_is_sent_and_what_was_sent_is_answered() -> None:
    """A pass is dropped between two requests: the write that is under way is applied, and the next one is not sent."""
    raised, later = objects.trainjob(2), objects.trainjob(3)

    async def story(sharing: Sharing, driver: Slow) -> None:
        server = driver.server
        for body in (raised, later):
            body["metadata"]["resourceVersion"] = server.read(TRAINJOBS, objects.NAME)["metadata"]["resourceVersion"]
        passing = asyncio.create_task(sharing.run(reading(Replace(TRAINJOBS, raised), Replace(TRAINJOBS, later))))
        waits = asyncio.create_task(sharing.run(reading(Get(TRAINJOBS, TEAM, objects.NAME), READ)))
        await asyncio.sleep(_LIST_SECONDS / 4)
        for task in (passing, waits):
            task.cancel()
        closing = asyncio.create_task(sharing.close())
        found = await asyncio.gather(passing, waits, return_exceptions=True)
        assert [type(error) for error in found] == [asyncio.CancelledError] * 2
        await closing
        assert count_in(server) == "2"
        try:
            await sharing.run(reading(READ))
        except asyncio.CancelledError:
            return
        raise AssertionError("something was sent after the close")

    server, asked = telling(story, objects.trainjob())
    assert {type(request) for request in asked} == {Replace, Get}
    assert len(asked) == 2
    assert count_in(server) == "2"


def count_in(server: ApiServer) -> str:
    """A of the job, as text."""
    replicated = server.read(TRAINJOBS, objects.NAME)["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]
    annotations = replicated["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]["annotations"]
    return str(annotations[ADMISSION_COUNT])


@CHECKS
def a_write_that_is_never_answered_does_not_hold_up_the_end() -> None:
    class Hanging(Slow):
        async def perform(self, _: Request) -> Any:
            await asyncio.sleep(3600)

    async def main() -> None:
        sharing = Sharing(cast(Driver, Hanging(ApiServer())))
        body = objects.trainjob()
        body["metadata"]["resourceVersion"] = "7"
        passing = asyncio.create_task(sharing.run(reading(Replace(TRAINJOBS, body))))
        await asyncio.sleep(1)
        passing.cancel()
        await sharing.close()
        assert asyncio.get_running_loop().time() == 6

    virtual_time.run(main())


@CHECKS
def all_pages_are_read_for_all() -> None:
    """Over HTTP: 1,203 pods of three jobs, and a 410 half-way. The list of all begins anew, with all pages."""
    jobs = ("a", "b", "c")
    server = ApiServer(*(pod(jobs[number % 3], f"p-{number:04d}") for number in range(1203)))
    front, expired = Front(server), iter([True])

    async def answer(request: web.Request) -> web.StreamResponse:
        of_all = "in (" in request.query.get("labelSelector", "")
        if of_all and request.query.get("continue") == "500" and next(expired, False):
            server.remove(PODS, "p-0001")
            return failure(410, "Expired")
        return await front(request)

    async def main() -> None:
        async with served(answer) as found:
            sharing = Sharing(found.driver)
            first, *rest = await asyncio.gather(*(sharing.perform(of(job)) for job in jobs))
            assert names(first) == [f"p-{number:04d}" for number in range(0, 1203, 3)]
            assert names(rest[0]) == [f"p-{number:04d}" for number in range(4, 1203, 3)]
            assert names(rest[1]) == [f"p-{number:04d}" for number in range(2, 1203, 3)]

    asyncio.run(main())
    assert next(expired, None) is None
