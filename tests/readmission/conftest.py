"""What the tests of the readmission gate share: a controller that is kept running for the length of a module.

With DISPATCH_INSTALLED it is the one that `pulumi up` installed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dispatch_local.cluster import Cluster
from infra.installation import INSTALLED, InstalledController
from readmission.surroundings import Surroundings
from world import Deployment, World


@pytest.fixture
def world(cluster: Cluster) -> Iterator[World]:
    """A namespace of one test's own."""
    world = World(cluster).make()
    yield world
    world.discard()


@pytest.fixture(scope="module")
def controllers(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Deployment | InstalledController, Deployment]]:
    """The shipped controller, kept running, and a second replica that a test may start.

    No module that starts controllers of its own may ask for it.
    """
    folder = tmp_path_factory.mktemp("controllers")
    world = World(cluster).make()
    second = Deployment(world, folder, "second")
    if INSTALLED:
        yield InstalledController(cluster), second
    else:
        with Deployment(world, folder, "tests") as first:
            yield first, second


@pytest.fixture
def surroundings(cluster: Cluster, controllers: tuple[Deployment | InstalledController, Deployment]) -> Surroundings:
    """The cluster with the shipped controller."""
    return Surroundings(cluster, *controllers)
