"""The watch loop, in virtual time, against a driver that follows a script (BL-18, BL-19).

Aspects: list, then watch from there; nothing is missed over a break; a break of any kind ends in a new list, with
back-off, and never in a tight loop; bookmarks; what counts as a sign of life.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable
from types import SimpleNamespace
from typing import cast

import pytest

from dispatch_admission.watches import WatchLoop
from dispatch_gates.cluster import Driver
from dispatch_gates.contract.names import WORKLOADS
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.requests import (
    ApiError,
    BadReplyError,
    ExpiredError,
    List,
    Listing,
    ThrottledError,
    UnreachableError,
    Watch,
)
from model.virtual_time import run

Event = tuple[JsonObject, bool]


def item(name: str, version: int) -> JsonObject:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


class Script:
    """Answers lists and watches as a story says; `at` keeps when each was asked, and from which version."""

    def __init__(
        self, lists: Callable[[int], list[list[JsonObject]]], watches: Callable[[int], list[Event | ApiError | float]]
    ) -> None:
        self._lists = lists
        self._watches = watches
        self.at: list[tuple[float, str]] = []
        self.limits: list[int | None] = []

    def _note(self, what: str) -> None:
        self.at.append((asyncio.get_running_loop().time(), what))

    def asked(self, what: str) -> list[float]:
        return [moment for moment, asked in self.at if asked.startswith(what)]

    async def pages(self, _: List, *, limit: int | None = None) -> AsyncGenerator[Listing, None]:
        self._note("list")
        self.limits.append(limit)
        for page in self._lists(len(self.asked("list"))):
            yield Listing(tuple(page), "100")

    async def stream(self, request: Watch, *, metadata_only: bool, bookmarks: bool) -> AsyncGenerator[Event, None]:
        assert bookmarks
        assert not metadata_only
        self._note(f"watch {request.resource_version}")
        for step in self._watches(len(self.asked("watch"))):
            if isinstance(step, ApiError):
                raise step
            if isinstance(step, float):
                await asyncio.sleep(step)
            else:
                yield step


def follow(script: Script, seconds: float, monkeypatch: pytest.MonkeyPatch, *, listed: bool = True) -> WatchLoop:
    """Run a loop for some seconds; `seen` of the result's class keeps what it told."""

    async def main() -> WatchLoop:
        clock = asyncio.get_running_loop().time
        monkeypatch.setattr("dispatch_admission.watches.time", SimpleNamespace(monotonic=clock))
        loop = WatchLoop(
            cast(Driver, script),
            WORKLOADS,
            lambda raw, deleted: SEEN.append(f"{'gone' if deleted else 'changed'} {raw['metadata']['name']}"),
            listed=(lambda raw: SEEN.append("listed " + raw["metadata"]["name"])) if listed else None,
            gap=lambda: SEEN.append("gap"),
            alive_at=clock(),
            restarted=lambda: RESTARTS.append(clock()),
        )
        task = asyncio.create_task(loop.run())
        await asyncio.sleep(seconds)
        assert not task.done(), "no answer of the API server ends it"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return loop

    SEEN.clear()
    RESTARTS.clear()
    return run(main())


SEEN: list[str] = []
RESTARTS: list[float] = []
_ALL = [[item("a", 1), item("b", 2)], [item("c", 3)]]


def test_lists_all_pages_and_watches_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(lambda _: _ALL, lambda _: [(item("a", 101), False), (item("b", 102), True), 60.0])
    loop = follow(script, 30, monkeypatch)
    assert SEEN == ["listed a", "listed b", "listed c", "gap", "changed a", "gone b"]
    assert [asked for _, asked in script.at] == ["list", "watch 100"]
    assert loop.synced.is_set()


