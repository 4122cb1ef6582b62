"""The objects of the guard rails, as the plain manifests that the API server gets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final

from dispatch_gates.contract import names
from dispatch_infra import rights
from dispatch_infra.policies import Policy

Manifest = dict[str, Any]

_LABELS: Final = {"app.kubernetes.io/part-of": "dispatch-gates"}
DENY: Final = ("Deny",)
AUDIT: Final = ("Warn", "Audit")
GUARDED: Final = {names.GUARDED: "true"}


def policy(rails: Policy) -> Manifest:
    """Return one policy. Whatever it cannot evaluate it refuses; alone, without its binding, it does nothing."""
    resource = rails.resource
    path = f"{resource.plural}/{rails.subresource}" if rails.subresource else resource.plural
    return {
        "apiVersion": names.POLICIES.api_version,
        "kind": names.POLICIES.kind,
        "metadata": _metadata(rails),
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [resource.group],
                        "apiVersions": [resource.version],
                        "operations": list(rails.operations),
                        "resources": [path],
                    }
                ]
            },
            "matchConditions": [{"name": "about", "expression": rails.about}],
            "variables": [{"name": name, "expression": expression} for name, expression in rails.variables.items()],
            "validations": [
                {"expression": rule.holds, "message": f"{rule.name}: {rule.message}.", "reason": "Forbidden"}
                for rule in rails.rules
            ],
        },
    }


def binding(rails: Policy, actions: tuple[str, ...]) -> Manifest:
    """Return what puts a policy in force: in guarded namespaces, or everywhere where it is about one account."""
    spec: Manifest = {"policyName": rails.name, "validationActions": list(actions)}
    if not rails.everywhere:
        spec["matchResources"] = {"namespaceSelector": {"matchLabels": GUARDED}}
    return {
        "apiVersion": names.POLICY_BINDINGS.api_version,
        "kind": names.POLICY_BINDINGS.kind,
        "metadata": _metadata(rails),
        "spec": spec,
    }


def adapter_roles() -> list[Manifest]:
    """Return what people and programs need to be the adapter: to be bound by whoever rules the cluster.

    `dispatch-adapter` with a RoleBinding in each namespace of jobs, `dispatch-adapter-cluster` with one
    ClusterRoleBinding. They are not part of `edit` or `admin`: to open jobs is given by name.
    """
    found = {"dispatch-adapter": rights.adapter_rules(), "dispatch-adapter-cluster": rights.adapter_cluster_rules()}
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name, "labels": _LABELS},
            "rules": rules,
        }
        for name, rules in found.items()
    ]


def digest(documents: Sequence[Manifest]) -> str:
    """Return a hash of manifests."""
    return hashlib.sha256(json.dumps(documents, sort_keys=True).encode()).hexdigest()[:16]


def _metadata(rails: Policy) -> Manifest:
    return {"name": rails.name, "labels": _LABELS | {names.GUARD_RAILS: str(rails.level)}}
