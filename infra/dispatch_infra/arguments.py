"""What the components are told: frozen values that are checked when they are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pulumi

from dispatch_gates.contract import names
from dispatch_gates.contract.guard_rails import Level
from dispatch_infra import charts, checks
from dispatch_infra.policies.accounts import Accounts

PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
STOP_POLICIES: Final = ("None", "Hold", "HoldAndDrain")
WITHIN_CLUSTER_QUEUE: Final = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")

PODS: Final = "pods"
UNLIMITED_PODS: Final = "1M"
"""The quota of pods where none is given: no limit in practice, but covered."""
MAX_CHECKS: Final = 8
"""Kueue's limit on the checks of one Workload."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A Helm chart and its values; raises `ValueError` where it cannot be one."""

    chart: str
    """An address, such as `oci://…`, or the path of a folder or of a packed chart."""
    version: str | None = None
    """Needed beside an address; a chart at a path has its own."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """In the chart's own words."""

    def __post_init__(self) -> None:
        if "://" in self.chart:
            if not self.version:
                raise ValueError(f"chart {self.chart} has no version: the one to install was expected.")
        elif not self.path.exists():
            raise ValueError(f"chart {self.chart!r} is not there: an address such as oci://… or a path was expected.")
        elif self.version:
            raise ValueError(f"chart {self.chart} is a path and has a version of its own: leave version out.")

    @property
    def path(self) -> Path:
        """Where it is, if it is no address."""
        return Path(self.chart).expanduser()


@dataclass(frozen=True, kw_only=True)
class ManagersArgs:
    """The settings of `Managers`; raises `ValueError` where one is not valid, or keeps Kueue from what the gates need.

    What is None is not installed.
    """

    kueue: Chart | None = None
    trainer: Chart | None = None
    """It brings JobSet along, unless its value `jobset.install` is false."""

    def __post_init__(self) -> None:
        if self.kueue:
            charts.kueue_values(self.kueue.values)
        if self.trainer:
            charts.trainer_values(self.trainer.values)


@dataclass(frozen=True, kw_only=True)
class ControllerArgs:
    """The settings of `AdmissionController`; raises `ValueError` where one is not valid."""

    image: str | pulumi.Output[str]
    """The controller's image, by digest: `NAME@sha256:DIGEST`."""
    allow_image_tag: bool = False
    image_pull_policy: str = "IfNotPresent"
    namespace: str = names.CONTROLLER_NAMESPACE
    """Created by the component, for the controller alone."""
    admission_check: str = names.ADMISSION_CHECK
    replicas: int = 2
    """One leads, the others wait for its Lease."""
    lease_seconds: int = 15
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    """Kubernetes tolerations, in the API's spelling."""
    network_policy: bool = False
    """The controller's one open port is that of health and metrics, and it reaches `api_server_ports` and DNS's port.

    Ports only: it says nothing about who is at the other end.
    """
    api_server_ports: Sequence[int] = (443, 6443)
    """Where the API server listens, behind its Service: network policies see that port."""
    service_monitor: bool = False
    """Have the Prometheus operator scrape the metrics. Its kinds have to be there."""
    prometheus_rule: bool = False
    """Give the Prometheus operator the alerts of `dispatch_infra.alerts`. Its kinds have to be there."""

    def __post_init__(self) -> None:
        for port in self.api_server_ports:
            checks.between(port, 1, 65535, "apiServerPorts")
        checks.one_of(self.image_pull_policy, PULL_POLICIES, "imagePullPolicy")
        checks.label(self.namespace, "namespace")
        checks.name(self.admission_check, "admissionCheck")
        checks.between(self.replicas, 1, 10, "replicas")
        checks.between(self.lease_seconds, 1, 300, "leaseSeconds")
        if isinstance(self.image, str):
            checks.image(self.image, allow_tag=self.allow_image_tag)

    def checked_image(self) -> str | pulumi.Output[str]:
        """Return the image; one that is known only during the update is checked then."""
        if isinstance(self.image, str):
            return self.image
        allow_tag = self.allow_image_tag
        return self.image.apply(lambda known: checks.image(known, allow_tag=allow_tag))


