"""What the tests of this directory share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dispatch_local.cluster import Cluster
from preflight.place import Place, served


@pytest.fixture(scope="package")
def place(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Return a namespace with a queue and a controller at work, which ends with this directory's tests.

    It serves the check of the whole cluster: other tests would no longer be alone with the controllers they try.
    """
    with served(cluster, tmp_path_factory.mktemp("place")) as place:
        yield place
