"""The controller's installation, as plain data.

Aspects: Pod Security restricted, by the namespace and by the pod; the image by digest; what the program is told
and where it is probed; the check's controllerName; names that belong together; settings that are refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dispatch_infra import ControllerArgs
from dispatch_infra import controller_manifests as manifests
from dispatch_infra.alerts import ALERTS

DIGEST = "registry.example.com/dispatch-admission@sha256:" + "0a" * 32
ARGS = ControllerArgs(image=DIGEST)


def pod(args: ControllerArgs = ARGS) -> Any:
    return manifests.deployment(args)["spec"]["template"]["spec"]


def container(args: ControllerArgs = ARGS) -> Any:
    (only,) = pod(args)["containers"]
    return only


def test_the_namespace_refuses_whatever_is_less_than_restricted() -> None:
    labels = manifests.namespace(ARGS)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert labels["pod-security.kubernetes.io/audit"] == "restricted"
    assert labels["pod-security.kubernetes.io/warn"] == "restricted"


def test_the_pod_is_confined() -> None:
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert pod()["securityContext"]["runAsUser"] == 65532
    assert pod()["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container()["resources"].keys() == {"requests", "limits"}


def test_the_token_is_mounted_in_the_controller_and_nowhere_else() -> None:
    assert manifests.service_account(ARGS)["automountServiceAccountToken"] is False
    assert pod()["automountServiceAccountToken"] is True


def test_two_replicas_spread_with_a_budget() -> None:
    assert manifests.deployment(ARGS)["spec"]["replicas"] == 2
    assert {entry["topologyKey"] for entry in pod()["topologySpreadConstraints"]} == {
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    }
    assert manifests.disruption_budget(ARGS)["spec"]["maxUnavailable"] == 1


def test_probes_and_metrics_share_the_named_port() -> None:
    assert container()["ports"] == [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]
    assert container()["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container()["startupProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container()["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert manifests.service(ARGS)["spec"]["ports"][0]["targetPort"] == "http"


def test_the_program_is_told_its_lease_namespace_and_identity() -> None:
    assert container(replace(ARGS, lease_seconds=3))["args"] == [
        "--lease-name=dispatch-admission",
        "--lease-seconds=3",
        "--listen=0.0.0.0:8080",
    ]
    assert {entry["name"]: entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in container()["env"]} == {
        "DISPATCH_ADMISSION_IDENTITY": "metadata.name",
        "DISPATCH_ADMISSION_NAMESPACE": "metadata.namespace",
    }


def test_every_selector_finds_the_pods() -> None:
    labels = manifests.deployment(ARGS)["spec"]["template"]["metadata"]["labels"]
    selectors = [
        manifests.deployment(ARGS)["spec"]["selector"]["matchLabels"],
        manifests.disruption_budget(ARGS)["spec"]["selector"]["matchLabels"],
        manifests.service(ARGS)["spec"]["selector"],
        *(entry["labelSelector"]["matchLabels"] for entry in pod()["topologySpreadConstraints"]),
    ]
    for selector in selectors:
        assert selector.items() <= labels.items()


def test_the_check_is_ours_and_awaited() -> None:
    check = manifests.admission_check(replace(ARGS, admission_check="other"))
    assert check["metadata"]["name"] == "other"
    assert check["metadata"]["annotations"] == {"pulumi.com/waitFor": "condition=Active"}
    assert check["spec"] == {"controllerName": "dispatch.phpboyscout.uk/admission"}


def test_bindings_bind_the_rights_to_the_account_of_the_pod() -> None:
    args = replace(ARGS, namespace="gates")
    account = manifests.service_account(args)["metadata"]
    assert pod(args)["serviceAccountName"] == account["name"]
    for binding, role in [
        (manifests.cluster_role_binding(args), manifests.cluster_role(args)),
        (manifests.role_binding(args), manifests.role(args)),
    ]:
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account["name"], "namespace": "gates"}]
        assert binding["roleRef"]["kind"] == role["kind"]
        assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_two_installations_share_no_cluster_wide_name() -> None:
    one, two = (manifests.cluster_role(replace(ARGS, namespace=name))["metadata"]["name"] for name in ("a", "b"))
    assert one != two


@pytest.mark.parametrize(
    ("image", "sentence"),
    [
        ("registry.example.com/dispatch-admission:1", "names no digest"),
        ("registry.example.com/dispatch-admission", "names no digest"),
        ("name@sha256:" + "0" * 63, "names no digest"),
        ("name@sha256:" + "G" * 64, "names no digest"),
        (DIGEST + "\n", "not an image reference"),
        ("", "not an image reference"),
    ],
)
def test_an_image_without_a_digest_is_refused(image: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ControllerArgs(image=image)


def test_a_tag_runs_where_the_user_insists() -> None:
    tagged = ControllerArgs(image="dispatch.local/controller:1", allow_image_tag=True, image_pull_policy="Never")
    assert container(tagged)["image"] == "dispatch.local/controller:1"
    assert container(tagged)["imagePullPolicy"] == "Never"


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"image_pull_policy": "Sometimes"}, "imagePullPolicy 'Sometimes' is not known: one of Always"),
        ({"replicas": 0}, "replicas 0 is out of bounds"),
        ({"lease_seconds": 301}, "leaseSeconds 301 is out of bounds"),
        ({"namespace": "Gates"}, "namespace 'Gates' is not valid"),
        ({"namespace": "a.b"}, "namespace 'a.b' is not valid"),
        ({"admission_check": "a_b"}, "admissionCheck 'a_b' is not a Kubernetes name"),
    ],
)
def test_a_setting_that_is_not_valid_is_refused(setting: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ControllerArgs(image=DIGEST, **setting)


def test_a_network_policy_lets_in_the_metrics_and_out_the_api_server() -> None:
    policy = manifests.network_policy(replace(ARGS, api_server_ports=[8443]))
    assert policy["spec"]["podSelector"] == manifests.deployment(ARGS)["spec"]["selector"]
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert policy["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": 8080}]}]
    assert policy["spec"]["egress"][0] == {"ports": [{"protocol": "TCP", "port": 8443}]}
    with pytest.raises(ValueError, match="apiServerPorts 0 is out of bounds"):
        replace(ARGS, api_server_ports=[0])


def test_the_alerts_are_those_of_the_list() -> None:
    rule = manifests.prometheus_rule(ARGS)
    assert (rule["apiVersion"], rule["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    (group,) = rule["spec"]["groups"]
    assert [entry["alert"] for entry in group["rules"]] == [alert.name for alert in ALERTS]


def test_a_service_monitor_finds_the_services_port() -> None:
    monitor, service = manifests.service_monitor(ARGS), manifests.service(ARGS)
    selected = monitor["spec"]["selector"]["matchLabels"]
    assert selected.items() <= service["metadata"]["labels"].items()
    assert [entry["port"] for entry in monitor["spec"]["endpoints"]] == [service["spec"]["ports"][0]["name"]]
