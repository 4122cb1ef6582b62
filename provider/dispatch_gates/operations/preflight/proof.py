"""What was seen of the probe, and the rules by which it proves the start gate, or does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dispatch_gates.contract import names
from dispatch_gates.contract.capability import Answer, Capability, Name
from dispatch_gates.contract.readback import Difference
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_gates.contract.workload import Workload
from dispatch_gates.operations.preflight.values import Asked

_WEBHOOK: Final = (
    "kubectl get mutatingwebhookconfigurations shows who may change TrainJobs; exclude this namespace there"
)
_FEATURE: Final = "turn Kueue's feature gate AdmissionGatedBy on (off in 0.17 and 0.18, on in 0.19; older ones lack it)"
_INTEGRATION: Final = "install Kueue 0.19, and name trainer.kubeflow.org/trainjob in its `integrations.frameworks`"


@dataclass(frozen=True)
class Seen:
    """All that was seen of the probe. `gaps` say what was not seen; with any, no "nothing" is believed."""

    job: TrainJob
    changed: tuple[Difference, ...]
    pods: tuple[str, ...] = ()
    workloads: tuple[Workload, ...] = ()
    last: TrainJob | None = None
    gaps: tuple[str, ...] = ()

    @property
    def leaks(self) -> bool:
        """Whether what was seen so far settles it: there is no use in watching on."""
        return bool(self.pods) or any(_held_quota(workload) for workload in self.workloads)


def _held_quota(workload: Workload) -> bool:
    return workload.admission or any(workload.conditions.true(kind) for kind in ("QuotaReserved", "Admitted"))


def is_gated(workload: Workload) -> bool:
    """Whether Kueue itself says that the gate is what keeps the Workload from quota: no other reason proves it."""
    reserved = workload.conditions.get("QuotaReserved")
    return (
        not _held_quota(workload)
        and workload.conditions.clear("QuotaReserved")
        and reserved is not None
        and reserved.reason == names.ADMISSION_GATED
    )


def judge(asked: Asked, seen: Seen) -> Capability:
    """Say whether the start gate is proven. Rules in order; the first that fits says it."""
    name, seconds = seen.job.meta.name, f"{asked.watch_seconds:g} s"
    if seen.pods:
        return _no(f"leaks: a pod of the closed probe appeared: {seen.pods[0]}", _WEBHOOK)
    if held := next((workload for workload in seen.workloads if _held_quota(workload)), None):
        return _no(f"leaks: Kueue reserved quota for the closed probe (Workload {held.meta.name})", _FEATURE)
    if seen.changed:
        what = "; ".join(map(str, seen.changed))
        return _no(f"somebody changed the probe on its way in: {what}", _WEBHOOK)
    if seen.last is None or not seen.last.suspended or not seen.last.gates.ours:
        return _no(f"the closed probe {name} did not stay closed: somebody resumed, opened or deleted it", _WEBHOOK)
    if seen.gaps:
        return Capability(Name.START_GATE, Answer.UNKNOWN, f"not proven: {seen.gaps[0]}", "run preflight again")
    return _judge_plain(seen, seconds) if asked.queue is None else _judge_kueue(asked, seen, seconds)


def _judge_kueue(asked: Asked, seen: Seen, seconds: str) -> Capability:
    if not seen.workloads:
        return _no(f"not proven: no Workload seen in {seconds}: Kueue does not manage TrainJobs here", _INTEGRATION)
    last = seen.workloads[-1]
    if not last.gates.ours:
        return _no(f"Workload {last.meta.name} of the probe does not carry the gate", _FEATURE)
    if last.entry({asked.check}) is None:
        return _no(f"Workload {last.meta.name} of the probe does not list AdmissionCheck {asked.check}", "see Queue")
    if not is_gated(last):
        reserved = last.conditions.get("QuotaReserved")
        said = f"{reserved.reason}: {reserved.message}" if reserved else "nothing yet"
        return _no(
            f"not proven: Kueue gives another reason than the gate for keeping the probe back ({said})",
            f"see Queue; else: {_FEATURE}",
        )
    return Capability(Name.START_GATE, Answer.YES, f"the probe stayed closed for {seconds}: no pod, no quota, gated")


def _judge_plain(seen: Seen, seconds: str) -> Capability:
    if seen.workloads:
        return _no(
            f"Kueue manages jobs without a queue here (Workload {seen.workloads[-1].meta.name})",
            "use the queue (-q), or take `manageJobsWithoutQueueName` or the LocalQueue `default` away",
        )
    assert seen.last is not None
    if not seen.last.conditions.true("Suspended"):
        # A Trainer that is down keeps every job from running: that proves nothing.
        return _no(
            f"not proven: Trainer has not looked at the probe in {seconds}",
            "kubectl get pods -A | grep trainer-controller-manager; its log says what keeps it",
        )
    return Capability(Name.START_GATE, Answer.YES, f"the probe stayed closed for {seconds}: suspended, no pod")


def _no(reason: str, remedy: str) -> Capability:
    return Capability(Name.START_GATE, Answer.NO, reason, remedy)
