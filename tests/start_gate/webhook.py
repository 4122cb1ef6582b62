"""A mutating webhook: which object it changes, and how, is said by name before the object is created.

It is asked last of all mutating webhooks, so that nothing repairs what it did.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import webhook
from dispatch_gates.contract.objects import JsonObject
from start_gate.site import Site

Change = Callable[[JsonObject], object]


class Webhook(webhook.Webhook):
    """Changes TrainJobs of one namespace, and their Workloads, as they are created: a function for each name.

    The name `*` stands for any other TrainJob.
    """

    rules: ClassVar[tuple[dict[str, Any], ...]] = (
        {
            "operations": ["CREATE"],
            "apiVersions": ["*"],
            "apiGroups": ["trainer.kubeflow.org"],
            "resources": ["trainjobs"],
        },
        {"operations": ["CREATE"], "apiVersions": ["*"], "apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"]},
    )

    def __init__(self, site: Site, folder: Path) -> None:
        super().__init__(site, folder)
        self.changes: dict[str, Change] = {}
        self.workload_changes: dict[str, Change] = {}

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON patch for an object that is to be changed."""
        owners = asked["object"]["metadata"].get("ownerReferences") or [{}]
        change = (
            self.workload_changes.get(owners[0].get("name"))
            if asked["kind"]["kind"] == "Workload"
            else self.changes.get(asked["name"], self.changes.get("*"))
        )
        if change is None:
            return {}
        body = copy.deepcopy(asked["object"])
        change(body)
        # Whole parts, so that no change needs a JSON patch of its own.
        patch = [{"op": "replace", "path": f"/{part}", "value": body[part]} for part in ("metadata", "spec")]
        return {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
