"""The rights of the readmission gate's controller, and of the adapter, as data.

Exactly what each calls, verb by verb: whoever takes one away breaks it, whoever adds one must say why. No rule
holds `*`; none reaches secrets; the controller creates and deletes nothing but the Lease and events.
"""

from __future__ import annotations

from typing import Any

from dispatch_gates.contract import names
from dispatch_gates.contract.names import Resource

Rule = dict[str, Any]
"""One entry of `rules` in a Role or ClusterRole."""

READ = ("get", "list", "watch")


def _rule(resource: Resource, *verbs: str, subresource: str = "", only: str = "") -> Rule:
    path = f"{resource.plural}/{subresource}" if subresource else resource.plural
    rule: Rule = {"apiGroups": [resource.group], "resources": [path], "verbs": list(verbs)}
    return rule | {"resourceNames": [only]} if only else rule


def cluster_rules(admission_check: str) -> list[Rule]:
    """Return what the controller may do in every namespace, for the AdmissionCheck of that name.

    A right to `workloads/status` reaches every entry and condition in it, Kueue's own too: RBAC cannot name
    list entries. `admissionchecks/status` is limited to our one check.
    """
    return [
        _rule(names.WORKLOADS, *READ),
        _rule(names.WORKLOADS, "update", subresource="status"),
        _rule(names.ADMISSION_CHECKS, *READ),
        _rule(names.ADMISSION_CHECKS, "update", subresource="status", only=admission_check),
        _rule(names.TRAINJOBS, *READ, "update"),
        _rule(names.JOBSETS, *READ),
        _rule(names.JOBS, *READ),
        _rule(names.PODS, "list", "watch"),
        _rule(names.EVENTS, "create", "patch"),
    ]


def namespace_rules(lease: str) -> list[Rule]:
    """Return what the controller may do in its own namespace: elect a leader with the Lease of that name."""
    return [
        _rule(names.LEASES, "get", "update", only=lease),
        # A create carries no name that RBAC could compare, so this one rule is not limited to our Lease.
        _rule(names.LEASES, "create"),
    ]


def adapter_rules() -> list[Rule]:
    """Return what the adapter needs in the namespaces of its jobs: to start, open, hold, release and stop them."""
    return [
        # The verb that the guard rails ask for. Whoever holds it may open any job of the namespace.
        _rule(names.TRAINJOBS, *READ, "create", "update", "delete", names.ADAPTER_VERB),
        _rule(names.JOBSETS, *READ),
        _rule(names.JOBS, "list", "watch"),
        _rule(names.PODS, "list", "watch"),
        _rule(names.WORKLOADS, "list", "watch", "update"),
        _rule(names.TRAINING_RUNTIMES, "get", "list"),
        _rule(names.LOCAL_QUEUES, "get"),
    ]


def adapter_cluster_rules() -> list[Rule]:
    """Return what the adapter reads of the cluster: its identity, its runtimes, and what proves the gates."""
    return [
        _rule(names.NAMESPACES, "get", only=names.IDENTIFYING_NAMESPACE),
        _rule(names.CLUSTER_TRAINING_RUNTIMES, "get", "list"),
        _rule(names.CLUSTER_QUEUES, "get"),
        _rule(names.ADMISSION_CHECKS, "get"),
        _rule(names.LEASES, "get", only=names.CONTROLLER),
        _rule(names.POLICIES, "list"),
        _rule(names.POLICY_BINDINGS, "list"),
    ]
