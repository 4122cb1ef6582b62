"""What tests of several directories share: a real cluster for the whole run, and one without Kueue, when asked for."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

import rails
from dispatch_gates.contract.guard_rails import Level
from dispatch_local import paths
from dispatch_local.cluster import Cluster
from infra.installation import INSTALLED, install
from start_gate.site import Site

# Failures in checks that several directories share say what they compared.
pytest.register_assert_rewrite(
    "unit.pass_checks",
    "unit.owner_checks",
    "unit.story_checks",
    "unit.fault_checks",
    "unit.driver_checks",
    "unit.sharing_checks",
)

# On a machine that is shared a single example may take any time.
hypothesis.settings.register_profile("shared", deadline=None)
hypothesis.settings.load_profile("shared")

# A shell that starts a job in the background has it ignore Ctrl-C, and so would every program that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


LAST = ("test_refused_nothing.py", "test_transitions.py")
"""What looks at the audit log of the whole run."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if rails.LEVEL is Level.EXECUTIONS:
        left_out = [item for item in items if item.get_closest_marker("depends_on")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: item.path.name in LAST)


@pytest.fixture(scope="module", autouse=True)
def _swept() -> Iterator[None]:
    """Collect what a module leaves before the next one begins: what it did not close is told of under its own name."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Return a real cluster with a real node and the guard rails; tests keep apart by namespaces of their own.

    DISPATCH_TEST_CLUSTER names one that is used if it is up and left up: for trying one test many times.
    Without it two runs at once have a cluster each, and one that a killed run left is taken down.
    With DISPATCH_INSTALLED it has what `pulumi up` in infra/ installs, a controller at work, too.
    """
    if kept := os.environ.get("DISPATCH_TEST_CLUSTER"):
        cluster = Cluster(kept)
        cluster.up()
        _equip(cluster, tmp_path_factory)
        yield cluster
        return
    for home in paths.clusters().glob("test-*"):
        owner = re.fullmatch(r"test-(?:[a-z]+-)?(\d+)", home.name)
        if owner and not Path(f"/proc/{owner[1]}").exists():
            Cluster(home.name).down()
    cluster = Cluster(f"test-{os.getpid()}")
    try:
        cluster.up()
        _equip(cluster, tmp_path_factory)
        yield cluster
    finally:
        cluster.down()


def _equip(cluster: Cluster, folders: pytest.TempPathFactory) -> None:
    if INSTALLED:
        install(cluster, folders.mktemp("infra"))
    else:
        rails.install(cluster)


@pytest.fixture(scope="session")
def without_kueue() -> Iterator[Site]:
    """Return a namespace of a cluster on which Kueue was never installed; judged at the end."""
    kept = os.environ.get("DISPATCH_TEST_CLUSTER")
    cluster = Cluster(f"{kept}-plain" if kept else f"test-plain-{os.getpid()}")
    try:
        cluster.up(node=False, without={"kueue"})
        site = Site(cluster)
        yield site.make_plain()
        site.assert_kept()
    finally:
        if not kept:
            cluster.down()
