"""People, and what acts for them beside the product: a Workload is deleted and made anew, a job is deleted."""

from __future__ import annotations

from collections.abc import Iterator

from explorer.rules import CHANGED_TRAINJOB, CHANGED_WORKLOAD, FAULT, PODS, TRAINJOB, WORKLOAD, Outcome, Rule
from explorer.values import PodsPart, TrainJob, TrainJobPart, WorkloadPart


def delete_workload(part: WorkloadPart) -> Iterator[Outcome]:
    """Delete the Workload, as Kueue itself does after an edit of the runtime; its finalizer goes later."""
    found = part.workload
    if found is None or found.finished:
        return
    if found.deleting:
        yield Outcome("the Workload is gone", (part._replace(workload=None, picked=None),), CHANGED_WORKLOAD)
    else:
        after = part._replace(workload=found._replace(deleting=True))
        yield Outcome("the Workload is deleted; its finalizer keeps it", (after,), CHANGED_WORKLOAD | FAULT)


def delete_job(part: TrainJobPart) -> Iterator[Outcome]:
    """Delete the TrainJob; its dependents keep it until they are gone."""
    if part.job is not None and not part.job.deleting:
        after = part.put(part.job._replace(deleting=True))
        yield Outcome("the TrainJob is deleted", (after,), CHANGED_TRAINJOB | FAULT)


def suspend(part: TrainJobPart) -> Iterator[Outcome]:
    """Suspend a running TrainJob by hand."""
    if part.job is not None and not part.job.suspend:
        after = part.put(part.job._replace(suspend=True))
        yield Outcome("the TrainJob is suspended by hand", (after,), CHANGED_TRAINJOB | FAULT)


def gone(part: TrainJobPart) -> Iterator[Outcome]:
    """Delete the TrainJob in the background: what it owned goes after it."""
    if part.job is not None:
        yield Outcome("the TrainJob is gone, what it owned is not yet", (part.put(None),), CHANGED_TRAINJOB | FAULT)


def again(part: TrainJobPart) -> Iterator[Outcome]:
    """Make a TrainJob of the same name, which is another one."""
    if part.job is None:
        after = part.put(TrainJob(suspend=True, rank=0, other=True))
        yield Outcome("a TrainJob of the same name is made", (after,), CHANGED_TRAINJOB | FAULT)


def set_active(part: WorkloadPart) -> Iterator[Outcome]:
    """Deactivate or activate a Workload by hand."""
    found = part.workload
    if found is not None and not (found.finished or found.deleting):
        after = part._replace(workload=found._replace(active=not found.active))
        yield Outcome(f"the Workload is set active: {not found.active}", (after,), CHANGED_WORKLOAD | FAULT)


def strip_gate(part: WorkloadPart) -> Iterator[Outcome]:
    """Take dispatch's gate off a Workload, and leave the TrainJob's."""
    if part.workload is not None and part.workload.gate:
        after = part._replace(workload=part.workload._replace(gate=False))
        yield Outcome("the gate is taken off the Workload", (after,), CHANGED_WORKLOAD | FAULT)


def hide(part: PodsPart) -> Iterator[Outcome]:
    """Take JobSet's label off a pod."""
    for index, pod in enumerate(part.pods):
        if not pod.hidden:
            pods = (*part.pods[:index], pod._replace(hidden=True), *part.pods[index + 1 :])
            yield Outcome("JobSet's label is taken off a pod", (part._replace(pods=tuple(sorted(pods))),), FAULT)


DELETE_WORKLOAD = Rule("people", (WORKLOAD,), delete_workload)
DELETE_JOB = Rule("people", (TRAINJOB,), delete_job)
SUSPEND = Rule("people", (TRAINJOB,), suspend)
GONE = Rule("people", (TRAINJOB,), gone)
AGAIN = Rule("people", (TRAINJOB,), again)
SET_ACTIVE = Rule("people", (WORKLOAD,), set_active)
STRIP_GATE = Rule("people", (WORKLOAD,), strip_gate)
HIDE = Rule("people", (PODS,), hide)
