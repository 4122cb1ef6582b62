"""What is known of the Workloads that wait.

Aspects: which wait for which job, both ways; since when; what is news; who was not looked at for the longest time; and
that nothing is left of those that wait no more.
"""

from __future__ import annotations

import random

from dispatch_admission.waiting import Key, Waiting
from dispatch_gates.contract.next_execution import Reason

ONE, TWO, JOB = Key("team", "one"), Key("team", "two"), Key("team", "job")
RUNS, HELD = Reason.STILL_RUNNING, Reason.HELD


def test_which_workloads_wait_for_which_job() -> None:
    waiting = Waiting()
    waiting.put(ONE, RUNS, "x", "job", 0)
    waiting.put(TWO, RUNS, "x", "job", 0)
    assert set(waiting.for_job(JOB)) == {ONE, TWO}
    waiting.put(ONE, RUNS, "x", "other", 0)
    waiting.put(TWO, RUNS, "x", None, 0)
    assert waiting.for_job(JOB) == ()
    assert waiting.for_job(Key("team", "other")) == (ONE,)
    assert waiting.for_job(Key("elsewhere", "other")) == ()
    assert set(waiting) == {ONE, TWO}


def test_what_is_news() -> None:
    waiting = Waiting()
    assert waiting.put(ONE, RUNS, "pod a", "job", 0)
    assert not waiting.put(ONE, RUNS, "pod a", "job", 1)
    assert waiting.put(ONE, RUNS, "pod b", "job", 2)
    assert waiting.put(ONE, HELD, "pod b", "job", 3)
    assert not waiting.put(ONE, HELD, "pod b", "other", 4)


def test_since_when_and_why() -> None:
    waiting = Waiting()
    waiting.put(ONE, RUNS, "x", "job", 10)
    waiting.put(TWO, RUNS, "x", "job", 40)
    waiting.put(ONE, HELD, "x", "job", 50)
    assert waiting.longest(100) == {HELD: 90, RUNS: 60}, "another reason does not begin the wait anew"
    assert waiting.by_reason() == {HELD: 1, RUNS: 1}
    waiting.drop(ONE)
    waiting.put(ONE, RUNS, "x", "job", 90)
    assert waiting.longest(100) == {RUNS: 60}


def test_who_was_not_looked_at_for_the_longest_time() -> None:
    waiting = Waiting()
    assert waiting.longest_unseen() is None
    waiting.put(ONE, RUNS, "x", "job", 1)
    waiting.put(TWO, RUNS, "x", "job", 2)
    assert waiting.longest_unseen() == (ONE, 1)
    waiting.seen(ONE, 3)
    assert waiting.longest_unseen() == (TWO, 2)
    waiting.put(TWO, RUNS, "x", "job", 4)
    assert waiting.longest_unseen() == (ONE, 3)
    waiting.drop(ONE)
    waiting.seen(ONE, 5)
    assert waiting.longest_unseen() == (TWO, 4)


def test_nothing_is_left_of_those_that_wait_no_more() -> None:
    waiting, keys = Waiting(), [Key("team", str(number)) for number in range(20)]
    rng = random.Random(0)
    for moment in range(2000):
        key = rng.choice(keys)
        if rng.random() < 0.4:
            waiting.drop(key)
        else:
            waiting.put(key, rng.choice(list(Reason)), "x", rng.choice(["a", "b", None]), moment)
    for key in keys:
        waiting.drop(key)
        assert waiting.drop(key) is None
    assert len(waiting) == 0
    assert vars(waiting) == vars(Waiting())
