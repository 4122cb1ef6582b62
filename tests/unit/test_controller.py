"""The shell around the pass: the controller over HTTP, against the model API server.

Aspects: everything that is there at the start is served, and the check set Active; changes wake what waits; a
Workload that is not understood stops no other; errors are retried; Events for people; leadership that is lost ends it;
what an hour of waiting costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web
from prometheus_client import generate_latest

from dispatch_admission.controller import Controller, serve_while_leading
from dispatch_admission.events import Recorder
from dispatch_admission.metrics import Metrics
from dispatch_gates.cluster import Driver
from dispatch_gates.contract.names import ADMISSION_CHECKS, EVENTS, JOBS, PODS, TRAINJOBS, WORKLOADS
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.requests import Get, List, Listing, Request
from model import objects, virtual_time
from model.apiserver import ApiServer
from model.driver import ModelDriver
from model.http import Front, failure, served
from model.objects import CHECK, NAME, WORKLOAD
from model.promises import broken, count, our_entry
from unit.pass_checks import scene
from unit.test_logs import parsed

FOREIGN = objects.workload(name="other", uid="uid-other", owned=False)


async def until(holds: Callable[[], bool], seconds: float = 20) -> None:
    """Wait until something holds, whatever makes it hold."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - there is no event: it is the state of the model
            await asyncio.sleep(0.01)


class Running:
    """A controller that serves a model API server."""

    def __init__(self, server: ApiServer, controller: Controller, metrics: Metrics) -> None:
        self.server = server
        self.controller = controller
        self.metrics = metrics

    def state(self, name: str = WORKLOAD) -> object:
        """Return the state of our check on a Workload."""
        return our_entry(self.server.read(WORKLOADS, name)).get("state")

    def message(self, name: str = WORKLOAD) -> str:
        """Return the message of our check on a Workload."""
        return str(our_entry(self.server.read(WORKLOADS, name)).get("message"))

    def metric(self, name: str) -> float:
        """Return the value of a metric, with its labels as text."""
        for line in generate_latest(self.metrics.registry).decode().splitlines():
            if line.startswith(f"dispatch_admission_{name} "):
                return float(line.split()[-1])
        return 0.0

    def waiting(self) -> float:
        """Return how many Workloads wait."""
        text = generate_latest(self.metrics.registry).decode()
        lines = [line for line in text.splitlines() if line.startswith("dispatch_admission_waiting_workloads{")]
        return sum(float(line.split()[-1]) for line in lines)


def serving(
    server: ApiServer,
    story: Callable[[Running], Awaitable[None]],
    *,
    before: Callable[[web.Request], web.Response | None] = lambda _: None,
) -> None:
    """Run the controller against a server; `before` may answer a request first."""
    front = Front(server)

    async def answer(request: web.Request) -> web.StreamResponse:
        return before(request) or await front(request)

    async def main() -> None:
        async with served(answer) as found:
            metrics = Metrics()
            controller = Controller(found.driver, Recorder(found.connection, "me", metrics), metrics, resync_seconds=60)
            async with _task(controller.run()):
                await story(Running(server, controller, metrics))

    asyncio.run(main())
    assert broken(server) == []


@asynccontextmanager
async def _task(work: Any) -> Any:
    task = asyncio.create_task(work)
    try:
        yield task
        assert not task.done(), task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def test_what_is_there_at_the_start() -> None:
    server = scene(more=[FOREIGN, objects.admission_check()])

    async def story(found: Running) -> None:
        await until(lambda: found.state() == found.state("other") == "Ready")
        assert found.controller.synced
        assert found.controller.progressing()
        active = server.read(ADMISSION_CHECKS, CHECK, "")["status"]["conditions"][0]
        assert (active["type"], active["status"]) == ("Active", "True")
        await until(lambda: found.metric('passes_total{result="admitted"}') == 1)
        await until(lambda: found.metric('passes_total{result="foreign"}') == 1)

    serving(server, story)
    assert count(server, NAME) == 2


def test_what_comes_later() -> None:
    server = scene(workload=objects.workload({"QuotaReserved": False}), more=[objects.admission_check()])

    async def story(found: Running) -> None:
        await until(lambda: found.controller.synced)
        server.put(objects.workload())
        server.put(FOREIGN)
        await until(lambda: found.state() == found.state("other") == "Ready")

    serving(server, story)