@dataclass(frozen=True, kw_only=True)
class GuardRailsArgs:
    """The settings of `GuardRails`; raises `ValueError` where one is not valid."""

    level: Level = Level.ADMISSIONS
    """`no` installs none, `audit` has them report and refuse nothing."""
    accounts: Accounts = field(default_factory=Accounts)
    admission_check: str = names.ADMISSION_CHECK
    kubeconfig: str | None = None
    """Path of the kubeconfig that proofs are asked with: of the cluster that the objects go to."""
    context: str | None = None

    def __post_init__(self) -> None:
        checks.name(self.admission_check, "admissionCheck")


@dataclass(frozen=True, kw_only=True)
class Flavor:
    """A ResourceFlavor and its quotas in the ClusterQueue."""

    name: str = "dispatch"
    node_labels: Mapping[str, str] = field(default_factory=dict)
    """Jobs of this flavor run on nodes with these labels; empty means any node."""
    tolerations: Sequence[Mapping[str, Any]] = ()
    """Kueue adds these to the pods of this flavor."""
    quotas: Mapping[str, str] = field(default_factory=lambda: {"cpu": "8", "memory": "32Gi"})
    """Nominal quota by resource name. `pods` is covered even where it is not named here."""

    def __post_init__(self) -> None:
        checks.name(self.name, "flavor")
        if not self.quotas:
            raise ValueError(f"flavor {self.name} has no quotas: at least one resource, such as cpu, was expected.")

    def covered(self) -> dict[str, str]:
        """Return the quotas, `pods` among them.

        Kueue drops the checks of a Workload that requests nothing which the ClusterQueue covers, and admits it.
        Every Workload has pods, so with `pods` covered none slips past the check.
        """
        return {PODS: UNLIMITED_PODS} | dict(self.quotas)


@dataclass(frozen=True, kw_only=True)
class LocalQueue:
    """A LocalQueue, which jobs of its namespace name."""

    name: str = "dispatch"
    namespace: str = "default"
    create_namespace: bool = False
    """Create the namespace, and delete it with everything in it on destroy."""

    def __post_init__(self) -> None:
        checks.name(self.name, "LocalQueue")
        checks.label(self.namespace, f"namespace of LocalQueue {self.name}")


@dataclass(frozen=True, kw_only=True)
class PriorityClass:
    """A WorkloadPriorityClass; Kueue prefers higher values."""

    name: str
    value: int
    description: str = ""

    def __post_init__(self) -> None:
        checks.name(self.name, "priority class")
        checks.between(self.value, -(2**31), 2**31 - 1, f"value of priority class {self.name}")


@dataclass(frozen=True, kw_only=True)
class Check:
    """An AdmissionCheck of somebody else, to stand in the ClusterQueue beside ours."""

    name: str
    on_flavors: Sequence[str] = ()

    def __post_init__(self) -> None:
        checks.name(self.name, "AdmissionCheck")


