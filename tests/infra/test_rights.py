"""The controller's rights: exactly the verbs of the design's table, none more.

Aspects: the table, verb by verb; what is limited by name; what no rule may ever hold.
"""

from __future__ import annotations

from itertools import product

import pytest

from dispatch_infra import rights
from dispatch_infra.rights import Rule

EVERYWHERE = {
    ("kueue.x-k8s.io", "workloads"): {"get", "list", "watch"},
    ("kueue.x-k8s.io", "workloads/status"): {"update"},
    ("kueue.x-k8s.io", "admissionchecks"): {"get", "list", "watch"},
    ("kueue.x-k8s.io", "admissionchecks/status"): {"update"},
    ("trainer.kubeflow.org", "trainjobs"): {"get", "list", "watch", "update"},
    ("jobset.x-k8s.io", "jobsets"): {"get", "list", "watch"},
    ("batch", "jobs"): {"get", "list", "watch"},
    ("", "pods"): {"list", "watch"},
    ("", "events"): {"create", "patch"},
}
AT_HOME = {("coordination.k8s.io", "leases"): {"get", "create", "update"}}


def table(rules: list[Rule]) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for rule in rules:
        for key in product(rule["apiGroups"], rule["resources"]):
            found.setdefault(key, set()).update(rule["verbs"])
    return found


def test_rights_in_all_namespaces_are_the_table() -> None:
    assert table(rights.cluster_rules("dispatch")) == EVERYWHERE


def test_rights_in_its_own_namespace_are_the_table() -> None:
    assert table(rights.namespace_rules("dispatch-admission")) == AT_HOME


def test_only_our_check_and_our_lease_may_be_written() -> None:
    named = {
        (rule["resources"][0], verb): rule.get("resourceNames")
        for rule in [*rights.cluster_rules("ours"), *rights.namespace_rules("lease")]
        for verb in rule["verbs"]
    }
    assert named["admissionchecks/status", "update"] == ["ours"]
    assert named["leases", "update"] == ["lease"]
    assert named["leases", "get"] == ["lease"]
    # Neither a list nor a create carries a name: a rule with names would never match.
    assert named["admissionchecks", "list"] is None
    assert named["leases", "create"] is None


@pytest.mark.parametrize("forbidden", ["*", "escalate", "bind", "impersonate", "delete", "deletecollection", "secrets"])
def test_no_rule_holds(forbidden: str) -> None:
    for rule in [*rights.cluster_rules("dispatch"), *rights.namespace_rules("lease")]:
        assert forbidden not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}


def test_pods_are_only_read() -> None:
    rules = table(rights.cluster_rules("dispatch"))
    assert not {resource for _, resource in rules if resource.startswith("pods/")}
    assert rules["", "pods"] == {"list", "watch"}