def test_without_a_check_of_ours_nothing_is_written() -> None:
    server = scene(more=[FOREIGN, objects.admission_check(controller="example.org/other")])

    async def story(found: Running) -> None:
        await until(lambda: found.controller.synced)
        await asyncio.sleep(0.3)

    serving(server, story)
    assert server.writes == []


def test_a_check_of_ours_that_is_created_later() -> None:
    """Workloads that were passed over before it was known are looked at again."""
    server = scene()

    async def story(found: Running) -> None:
        await until(lambda: found.controller.synced)
        server.put(objects.admission_check())
        await until(lambda: found.state() == "Ready")

    serving(server, story)


@pytest.mark.parametrize(
    ("parts", "waits", "wake"),
    [
        (
            {"pods": [objects.pod()]},
            "x7k2p",
            lambda server: server.remove(PODS, objects.pod()["metadata"]["name"]),
        ),
        (
            {"jobs": [objects.job(active=1)]},
            "1 active",
            lambda server: server.put(objects.job()),
        ),
        (
            {"jobset": objects.jobset(suspend=False)},
            "not suspended",
            lambda server: server.put(objects.jobset()),
        ),
        (
            {"trainjob": objects.trainjob(held=True)},
            "held",
            lambda server: server.edit(TRAINJOBS, NAME, lambda body: body["metadata"].update(annotations={})),
        ),
    ],
    ids=["pod", "Job", "JobSet", "TrainJob"],
)
def test_a_change_wakes_what_waits_for_it(
    parts: dict[str, Any], waits: str, wake: Callable[[ApiServer], object]
) -> None:
    """Long before the resync."""
    server = scene(**parts, more=[objects.admission_check()])

    async def story(found: Running) -> None:
        await until(lambda: waits in found.message())
        await asyncio.sleep(1)  # the second look has passed, too
        assert found.waiting() == 1
        wake(server)
        await until(lambda: found.state() == "Ready")
        await until(lambda: found.waiting() == 0)

    serving(server, story)
    assert count(server, NAME) == 2


def test_a_workload_that_is_not_understood_stops_no_other() -> None:
    odd = objects.workload(name="odd", uid="uid-odd")
    odd["metadata"]["ownerReferences"] *= 2
    server = scene(workload=odd, more=[objects.admission_check()])

    async def story(found: Running) -> None:
        await until(lambda: found.controller.synced)
        server.put(FOREIGN)
        await until(lambda: found.state("other") == "Ready")
        assert found.state("odd") == "Pending"

    serving(server, story)


def _failing(number: int, path: str, status: int) -> Callable[[web.Request], web.Response | None]:
    """Answer the first requests for a path with an error."""
    left: Iterator[int] = iter(range(number))

    def before(request: web.Request) -> web.Response | None:
        if path in request.path and "watch" not in request.query and next(left, None) is not None:
            return failure(status, "")
        return None

    return before


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/pods", 500),
        ("/jobsets/", 503),
        ("/trainjobs/", 500),
        ("/workloads/", 429),
        # The Workload's, and not the AdmissionCheck's, which is written at the start.
        (f"/{WORKLOAD}/status", 409),
        (f"/{WORKLOAD}/status", 500),
    ],
)
def test_errors_are_retried(path: str, status: int) -> None:
    server = scene(more=[objects.admission_check()])

    async def story(found: Running) -> None:
        await until(lambda: found.state() == "Ready")

    serving(server, story, before=_failing(3, path, status))
    assert count(server, NAME) >= 2


def test_events_for_people() -> None:
    """One for the raise, and one for a wait that does not end by itself; each on the job and on its Workload."""
    server = scene(trainjob=objects.trainjob("x"), jobset=objects.jobset("x"), more=[objects.admission_check()])
    seen: list[JsonObject] = []

    async def story(found: Running) -> None:
        await until(lambda: len(_events(server)) == 2)
        server.put(objects.trainjob())
        server.put(objects.jobset())
        await until(lambda: found.state() == "Ready")
        await until(lambda: len(_events(server)) == 4)
        seen.extend(_events(server))

    serving(server, story)
    about = {(event["involvedObject"]["kind"], event["reason"]): event for event in seen}
    assert len(about) == 4
    for (kind, reason), event in about.items():
        assert event["type"] == {"CountUnreadable": "Warning", "AdmissionCountRaised": "Normal"}[reason]
        expected = {"TrainJob": (NAME, "uid-trainjob"), "Workload": (WORKLOAD, "uid-workload")}[kind]
        assert (event["involvedObject"]["name"], event["involvedObject"]["uid"]) == expected


