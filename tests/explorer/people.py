"""People, and what acts for them beside the product: a Workload is deleted and made anew, a job is deleted."""

from __future__ import annotations

from collections.abc import Iterator

from explorer.rules import CHANGED_TRAINJOB, CHANGED_WORKLOAD, FAULT, TRAINJOB, WORKLOAD, Outcome, Rule
from explorer.values import TrainJobPart, WorkloadPart


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


DELETE_WORKLOAD = Rule("people", (WORKLOAD,), delete_workload)
DELETE_JOB = Rule("people", (TRAINJOB,), delete_job)
SUSPEND = Rule("people", (TRAINJOB,), suspend)
