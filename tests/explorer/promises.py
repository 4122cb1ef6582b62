"""The promises that are about the whole of a job's world, judged on the model's own values alone."""

from __future__ import annotations

from typing import NamedTuple

from explorer.values import NONE, JobPart, JobSetPart, PodsPart, Reader, TrainJobPart, WorkloadPart


class Approved(NamedTuple):
    """What becomes of the world as a job is let run; not `possible`: the assumption rules this out."""

    workload: WorkloadPart
    jobset: JobSetPart
    job: JobPart
    broken: str = ""
    possible: bool = True


def approve(
    trainjob: TrainJobPart,
    workload: WorkloadPart,
    jobset: JobSetPart,
    job: JobPart,
    pods: PodsPart,
    *,
    tainted: bool,
    assumed: bool,
) -> Approved:
    """Judge the moment at which a job is let run: its check was set Ready or, in plain mode, suspend was lifted.

    `assumed`: the JobSet and Job controllers finish nothing, after this and after the reads that it rests on, that
    they decided before the JobSet was suspended. So what they still carry is dropped, and a `tainted` operation,
    which looked before such an act, is one that cannot be.
    """
    broken = _broken(trainjob, workload, jobset, job, pods)
    count = trainjob.job.rank if trainjob.job else NONE
    marked = workload._replace(approved=count, served=False)
    if not assumed:
        return Approved(marked, jobset, job, broken)
    return Approved(
        marked,
        jobset._replace(controller=Reader()),
        job._replace(creating=NONE),
        broken,
        possible=not tainted and (jobset.controller.carried is None or not broken),
    )


def _broken(trainjob: TrainJobPart, workload: WorkloadPart, jobset: JobSetPart, job: JobPart, pods: PodsPart) -> str:
    if trainjob.job is None or trainjob.job.other:
        return ""  # nothing is let run: a Workload starts the TrainJob that it was made for, and that is gone
    if pods.pods:
        phase = pods.pods[0].phase
        return f"S2: let run while a pod of the previous execution may still run (A={pods.pods[0].rank}, {phase})"
    if jobset.jobset is None or not jobset.jobset.suspend:
        return "S2: let run while the JobSet is not suspended"
    if job.job is None:
        return "S2: let run before the Job exists"
    found = job.job
    # Its counters are not asked: they may be behind what the pods above really are.
    if not (found.finished or (found.suspend and (found.seen or not found.started))):
        return "S2: let run while the Job is not over"
    if trainjob.job.rank <= max(pods.started, workload.approved):
        return f"S3: let run with A={trainjob.job.rank}, which was used"
    return ""


def closed(trainjob: TrainJobPart, pods: PodsPart) -> str:
    """S4: nothing runs behind a closed gate."""
    if pods.pods and trainjob.job is not None and trainjob.job.gate:
        return "S4: a pod exists while dispatch's gate is closed"
    return ""
