"""Status: one value that says where a job stands, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dispatch_gates.contract import names
from dispatch_gates.contract.execution import Evidence
from dispatch_gates.contract.objects import listed
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_gates.contract.workload import State, Workload
from dispatch_gates.operations.evidence import read_evidence
from dispatch_gates.operations.jobs import read_job, read_workload
from dispatch_gates.requests import Operation


class JobState(StrEnum):
    """Where a job stands."""

    GATED = "Gated"
    HELD_BY_ADMINISTRATOR = "HeldByAdministrator"
    HELD = "Held"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    WAITING_AT_CHECK = "WaitingAtCheck"
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"
    DELETING = "Deleting"


@dataclass(frozen=True)
class Status:
    """Where a job stands, why, and with which A; `job` is what it was read from."""

    job: TrainJob
    state: JobState
    why: str

    @property
    def admission_count(self) -> int | None:
        """A, where it can be read."""
        return self.job.count if isinstance(self.job.count, int) else None


def status(
    namespace: str, name: str, uid: str | None = None, *, check: str = names.ADMISSION_CHECK
) -> Operation[Status | None]:
    """Read where the job stands; None where there is none (of this UID)."""
    job = yield from read_job(namespace, name, uid)
    if job is None:
        return None
    workload = (yield from read_workload(job)) if job.queue is not None else None
    evidence = yield from read_evidence(namespace, name)
    state, why = judge(job, workload, evidence, check)
    return Status(job, state, why)


def judge(job: TrainJob, workload: Workload | None, evidence: Evidence, check: str) -> tuple[JobState, str]:
    """Say where a job stands. Rules in order; the first that fits says it."""
    alive = sorted(pod.meta.name for pod in evidence.pods if pod.may_run)
    if job.meta.deleting:
        return JobState.DELETING, f"pods left: {listed(alive, len(alive))}" if alive else "being deleted"
    if job.ended:
        condition = job.conditions.get(job.ended)
        return JobState(job.ended), condition.message if condition else ""
    if job.gates.ours:
        return JobState.GATED, "not opened yet"
    if job.gates.closed:
        return (
            JobState.HELD_BY_ADMINISTRATOR,
            f"gates left: {', '.join(job.gates.others) or 'one without a name'}",
        )
    if job.held:
        return (
            JobState.HELD,
            f"hold mark set; pods left: {listed(alive, len(alive))}" if alive else "hold mark set",
        )
    if not job.suspended:
        if alive:
            return JobState.RUNNING, f"{len(alive)} pods with A={job.count}"
        return JobState.STARTING, "no pod yet"
    return _suspended(workload, alive, check)


def _suspended(workload: Workload | None, alive: list[str], check: str) -> tuple[JobState, str]:
    """Say why an opened job is suspended."""
    if workload is None:
        return JobState.SUSPENDED, "suspended, and Kueue has no Workload for it"
    if not workload.active:
        return JobState.SUSPENDED, "its Workload was deactivated (spec.active false), not by a hold of ours"
    if workload.conditions.true("Evicted") and alive:
        return JobState.STOPPING, f"evicted; pods left: {listed(alive, len(alive))}"
    if workload.reserved:
        entry = workload.entry({check})
        if entry is None:
            return JobState.WAITING_AT_CHECK, f"its queue does not name AdmissionCheck {check}"
        if entry.state == State.READY:
            return JobState.STARTING, "the check is Ready; Kueue or another check has the next step"
        return JobState.WAITING_AT_CHECK, entry.message or "the controller has not looked at it yet"
    reserved = workload.conditions.get("QuotaReserved")
    return JobState.WAITING_FOR_QUOTA, reserved.message if reserved else "Kueue has not looked at it yet"
