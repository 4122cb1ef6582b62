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
from world import Deployment, World, let_adapter_read_leases


@pytest.fixture(scope="session")
def served(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A namespace with a queue that has room for many jobs, and the controller at work."""
    served = World(cluster, pods=50).make()
    let_adapter_read_leases(served)
    with Deployment(served, tmp_path_factory.mktemp("controller"), "resources"), heartbeat(served):
        yield served


@pytest.fixture(scope="session")
def world(served: World) -> World:
    """A namespace with a queue that has room for nothing: what is opened there waits for quota, and stays as it is."""
    return World(served.cluster, pods=0).make()


@pytest.fixture(scope="session")
def engine(
    cluster: Cluster, served: World, world: World, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, str]]:
    """The environment of the real engine, whose cluster is seen by the adapter's account, with its rights and no more.

    PATH is set here too: the SDK asks for the engine's version with it.
    """
    folder = tmp_path_factory.mktemp("pulumi")
    assert served.adapter == world.adapter, "one account, bound in both namespaces"
    env = {**cluster.pulumi_env(folder), "KUBECONFIG": str(world.adapter.kubeconfig)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", env["PATH"])
        yield env
    credentials = {secret for path in (env["KUBECONFIG"], cluster.kubeconfig) for secret in of_kubeconfig(Path(path))}
    leaks = list(written(folder, credentials))
    assert not leaks, f"credentials of the kubeconfigs were written to {leaks}"


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
