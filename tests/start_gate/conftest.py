"""A cluster with Kueue and one controller for all tests of the start gate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dispatch_local.cluster import Cluster
from start_gate.site import Site
from world import Deployment


@pytest.fixture(scope="session")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Return a namespace for both modes, with the controller at work; the audit log judges it at the end."""
    site = Site(cluster)
    site.make()
    with Deployment(site, tmp_path_factory.mktemp("start-gate"), "start-gate"):
        yield site
    site.assert_kept()
    site.discard()


@pytest.fixture
def apart(cluster: Cluster) -> Iterator[Site]:
    """Return a site of one test's own, not judged."""
    apart = Site(cluster)
    apart.make()
    yield apart
    apart.discard()


@pytest.fixture
def unguarded(cluster: Cluster) -> Iterator[Site]:
    """Return a site like `apart` where the guard rails do not hold: for what they would not let happen."""
    unguarded = Site(cluster, guarded=False)
    unguarded.make()
    yield unguarded
    unguarded.discard()
