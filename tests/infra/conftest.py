"""A cluster that nothing was installed on but Kueue, JobSet and Trainer: `infra/` is there once in a cluster."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dispatch_local import build, images, programs, waiting
from dispatch_local.cluster import Cluster
from infra.guest import User
from resources.stacks import Stack


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


@pytest.fixture
def stack(cluster: Cluster, tmp_path: Path) -> Iterator[Stack]:
    env = cluster.pulumi_env(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", env["PATH"])
        yield Stack("infra", tmp_path, env)
    gc.collect()


@pytest.fixture(scope="package")
def user(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> User:
    build.ensure(programs.PULUMI_GROUPS, print)
    user = User(cluster, tmp_path_factory.mktemp("user"))

    def listed() -> bool | str:
        """A node lists a new image within half a minute."""
        (node,) = [each for each in user.nodes() if each["metadata"]["name"] == "real-0"]
        images_there = {name for image in node["status"].get("images", []) for name in image["names"]}
        return {images.reference("training"), images.reference("controller")} <= images_there or str(images_there)

    waiting.until("the node lists the demo's images", listed, timeout=400)
    return user


@pytest.fixture
def unchanged(user: User) -> Iterator[None]:
    """Have the test leave everything as it was: in the cluster, on the node, and in the folder for temporary files."""
    before, folders = user.objects(), set(Path("/tmp").glob("dispatch-demo-*"))
    yield
    assert sorted(user.objects() - before) == []
    assert not user.on_the_node()
    assert set(Path("/tmp").glob("dispatch-demo-*")) <= folders
