"""Events for people.

Aspects: about what, and for which outcomes; a repetition is counted and told from time to time, never written each
time; what the API server forgot is written anew; failures and refusals stop nothing; what does not fit is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import pytest
from aiohttp import web

from dispatch_admission import events
from dispatch_admission.act import Outcome, Result
from dispatch_admission.events import REPEAT_SECONDS, Recorder
from dispatch_admission.metrics import Metrics
from dispatch_admission.waiting import Key
from dispatch_gates.contract.next_execution import Reason
from model.http import Seen, failure, reply, served
from unit.test_controller import until

WORKLOAD = Key("team", "trainjob-x")
REFUSED = Outcome(Result.WAITING, "Refused: no", Reason.REFUSED, workload="uid-w", job="x", uid="uid-j")
UNREADABLE = Outcome(Result.WAITING, "OwnerUnreadable: gone", Reason.OWNER_UNREADABLE, workload="uid-w")
ADMITTED = Outcome(Result.ADMITTED, "A=2; over", workload="uid-w", job="x", uid="uid-j", count=2)


class Told:
    """A recorder at work, a clock to turn, and what reached the API server."""

    def __init__(self, recorder: Recorder, metrics: Metrics, seen: list[Seen]) -> None:
        self.recorder = recorder
        self.seen = seen
        self.now = 1000.0
        self._metrics = metrics

    def count(self, result: str) -> float:
        """Return how many Events were written, failed or dropped."""
        found = self._metrics.registry.get_sample_value("dispatch_admission_events_total", {"result": result})
        return found or 0.0

    async def settled(self, number: int) -> None:
        """Wait until so many Events were written or failed; there are no more then."""
        await until(lambda: self.count("written") + self.count("failed") == number)
        await asyncio.sleep(0.05)
        assert self.count("written") + self.count("failed") == number

    def sent(self) -> list[tuple[str, str, int]]:
        """Return method, kind of what it is about, and count of each request."""
        return [
            (seen.method, (seen.body.get("involvedObject") or {}).get("kind", ""), seen.body["count"])
            for seen in self.seen
        ]


def telling(
    monkeypatch: pytest.MonkeyPatch,
    story: Callable[[Told], Awaitable[None]],
    answer: Callable[[web.Request], web.Response] = lambda _: reply({"kind": "Event"}),
    *,
    apart: float = 0.0,
) -> None:
    """Run a recorder against an API server that answers so."""

    async def main() -> None:
        async def handle(request: web.Request) -> web.StreamResponse:
            return answer(request)

        async with served(handle) as found:
            metrics = Metrics()
            told = Told(Recorder(found.connection, "me", metrics), metrics, found.seen)
            monkeypatch.setattr(events, "time", SimpleNamespace(monotonic=lambda: told.now))
            monkeypatch.setattr(events, "_APART_SECONDS", apart)
            task = asyncio.create_task(told.recorder.run())
            try:
                await story(told)
                assert not task.done()
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_about_the_job_and_the_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(told: Told) -> None:
        told.recorder.note(WORKLOAD, ADMITTED)
        await told.settled(2)
        job, workload = (seen.body for seen in told.seen)
        assert (job["type"], job["reason"], job["message"]) == ("Normal", "AdmissionCountRaised", "A=2; over")
        assert job["involvedObject"] == {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "namespace": "team",
            "name": "x",
            "uid": "uid-j",
        }
        assert workload["involvedObject"]["uid"] == "uid-w"
        assert job["metadata"]["name"] != workload["metadata"]["name"]

    telling(monkeypatch, story)


def test_where_there_is_no_job_about_the_workload_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(told: Told) -> None:
        told.recorder.note(WORKLOAD, UNREADABLE)
        await told.settled(1)
        assert told.sent() == [("POST", "Workload", 1)]
        assert told.seen[0].body["type"] == "Warning"

    telling(monkeypatch, story)


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(Result.WAITING, "StillRunning: x", Reason.STILL_RUNNING, workload="uid-w", job="x", uid="uid-j"),
        Outcome(Result.WAITING, "Held: x", Reason.HELD, workload="uid-w", job="x", uid="uid-j"),
        Outcome(Result.FOREIGN, "x", workload="uid-w"),
        Outcome(Result.NOTHING, "x", workload="uid-w"),
        Outcome(Result.CONFLICT, "x", workload="uid-w"),
        Outcome(Result.TAKEN_BACK, "x", workload="uid-w"),
    ],
    ids=lambda outcome: str(outcome.reason or outcome.result),
)
def test_not_worth_one(outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(told: Told) -> None:
        told.recorder.note(WORKLOAD, outcome)
        await told.settled(0)

    telling(monkeypatch, story)


def test_a_repetition_is_counted_and_told_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that changes nothing writes nothing: a wait is looked at every half minute."""

    async def story(told: Told) -> None:
        for _ in range(100):
            told.recorder.note(WORKLOAD, UNREADABLE)
        await told.settled(1)
        told.now += REPEAT_SECONDS - 1
        told.recorder.note(WORKLOAD, UNREADABLE)
        await told.settled(1)
        told.now += 2
        told.recorder.note(WORKLOAD, UNREADABLE)
        told.recorder.note(WORKLOAD, UNREADABLE)
        await told.settled(2)
        assert [(method, count) for method, _, count in told.sent()] == [("POST", 100), ("PATCH", 103)]
        assert told.seen[1].headers["Content-Type"] == "application/merge-patch+json"
        assert told.seen[1].path.endswith(told.seen[0].body["metadata"]["name"])

    telling(monkeypatch, story)


