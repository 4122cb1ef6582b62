"""The JobSet controller: makes the Job, suspends and resumes it, one pass at a time, on a view of its own.

A resume brings A to the Job's pods in the same update; the API server takes that only once the Job controller is seen
to have suspended the Job. A Job that is not suspended is left alone, whatever A it carries.
"""

from __future__ import annotations

from collections.abc import Iterator

from explorer.rules import JOB, JOBSET, LATE, PODS, Outcome, Rule
from explorer.values import Job, JobPart, JobSetPart, PodsPart, Reader


def act(part: JobSetPart, child: JobPart, pods: PodsPart) -> Iterator[Outcome]:
    """Read the JobSet; later, do to the Job what was read."""
    jobset, job = part.jobset, child.job
    if part.controller.carried is not None:
        suspend, count = part.controller.carried
        label, after, marked, late = _applied(suspend, count, child, pods)
        if after is None:
            return
        stale = LATE if late and (jobset is None or jobset.suspend) else 0
        for reader in part.controller.done():
            behind = ", and goes on with an older view" if reader.carried else ""
            yield Outcome(label + behind, (part._replace(controller=reader), child._replace(job=after), marked), stale)
    elif jobset is not None and (job is None or (not job.finished and job.suspend != jobset.suspend)):
        yield Outcome(
            f"reads the JobSet: {'suspended' if jobset.suspend else 'running'}, A={jobset.rank}",
            (part._replace(controller=Reader(tuple(jobset))), child, pods),
        )


def _applied(suspend: bool, count: int, child: JobPart, pods: PodsPart) -> tuple[str, Job | None, PodsPart, bool]:
    """Return what one pass does to the Job; no Job: it is refused, and tried again later."""
    job = child.job
    running = pods if suspend else pods._replace(resumed=count)
    if job is None:
        word = "suspended" if suspend else "running"
        return f"makes the Job, {word}, A={count}", Job(suspend, count), running, not suspend
    if job.finished or job.suspend == suspend:
        return "has nothing to do", job, pods, False
    if suspend:
        return "suspends the Job", job._replace(suspend=True), pods, False
    if job.rank != count and (job.active or (job.started and not job.seen)):
        return "", None, pods, False
    return f"resumes the Job with A={count}", job._replace(suspend=False, rank=count), running, True


RULES = (Rule("JobSet", (JOBSET, JOB, PODS), act),)
