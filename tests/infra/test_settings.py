"""The stack configuration: typed, documented, with defaults that are written down once and mean the same twice.

Aspects: Pulumi.yaml's defaults are the program's; every key is documented, and in the example; a value that is not
valid is refused with its key in front; no content of a kubeconfig enters the configuration.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from dispatch_gates.contract.guard_rails import Level
from dispatch_infra import charts
from dispatch_infra.arguments import Chart, ControllerArgs, GuardRailsArgs, ManagersArgs, QueueArgs
from dispatch_infra.policies import Accounts
from dispatch_infra.settings import Settings, read

INFRA = Path(__file__).parents[2] / "infra"
PROJECT = "dispatch-infra"
IMAGE = "registry.example.com/dispatch-admission@sha256:" + "0a" * 32


@contextmanager
def configured(values: dict[str, Any]) -> Iterator[pulumi.Config]:
    """Give the values as the engine does: text, structured ones as JSON."""
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
    pulumi.runtime.set_all_config({f"{PROJECT}:{key}": text for key, text in texts.items()})
    try:
        yield pulumi.Config(PROJECT)
    finally:
        pulumi.runtime.set_all_config({})


def settings(**values: Any) -> Settings:
    with configured({"image": IMAGE} | values) as config:
        return read(config)


def schema() -> dict[str, Any]:
    declared: dict[str, Any] = yaml.safe_load((INFRA / "Pulumi.yaml").read_text())["config"]
    return declared


def example() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((INFRA / "Pulumi.example.yaml").read_text())["config"]
    return {key.removeprefix(f"{PROJECT}:"): value for key, value in values.items() if key.startswith(PROJECT)}


def test_without_any_setting_the_defaults_of_the_components_hold() -> None:
    assert settings() == Settings(
        kubeconfig=None,
        context=None,
        managers=ManagersArgs(),
        controller=ControllerArgs(image=IMAGE),
        guard_rails=GuardRailsArgs(),
        queue=QueueArgs(),
    )


def test_the_documented_defaults_are_the_same() -> None:
    defaults = {key: entry["default"] for key, entry in schema().items() if "default" in entry}
    assert settings(**defaults) == settings()


def test_the_image_alone_has_no_default() -> None:
    assert [key for key, entry in schema().items() if "default" not in entry] == ["image"]
    with configured({}) as config, pytest.raises(ValueError, match="dispatch-infra:image is not set"):
        read(config)


def test_every_key_is_described_and_in_the_example_with_another_value() -> None:
    for key, entry in schema().items():
        assert entry["description"], key
        # A queue of somebody else's leaves out what else the example shows.
        assert key == "existingClusterQueue" or example()[key] != entry.get("default"), key
    assert example().keys() == schema().keys()


def test_every_key_of_the_example_is_read(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch()
    values = example() | {"kubeconfig": str(kubeconfig)}
    whole = settings(**values)
    for key in values:
        try:
            without = settings(**{name: value for name, value in values.items() if name != key})
        except ValueError:
            continue  # Another setting needs it: it was read.
        assert without != whole or key == "existingClusterQueue", key


def test_a_queue_of_somebody_elses() -> None:
    queue = settings(existingClusterQueue=True, clusterQueue="theirs").queue
    assert (queue.existing, queue.cluster_queue) == (True, "theirs")
    with pytest.raises(ValueError, match=r"leave them out \(stop_policy is set\)"):
        settings(existingClusterQueue=True, stopPolicy="Hold")


def test_kueue_and_trainer_are_installed_where_they_are_asked_for() -> None:
    assert settings(installKueue=True).managers == ManagersArgs(
        kueue=Chart(chart="oci://registry.k8s.io/kueue/charts/kueue", version="0.19.2")
    )
    assert settings(installTrainer=True).managers == ManagersArgs(
        trainer=Chart(chart="oci://ghcr.io/kubeflow/charts/kubeflow-trainer", version="2.3.0")
    )


def test_the_chart_of_another_registry_is_of_the_tested_version(tmp_path: Path) -> None:
    chart: dict[str, Any] = {"chart": "oci://registry.example.com/kueue", "values": {"replicas": 2}}
    assert settings(installKueue=True, kueueChart=chart).managers.kueue == Chart(version=charts.KUEUE[1], **chart)
    at_hand = {"chart": str(tmp_path)}
    assert settings(installTrainer=True, trainerChart=at_hand).managers.trainer == Chart(chart=str(tmp_path))


def test_numbers_in_yaml_are_quotas_too() -> None:
    quotas = settings(flavors=[{"name": "f", "quotas": {"cpu": 8, "pods": 16}}]).queue.flavors[0].quotas
    assert quotas == {"cpu": "8", "pods": "16"}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"replicas": "two"}, "dispatch-infra:replicas 'two' is not valid"),
        ({"allowImageTag": "perhaps"}, "dispatch-infra:allowImageTag 'perhaps' is not valid"),
        ({"flavors": "spot"}, "dispatch-infra:flavors 'spot' is not valid"),
        ({"flavors": {"name": "spot"}}, "dispatch-infra:flavors {'name': 'spot'} is not valid: a list was expected"),
        ({"flavors": ["spot"]}, "dispatch-infra:flavors[0] 'spot' is not valid: a mapping was expected"),
        ({"flavors": [{"name": "spot"}]}, "dispatch-infra:flavors[0].quotas is missing"),
        (
            {"flavors": [{"name": "spot", "quotas": {"cpu": 1.5}}]},
            "dispatch-infra:flavors[0].quotas.cpu 1.5 is not valid: text was expected",
        ),
        (
            {"localQueues": [{"name": "a", "namespace": "b", "createNamepace": True}]},
            "dispatch-infra:localQueues[0] has unknown fields createNamepace",
        ),
        (
            {"localQueues": [{"name": "a", "namespace": "b", "createNamespace": "yes"}]},
            "dispatch-infra:localQueues[0].createNamespace 'yes' is not valid: true or false was expected",
        ),
        (
            {"priorityClasses": [{"name": "a", "value": "high"}]},
            "dispatch-infra:priorityClasses[0].value 'high' is not valid: a whole number was expected",
        ),
        ({"nodeSelector": ["a"]}, "dispatch-infra:nodeSelector ['a'] is not valid: a mapping was expected"),
        ({"admissionChecks": [{"name": "dispatch", "onFlavors": ["dispatch"]}]}, "would stand before flavor dispatch"),
        ({"image": "name:tag"}, "names no digest"),
        ({"guardRails": "strict"}, "dispatch-infra:guardRails 'strict' is not known"),
        ({"guardRailAccounts": {"Kueue": "a:b"}}, "dispatch-infra:guardRailAccounts has unknown fields Kueue"),
        ({"guardRailAccounts": {"kueue": "a"}}, "account kueue 'a' is not valid: NAMESPACE:NAME was expected"),
        ({"kueueChart": {"version": "0.19.1"}}, "dispatch-infra:kueueChart is set, but installKueue is not true"),
        (
            {"installTrainer": True, "trainerChart": {"image": "a"}},
            "dispatch-infra:trainerChart has unknown fields image",
        ),
        ({"installKueue": True, "kueueChart": {"chart": "no-such-folder"}}, "chart 'no-such-folder' is not there"),
        (
            {"installKueue": True, "kueueChart": {"chart": "/", "version": "0.19.2"}},
            "chart / is a path and has a version of its own",
        ),
        (
            {
                "installKueue": True,
                "kueueChart": {
                    "values": {"controllerManager": {"featureGates": [{"name": charts.GATE, "enabled": False}]}}
                },
            },
            "kueueChart.values.controllerManager.featureGates turns AdmissionGatedBy off",
        ),
        ({"kubeconfig": "no-such-file"}, "dispatch-infra:kubeconfig 'no-such-file' is not a file"),
    ],
)
def test_a_value_that_is_not_valid_is_refused(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        settings(**values)


def test_the_guard_rails_know_the_controller_and_what_the_stack_says_of_the_others() -> None:
    found = settings(
        namespace="gates", admissionCheck="other", guardRails="no", guardRailAccounts={"jobController": "a:b"}
    ).guard_rails
    assert found.accounts == Accounts(controller="gates:dispatch-admission", job_controller="a:b")
    assert (found.level, found.admission_check) == (Level.NO, "other")


@pytest.mark.parametrize(
    "content",
    ["apiVersion: v1\nusers: []", '{"apiVersion": "v1"}', "a: token\n", "users: [{user: {token: x}}]", "token" * 99],
)
def test_the_content_of_a_kubeconfig_is_refused_without_repeating_it(content: str) -> None:
    with pytest.raises(ValueError, match="holds the content of a kubeconfig") as refused:
        settings(kubeconfig=content)
    assert content not in str(refused.value)