def _events(server: ApiServer) -> list[JsonObject]:
    return [body for key, body in server.state.objects.items() if key.resource == EVENTS]


def test_events_that_are_refused_stop_nothing() -> None:
    server = scene(more=[objects.admission_check()])

    async def story(found: Running) -> None:
        await until(lambda: found.state() == "Ready")

    serving(server, story, before=_failing(1000, "/events", 403))


# Over an hour, in virtual time.


def hour(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, story: Callable[[Running], object] = lambda _: None
) -> Metrics:
    """Run the controller for an hour; a minute after its start, `story` happens."""

    async def main() -> Metrics:
        clock = asyncio.get_running_loop().time
        for module in ("controller", "watches", "metrics"):
            monkeypatch.setattr(f"dispatch_admission.{module}.time", SimpleNamespace(monotonic=clock))
        metrics, driver = Metrics(), cast(Driver, ModelDriver(server))
        controller = Controller(driver, cast(Recorder, _Silent()), metrics)
        async with _task(controller.run()):
            await asyncio.sleep(60)
            assert controller.progressing()
            story(Running(server, controller, metrics))
            await asyncio.sleep(3600)
            assert controller.progressing()
        return metrics

    metrics = virtual_time.run(main())
    assert broken(server) == []
    return metrics


class _Silent:
    """Writes no Events."""

    def note(self, *_: object) -> None:
        return

    async def run(self) -> None:
        return


def passes(metrics: Metrics, result: str) -> float:
    found = metrics.registry.get_sample_value("dispatch_admission_passes_total", {"result": result})
    return found or 0.0


def test_a_waiting_workload_is_looked_at_with_each_resync_and_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    server = scene(pods=[objects.pod()], more=[objects.admission_check()])
    metrics = hour(server, monkeypatch)
    assert [entry.reply["kind"] for entry in server.writes] == ["AdmissionCheck", "Workload"]
    assert 115 <= passes(metrics, "waiting") <= 130


def test_an_hour_without_events_asks_nothing_and_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the Lease, which is not the controller's: no polling of what is admitted, foreign or without quota."""
    more = [
        objects.admission_check(),
        FOREIGN,
        objects.workload({"QuotaReserved": False}, name="later", uid="uid-later"),
    ]
    server = scene(more=more)
    asked: list[int] = []

    def story(found: Running) -> None:
        assert found.state() == found.state("other") == "Ready"
        asked.append(len(server.requests))

    hour(server, monkeypatch, story)
    assert len(server.requests) == asked[0]


def test_a_wait_is_logged_once_and_a_decision_is_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = scene(pods=[objects.pod()], more=[objects.admission_check()])
    caplog.set_level("INFO")

    def story(_: Running) -> None:
        server.remove(PODS, objects.pod()["metadata"]["name"])

    hour(server, monkeypatch, story)
    lines = [record.getMessage() for record in caplog.records if "event=decision" in record.getMessage()]
    waited, admitted = (parsed(line) for line in lines)
    assert waited.pop("detail").startswith("StillRunning: ")
    assert waited == {
        "event": "decision",
        "workload": f"team/{WORKLOAD}",
        "uid": "uid-workload",
        "result": "waiting",
        "reason": "StillRunning",
        "job": NAME,
    }
    assert (admitted["result"], admitted["count"], admitted["job"]) == ("admitted", "2", NAME)


def test_what_waits_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    server = scene(pods=[objects.pod()], more=[objects.admission_check()])

    def value(metrics: Metrics, name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"dispatch_admission_{name}", labels)

    def story(found: Running) -> None:
        assert value(found.metrics, "waiting_workloads", reason="StillRunning") == 1
        assert value(found.metrics, "waiting_workloads", reason="Held") == 0
        assert value(found.metrics, "longest_wait_seconds", reason="StillRunning") == pytest.approx(60, abs=1)
        server.remove(PODS, objects.pod()["metadata"]["name"])

    metrics = hour(server, monkeypatch, story)
    assert value(metrics, "waiting_workloads", reason="StillRunning") == 0
    assert value(metrics, "longest_wait_seconds", reason="StillRunning") == 0
    assert value(metrics, "reserved_to_ready_seconds_count", result="admitted") == 1
    assert value(metrics, "reserved_to_ready_seconds_sum", result="admitted") == pytest.approx(60, abs=2)
    assert value(metrics, "queue_depth") == 0


