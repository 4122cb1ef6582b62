"""A cluster that nothing was installed on but Kueue, JobSet and Trainer: `infra/` is there once in a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from dispatch_local.cluster import Cluster


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    kept = os.environ.get("DISPATCH_TEST_CLUSTER")
    cluster = Cluster(f"{kept}-infra" if kept else f"test-infra-{os.getpid()}")
    try:
        cluster.up()
        yield cluster
    finally:
        if not kept:
            cluster.down()
