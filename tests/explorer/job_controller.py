"""The Job controller: creates the pod of a Job that runs, deletes that of a suspended one, counts.

It works on one Job one pass at a time. It creates a pod from the version that it read, however late; its status
writes carry a version, so that one that was decided on an older version changes nothing and is left out here. It sees
the pods it has created before its next pass (its expectations): Suspended True therefore means that it has deleted
what it had created.
"""

from __future__ import annotations

from collections.abc import Iterator

from explorer.rules import JOB, LATE, PODS, Outcome, Rule
from explorer.values import NONE, Job, JobPart, Pod, PodsPart


def sync(part: JobPart, child: PodsPart) -> Iterator[Outcome]:
    """Create, delete, count."""
    job = part.job
    if part.creating != NONE:
        yield _created(part, child)
        return
    if job is None or job.finished:
        return
    active = any(not pod.deleting for pod in child.pods)
    if not job.suspend and not active:
        yield Outcome(f"decides to create a pod with A={job.rank}", (part._replace(creating=job.rank), child))
    if job.suspend and active:
        deleted = tuple(sorted(pod._replace(deleting=True) for pod in child.pods))
        yield Outcome("deletes the pods of the suspended Job", (part, child._replace(pods=deleted)))
        return
    terminating = any(pod.deleting for pod in child.pods)
    counted = job._replace(
        started=not job.suspend, seen=job.suspend, active=active and not job.suspend, terminating=terminating
    )
    if counted != job:
        yield Outcome("counts pods" + (", Suspended" if job.suspend else ""), (part._replace(job=counted), child))


def _created(part: JobPart, child: PodsPart) -> Outcome:
    """Create a pod. Where it is the first one after a resume, an execution starts."""
    count = part.creating
    late = LATE if part.job is None or part.job.suspend else 0
    broken = ""
    if count == child.resumed:
        if count == child.started:
            broken = f"S3: a second execution starts with A={count}"
        elif count < child.started:
            broken = f"S3: an execution starts with A={count}, after one with A={child.started}"
    elif count != child.started:
        broken = f"S2: a pod of an earlier execution, A={count}, is created after A={child.started} has started"
    if not broken and any(pod.rank != count for pod in child.pods):
        broken = f"S2: a pod with A={count} is created while one of another execution may still run"
    after = PodsPart(
        tuple(sorted((*child.pods, Pod(count, "Pending")))),
        max(count, child.started),
        NONE if count == child.resumed else child.resumed,
    )
    return Outcome(f"creates a pod with A={count}", (part._replace(creating=NONE), after), late, broken)


def finish(part: JobPart, child: PodsPart) -> Iterator[Outcome]:
    """See that the pod has succeeded."""
    job = part.job
    if job is None or job.finished or part.creating != NONE:
        return
    for pod in child.pods:
        if pod.phase == "Running" and pod.rank == job.rank:
            rest = tuple(other for other in child.pods if other is not pod)
            done = Job(job.suspend, job.rank, job.started, job.seen, False, bool(rest), finished=True)
            yield Outcome(
                "sees that the pod has succeeded: the Job is complete",
                (part._replace(job=done), child._replace(pods=rest)),
            )


RULES = (Rule("Job controller", (JOB, PODS), sync), Rule("Job controller", (JOB, PODS), finish))
