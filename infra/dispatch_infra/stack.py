"""All of `infra/` as one function of its settings."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from dispatch_gates.contract import names
from dispatch_infra.admission_controller import AdmissionController
from dispatch_infra.arguments import ManagersArgs
from dispatch_infra.gated_queue import GatedQueue
from dispatch_infra.guard_rails import GuardRails
from dispatch_infra.managers import Managers
from dispatch_infra.settings import Settings


def install(settings: Settings) -> dict[str, Any]:
    """Declare managers if asked for, controller, guard rails, queue; return what programs need to know as outputs."""
    # A provider of its own: the stack says which cluster it means, whatever the shell points at.
    provider = k8s.Provider("cluster", kubeconfig=settings.kubeconfig, context=settings.context)
    in_cluster = pulumi.ResourceOptions(provider=provider)
    managers = Managers("managers", settings.managers, in_cluster) if settings.managers != ManagersArgs() else None
    controller = AdmissionController("admission", settings.controller, in_cluster, managers=managers)
    rails = GuardRails("guard-rails", settings.guard_rails, in_cluster, managers=managers)
    queue = GatedQueue(
        "queue", settings.queue, controller=controller, guard_rails=rails, managers=managers, opts=in_cluster
    )
    return {
        "controllerNamespace": controller.namespace,
        "lease": names.CONTROLLER,
        "serviceAccount": names.CONTROLLER,
        "admissionCheck": controller.check_name,
        "clusterQueue": settings.queue.cluster_queue,
        "localQueues": [{"name": local.name, "namespace": local.namespace} for local in settings.queue.local_queues],
        "priorityClasses": [priority.name for priority in settings.queue.priority_classes],
        # Known once every queue is wired: whoever waits for this output starts no job too early.
        "guardRails": str(rails.level),
        "ready": pulumi.Output.all(*[local.id for local in queue.local_queues]).apply(lambda _: True),
    }