def test_without_an_interest_in_the_objects_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is only to learn from which version to watch."""
    script = Script(lambda _: _ALL, lambda _: [60.0])
    follow(script, 30, monkeypatch, listed=False)
    assert (SEEN, script.limits) == (["gap"], [1])


def test_watches_on_from_the_last_event_or_bookmark(monkeypatch: pytest.MonkeyPatch) -> None:
    bookmark = {"metadata": {"resourceVersion": "555"}}
    script = Script(
        lambda _: [[]],
        lambda number: [(item("a", 101), False), 59.0, (bookmark, False), 1.0] if number == 1 else [60.0],
    )
    follow(script, 3700, monkeypatch)
    assert [asked for _, asked in script.at][:3] == ["list", "watch 100", "watch 555"]
    assert len(script.asked("list")) == 1, "an hour without events needs no list"
    assert SEEN == ["gap", "changed a"], "a bookmark is no change"
    assert RESTARTS == []


@pytest.mark.parametrize(
    "error",
    [ExpiredError("410"), UnreachableError("lost"), BadReplyError("no JSON")],
    ids=["expired", "lost", "bad reply"],
)
@pytest.mark.parametrize("events", [0, 3], ids=["at once", "after three events"])
def test_twenty_breaks_in_a_row(error: ApiError, events: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """BL-19: each time a new list, with everything in it, and longer pauses; then all is well."""
    script = Script(
        lambda _: _ALL,
        lambda number: [*((item("a", 100 + n), False) for n in range(events)), error] if number <= 20 else [60.0],
    )
    follow(script, 600, monkeypatch)
    lists = script.asked("list")
    assert len(lists) == 21
    pauses = [later - earlier for earlier, later in itertools.pairwise(lists)]
    assert pauses[:4] == pytest.approx([0.5, 1, 2, 4])
    assert max(pauses) == pytest.approx(20)
    assert SEEN.count("listed c") == 21
    assert SEEN.count("gap") == 21
    assert len(RESTARTS) == 20
    assert [asked for _, asked in script.at if asked.startswith("watch")] == ["watch 100"] * 21 + ["watch 100"] * (
        len(script.asked("watch")) - 21
    )


def test_lists_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def lists(number: int) -> list[list[JsonObject]]:
        if number < 4:
            raise UnreachableError("down")
        return _ALL

    script = Script(lists, lambda _: [60.0])
    loop = follow(script, 60, monkeypatch)
    assert script.asked("list") == pytest.approx([0, 0.5, 1.5, 3.5])
    assert loop.synced.is_set()


@pytest.mark.parametrize(("asked", "granted"), [(7.0, 7.0), (0.1, 0.5), (86400.0, 60.0)])
def test_an_api_server_that_asks_for_time_is_given_it(
    asked: float, granted: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lists(number: int) -> list[list[JsonObject]]:
        if number == 1:
            raise ThrottledError("busy", status=429, retry_after=asked)
        return _ALL

    script = Script(lists, lambda _: [60.0])
    follow(script, 100, monkeypatch)
    assert script.asked("list") == pytest.approx([0, granted])


def test_not_synced_before_a_whole_list(monkeypatch: pytest.MonkeyPatch) -> None:
    def lists(_: int) -> list[list[JsonObject]]:
        raise UnreachableError("down")

    loop = follow(Script(lists, lambda _: []), 60, monkeypatch)
    assert not loop.synced.is_set()
    assert loop.alive_at == 0
    assert SEEN == []


def test_a_server_that_ends_each_watch_at_once_is_not_asked_in_a_tight_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(lambda _: _ALL, lambda _: [])
    follow(script, 60, monkeypatch)
    assert 60 <= len(script.asked("watch")) <= 121
    assert len(script.asked("list")) == 1


def test_a_break_after_a_quiet_hour_is_answered_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(lambda _: [[]], lambda number: [UnreachableError("x")] if number in (1, 2, 3, 63) else [60.0])
    follow(script, 4000, monkeypatch)
    lists = script.asked("list")
    assert len(lists) == 5
    broken = script.asked("watch")[62]
    assert lists[4] - broken == pytest.approx(0.5), "the back-off of an earlier time is over"


def test_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event, a list and the quiet end of a watch are; a failure is not."""
    script = Script(lambda _: [[]], lambda _: [60.0])
    assert follow(script, 130, monkeypatch).alive_at == pytest.approx(120, abs=1)
    script = Script(lambda number: [[]] if number == 1 else _failing(), lambda _: [10.0, UnreachableError("x")])
    assert follow(script, 130, monkeypatch).alive_at == 0


def _failing() -> list[list[JsonObject]]:
    raise UnreachableError("down")
