"""The component that installs the readmission gate's controller and its AdmissionCheck."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pulumi

from dispatch_gates.contract import names
from dispatch_infra import controller_manifests as manifests
from dispatch_infra.arguments import ControllerArgs
from dispatch_infra.kubernetes_object import KubernetesObject, existing
from dispatch_infra.managers import Managers, bringing

AVAILABLE_WITHIN: Final = "5m"
ACTIVE_WITHIN: Final = "2m"
GONE_WITHIN: Final = "2m"


class AdmissionController(pulumi.ComponentResource):
    """The controller with its rights, and the AdmissionCheck that it serves.

    Without Kueue nothing is created, and a preview says so. Each step waits for the one before: rights, then the
    Deployment until its replicas are available, then the AdmissionCheck until the controller has set it Active.
    Destroy goes the other way, so that the check is served as long as it exists.
    """

    namespace: str
    """The namespace of the Deployment and the Lease."""
    check_name: str
    """The name of the AdmissionCheck."""
    admission_check: KubernetesObject
    """The AdmissionCheck. What depends on it is created once it is Active."""

    def __init__(
        self,
        name: str,
        args: ControllerArgs,
        opts: pulumi.ResourceOptions | None = None,
        *,
        managers: Managers | None = None,
    ) -> None:
        """Declare it after Kueue, which has to be there, unless `managers` brings it."""
        super().__init__("dispatch:infra:AdmissionController", name, {}, opts)
        self._managers = managers
        rights = self._rights(name, args)
        deployment = KubernetesObject(
            f"{name}-deployment",
            manifests.deployment(args),
            self._after(rights, create=AVAILABLE_WITHIN),
        )
        KubernetesObject(f"{name}-service", manifests.service(args), self._after([deployment]))
        KubernetesObject(f"{name}-disruption-budget", manifests.disruption_budget(args), self._after([deployment]))
        if args.network_policy:
            KubernetesObject(f"{name}-network-policy", manifests.network_policy(args), self._after(rights))
        if args.service_monitor:
            kind = existing(manifests.SERVICE_MONITORS, f"{name}-prometheus", pulumi.ResourceOptions(parent=self))
            monitor = manifests.service_monitor(args)
            KubernetesObject(f"{name}-service-monitor", monitor, self._after([kind, deployment]))
        if args.prometheus_rule:
            kind = existing(manifests.PROMETHEUS_RULES, f"{name}-prometheus-rules", pulumi.ResourceOptions(parent=self))
            alerts = manifests.prometheus_rule(args)
            KubernetesObject(f"{name}-prometheus-rule", alerts, self._after([kind, deployment]))
        self.admission_check = KubernetesObject(
            f"{name}-check",
            manifests.admission_check(args),
            # Without its rights the controller could not let go of the check: they go after it.
            self._after([*rights, deployment], create=ACTIVE_WITHIN),
        )
        self.check_name = args.admission_check
        self.namespace = args.namespace
        self.register_outputs(
            {
                "namespace": args.namespace,
                "serviceAccount": names.CONTROLLER,
                "lease": names.CONTROLLER,
                "admissionCheck": args.admission_check,
            }
        )

    def _rights(self, name: str, args: ControllerArgs) -> list[pulumi.Resource]:
        """Create namespace, account and rights; return all that the Deployment needs before it starts."""
        kueue = bringing(names.ADMISSION_CHECKS, f"{name}-kueue", self._managers, self)
        namespace = KubernetesObject(f"{name}-namespace", manifests.namespace(args), self._after([kueue]))
        account = KubernetesObject(f"{name}-account", manifests.service_account(args), self._after([namespace]))
        cluster_role = KubernetesObject(f"{name}-cluster-role", manifests.cluster_role(args), self._after([kueue]))
        role = KubernetesObject(f"{name}-role", manifests.role(args), self._after([namespace]))
        return [
            namespace,
            account,
            KubernetesObject(
                f"{name}-cluster-role-binding",
                manifests.cluster_role_binding(args),
                self._after([account, cluster_role]),
            ),
            KubernetesObject(f"{name}-role-binding", manifests.role_binding(args), self._after([account, role])),
        ]

    def _after(self, resources: Sequence[pulumi.Resource], create: str | None = None) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(
            parent=self,
            depends_on=list(resources),
            custom_timeouts=pulumi.CustomTimeouts(create=create, update=create, delete=GONE_WITHIN),
        )
