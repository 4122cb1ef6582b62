"""The component that wires a ClusterQueue with the readmission gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import pulumi

from dispatch_gates.contract import names
from dispatch_infra import queue_manifests as manifests
from dispatch_infra.admission_controller import AdmissionController
from dispatch_infra.arguments import QueueArgs
from dispatch_infra.kubernetes_object import KubernetesObject, existing

ACTIVE_WITHIN: Final = "2m"
GONE_WITHIN: Final = "2m"


class GatedQueue(pulumi.ComponentResource):
    """A ClusterQueue that never exists without our check, its flavors, its LocalQueues and priority classes.

    The ClusterQueue is created with the check in it and awaited until Active; only then can a job name one of its
    LocalQueues. Destroy takes the LocalQueues first: jobs that wait at the check lose their reservation. The
    ClusterQueue then goes once nothing runs in it. While a job of it still runs, Kueue keeps it, and destroy fails
    after two minutes and can be repeated; `stop_policy="HoldAndDrain"` beforehand evicts what runs.
    """

    cluster_queue: KubernetesObject
    local_queues: Sequence[KubernetesObject]

    def __init__(
        self,
        name: str,
        args: QueueArgs,
        *,
        controller: AdmissionController | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare the queue behind the check of `controller`, or behind `args.admission_check` as it is.

        Without `controller` the check belongs to another program; the ClusterQueue does not become Active, and the
        update fails, unless that check is.
        """
        super().__init__("dispatch:infra:GatedQueue", name, {}, opts)
        if controller:
            args = replace(args, admission_check=controller.check_name)
        self._kueue = existing(names.ADMISSION_CHECKS, f"{name}-kueue", pulumi.ResourceOptions(parent=self))
        flavors = [
            KubernetesObject(f"{name}-flavor-{flavor.name}", manifests.flavor(flavor), self._after([]))
            for flavor in args.flavors
        ]
        self.cluster_queue = KubernetesObject(
            f"{name}-cluster-queue",
            manifests.cluster_queue(args),
            self._after([*flavors, *([controller.admission_check] if controller else [])]),
        )
        for priority in args.priority_classes:
            KubernetesObject(f"{name}-priority-{priority.name}", manifests.priority_class(priority), self._after([]))
        self.local_queues = self._local_queues(name, args)
        self.register_outputs(
            {
                "clusterQueue": args.cluster_queue,
                "localQueues": [f"{queue.namespace}/{queue.name}" for queue in args.local_queues],
                "priorityClasses": [priority.name for priority in args.priority_classes],
            }
        )

    def _local_queues(self, name: str, args: QueueArgs) -> list[KubernetesObject]:
        namespaces: Mapping[str, KubernetesObject] = {
            namespace: KubernetesObject(
                f"{name}-namespace-{namespace}", manifests.namespace(namespace), self._after([])
            )
            for namespace in args.created_namespaces()
        }
        return [
            KubernetesObject(
                f"{name}-local-queue-{queue.namespace}-{queue.name}",
                manifests.local_queue(args, queue),
                self._after([self.cluster_queue, *filter(None, [namespaces.get(queue.namespace)])]),
            )
            for queue in args.local_queues
        ]

    def _after(self, resources: Sequence[pulumi.Resource]) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(
            parent=self,
            depends_on=[self._kueue, *resources],
            custom_timeouts=pulumi.CustomTimeouts(create=ACTIVE_WITHIN, update=ACTIVE_WITHIN, delete=GONE_WITHIN),
        )
