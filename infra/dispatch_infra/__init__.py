"""The Pulumi components that install the readmission gate and wire queues with it.

    controller = AdmissionController("admission", ControllerArgs(image="registry/name@sha256:..."))
    GatedQueue("queue", QueueArgs(flavors=[Flavor(quotas={"cpu": "64"})]), controller=controller)

`infra/` itself is a program made of them; its settings are documented in `infra/Pulumi.yaml`.
"""

from dispatch_infra.admission_controller import AdmissionController
from dispatch_infra.arguments import Check, ControllerArgs, Flavor, LocalQueue, PriorityClass, QueueArgs
from dispatch_infra.gated_queue import GatedQueue

__all__ = [
    "AdmissionController",
    "Check",
    "ControllerArgs",
    "Flavor",
    "GatedQueue",
    "LocalQueue",
    "PriorityClass",
    "QueueArgs",
]
