"""The work queue, in virtual time.

Aspects: order and lanes, each key once; one worker for a key at a time; nothing that was added is lost; later looks;
retries that back off and are forgotten; what is counted.
"""

from __future__ import annotations

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from dispatch_admission.workqueue import Lane, WorkQueue
from model.virtual_time import run


async def taken(queue: WorkQueue[str], within: float = 0.0) -> list[str]:
    """Take and give back all that comes within some seconds."""
    found: list[str] = []
    try:
        async with asyncio.timeout(within + 0.001):
            while True:
                key = await queue.get()
                found.append(key)
                queue.done(key)
    except TimeoutError:
        return found


def test_each_key_once_and_in_order() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        for key in "abacab":
            queue.add(key)
        assert len(queue) == 3
        assert await taken(queue) == ["a", "b", "c"]
        assert len(queue) == 0

    run(main())


def test_the_quick_go_first() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("slow", Lane.BACKGROUND)
        queue.add("usual")
        queue.add("quick", Lane.QUICK)
        queue.add("usual-2")
        queue.add("quick-2", Lane.QUICK)
        assert len(queue) == 5
        assert await taken(queue) == ["quick", "quick-2", "usual", "usual-2", "slow"]

    run(main())


def test_a_key_that_is_added_again_goes_ahead_and_never_back() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        for key in "abc":
            queue.add(key, Lane.BACKGROUND)
        queue.add("c", Lane.USUAL)
        queue.add("c", Lane.BACKGROUND)
        queue.add("b", Lane.QUICK)
        assert len(queue) == 3
        assert await taken(queue) == ["b", "c", "a"]
        queue.add("x")
        key = await queue.get()
        queue.add(key, Lane.BACKGROUND)
        queue.add(key, Lane.QUICK)
        queue.add("y")
        queue.done(key)
        assert await taken(queue) == ["x", "y"]
        assert not queue.pending

    run(main())


def test_added_while_it_is_worked_on_means_once_more() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        key = await queue.get()
        queue.add("a")
        queue.add("a")
        queue.add("b")
        assert await taken(queue) == ["b"], "never two workers on one key"
        queue.done(key)
        assert await taken(queue) == ["a"]
        assert await taken(queue) == []

    run(main())


def test_later() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", 10)
        queue.add_after("a", 1)
        assert len(queue) == 1
        assert await taken(queue, 9) == []
        assert await taken(queue, 1) == ["a"], "the time that was set first holds"
        assert len(queue) == 0

    run(main())


def test_at_once_instead_of_later() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", 10)
        queue.add("a")
        assert await taken(queue, 100) == ["a"]

    run(main())


def test_later_while_it_is_ready_or_to_be_done_again_changes_nothing() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        queue.add_after("a", 1)
        key = await queue.get()
        queue.add("a")
        queue.add_after("a", 1)
        queue.done(key)
        assert await taken(queue, 100) == ["a"]

    run(main())


def test_later_while_it_is_worked_on() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        key = await queue.get()
        queue.add_after("a", 1)
        await asyncio.sleep(2)
        assert await taken(queue) == [], "still being worked on"
        queue.done(key)
        assert await taken(queue) == ["a"]

    run(main())


def test_retries_back_off_to_a_bound_and_are_forgotten() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        seconds: list[float] = []
        for _ in range(40):
            seconds.append(queue.retry("a"))
            assert await taken(queue, seconds[-1]) == ["a"]
        for number, found in enumerate(seconds):
            longest = min(0.1 * 2.0**number, 30.0)
            assert longest / 2 <= found <= longest
        assert len({round(found, 6) for found in seconds[-10:]}) > 1, "replicas must not march in step"
        queue.forget("a")
        queue.forget("never seen")
        assert queue.retry("a") <= 0.1

    run(main())


def test_a_retry_comes_no_sooner_than_the_api_server_asks() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        assert queue.retry("a", 7.0) == 7.0
        assert await taken(queue, 6.9) == []
        assert await taken(queue, 0.2) == ["a"]
        assert queue.retry("a", 86400.0) == 60.0
        assert queue.retry("b", 0.0) <= 0.1

    run(main())


@settings(max_examples=60)
@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 3), st.booleans()), max_size=25), st.integers(1, 4))
def test_nothing_is_lost_and_no_key_has_two_workers(adds: list[tuple[float, int, bool]], workers: int) -> None:
    """Whatever is added whenever: it is worked on after that, and by one worker at a time."""

    async def main() -> None:
        queue: WorkQueue[int] = WorkQueue()
        clock = asyncio.get_running_loop().time
        begun: dict[int, float] = {}
        busy: set[int] = set()
        added: dict[int, float] = {}
        rng = random.Random(0)

        async def work() -> None:
            while True:
                key = await queue.get()
                assert key not in busy
                busy.add(key)
                begun[key] = clock()
                await asyncio.sleep(rng.random() / 2)
                busy.discard(key)
                queue.done(key)

        tasks = [asyncio.create_task(work()) for _ in range(workers)]
        for pause, key, later in adds:
            await asyncio.sleep(pause / 4)
            if later:
                queue.add_after(key, pause)
            else:
                queue.add(key, Lane(key % 3))
                added[key] = clock()
        await asyncio.sleep(100)
        assert len(queue) == 0
        assert all(begun[key] >= moment for key, moment in added.items())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(main())
