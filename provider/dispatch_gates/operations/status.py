"""Status: one value that says where a job stands, since when, and why."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dispatch_gates.contract import names
from dispatch_gates.contract.execution import Evidence, alive
from dispatch_gates.contract.objects import listed, text
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_gates.contract.workload import State, Workload
from dispatch_gates.operations.evidence import read_evidence
from dispatch_gates.operations.jobs import read_job, read_workload
from dispatch_gates.requests import NotServedError, Operation


class JobState(StrEnum):
    """Where a job stands. What each means, and what to do: provider/README.md."""

    GATED = "Gated"
    HELD_BY_ADMINISTRATOR = "HeldByAdministrator"
    HELD = "Held"
    UNMANAGED = "Unmanaged"
    DEACTIVATED = "Deactivated"
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
class Verdict:
    """A state, why, and since when (RFC 3339, empty where nothing tells)."""

    state: JobState
    why: str
    since: str = ""


@dataclass(frozen=True)
class Status:
    """Where a job stands, and what that was read from."""

    job: TrainJob
    workload: Workload | None
    evidence: Evidence
    verdict: Verdict

    @property
    def state(self) -> JobState:
        """Where it stands."""
        return self.verdict.state

    @property
    def why(self) -> str:
        """Why it stands there."""
        return self.verdict.why

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
    workload = None
    if job.kueue_mode:
        with suppress(NotServedError):  # no such kind: Kueue is not installed, or no more
            workload = yield from read_workload(job)
    evidence = yield from read_evidence(namespace, name)
    return Status(job, workload, evidence, judge(job, workload, evidence, check))


def left_behind(namespace: str, name: str) -> Operation[str]:
    """Say what is left of a job whose TrainJob is gone; empty where nothing is, or the name is another job's by now."""
    if (yield from read_job(namespace, name)) is not None:
        return ""
    evidence = yield from read_evidence(namespace, name)
    jobset = [f"JobSet {evidence.jobset.meta.name}"] if evidence.jobset is not None else []
    jobs = [f"Job {job.meta.name}" for job in evidence.jobs]
    left = [*evidence.unreadable, *jobset, *sorted(jobs), *alive(evidence.pods)]
    return listed(left, len(left))


def judge(job: TrainJob, workload: Workload | None, evidence: Evidence, check: str) -> Verdict:
    """Say where a job stands. Rules in order; the first that fits says it."""
    pods = alive(evidence.pods)
    left = f"; left: {listed(pods, len(pods))}" if pods else ""
    if job.meta.deleting:
        return Verdict(JobState.DELETING, f"being deleted{left}", text(job.raw, "metadata", "deletionTimestamp") or "")
    if job.ended:
        ended = job.conditions.get(job.ended)
        assert ended is not None, "an ended job has the condition that says so"
        return Verdict(JobState(job.ended), f"{ended.message or ended.reason}{left}", ended.time)
    created = text(job.raw, "metadata", "creationTimestamp") or ""
    if not job.past_gate:
        return Verdict(JobState.GATED, "not opened yet; held too" if job.held else "not opened yet", created)
    if job.kueue_mode and job.gates.closed:
        who = ", ".join(job.gates.names) or "an entry without a name"
        return Verdict(JobState.HELD_BY_ADMINISTRATOR, f"gates left: {who}")
    if job.held:
        half = workload is not None and workload.active
        why = "; its Workload is active: a Hold or Release was cut off half-way, repeat it" if half else ""
        return Verdict(JobState.HELD, f"hold mark set{why}{left}")
    if not job.suspended:
        return _unsuspended(job, evidence, pods)
    if not job.kueue_mode:
        return Verdict(JobState.SUSPENDED, f"suspended by somebody else, without the hold mark{left}", _since(job))
    return _suspended(workload, left, check)


def _since(job: TrainJob) -> str:
    """Return when suspend last changed, as Trainer saw it."""
    condition = job.conditions.get("Suspended")
    return condition.time if condition else ""


# A policy that refuses a manager's write says so in that manager's log alone.
_IF_IT_LASTS: Final = (
    "if it lasts, {manager}'s log says why: where guard rails refuse it, Hold and Release the job, and it runs with a "
    "new A"
)


def _unsuspended(job: TrainJob, evidence: Evidence, alive_pods: list[str]) -> Verdict:
    if alive_pods:
        counts = sorted({str(pod.count) for pod in evidence.pods if pod.may_run})
        if all(pod.phase == "Pending" for pod in evidence.pods if pod.may_run):
            return Verdict(JobState.STARTING, f"no pod runs yet: {listed(alive_pods, len(alive_pods))}", _since(job))
        pods = "1 pod" if len(alive_pods) == 1 else f"{len(alive_pods)} pods"
        return Verdict(JobState.RUNNING, f"{pods}, A={', '.join(counts)}", _since(job))
    if evidence.jobset is None:
        why = f"Trainer has not made its JobSet yet; {_IF_IT_LASTS.format(manager='Trainer')}"
        return Verdict(JobState.STARTING, why, _since(job))
    if evidence.jobset.suspended:
        return Verdict(JobState.STARTING, "its JobSet is still suspended: Trainer is behind", _since(job))
    waiting = sorted(job.meta.name for job in evidence.jobs if job.suspended)
    if waiting:
        why = f"Jobs still suspended: {listed(waiting, len(waiting))}"
        spent = sorted(
            f"{job.meta.name} (A={job.count})"
            for job in evidence.jobs
            if job.suspended and isinstance(job.count, int) and job.count == evidence.jobset.count
        )
        if spent:
            # JobSet writes the new A and the resume in one update: equal before it means that A was not raised.
            why = (
                f"not resumed, since A was not raised for it: {listed(spent, len(spent))}. The guard rails refuse an "
                "execution under the A of the last one. Is the check in its queue, and did nobody suspend or resume "
                "it by hand? Then Hold and Release the job: it runs with a new A"
            )
        else:
            why += f"; {_IF_IT_LASTS.format(manager='JobSet')}"
        return Verdict(JobState.STARTING, why, _since(job))
    if not evidence.jobs:
        return Verdict(JobState.STARTING, f"no Job yet; {_IF_IT_LASTS.format(manager='JobSet')}", _since(job))
    return Verdict(JobState.STARTING, "no pod yet", _since(job))


def _suspended(workload: Workload | None, left: str, check: str) -> Verdict:
    """Say why an opened job of Kueue mode is suspended."""
    if workload is None:
        return Verdict(JobState.UNMANAGED, f"Kueue has no Workload for it: is Kueue running?{left}")
    if not workload.active:
        return Verdict(JobState.DEACTIVATED, f"its Workload was deactivated, not by a hold of dispatch's{left}")
    evicted, reserved = workload.conditions.get("Evicted"), workload.conditions.get("QuotaReserved")
    if evicted is not None and evicted.status == "True" and (left or workload.reserved):
        return Verdict(JobState.STOPPING, f"evicted ({evicted.reason}){left}", evicted.time)
    if not workload.reserved:
        why = reserved.message if reserved and reserved.message else "Kueue has not looked at it yet"
        return Verdict(JobState.WAITING_FOR_QUOTA, why, reserved.time if reserved else "")
    since = reserved.time if reserved else ""
    entry = workload.entry({check})
    if entry is None:
        return Verdict(JobState.WAITING_AT_CHECK, f"its queue does not name AdmissionCheck {check}", since)
    if entry.state == State.READY:
        return Verdict(JobState.STARTING, "the check is Ready; Kueue or another check has the next step", entry.time)
    return Verdict(JobState.WAITING_AT_CHECK, entry.message or "the controller has not looked at it yet", since)
