"""One API server for the tests that ask it one thing at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from guard_rails import bare
from guard_rails.bare import Bare


@pytest.fixture(scope="package")
def api_server() -> Iterator[Bare]:
    cluster = bare.started(f"test-rails-{os.getpid()}")
    server = Bare(cluster)
    try:
        server.prepare()
        yield server
    finally:
        server.close()
        cluster.down()
