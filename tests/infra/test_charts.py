"""The charts of Kueue and Trainer: whatever values a stack gives, the gates have what they need.

Aspects: without any, the configuration that the tests run; given values are kept beside it; one that takes away what
the gates need, or that the chart could not read, is refused with its key. And what the real engine makes of the real
charts, in a preview on a cluster without managers; `make test-charts` installs it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from dispatch_infra import charts
from dispatch_infra.arguments import Chart, ManagersArgs
from dispatch_infra.policies import Accounts
from dispatch_local import build, images, parts
from dispatch_local.cluster import Cluster
from infra import with_charts
from infra.installation import Installation

ACCOUNTS = Accounts()
MANAGER = {"image": {"repository": "registry.example.com/kueue"}}


def configuration(values: dict[str, Any]) -> dict[str, Any]:
    """Return Kueue's configuration as the chart reads it."""
    read: dict[str, Any] = yaml.safe_load(values["managerConfig"]["controllerManagerConfigYaml"])
    return read


def given(**edited: Any) -> dict[str, Any]:
    """Return values with the configuration edited."""
    whole = configuration(charts.kueue_values({})) | edited
    return {"managerConfig": {"controllerManagerConfigYaml": yaml.safe_dump(whole)}}


def test_without_any_value_the_gates_have_what_they_need() -> None:
    values = charts.kueue_values({})
    assert configuration(values)["integrations"] == {"frameworks": ["trainer.kubeflow.org/trainjob"]}
    assert values["controllerManager"]["featureGates"] == [{"name": "AdmissionGatedBy", "enabled": True}]


def test_given_values_are_kept() -> None:
    gates = [{"name": "TopologyAwareScheduling", "enabled": False}]
    values = charts.kueue_values({"replicas": 2, "controllerManager": {"manager": MANAGER, "featureGates": gates}})
    assert values["replicas"] == 2
    assert values["controllerManager"] == {
        "manager": MANAGER,
        "featureGates": [*gates, {"name": "AdmissionGatedBy", "enabled": True}],
    }
    assert values["managerConfig"] == charts.kueue_values({})["managerConfig"]


def test_a_configuration_of_ones_own_may_have_more_frameworks() -> None:
    frameworks = ["batch/job", charts.TRAINJOBS]
    values = given(integrations={"frameworks": frameworks})
    assert charts.kueue_values(values)["managerConfig"] == values["managerConfig"]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (given(integrations={"frameworks": ["batch/job"]}), "has no trainer.kubeflow.org/trainjob among"),
        (given(integrations=None), "has no trainer.kubeflow.org/trainjob among"),
        (given(featureGates={"AdmissionGatedBy": True}), "controllerManagerConfigYaml has featureGates: Kueue takes"),
        ({"managerConfig": {"controllerManagerConfigYaml": "a: ["}}, "controllerManagerConfigYaml is not valid"),
        ({"managerConfig": {"controllerManagerConfigYaml": {"a": 1}}}, "controllerManagerConfigYaml is not valid"),
        ({"managerConfig": "a"}, "kueueChart.values.managerConfig 'a' is not valid: a mapping was expected"),
        (
            {"controllerManager": {"featureGates": [{"name": "AdmissionGatedBy", "enabled": False}]}},
            "kueueChart.values.controllerManager.featureGates turns AdmissionGatedBy off",
        ),
        (
            {"controllerManager": {"featureGates": {"AdmissionGatedBy": True}}},
            "kueueChart.values.controllerManager.featureGates {'AdmissionGatedBy': True} is not valid",
        ),
    ],
)
def test_what_takes_away_what_the_gates_need_is_refused(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        ManagersArgs(kueue=Chart(chart="oci://registry.example.com/kueue", version="0.19.2", values=values))


def test_runtimes_that_would_not_come_are_refused() -> None:
    values = {"runtimes": {"defaultEnabled": True}}
    with pytest.raises(ValueError, match="the chart's runtimes come by a Helm hook"):
        ManagersArgs(trainer=Chart(chart="oci://registry.example.com/trainer", version="2.3.0", values=values))


def test_the_configuration_is_text_that_helm_reads_as_yaml() -> None:
    text = charts.kueue_values({})["managerConfig"]["controllerManagerConfigYaml"]
    assert json.loads(text) == yaml.safe_load(text)


@dataclass(frozen=True)
class Previewed:
    """What the real engine would install of the real charts."""

    registered: list[dict[str, Any]]

    def inputs(self, kind: str) -> list[dict[str, Any]]:
        return [each["inputs"] for each in self.registered if each["type"].rpartition(":")[2] == kind]

    def named(self, kind: str, name: str) -> dict[str, Any]:
        (found,) = [each for each in self.inputs(kind) if each["metadata"]["name"] == name]
        return found


@pytest.fixture(scope="module")
def previewed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Previewed]:
    build.ensure(["charts"], print)
    cluster = Cluster(f"test-charts-{os.getpid()}")
    try:
        cluster.up(node=False, kwok_nodes=0, without=set(parts.MANAGERS))
        installation = Installation(cluster, tmp_path_factory.mktemp("charts"), with_charts.CONFIG)
        yield Previewed(installation.previewed())
    finally:
        cluster.down()


def test_a_preview_without_managers_shows_what_the_gates_need(previewed: Previewed) -> None:
    text = previewed.named("ConfigMap", "kueue-manager-config")["data"]["controller_manager_config.yaml"]
    assert yaml.safe_load(text)["integrations"] == {"frameworks": [charts.TRAINJOBS]}
    kueue = previewed.named("Deployment", "kueue-controller-manager")
    (container,) = kueue["spec"]["template"]["spec"]["containers"]
    assert "--feature-gates=AdmissionGatedBy=true" in container["args"]
    assert container["image"] == images.reference("kueue")


def test_the_accounts_of_the_charts_are_those_that_the_guard_rails_expect(previewed: Previewed) -> None:
    names = {f"{each['namespace']}:{each['name']}" for each in metadata(previewed.inputs("ServiceAccount"))}
    assert {ACCOUNTS.kueue, ACCOUNTS.trainer, ACCOUNTS.jobset} <= names


def test_no_two_renderings_differ(previewed: Previewed) -> None:
    """Certificates that a chart makes anew each time would be a change in every update."""
    assert [secret.get("data") for secret in previewed.inputs("Secret")] == [None] * 3
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for webhooks in previewed.inputs(kind):
            assert all("caBundle" not in webhook["clientConfig"] for webhook in webhooks["webhooks"])


def metadata(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each["metadata"] for each in found]