def test_another_word_is_another_event(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(told: Told) -> None:
        told.recorder.note(WORKLOAD, UNREADABLE)
        told.recorder.note(WORKLOAD, Outcome(Result.WAITING, "other", Reason.OWNER_UNREADABLE, workload="uid-w"))
        told.recorder.note(WORKLOAD, Outcome(Result.WAITING, UNREADABLE.detail, UNREADABLE.reason, workload="uid-2"))
        await told.settled(3)
        assert len({seen.body["metadata"]["name"] for seen in told.seen}) == 3

    telling(monkeypatch, story)


def test_what_the_api_server_forgot_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: web.Request) -> web.Response:
        return failure(404, "NotFound") if request.method == "PATCH" else reply({"kind": "Event"})

    async def story(told: Told) -> None:
        told.recorder.note(WORKLOAD, UNREADABLE)
        await told.settled(1)
        told.now += REPEAT_SECONDS + 1
        told.recorder.note(WORKLOAD, UNREADABLE)
        await told.settled(2)
        assert [seen.method for seen in told.seen] == ["POST", "PATCH", "POST"]

    telling(monkeypatch, story, answer)


def test_one_of_an_earlier_leader_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(told: Told) -> None:
        told.recorder.note(WORKLOAD, UNREADABLE)
        await told.settled(1)
        assert told.count("written") == 1

    telling(monkeypatch, story, lambda _: failure(409, "AlreadyExists"))


@pytest.mark.parametrize("status", [403, 404, 429, 500])
def test_a_failure_stops_nothing_and_is_tried_with_the_next_repetition(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(told: Told) -> None:
        told.recorder.note(WORKLOAD, UNREADABLE)
        await told.settled(1)
        told.recorder.note(WORKLOAD, UNREADABLE)
        await told.settled(2)
        assert told.count("failed") == 2

    telling(monkeypatch, story, lambda _: failure(status, ""))


def test_what_does_not_fit_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """An avalanche of decisions costs no memory, no time of a pass, and a bounded rate of writes."""

    async def story(told: Told) -> None:
        for number in range(20_000):
            told.recorder.note(WORKLOAD, Outcome(Result.WAITING, str(number), Reason.REFUSED, workload="uid-w"))
        assert told.count("dropped") == 20_000 - 100
        assert len(vars(told.recorder)["_told"]) == 10_000
        await asyncio.sleep(1)
        assert told.count("written") <= 11

    telling(monkeypatch, story, apart=0.1)
