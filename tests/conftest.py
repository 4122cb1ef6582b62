"""What tests of several directories share: one real cluster for the whole run, started when first asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from dispatch_local.cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Return a real cluster with a real node; tests keep apart by namespaces of their own.

    DISPATCH_TEST_CLUSTER names one that is used if it is up and left up: for trying one test many times.
    """
    kept = os.environ.get("DISPATCH_TEST_CLUSTER")
    cluster = Cluster(kept or "test")
    if not kept:
        cluster.down()
    cluster.up()
    yield cluster
    if not kept:
        cluster.down()
