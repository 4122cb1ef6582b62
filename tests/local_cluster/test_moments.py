"""Ctrl-C at random moments of `up` and `down`: a clear word, nothing left, and the second try works.

The moments are drawn from a seed that is printed; DISPATCH_SEED draws the same again, DISPATCH_MOMENTS more of them
(`make soak-local`). Those of a build are in test_build.py, those of the demo in tests/demo/test_demo.py.
"""

from __future__ import annotations

import os
import random
import time

from dispatch_local.cluster import Cluster
from dispatch_local.layout import Layout
from interrupting import SEED
from local_cluster.surroundings import (
    Surroundings,
    assert_nothing_left,
    interrupted,
    namespaces,
    processes,
    run,
)

NAME = f"test-moments-{os.getpid()}"
QUICK = ("up", "--without-node")
MOMENTS = int(os.environ.get("DISPATCH_MOMENTS", "1"))


def test_ctrl_c_at_random_moments_of_up_and_down_leaves_nothing() -> None:
    print(f"DISPATCH_SEED={SEED}")
    moments, layout = random.Random(SEED), Layout(NAME)
    before = Surroundings.see(layout)
    try:
        took = [_timed(*words) for words in (QUICK, ("down",))]
        for _ in range(MOMENTS):
            first = interrupted(NAME, QUICK, moments.uniform(0, took[0]))
            # Where Ctrl-C came when it was up already, it is up.
            if first.code != 0:
                assert not Cluster(NAME).is_up(), first.text
                assert_nothing_left(layout, before)
                second = run(NAME, *QUICK)
                assert second.code == 0, second.text
            ran, spaces = processes(layout), namespaces(layout)
            if interrupted(NAME, ("down",), moments.uniform(0, took[1])).code != 0:
                second = run(NAME, "down")
                assert second.code == 0, second.text
            assert_nothing_left(layout, before, ran, spaces)
    finally:
        Cluster(NAME).down()


def _timed(*words: str) -> float:
    began = time.monotonic()
    done = run(NAME, *words)
    assert done.code == 0, done.text
    return time.monotonic() - began
