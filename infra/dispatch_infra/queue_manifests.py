"""The objects of a gated queue, as the plain manifests that the API server gets."""

from __future__ import annotations

from typing import Any, Final

from dispatch_gates.contract import names
from dispatch_infra.arguments import PODS, Check, Flavor, LocalQueue, PriorityClass, QueueArgs
from dispatch_infra.controller_manifests import ACTIVE
from dispatch_infra.guard_rails_manifests import GUARDED

Manifest = dict[str, Any]

_LABELS: Final = {"app.kubernetes.io/part-of": "dispatch-gates"}


def namespace(name: str) -> Manifest:
    """Return a namespace for jobs, in which the guard rails hold."""
    return {
        "apiVersion": names.NAMESPACES.api_version,
        "kind": names.NAMESPACES.kind,
        "metadata": {"name": name, "labels": _LABELS | GUARDED},
    }


def guarded(namespace: str) -> Manifest:
    """Return what of somebody else's namespace is ours: the label by which the guard rails hold in it."""
    return {
        "apiVersion": names.NAMESPACES.api_version,
        "kind": names.NAMESPACES.kind,
        "metadata": {"name": namespace, "labels": GUARDED},
    }


def flavor(args: Flavor) -> Manifest:
    """Return the ResourceFlavor."""
    return {
        "apiVersion": names.CLUSTER_QUEUES.api_version,
        "kind": "ResourceFlavor",
        "metadata": {"name": args.name, "labels": _LABELS},
        "spec": {
            "nodeLabels": dict(args.node_labels),
            "tolerations": [dict(toleration) for toleration in args.tolerations],
        },
    }


def priority_class(args: PriorityClass) -> Manifest:
    """Return the WorkloadPriorityClass."""
    return {
        "apiVersion": names.CLUSTER_QUEUES.api_version,
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": args.name, "labels": _LABELS},
        "value": args.value,
        "description": args.description,
    }


def cluster_queue(args: QueueArgs) -> Manifest:
    """Return the ClusterQueue, our check in it from its first version on, before every flavor."""
    return {
        "apiVersion": names.CLUSTER_QUEUES.api_version,
        "kind": names.CLUSTER_QUEUES.kind,
        "metadata": {"name": args.cluster_queue, "labels": _LABELS} | _awaited(args),
        "spec": {
            "namespaceSelector": _namespaces(args),
            "preemption": {"withinClusterQueue": args.within_cluster_queue, "reclaimWithinCohort": "Never"},
            "resourceGroups": [_resource_group(args)],
            "admissionChecksStrategy": {"admissionChecks": [_check(check) for check in args.all_checks()]},
            "stopPolicy": args.stop_policy,
        },
    }


def local_queue(args: QueueArgs, queue: LocalQueue) -> Manifest:
    """Return one LocalQueue of the ClusterQueue."""
    return {
        "apiVersion": names.LOCAL_QUEUES.api_version,
        "kind": names.LOCAL_QUEUES.kind,
        "metadata": {"name": queue.name, "namespace": queue.namespace, "labels": _LABELS} | _awaited(args),
        "spec": {"clusterQueue": args.cluster_queue},
    }


def _namespaces(args: QueueArgs) -> Manifest:
    key = "kubernetes.io/metadata.name"
    namespaces = args.namespaces()
    # An empty selector would let every namespace in; every namespace has this label.
    expression = (
        {"key": key, "operator": "In", "values": namespaces} if namespaces else {"key": key, "operator": "DoesNotExist"}
    )
    return {"matchExpressions": [expression]}


def _awaited(args: QueueArgs) -> Manifest:
    # A stopped queue is not Active, and is not meant to be.
    return {"annotations": ACTIVE} if args.stop_policy == "None" else {}


def _resource_group(args: QueueArgs) -> Manifest:
    # Kueue wants the resources of every flavor in the order of coveredResources.
    resources = sorted(args.flavors[0].covered())
    assert PODS in resources
    return {
        "coveredResources": resources,
        "flavors": [
            {
                "name": flavor.name,
                "resources": [{"name": name, "nominalQuota": flavor.covered()[name]} for name in resources],
            }
            for flavor in args.flavors
        ],
    }


def _check(check: Check) -> Manifest:
    entry: Manifest = {"name": check.name}
    return entry | {"onFlavors": list(check.on_flavors)} if check.on_flavors else entry
