"""Queues behind the real controller, and stacks of the real engine, for the tests of the resources."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from dispatch_local.cluster import Cluster
from resources.credentials import of_kubeconfig, written
from resources.heartbeat import heartbeat
from resources.stacks import Stack
from world import Deployment, World


@pytest.fixture(scope="session")
def served(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A namespace with a queue that has room for many jobs, and the controller at work."""
    served = World(cluster, pods=50).make()
    with Deployment(served, tmp_path_factory.mktemp("controller"), "resources"), heartbeat(served):
        yield served


@pytest.fixture(scope="session")
def world(served: World) -> World:
    """A namespace with a queue that has room for nothing: what is opened there waits for quota, and stays as it is."""
    return World(served.cluster, pods=0).make()


@pytest.fixture(scope="session")
def engine(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """The environment of the real engine. PATH is set here too: the SDK asks for the engine's version with it."""
    folder = tmp_path_factory.mktemp("pulumi")
    env = cluster.pulumi_env(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", env["PATH"])
        yield env
    leaks = list(written(folder, of_kubeconfig(cluster.kubeconfig)))
    assert not leaks, f"credentials of the kubeconfig were written to {leaks}"


@pytest.fixture
def new_stack(
    engine: Mapping[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[[], Stack]]:
    """Make stacks that are called after the test. What the SDK leaves of them is collected before the next test."""
    made: list[Stack] = []

    def make() -> Stack:
        name = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:90]
        made.append(Stack(f"{name}-{len(made)}", tmp_path, engine))
        return made[-1]

    yield make
    gc.collect()


@pytest.fixture
def stack(new_stack: Callable[[], Stack]) -> Stack:
    """Make the one stack that most tests need."""
    return new_stack()