def test_a_standby_that_takes_over_after_days_makes_progress_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first lists take longer than it takes until the Lease is to be renewed."""

    class Slow(ModelDriver):
        async def pages(self, request: List, *, limit: int | None = None) -> AsyncGenerator[Listing, None]:
            await asyncio.sleep(30)
            async for page in super().pages(request, limit=limit):
                yield page

    async def main() -> None:
        clock = asyncio.get_running_loop().time
        for module in ("controller", "watches"):
            monkeypatch.setattr(f"dispatch_admission.{module}.time", SimpleNamespace(monotonic=clock))
        driver = Slow(scene(more=[objects.admission_check()]))
        controller = Controller(cast(Driver, driver), cast(Recorder, _Silent()), Metrics())
        await asyncio.sleep(3 * 24 * 3600)
        async with _task(controller.run()):
            for _ in range(300):
                await asyncio.sleep(1)
                assert controller.progressing()
            assert controller.synced

    virtual_time.run(main())


def test_a_controller_whose_passes_never_end_makes_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Lease is not renewed then, and liveness fails: watches that are alive are not enough."""
    server = backlog(80)

    class Hanging(ModelDriver):
        async def perform(self, request: Request) -> Any:
            if isinstance(request, Get) and request.resource == TRAINJOBS:
                await asyncio.sleep(3600)
            return await super().perform(request)

    async def main() -> None:
        clock = asyncio.get_running_loop().time
        for module in ("controller", "watches"):
            monkeypatch.setattr(f"dispatch_admission.{module}.time", SimpleNamespace(monotonic=clock))
        controller = Controller(cast(Driver, Hanging(server)), cast(Recorder, _Silent()), Metrics())
        async with _task(controller.run()):
            await asyncio.sleep(60)
            assert controller.progressing()
            await asyncio.sleep(240)
            assert not controller.progressing()

    virtual_time.run(main())


def test_a_lost_wake_up_costs_a_resync_at_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """BL-03: the pod goes and no watch says so."""
    server = scene(pods=[objects.pod()], more=[objects.admission_check()])

    def story(_: Running) -> None:
        objects_, name = server.state.objects, objects.pod()["metadata"]["name"]
        kept = {key: body for key, body in objects_.items() if key.name != name}
        server.state = replace(server.state, objects=kept)

    metrics = hour(server, monkeypatch, story)
    assert passes(metrics, "admitted") == 1
    assert passes(metrics, "waiting") <= 6


def test_an_owner_that_is_gone_is_looked_for_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """BL-07 (5): the Workload waits for the garbage collector."""
    gone = objects.workload(owned_by=objects.owner("TrainJob", "dj-gone", "uid-gone"))
    server = scene(workload=gone, more=[objects.admission_check()])
    metrics = hour(server, monkeypatch)
    assert [entry.reply["kind"] for entry in server.writes] == ["AdmissionCheck", "Workload"]
    assert 115 <= passes(metrics, "waiting") <= 260


def test_a_job_that_trainer_never_starts_is_raised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """BL-11: Kueue touches the Workload again and again, and the check stays Ready for that reservation."""
    server = scene(more=[objects.admission_check()])

    def story(found: Running) -> None:
        assert found.state() == "Ready"
        for number in range(50):
            server.edit(WORKLOADS, WORKLOAD, lambda body, n=number: body["metadata"]["labels"].update(n=str(n)))  # type: ignore[misc]

    hour(server, monkeypatch, story)
    assert [entry.reply["kind"] for entry in server.writes] == ["AdmissionCheck", "TrainJob", "Workload"]
    assert count(server, NAME) == 2


def test_serving_ends_with_leadership() -> None:
    server = scene(pods=[objects.pod()], more=[objects.admission_check()])

    async def main() -> None:
        async with served(Front(server)) as found:
            lost = asyncio.Event()
            metrics = Metrics()
            controller = Controller(found.driver, Recorder(found.connection, "me", metrics), metrics)
            serving = asyncio.create_task(serve_while_leading(controller, lost))
            await until(lambda: controller.synced)
            assert not serving.done()
            lost.set()
            await asyncio.wait_for(serving, 5)
            asked = len(server.requests)
            server.remove(PODS, objects.pod()["metadata"]["name"])
            await asyncio.sleep(0.5)
            assert len(server.requests) == asked, "nothing is sent any more"

    asyncio.run(main())


