"""The Pulumi components that install the readmission gate and wire queues with it.

    controller = AdmissionController("admission", ControllerArgs(image="registry/name@sha256:..."))
    rails = GuardRails("rails", GuardRailsArgs(level=Level.ADMISSIONS))
    GatedQueue("queue", QueueArgs(flavors=[Flavor(quotas={"cpu": "64"})]), controller=controller, guard_rails=rails)

`infra/` itself is a program made of them; its settings are documented in `infra/Pulumi.yaml`.
"""

from dispatch_gates.contract.guard_rails import Level
from dispatch_infra.admission_controller import AdmissionController
from dispatch_infra.arguments import (
    Chart,
    Check,
    ControllerArgs,
    Flavor,
    GuardRailsArgs,
    LocalQueue,
    ManagersArgs,
    PriorityClass,
    QueueArgs,
)
from dispatch_infra.gated_queue import GatedQueue
from dispatch_infra.guard_rails import GuardRails
from dispatch_infra.managers import Managers
from dispatch_infra.policies.accounts import Accounts

__all__ = [
    "Accounts",
    "AdmissionController",
    "Chart",
    "Check",
    "ControllerArgs",
    "Flavor",
    "GatedQueue",
    "GuardRails",
    "GuardRailsArgs",
    "Level",
    "LocalQueue",
    "Managers",
    "ManagersArgs",
    "PriorityClass",
    "QueueArgs",
]
