"""Each request of the runs in `test_crashes`, cut off in each way (`make soak-crashes`): too long for every run.

The requests are those of runs that were let through. Each write is cut off before it is sent, once it was applied, and
by a lost answer; each read before it is sent, and by a lost answer. Left out: preflight, whose probes `preflight/` cuts
off; pauses and watches, since how many there are depends on others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path

import pytest

from resources.cutting import UNCUT, Cut
from resources.stacks import Stack
from resources.test_crashes import HOWS, Life, live
from world import World

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <coroutine object run_in_stack:pytest.PytestUnraisableExceptionWarning"
    ),
]

WRITES = ("create", "replace", "delete")


@pytest.mark.parametrize("job", ["kueue", "plain", "kueue, held", "plain, held"])
def test_each_request(job: str, world: World, new_stack: Callable[[], Stack], tmp_path: Path) -> None:
    # What is created held differs from the other in its create alone.
    runs = 1 if job.endswith("held") else 5
    noted = live(Life(job, *[UNCUT] * runs, *[None] * (5 - runs)), world, new_stack(), tmp_path)
    lives = list(zip_longest(*(list(cuts(places)) for places in noted.values())))
    print(f"{job}: {noted}, {sum(map(len, noted.values()))} requests, {len(lives)} lives")
    for number, cells in enumerate(lives):
        life = Life(job, *cells, *[None] * (5 - runs))
        print(f"{job} {number}: {life!r}")
        live(life, world, new_stack(), tmp_path)


def cuts(places: list[str]) -> Iterator[Cut]:
    """Return each way to cut off a run at each of its places."""
    for place in places:
        verb = place.partition(" ")[0]
        if verb in ("preflight", "pause", "watch"):
            continue
        for how in HOWS.values():
            if verb in WRITES or how != "killed after":
                yield Cut(place, how)
