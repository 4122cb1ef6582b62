"""The component that wires a ClusterQueue with the readmission gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pulumi

from dispatch_gates.contract import names
from dispatch_infra import queue_manifests as manifests
from dispatch_infra.admission_controller import AdmissionController
from dispatch_infra.arguments import QueueArgs
from dispatch_infra.guard_rails import GuardRails
from dispatch_infra.kubernetes_object import KubernetesObject, KubernetesPatch
from dispatch_infra.managers import Managers, bringing
from dispatch_infra.proofs import ProvenClusterQueue, WiredClusterQueue

ACTIVE_WITHIN: Final = "2m"
GONE_WITHIN: Final = "2m"


class GatedQueue(pulumi.ComponentResource):
    """A ClusterQueue that never exists without our check, its flavors, its LocalQueues and priority classes.

    The ClusterQueue is created with the check in it and awaited until Active; only then can a job name one of its
    LocalQueues, and only where the guard rails were proven to hold in its namespace. Destroy takes the LocalQueues
    first: jobs that wait at the check lose their reservation. The ClusterQueue then goes once nothing runs in it.
    While a job of it still runs, Kueue keeps it, and destroy fails after two minutes and can be repeated;
    `stop_policy="HoldAndDrain"` beforehand evicts what runs.

    With `existing` the ClusterQueue is somebody else's: our check is added to it, none of its other fields is
    taken over, and it is seen to stand before every flavor, with `pods` covered. Should its owner take the check out
    again, refreshing warns of it and the next update puts it back, or says what hinders it. Destroy takes the check
    out of a queue that goes on, but not while a job of dispatch's could start for want of it: it fails then.
    """

    cluster_queue: pulumi.Resource
    """What holds every job for our check: the proof of the ClusterQueue, or our check in somebody else's."""
    local_queues: Sequence[KubernetesObject]

    def __init__(
        self,
        name: str,
        args: QueueArgs,
        *,
        controller: AdmissionController | None = None,
        guard_rails: GuardRails | None = None,
        managers: Managers | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare the queue behind the check of `controller`, or behind `args.admission_check` as it is.

        Without `controller` the check belongs to another program; the ClusterQueue does not become Active, and the
        update fails, unless that check is. The namespaces of the LocalQueues get the label of the guard rails;
        without `guard_rails` nothing is proven about them. Kueue has to be there, unless `managers` brings it.
        """
        super().__init__("dispatch:infra:GatedQueue", name, {}, opts)
        if controller:
            args = replace(args, admission_check=controller.check_name)
        self._kueue = bringing(names.ADMISSION_CHECKS, f"{name}-kueue", managers, self)
        check = [controller.admission_check] if controller else []
        self.cluster_queue = self._wired(name, args, check) if args.existing else self._created(name, args, check)
        for priority in args.priority_classes:
            KubernetesObject(f"{name}-priority-{priority.name}", manifests.priority_class(priority), self._after([]))
        self.local_queues = self._local_queues(name, args, guard_rails)
        self.register_outputs(
            {
                "clusterQueue": args.cluster_queue,
                "localQueues": [f"{queue.namespace}/{queue.name}" for queue in args.local_queues],
                "priorityClasses": [priority.name for priority in args.priority_classes],
            }
        )

    def _created(self, name: str, args: QueueArgs, check: Sequence[pulumi.Resource]) -> pulumi.Resource:
        flavors = [
            KubernetesObject(f"{name}-flavor-{flavor.name}", manifests.flavor(flavor), self._after([]))
            for flavor in args.flavors
        ]
        manifest = manifests.cluster_queue(args)
        queue = KubernetesObject(f"{name}-cluster-queue", manifest, self._after([*flavors, *check]))
        return ProvenClusterQueue(f"{name}-gated", args, opts=pulumi.ResourceOptions(parent=self, depends_on=[queue]))

    def _wired(self, name: str, args: QueueArgs, check: Sequence[pulumi.Resource]) -> pulumi.Resource:
        """Add our check to somebody else's ClusterQueue, and see that it stands before every job of it."""
        after = pulumi.ResourceOptions(parent=self, depends_on=[self._kueue, *check])
        return WiredClusterQueue(f"{name}-gated", args, opts=after)

    def _local_queues(self, name: str, args: QueueArgs, rails: GuardRails | None) -> list[KubernetesObject]:
        guarded: dict[str, list[pulumi.Resource]] = {}
        for namespace in args.namespaces():
            label = self._guarded(name, namespace, created=namespace in args.created_namespaces())
            proof = rails.proven(f"{name}-guarded-{namespace}", namespace, [label], self) if rails else []
            guarded[namespace] = [label, *proof]
        # Kueue lets no LocalQueue lead to another ClusterQueue: it is made anew.
        anew = pulumi.ResourceOptions(replace_on_changes=["spec.clusterQueue"], delete_before_replace=True)
        return [
            KubernetesObject(
                f"{name}-local-queue-{queue.namespace}-{queue.name}",
                manifests.local_queue(args, queue),
                pulumi.ResourceOptions.merge(self._after([self.cluster_queue, *guarded[queue.namespace]]), anew),
            )
            for queue in args.local_queues
        ]

    def _guarded(self, name: str, namespace: str, *, created: bool) -> pulumi.Resource:
        """Return the namespace, or our label on somebody else's."""
        if created:
            return KubernetesObject(f"{name}-namespace-{namespace}", manifests.namespace(namespace), self._after([]))
        return KubernetesPatch(f"{name}-label-{namespace}", manifests.guarded(namespace), self._after([]))

    def _after(self, resources: Sequence[pulumi.Resource]) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(
            parent=self,
            depends_on=[self._kueue, *resources],
            custom_timeouts=pulumi.CustomTimeouts(create=ACTIVE_WITHIN, update=ACTIVE_WITHIN, delete=GONE_WITHIN),
        )
