"""The audit policy that the audit of identities needs."""

from __future__ import annotations

from typing import Any, Final

import yaml

from dispatch_gates.contract.names import JOBS, PODS, TRAINJOBS, WORKLOADS

RULE: Final[dict[str, Any]] = {
    "level": "RequestResponse",
    "verbs": ["create", "update", "patch", "delete", "deletecollection"],
    "resources": [
        {"group": each.group, "resources": [each.plural, f"{each.plural}/status"]}
        for each in (TRAINJOBS, WORKLOADS, JOBS, PODS)
    ],
}
"""The rule to put before all others of a policy: the first that fits an event decides."""

_HEAD: Final = """\
# What `dispatch-gates audit` needs of an API server: --audit-policy-file=THIS --audit-log-path=FILE.
# In a policy of your own put the rule of level RequestResponse before all others; omit no stage but RequestReceived.
"""


def policy() -> str:
    """Return the whole policy, YAML: what is needed, and nothing else."""
    whole = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": True,
        "rules": [RULE, {"level": "None"}],
    }
    return _HEAD + yaml.safe_dump(whole, sort_keys=False)
