"""Worlds to begin with that take many steps to reach from nothing, so that what follows is seen in a short trace."""

from __future__ import annotations

from typing import Final

from explorer.values import (
    Job,
    JobPart,
    JobSet,
    JobSetPart,
    Pod,
    PodsPart,
    TrainJob,
    TrainJobPart,
    Workload,
    WorkloadPart,
)

NEW: Final = (
    TrainJobPart(TrainJob(suspend=True, rank=0)),
    WorkloadPart(Workload(reserved=True, check="Pending")),
    JobSetPart(JobSet(suspend=True, rank=0)),
    JobPart(Job(suspend=True, rank=0)),
    PodsPart(),
)
"""Opened, with quota, and our check Pending: before the first execution."""

_ADMITTED: Final = WorkloadPart(Workload(reserved=True, admitted=True, check="Ready"), approved=0, served=True)

RUNS: Final = (
    TrainJobPart(TrainJob(suspend=False, rank=0)),
    _ADMITTED,
    JobSetPart(JobSet(suspend=False, rank=0)),
    JobPart(Job(suspend=False, rank=0, started=True, active=True)),
    PodsPart((Pod(0, "Running"),), started=0),
)
"""An execution runs."""

BEGINS: Final = (
    TrainJobPart(TrainJob(suspend=False, rank=0)),
    _ADMITTED,
    JobSetPart(JobSet(suspend=False, rank=0)),
    JobPart(Job(suspend=False, rank=0, seen=True)),
    PodsPart((Pod(0, "Pending"),), started=0),
)
"""An execution has just begun: its pod is there, the Job's status does not say so yet."""

EVICTED: Final = (
    TrainJobPart(TrainJob(suspend=True, rank=0)),
    WorkloadPart(Workload(reserved=True, admitted=False, check="Pending"), approved=0, served=True),
    JobSetPart(JobSet(suspend=False, rank=0)),
    JobPart(Job(suspend=False, rank=0, started=True, active=True)),
    PodsPart((Pod(0, "Running"),), started=0),
)
"""Evicted, and reserved anew at once: the JobSet has yet to hear of it."""

GATED: Final = (
    TrainJobPart(TrainJob(suspend=True, rank=0, gate=True)),
    WorkloadPart(Workload(gate=True, check="Pending")),
    *NEW[2:],
)
"""Started, not opened."""

UNLISTED: Final = (NEW[0], WorkloadPart(Workload(reserved=True)), *NEW[2:])
"""With quota, and our check is not on the list."""

CHILDLESS: Final = (*NEW[:2], JobSetPart(), JobPart(), PodsPart())
"""With quota before Trainer has made the JobSet."""

BEHIND: Final = (TrainJobPart(TrainJob(suspend=True, rank=1)), NEW[1], *NEW[2:])
"""A was raised, and Trainer has not carried it on yet."""

RELISTED: Final = (NEW[0], WorkloadPart(Workload(reserved=True, admitted=True, check="Pending"), served=True), *NEW[2:])
"""Admitted, and the check was taken out of the queue and put back before Kueue has started the job."""

FINISHED: Final = (NEW[0], WorkloadPart(Workload(reserved=True, check="Pending", finished=True)), *NEW[2:])
"""Finished, and the TrainJob is not: Trainer 2.3 takes Failed back where the JobSet was deleted, and makes it anew."""

UNSUSPENDED: Final = (TrainJobPart(TrainJob(suspend=False, rank=0)), *NEW[1:])
"""Somebody resumed the TrainJob by hand, and nobody has acted on that yet."""

PLAIN: Final = (TrainJobPart(TrainJob(suspend=False, rank=0, opened=True)), WorkloadPart(), *RUNS[2:])
"""An execution runs in plain mode."""
