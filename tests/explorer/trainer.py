"""Trainer: carries suspend and A from the TrainJob to the JobSet, one pass at a time, as late as it likes.

An apply has no version: what an earlier pass decided is applied over whatever is there. Where TrainJob and JobSet both
run it applies nothing, so that a suspend and resume that it sees as one change is lost.
"""

from __future__ import annotations

from collections.abc import Iterator

from explorer.rules import CHANGED_TRAINJOB, JOB, JOBSET, TRAINJOB, Outcome, Rule
from explorer.values import JobPart, JobSet, JobSetPart, Reader, TrainJob, TrainJobPart


def apply(part: TrainJobPart, child: JobSetPart) -> Iterator[Outcome]:
    """Read the TrainJob; later, apply to the JobSet what was read."""
    job, jobset = part.job, child.jobset
    if part.trainer.carried is not None:
        suspend, count = part.trainer.carried
        applied = JobSet(suspend, count)
        if jobset is not None and not jobset.suspend and not suspend:
            applied = jobset  # nothing is applied to what runs; its webhook would refuse another A
        after = child.put(applied)
        word = f"{'suspended' if suspend else 'running'}, A={count}"
        for reader in part.trainer.done():
            behind = f", and goes on with A={reader.carried[1]} of an older view" if reader.carried else ""
            yield Outcome(f"applies to the JobSet: {word}{behind}", (part._replace(trainer=reader), after))
    elif job is not None and not job.ended and _differs(jobset, job):
        word = "suspended" if job.suspend else "running"
        reading = part._replace(trainer=Reader((job.suspend, job.rank)))
        yield Outcome(f"reads the TrainJob: {word}, A={job.rank}", (reading, child))


def _differs(jobset: JobSet | None, job: TrainJob) -> bool:
    """Whether there is anything to apply: nothing is applied where both run."""
    return jobset is None or ((jobset.suspend or job.suspend) and jobset != job[:2])


def ended(part: TrainJobPart, child: JobPart) -> Iterator[Outcome]:
    """See that the Job has ended."""
    job = part.job
    if job is not None and not job.ended and child.job is not None and child.job.finished:
        yield Outcome("sees that the Job has finished", (part.put(job._replace(ended=True)), child), CHANGED_TRAINJOB)


RULES = (Rule("Trainer", (TRAINJOB, JOBSET), apply), Rule("Trainer", (TRAINJOB, JOB), ended))
