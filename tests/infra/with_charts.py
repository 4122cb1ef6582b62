"""`infra/` on a cluster that has neither Kueue nor Trainer, with their charts (`make test-charts`).

The charts come out of the released modules, the images hold the programs that are built here; else all is real: the
engine, the node that runs the managers, the webhooks behind Services.

Aspects: after `up` the managers run, with what the gates need; a second `up` changes nothing and `refresh` finds
nothing; a framework that somebody took away is drift; a gated job runs, is evicted, and runs again with the next A;
after destroy nothing is left but the kinds, with the jobs of other people; it can be installed once more.

The order of these tests is that of the installation's life.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml

from dispatch_gates.contract import names
from dispatch_infra import charts
from dispatch_local import build, images, parts, programs
from dispatch_local.cluster import Cluster
from dispatch_local.node import REAL_NODE
from infra.installation import Installation, Server, condition
from world import World

SECONDS = 1800
"""More than Trainer, Kueue and the controller may take, one after the other."""
NAME, SYSTEM, TEAM = "charts-test", "charts-test-system", "charts-test"
CHARTS = programs.group("charts").path / "charts"


def image(name: str, where: str = "repository") -> dict[str, str]:
    repository, _, tag = images.reference(name).rpartition(":")
    return {where: repository, "tag": tag, "pullPolicy": "Never"}


def trainer_image() -> dict[str, str]:
    registry, _, repository = image("trainer")["repository"].partition("/")
    return image("trainer") | {"registry": registry, "repository": repository}


CONFIG = {
    "installKueue": True,
    "kueueChart": {
        "chart": str(CHARTS / "kueue"),
        "values": {"controllerManager": {"manager": {"image": image("kueue")}}},
    },
    "installTrainer": True,
    "trainerChart": {
        "chart": str(CHARTS / "kubeflow-trainer"),
        "values": {"image": trainer_image(), "jobset": {"image": image("jobset")}},
    },
    "image": images.reference("controller"),
    "allowImageTag": True,
    "imagePullPolicy": "Never",
    "leaseSeconds": 3,
    "nodeSelector": {"kubernetes.io/hostname": REAL_NODE},
    "namespace": SYSTEM,
    "clusterQueue": NAME,
    "localQueues": [{"name": NAME, "namespace": TEAM}],
    "flavors": [{"name": NAME, "quotas": {"cpu": 2}}],
}
CONFIG_MAP = "/api/v1/namespaces/kueue-system/configmaps/kueue-manager-config"
KEY = "controller_manager_config.yaml"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
KINDS = ("workloads.kueue.x-k8s.io", "trainjobs.trainer.kubeflow.org", "jobsets.jobset.x-k8s.io")
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    build.ensure(["charts"], print)
    kept = os.environ.get("DISPATCH_TEST_CLUSTER")
    cluster = Cluster(f"{kept}-charts" if kept else f"test-charts-{os.getpid()}")
    try:
        cluster.up(images=("pause", "controller", *images.MANAGERS), kwok_nodes=1, without=set(parts.MANAGERS))
        yield cluster
    finally:
        if not kept:
            cluster.down()


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Server:
    return Server(cluster)


@pytest.fixture(scope="module")
def installation(cluster: Cluster, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    installation = Installation(cluster, tmp_path_factory.mktemp("charts"), CONFIG, seconds=SECONDS)
    server.post("/api/v1/namespaces", {"metadata": {"name": TEAM}})
    try:
        installation.up()
        yield installation
    finally:
        installation.destroy()


@pytest.mark.usefixtures("installation")
def test_the_managers_run_with_what_the_gates_need(server: Server) -> None:
    for kind in KINDS:
        assert condition(server.get(f"{DEFINITIONS}/{kind}"), "Established") == "True"
    configuration = yaml.safe_load(server.get(CONFIG_MAP)["data"][KEY])
    assert configuration["integrations"]["frameworks"] == [charts.TRAINJOBS]
    for namespace, name in (
        ("kueue-system", "kueue-controller-manager"),
        ("kubeflow-system", "kubeflow-trainer-controller-manager"),
        ("kubeflow-system", "jobset-controller"),
    ):
        deployment = server.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
        assert condition(deployment, "Available") == "True", name
    for kind, name in (
        ("mutatingwebhookconfigurations", "kueue-mutating-webhook-configuration"),
        ("validatingwebhookconfigurations", "validator.trainer.kubeflow.org"),
        ("validatingwebhookconfigurations", "jobset-validating-webhook-configuration"),
    ):
        for webhook in server.get(f"{WEBHOOKS}/{kind}/{name}")["webhooks"]:
            assert webhook["clientConfig"]["caBundle"], webhook["name"]


def test_a_second_up_changes_nothing(installation: Installation) -> None:
    installation.expect_no_changes()
    installation.refresh_finds_no_drift()
    installation.expect_no_changes()


def test_a_job_is_started_opened_evicted_and_run_again(installation: Installation) -> None:
    world = World(installation.cluster, TEAM)
    world.runtime("kwok", lambda _: None)
    job = world.started_and_opened(replace(world.spec(), queue=NAME, priority_class=None))
    world.running(job, 1)
    world.evict(job)
    world.running(job, 2)
    assert len(world.judged(job)) == 2
    world.stop(job)


def test_a_framework_that_somebody_took_away_is_drift(installation: Installation, server: Server) -> None:
    text = server.get(CONFIG_MAP)["data"][KEY]
    server.merge(CONFIG_MAP, {"data": {KEY: text.replace(charts.TRAINJOBS, "batch/job")}})
    assert "kueue-manager-config" in installation.refresh_finds_drift()
    installation.up(PULUMI_K8S_ENABLE_PATCH_FORCE="true")
    assert server.get(CONFIG_MAP)["data"][KEY] == text


def test_destroy_leaves_the_kinds_and_the_jobs_of_other_people(installation: Installation, server: Server) -> None:
    jobs = f"/apis/{names.TRAINJOBS.api_version}/namespaces/{TEAM}/{names.TRAINJOBS.plural}"
    theirs: dict[str, Any] = {
        "apiVersion": names.TRAINJOBS.api_version,
        "kind": names.TRAINJOBS.kind,
        "metadata": {"name": "theirs"},
        "spec": {"suspend": True, "runtimeRef": {"kind": "TrainingRuntime", "name": "kwok"}},
    }
    uid = server.post(jobs, theirs)["metadata"]["uid"]
    installation.destroy()
    for namespace in ("kueue-system", "kubeflow-system", SYSTEM):
        assert server.get(f"/api/v1/namespaces/{namespace}") is None, namespace
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        assert server.get(f"{WEBHOOKS}/{kind}")["items"] == []
    roles = server.get("/apis/rbac.authorization.k8s.io/v1/clusterroles")["items"]
    ours = ("kueue", "kubeflow", "jobset", "dispatch", SYSTEM)
    assert [role["metadata"]["name"] for role in roles if role["metadata"]["name"].startswith(ours)] == []
    for kind in KINDS:
        assert condition(server.get(f"{DEFINITIONS}/{kind}"), "Established") == "True"
    assert server.get(f"{jobs}/theirs")["metadata"]["uid"] == uid

    installation.up()
    installation.expect_no_changes()
    assert server.get(f"{jobs}/theirs")["metadata"]["uid"] == uid
