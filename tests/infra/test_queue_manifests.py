"""The gated queue, as plain data.

Aspects: our check stands in the ClusterQueue, first and before every flavor, whatever the user adds; a value that
narrows it is refused; pods are covered for every flavor; who may use the queue; what a stopped queue awaits;
settings that are refused.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from dispatch_infra import Check, Flavor, LocalQueue, PriorityClass, QueueArgs
from dispatch_infra import queue_manifests as manifests

RESERVED = Flavor(name="reserved", quotas={"nvidia.com/gpu": "8", "cpu": "64"})
SPOT = Flavor(name="spot", quotas={"cpu": "256", "nvidia.com/gpu": "64", "pods": "10"})
TWO = QueueArgs(flavors=[RESERVED, SPOT])


def spec(args: QueueArgs) -> Any:
    return manifests.cluster_queue(args)["spec"]


def test_our_check_stands_before_every_flavor() -> None:
    assert spec(TWO)["admissionChecksStrategy"] == {"admissionChecks": [{"name": "dispatch"}]}


@pytest.mark.parametrize("ours", [(), (Check(name="dispatch"),)], ids=["not named", "named by the user too"])
def test_other_checks_stand_beside_ours(ours: tuple[Check, ...]) -> None:
    args = replace(TWO, other_checks=[Check(name="provisioning", on_flavors=["spot"]), *ours])
    assert spec(args)["admissionChecksStrategy"]["admissionChecks"] == [
        {"name": "dispatch"},
        {"name": "provisioning", "onFlavors": ["spot"]},
    ]


@pytest.mark.parametrize("flavors", [["spot"], ["reserved", "spot"]])
def test_narrowing_our_check_is_refused(flavors: list[str]) -> None:
    with pytest.raises(ValueError, match=r"AdmissionCheck dispatch would stand before flavor .* only"):
        replace(TWO, other_checks=[Check(name="dispatch", on_flavors=flavors)])


def test_pods_are_covered_for_every_flavor_in_one_order() -> None:
    (group,) = spec(TWO)["resourceGroups"]
    assert group["coveredResources"] == ["cpu", "nvidia.com/gpu", "pods"]
    assert group["flavors"] == [
        {
            "name": "reserved",
            "resources": [
                {"name": "cpu", "nominalQuota": "64"},
                {"name": "nvidia.com/gpu", "nominalQuota": "8"},
                {"name": "pods", "nominalQuota": "1M"},
            ],
        },
        {
            "name": "spot",
            "resources": [
                {"name": "cpu", "nominalQuota": "256"},
                {"name": "nvidia.com/gpu", "nominalQuota": "64"},
                {"name": "pods", "nominalQuota": "10"},
            ],
        },
    ]


def test_only_the_namespaces_of_the_local_queues_may_use_the_queue() -> None:
    args = QueueArgs(local_queues=[LocalQueue(name=n, namespace=s) for n, s in [("a", "two"), ("b", "one")]])
    assert spec(args)["namespaceSelector"] == {
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["one", "two"]}]
    }
    # Without any, the selector matches none: an empty one would match all.
    assert spec(QueueArgs(local_queues=[]))["namespaceSelector"]["matchExpressions"][0]["operator"] == "DoesNotExist"


def test_preemption_is_by_priority_within_the_queue_alone() -> None:
    assert spec(QueueArgs())["preemption"] == {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Never"}


def test_queues_are_awaited_unless_they_are_stopped() -> None:
    awaited = {"pulumi.com/waitFor": "condition=Active"}
    running, stopped = QueueArgs(), QueueArgs(stop_policy="HoldAndDrain")
    assert manifests.cluster_queue(running)["metadata"]["annotations"] == awaited
    assert manifests.local_queue(running, LocalQueue())["metadata"]["annotations"] == awaited
    assert "annotations" not in manifests.cluster_queue(stopped)["metadata"]
    assert "annotations" not in manifests.local_queue(stopped, LocalQueue())["metadata"]
    assert spec(stopped)["stopPolicy"] == "HoldAndDrain"


def test_flavor_local_queue_and_priority_class() -> None:
    flavor = Flavor(name="spot", node_labels={"pool": "spot"}, tolerations=[{"key": "spot", "operator": "Exists"}])
    assert manifests.flavor(flavor)["spec"] == {
        "nodeLabels": {"pool": "spot"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
    }
    local = manifests.local_queue(QueueArgs(cluster_queue="cq"), LocalQueue(name="lq", namespace="team"))
    assert (local["metadata"]["namespace"], local["spec"]) == ("team", {"clusterQueue": "cq"})
    priority = manifests.priority_class(PriorityClass(name="urgent", value=1000, description="has a date"))
    assert (priority["value"], priority["description"]) == (1000, "has a date")


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"flavors": []}, "flavors is empty"),
        ({"flavors": [RESERVED, RESERVED]}, "flavor reserved given more than once"),
        ({"flavors": [RESERVED, Flavor(name="b", quotas={"cpu": "1"})]}, "every flavor of the queue needs the same"),
        ({"within_cluster_queue": "Any"}, "preemption 'Any' is not known"),
        ({"stop_policy": "Drain"}, "stopPolicy 'Drain' is not known"),
        ({"local_queues": [LocalQueue(), LocalQueue()]}, "LocalQueue default/dispatch given more than once"),
        (
            {"local_queues": [LocalQueue(), LocalQueue(name="other", create_namespace=True)]},
            "createNamespace is true and false for namespace default",
        ),
        ({"other_checks": [Check(name="a"), Check(name="a")]}, "AdmissionCheck a given more than once"),
        ({"other_checks": [Check(name="a", on_flavors=["gone"])]}, "AdmissionCheck a names flavor gone"),
        ({"other_checks": [Check(name=f"c{n}") for n in range(8)]}, "number of admission checks 9 is out of bounds"),
        (
            {"priority_classes": [PriorityClass(name="p", value=1), PriorityClass(name="p", value=2)]},
            "priority class p given more than once",
        ),
        ({"cluster_queue": "-"}, "clusterQueue '-' is not a Kubernetes name"),
    ],
)
def test_a_setting_that_is_not_valid_is_refused(setting: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        QueueArgs(**setting)


def test_a_flavor_without_quotas_is_refused() -> None:
    with pytest.raises(ValueError, match="flavor a has no quotas"):
        Flavor(name="a", quotas={})


def test_a_priority_that_kueue_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="value of priority class p 2147483648 is out of bounds"):
        PriorityClass(name="p", value=2**31)
