"""Jobs that dispatch did not start, in the same ClusterQueue: a TrainJob, a batch Job, a JobSet.

What is tested: the check lets them run at once, on their own, while a job of dispatch's waits, and while hundreds of
Workloads wait (thousands in the soak); nothing of theirs is touched.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dispatch_gates.contract import names
from dispatch_local.cluster import Cluster
from readmission.foreign import FOREIGN, all_frameworks, keep_waiting, waiting, waved_through
from world import World

pytestmark = pytest.mark.usefixtures("controllers")
WAITING = 300


@pytest.fixture(scope="module")
def shared(cluster: Cluster) -> Iterator[World]:
    """A queue with room for everybody, on a cluster whose Kueue looks after Jobs and JobSets, too."""
    with cluster.configured("kueue", all_frameworks):
        world = World(cluster, pods=WAITING + 50).make()
        yield world
        # Kueue would have much to do with what is left here.
        world.discard()


def test_foreign_jobs_run_at_once_while_dispatchs_jobs_wait(shared: World) -> None:
    alone = {kind: waved_through(shared, kind, f"alone-{kind.lower()}") for kind in FOREIGN}
    job = shared.started_and_opened()
    shared.linger(shared.running(job, 1))
    shared.evict(job)
    shared.waits(job, "StillRunning")
    beside_one = {kind: waved_through(shared, kind, f"beside-{kind.lower()}") for kind in FOREIGN}
    keep_waiting(shared, job, WAITING)
    beside_many = {kind: waved_through(shared, kind, f"among-{kind.lower()}") for kind in FOREIGN}
    assert waiting(shared) == WAITING
    print(f"seconds until Ready: alone {alone}, beside one {beside_one}, among {WAITING} {beside_many}")
    # Not behind those that wait: ten times what it takes alone is far less than one look at each of them.
    limit = 10 * max(1.0, *alone.values())
    assert max(*beside_one.values(), *beside_many.values()) < limit
    for kind, (resource, _) in FOREIGN.items():
        raw = shared.get(resource, f"among-{kind.lower()}")
        assert raw is not None
        patches = raw["spec"].get("runtimePatches") or []
        assert names.PATCH_MANAGER not in [patch["manager"] for patch in patches]
    assert shared.judged(job)
