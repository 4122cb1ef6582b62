"""Where the demo plays, and how: names, images, mode. Both Pulumi projects are configured from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LATE_POD = "late-execution"
# Shorter than users have it: there is no story in it.
PREFLIGHT_SECONDS = 3
# On the node, so that it outlives the pod; gone with the cluster, or cleaned up by `guest.py`.
CHECKPOINTS = "/run/dispatch-demo/checkpoints"


@dataclass(frozen=True)
class Site:
    """One place. `plain` plays without Kueue.

    The guard rails hold a whole cluster to rules, so they come with a cluster of the demo's own only.
    """

    training: str
    controller: str
    namespace: str = "demo"
    queue: str = "training"
    cluster_queue: str = "dispatch"
    creates_namespace: bool = True
    node: Mapping[str, str] = field(default_factory=lambda: {"dispatch.local/node": "real"})
    pull: str = "Never"
    plain: bool = False
    guard_rails: bool = True

    def installation(self) -> dict[str, Any]:
        """Return the configuration of `infra/` for a queue with room for one job of the demo."""
        quotas = {"cpu": "500m", "memory": "1Gi"}
        queue = {"name": self.queue, "namespace": self.namespace, "createNamespace": self.creates_namespace}
        settings = {
            "image": self.controller,
            "allowImageTag": True,
            "imagePullPolicy": self.pull,
            "replicas": 1,
            "leaseSeconds": 3,
            "nodeSelector": dict(self.node),
            "clusterQueue": self.cluster_queue,
            **self._guard_rails(),
            "localQueues": [queue],
            "flavors": [{"name": "demo", "nodeLabels": {}, "tolerations": [], "quotas": quotas}],
            "priorityClasses": [
                {"name": "demo-patient", "value": 100, "description": "Can wait"},
                {"name": "demo-urgent", "value": 1000, "description": "Cannot"},
            ],
        }
        return {f"dispatch-infra:{key}": value for key, value in settings.items()}

    def _guard_rails(self) -> dict[str, Any]:
        if not self.guard_rails:
            return {"guardRails": "no"}
        # JobSet is here from its own release, and not by Trainer's chart.
        return {"guardRailAccounts": {"jobset": "jobset-system:jobset-controller-manager"}}

    def example(self) -> dict[str, Any]:
        """Return the configuration of the example."""
        settings: dict[str, Any] = {
            "namespace": self.namespace,
            # In Kueue mode the installation made it.
            "createNamespace": self.creates_namespace and self.plain,
            "image": self.training,
            "nodeSelector": dict(self.node),
        }
        if not self.plain:
            settings["queue"] = self.queue
        found = {f"dispatch-demo:{key}": value for key, value in settings.items()}
        return found | {"dispatch:preflightSeconds": PREFLIGHT_SECONDS}

    def late_pod(self, ulid: str) -> dict[str, Any]:
        """Return a pod that is what an execution with A=1 would be that Kubernetes had lost sight of, and that returns.

        The same program on the same checkpoints; it belongs to no job, so nothing of the gates keeps it away.
        """
        given = {"DISPATCH_SUBMISSION": "1", "DISPATCH_ADMISSION_COUNT": "1", "DISPATCH_RESTART_ATTEMPT": "0"}
        return self.pod(LATE_POD, CHECKPOINTS, {"DISPATCH_ULID": ulid, **given})

    def pod(
        self, name: str, folder: str, env: Mapping[str, str] | None = None, command: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """Return a pod of the training image on the demo's node that has `folder` of the node at /checkpoints."""
        container: dict[str, Any] = {
            "name": "node",
            "image": self.training,
            "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
            "volumeMounts": [{"name": "checkpoints", "mountPath": "/checkpoints"}],
        }
        if command:
            container["command"] = list(command)
        return {
            "metadata": {"name": name},
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "nodeSelector": dict(self.node),
                "containers": [container],
                "volumes": [{"name": "checkpoints", "hostPath": {"path": folder}}],
            },
        }