@dataclass(frozen=True, kw_only=True)
class QueueArgs:
    """The settings of `GatedQueue`; raises `ValueError` where one is not valid, or would narrow our check."""

    cluster_queue: str = "dispatch"
    local_queues: Sequence[LocalQueue] = (LocalQueue(),)
    flavors: Sequence[Flavor] = (Flavor(),)
    """In the order in which Kueue tries them."""
    within_cluster_queue: str = "LowerPriority"
    """Whom a waiting Workload may preempt in this ClusterQueue."""
    priority_classes: Sequence[PriorityClass] = ()
    admission_check: str = names.ADMISSION_CHECK
    other_checks: Sequence[Check] = ()
    existing: bool = False
    """The ClusterQueue is somebody else's: our check is added to it, and nothing else of it is touched."""
    kubeconfig: str | None = None
    """Path of the kubeconfig that proofs are asked with: of the cluster that the objects go to."""
    context: str | None = None
    stop_policy: str = "None"
    """`Hold` admits nothing more, `HoldAndDrain` also evicts what runs: the way to empty a queue before destroy."""

    def __post_init__(self) -> None:
        checks.name(self.cluster_queue, "clusterQueue")
        checks.name(self.admission_check, "admissionCheck")
        checks.one_of(self.within_cluster_queue, WITHIN_CLUSTER_QUEUE, "preemption")
        checks.one_of(self.stop_policy, STOP_POLICIES, "stopPolicy")
        checks.unique([f"{queue.namespace}/{queue.name}" for queue in self.local_queues], "LocalQueue")
        checks.unique([priority.name for priority in self.priority_classes], "priority class")
        self._check_flavors()
        self._check_existing()
        self._check_checks()
        self._check_namespaces()

    def _check_flavors(self) -> None:
        if not self.flavors:
            raise ValueError("flavors is empty: at least one was expected.")
        checks.unique([flavor.name for flavor in self.flavors], "flavor")
        first = self.flavors[0]
        for flavor in self.flavors[1:]:
            if flavor.covered().keys() != first.covered().keys():
                raise ValueError(
                    f"flavor {flavor.name} has quotas for {', '.join(sorted(flavor.quotas))}, flavor {first.name} for "
                    f"{', '.join(sorted(first.quotas))}: every flavor of the queue needs the same resources."
                )

    def _check_existing(self) -> None:
        theirs = QueueArgs.__dataclass_fields__
        for name in ("flavors", "within_cluster_queue", "other_checks", "stop_policy"):
            if self.existing and getattr(self, name) != theirs[name].default:
                raise ValueError(
                    f"ClusterQueue {self.cluster_queue} is somebody else's (existing), and so are its flavors, "
                    f"preemption, other checks and stop policy: leave them out ({name} is set)."
                )

    def _check_checks(self) -> None:
        for check in self.other_checks:
            if check.name != self.admission_check:
                continue
            if check.on_flavors:
                raise ValueError(
                    f"AdmissionCheck {check.name} would stand before flavor {', '.join(check.on_flavors)} only: a job "
                    "that moves to another flavor would start with an admission count it has had before. It has to "
                    "stand before every flavor; leave onFlavors out."
                )
        checks.unique([check.name for check in self.other_checks], "AdmissionCheck")
        checks.between(len(self.all_checks()), 1, MAX_CHECKS, "number of admission checks")
        known = {flavor.name for flavor in self.flavors}
        for check in self.other_checks:
            if not known.issuperset(check.on_flavors):
                raise ValueError(
                    f"AdmissionCheck {check.name} names flavor {', '.join(sorted(set(check.on_flavors) - known))}: "
                    f"one of {', '.join(sorted(known))} was expected."
                )

    def _check_namespaces(self) -> None:
        wanted: dict[str, bool] = {}
        for queue in self.local_queues:
            if wanted.setdefault(queue.namespace, queue.create_namespace) != queue.create_namespace:
                raise ValueError(
                    f"createNamespace is true and false for namespace {queue.namespace}: it has to be the same for all "
                    "LocalQueues of a namespace."
                )

    def all_checks(self) -> list[Check]:
        """Return the checks of the ClusterQueue: ours first, before every flavor, then the others."""
        others = [check for check in self.other_checks if check.name != self.admission_check]
        return [Check(name=self.admission_check), *others]

    def namespaces(self) -> list[str]:
        """Return the namespaces of the LocalQueues, each once, sorted."""
        return sorted({queue.namespace for queue in self.local_queues})

    def created_namespaces(self) -> list[str]:
        """Return those of them that the component creates."""
        return sorted({queue.namespace for queue in self.local_queues if queue.create_namespace})