def backlog(number: int, *, chained: bool = False) -> ApiServer:
    """So many jobs of dispatch's that have quota, each with a pod of its last execution that runs on.

    `chained`: the Workloads belong to the jobs' Jobs, and do not look like dispatch's.
    """
    server = ApiServer(objects.admission_check())
    for index in range(number):
        name, uid = f"dj-{index:026d}-s1", f"uid-{index}"
        owner = objects.owner("TrainJob", name, uid)
        server.put(objects.trainjob(name=name, uid=uid))
        server.put(objects.jobset(name=name, uid=f"{uid}-jobset", owned_by=owner))
        server.put(objects.job(of=name, jobset_uid=f"{uid}-jobset"))
        server.put(objects.pod(name=f"{name}-pod", of=name))
        if chained:
            owner = objects.owner("Job", f"{name}-node-0", "uid-job-node-0")
        server.put(objects.workload(name=f"trainjob-{name}", uid=f"{uid}-workload", owned_by=owner))
    return server


def test_others_are_waved_through_while_many_jobs_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """And at once: not after all of them."""
    server = backlog(300)
    monkeypatch.setattr("model.driver._LOOK_SECONDS", 0.02)

    async def main() -> None:
        metrics, driver = Metrics(), cast(Driver, ModelDriver(server))
        async with _task(Controller(driver, cast(Recorder, _Silent()), metrics).run()):
            while passes(metrics, "waiting") < 10:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.01)
            server.put(FOREIGN)
            began = asyncio.get_running_loop().time()
            while our_entry(server.read(WORKLOADS, "other"))["state"] != "Ready":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert asyncio.get_running_loop().time() - began < 0.5
            assert passes(metrics, "waiting") < 200, "the jobs were not all looked at first"
            while passes(metrics, "waiting") < 300:  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    virtual_time.run(main())
    assert broken(server) == []
    evidence = [request for request in server.requests if isinstance(request, List) and request.selector]
    assert len(evidence) < 300, "300 passes and more, each with two lists, share them"


def test_others_are_waved_through_before_those_that_wait_by_a_chain_of_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits is dispatch's, whatever it looks like."""
    server = backlog(300, chained=True)
    monkeypatch.setattr("model.driver._LOOK_SECONDS", 0.02)

    async def main() -> None:
        metrics, driver = Metrics(), cast(Driver, ModelDriver(server))
        async with _task(Controller(driver, cast(Recorder, _Silent()), metrics).run()):
            await asyncio.sleep(25)  # they have all been looked at twice
            for body in [body for key, body in server.state.objects.items() if key.resource == WORKLOADS]:
                server.put(body)
            server.put(FOREIGN)
            before = passes(metrics, "waiting")
            while our_entry(server.read(WORKLOADS, "other"))["state"] != "Ready":  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.01)
            assert passes(metrics, "waiting") - before < 200, "those that wait were not all looked at first"
            while passes(metrics, "waiting") - before < 300:  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    virtual_time.run(main())
    assert broken(server) == []


def test_many_that_wait_are_looked_at_no_more_often_than_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatch_admission.controller.RESYNC_APART_SECONDS", 60)
    server = backlog(10)
    metrics = hour(server, monkeypatch)
    assert [entry.reply["kind"] for entry in server.writes] == ["AdmissionCheck", *["Workload"] * 10]
    assert 60 + 20 <= passes(metrics, "waiting") <= 60 + 25, "one a minute, beside the first two looks at each"


def test_jobs_that_nobody_waits_for_wake_nobody() -> None:
    server = scene(workload=objects.workload({"QuotaReserved": False}), more=[objects.admission_check()])

    async def story(found: Running) -> None:
        await until(lambda: found.controller.synced)
        for number in range(20):
            server.put(objects.pod(name=f"p-{number}"))
            server.remove(JOBS, f"{NAME}-node-0") if number == 10 else None
        await asyncio.sleep(0.3)
        assert found.metric("queue_depth") == 0

    serving(server, story)
    assert [entry.reply["kind"] for entry in server.writes] == ["AdmissionCheck"]
