"""One run of each kind, on a real control plane: real Kueue, JobSet, Trainer; KWOK runs the pods.

What is tested: whatever ends an execution, and whatever happens around it, the next one has a higher A and does not
begin beside what is left of the last. The kinds are those of `kinds`, which the soak (`make soak`) plays by the
hundred. The judge is the API server's audit log.
"""

from __future__ import annotations

from random import Random

import pytest

from dispatch_local.cluster import Cluster
from readmission.kinds import KINDS, begin
from readmission.surroundings import Surroundings


@pytest.mark.parametrize("name", KINDS)
def test_kind(name: str, cluster: Cluster, surroundings: Surroundings) -> None:
    run = begin(KINDS[name], cluster, surroundings, Random(name))
    try:
        KINDS[name].play(run)
    except BaseException:
        print(run.world.told(run.job))
        raise
    assert len(run.world.judged(run.job)) >= 2
    run.world.stop(run.job)
    run.world.discard()
