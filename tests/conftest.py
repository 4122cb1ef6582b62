"""What tests of several directories share: one real cluster for the whole run, started when first asked for."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dispatch_local import paths
from dispatch_local.cluster import Cluster

# A shell that starts a job in the background has it ignore Ctrl-C, and so would every program that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Return a real cluster with a real node; tests keep apart by namespaces of their own.

    DISPATCH_TEST_CLUSTER names one that is used if it is up and left up: for trying one test many times.
    Without it two runs at once have a cluster each, and one that a killed run left is taken down.
    """
    if kept := os.environ.get("DISPATCH_TEST_CLUSTER"):
        cluster = Cluster(kept)
        cluster.up()
        yield cluster
        return
    for home in paths.clusters().glob("test-*"):
        owner = re.fullmatch(r"test-(?:[a-z]+-)?(\d+)", home.name)
        if owner and not Path(f"/proc/{owner[1]}").exists():
            Cluster(home.name).down()
    cluster = Cluster(f"test-{os.getpid()}")
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()
