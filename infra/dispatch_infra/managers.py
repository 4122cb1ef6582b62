"""The component that installs Kueue and Trainer by their charts, for clusters that have neither."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pulumi
from pulumi_kubernetes.helm import v4

from dispatch_gates.contract import names
from dispatch_gates.contract.names import Resource
from dispatch_infra import charts
from dispatch_infra.arguments import Chart, ManagersArgs
from dispatch_infra.kubernetes_object import KubernetesObject, existing
from dispatch_infra.policies.accounts import Accounts

_AVAILABLE_WITHIN: Final = "10m"
"""Images are pulled meanwhile."""
_GONE_WITHIN: Final = "2m"


class Managers(pulumi.ComponentResource):
    """Kueue, and Trainer with JobSet, each in the namespace that the guard rails expect; what is None is not touched.

    Each is there once its Deployments are available. Trainer comes first: Kueue looks for the kind TrainJob at its
    start. Destroy removes the managers and their namespaces with all that is in them, but never a kind: with it every
    job of the cluster would go.
    """

    # Not helm.v3.Release, which is one opaque resource: a framework that somebody took out of Kueue's configuration
    # would be no drift, and destroy would take the kinds along, which these charts have among their templates. What
    # Chart leaves out is hooks: Trainer's chart has some for runtimes that are off by default, the others have none.

    def __init__(self, name: str, args: ManagersArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("dispatch:infra:Managers", name, {}, opts)
        self._charts: dict[str, pulumi.Resource] = {}
        accounts = Accounts()
        if args.trainer:
            chart = replace(args.trainer, values=charts.trainer_values(args.trainer.values))
            made = self._installed(f"{name}-trainer", chart, "kubeflow-trainer", accounts.trainer)
            self._charts[names.TRAINJOBS.group] = made
        if args.kueue:
            chart = replace(args.kueue, values=charts.kueue_values(args.kueue.values))
            made = self._installed(f"{name}-kueue", chart, "kueue", accounts.kueue)
            self._charts[names.ADMISSION_CHECKS.group] = made
        self.register_outputs({})

    def brings(self, kind: Resource) -> pulumi.Resource | None:
        """Return what has to be there before objects of a kind; None if it is not from here."""
        return self._charts.get(kind.group)

    def _installed(self, name: str, chart: Chart, release: str, account: str) -> pulumi.Resource:
        """Declare a chart, after the charts so far and in the namespace of its manager's account."""
        namespace = account.partition(":")[0]
        made = KubernetesObject(
            f"{name}-namespace",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
            pulumi.ResourceOptions(parent=self, custom_timeouts=pulumi.CustomTimeouts(delete=_GONE_WITHIN)),
        )
        return v4.Chart(
            name,
            chart=chart.chart if chart.version else str(chart.path),
            version=chart.version,
            name=release,
            namespace=namespace,
            values=chart.values,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[made, *self._charts.values()], transforms=[_adapted]),
        )


def bringing(kind: Resource, name: str, managers: Managers | None, parent: pulumi.Resource) -> pulumi.Resource:
    """Return what has to be there before objects of a kind: the chart that brings it, or else its definition, read."""
    brought = managers.brings(kind) if managers else None
    return brought or existing(kind, name, pulumi.ResourceOptions(parent=parent))


def _adapted(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult:
    """Adapt an object of a chart."""
    props, opts = dict(args.props), args.opts
    opts.custom_timeouts = pulumi.CustomTimeouts(
        create=_AVAILABLE_WITHIN, update=_AVAILABLE_WITHIN, delete=_GONE_WITHIN
    )
    if args.type_ == "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition":
        opts.retain_on_delete = True
    if args.type_ == "kubernetes:core/v1:Secret":
        # The managers make their certificates and keep them there; JobSet's chart would empty it again.
        props.pop("data", None)
    return pulumi.ResourceTransformResult(props, opts)
