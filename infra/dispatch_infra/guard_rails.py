"""The component that has the API server itself keep the promises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pulumi

from dispatch_gates.contract import names
from dispatch_gates.contract.guard_rails import Level
from dispatch_infra import guard_rails_manifests as manifests
from dispatch_infra.arguments import GuardRailsArgs
from dispatch_infra.kubernetes_object import KubernetesObject
from dispatch_infra.managers import Managers, bringing
from dispatch_infra.policies import policies
from dispatch_infra.proofs import ProvenAccounts, ProvenGuardRails

_DONE_WITHIN: Final = "2m"


class GuardRails(pulumi.ComponentResource):
    """The policies of a level with their bindings, and the roles of the adapter. One to a cluster.

    They hold in namespaces labelled `dispatch.phpboyscout.uk/guarded: "true"`, which `GatedQueue` puts there, and,
    where they are about the controller's own account, everywhere. Each binding comes after its policy: one without
    the other refuses nothing, silently. All bindings come after the accounts of Kueue, Trainer and JobSet were seen to
    have the rights of those managers, since a wrong one would keep them from their work.
    """

    level: Level
    """What was asked for."""
    bindings: Sequence[pulumi.Resource]
    """What has to be there before a namespace can be proven."""

    def __init__(
        self,
        name: str,
        args: GuardRailsArgs,
        opts: pulumi.ResourceOptions | None = None,
        *,
        managers: Managers | None = None,
    ) -> None:
        """Declare them after Kueue and Trainer, which have to be there, unless `managers` brings them."""
        super().__init__("dispatch:infra:GuardRails", name, {}, opts)
        self.level = args.level
        self._args = args
        self._kinds = [
            bringing(kind, f"{name}-{kind.plural}", managers, self)
            for kind in (names.ADMISSION_CHECKS, names.TRAINJOBS)
        ]
        for role in manifests.adapter_roles():
            KubernetesObject(f"{name}-{role['metadata']['name']}", role, self._after([]))
        self.bindings = [] if args.level is Level.NO else self._policies(name)
        self.register_outputs({"level": str(args.level)})

    def _policies(self, name: str) -> list[pulumi.Resource]:
        args = self._args
        actions = manifests.AUDIT if args.level is Level.AUDIT else manifests.DENY
        # Whoever only tries them wants to see what both levels would refuse.
        level = Level.EXECUTIONS if args.level is Level.AUDIT else args.level
        found = policies(args.accounts, args.admission_check, level)
        self._digest = manifests.digest([*map(manifests.policy, found), {"actions": list(actions)}])
        accounts = ProvenAccounts(f"{name}-accounts", args, opts=self._after([]))
        installed = [
            KubernetesObject(f"{name}-{policy.name}", manifests.policy(policy), self._after([])) for policy in found
        ]
        return [
            KubernetesObject(
                f"{name}-{policy.name}-binding", manifests.binding(policy, actions), self._after([accounts, each])
            )
            for policy, each in zip(found, installed, strict=True)
        ]

    def proven(
        self, name: str, namespace: str, after: Sequence[pulumi.Resource], parent: pulumi.Resource
    ) -> list[pulumi.Resource]:
        """Declare that the level holds in a namespace, proven by a request that must be refused.

        Returns what has to wait for that; nothing where no guard rails were asked for.
        """
        if self.level is Level.NO:
            return []
        opts = pulumi.ResourceOptions(parent=parent, depends_on=[*self.bindings, *after])
        return [ProvenGuardRails(name, self._args, namespace=namespace, digest=self._digest, opts=opts)]

    def _after(self, resources: Sequence[pulumi.Resource]) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(
            parent=self,
            depends_on=[*self._kinds, *resources],
            custom_timeouts=pulumi.CustomTimeouts(create=_DONE_WITHIN, update=_DONE_WITHIN, delete=_DONE_WITHIN),
        )
