"""Kueue: the scheduler, the reconciler of Workloads, and the reconciler of jobs.

Each step is one write, in the order in which the real ones write (facts: sections 0, 2 and 5). An eviction is two:
first Evicted with the check reset, while quota and admission still stand; after the job is suspended, quota and
admission go, and the check is not looked at. The job reconciler decides to start a job and does it later: nothing but
a change of the TrainJob stops it. The scheduler writes without a version, and with its own copy of our entry.
"""

from __future__ import annotations

from collections.abc import Iterator

from explorer.rules import (
    CHANGED_TRAINJOB,
    CHANGED_WORKLOAD,
    EVICTED,
    FAULT,
    RESERVED,
    TRAINJOB,
    WORKLOAD,
    Outcome,
    Rule,
)
from explorer.values import TrainJobPart, Workload, WorkloadPart


def _stored(label: str, part: WorkloadPart, workload: Workload | None, effects: int = 0, broken: str = "") -> Outcome:
    return Outcome(label, (part._replace(workload=workload),), CHANGED_WORKLOAD | effects, broken)


def _admitted(label: str, part: WorkloadPart, workload: Workload, effects: int = 0) -> Outcome:
    """Admit: each Ready must serve one admission."""
    broken = "S3: one Ready served two admissions" if part.served else ""
    after = part._replace(workload=workload._replace(admitted=True, ahead=False), served=True)
    return Outcome(label, (after,), CHANGED_WORKLOAD | effects, broken)


def workload_reconciler(part: WorkloadPart) -> Iterator[Outcome]:
    """List the check, admit, evict, lose the reservation."""
    found = part.workload
    if found is None:
        return
    if not found.check:
        yield _stored("lists the check", part, found._replace(check="Pending"))
    if found.reserved and found.check == "Ready" and found.admitted is not True:
        yield _admitted("admits", part, found)
    if not found.evicted and not found.finished and (found.reserved or not found.active):
        reset = found._replace(evicted=True)
        if found.check == "Ready":
            reset = reset._replace(check="Pending", ahead=False)
        preempted = EVICTED | FAULT if found.active else 0
        yield _stored("evicts (first write: check reset, quota still reserved)", part, reset, preempted)
    if found.reserved and not found.evicted and found.admitted is not True:
        yield _stored("takes the reservation back without an eviction", part, found._replace(reserved=False), FAULT)
    if found.admitted is True and found.check == "Ready" and not found.evicted:
        again = found._replace(check="Pending", ahead=False)
        yield _stored("lists the check anew beside the running job", part, again, FAULT)


def scheduler(part: WorkloadPart) -> Iterator[Outcome]:
    """Take a copy of the Workload, and reserve quota with it later; all checks Ready in the copy: admit too."""
    found = part.workload
    if found is None:
        return
    if part.picked is not None:
        entry = part.picked if part.picked and found.check else found.check
        reserved = found._replace(reserved=True, evicted=False, check=entry)
        if entry != found.check:
            reserved = reserved._replace(ahead=False)
        part = part._replace(picked=None)
        if entry == "Ready":
            yield _admitted("reserves quota and admits, in one write", part, reserved, RESERVED)
        else:
            yield _stored("reserves quota", part, reserved, RESERVED)
    elif found.active and not (found.gate or found.reserved or found.finished or found.deleting):
        yield Outcome("looks at the Workload to reserve quota", (part._replace(picked=found.check),))


def job_reconciler(job: TrainJobPart, part: WorkloadPart) -> Iterator[Outcome]:
    """Make the Workload, carry the gate over, start, stop, clear quota, see the end."""
    yield from _of_workload(job, part)
    owner, found = job.job, part.workload
    if owner is None or owner.deleting or owner.other:
        return
    runs = found is not None and found.admitted is True and not found.evicted and not found.deleting
    if job.starting:
        yield Outcome("starts the job", (job.put(owner._replace(suspend=False)), part), CHANGED_TRAINJOB)
    elif owner.suspend and runs and not owner.ended:
        yield Outcome("decides to start the job", (job._replace(starting=True), part))
    elif not owner.suspend and not runs and not owner.ended:
        yield Outcome("suspends the job", (job.put(owner._replace(suspend=True)), part), CHANGED_TRAINJOB)


def _of_workload(job: TrainJobPart, part: WorkloadPart) -> Iterator[Outcome]:
    owner, found = job.job, part.workload
    if found is None:
        if owner is not None and not (owner.deleting or owner.ended or owner.other):
            yield _both("makes the Workload", job, part, Workload(gate=owner.gate))
        return
    if owner is None or owner.other:
        return  # left for the garbage collector
    if found.gate and not owner.gate:
        yield _both("carries the open gate over", job, part, found._replace(gate=False))
    if owner.ended and not found.finished:
        yield _both("sees that the job has ended", job, part, found._replace(finished=True))
    if found.evicted and found.reserved and owner.suspend and not job.starting:
        cleared = found._replace(reserved=False)
        if found.admitted:
            cleared = cleared._replace(admitted=False, ahead=False)
        yield _both("clears quota (second write)", job, part, cleared)


def _both(label: str, job: TrainJobPart, part: WorkloadPart, workload: Workload) -> Outcome:
    return Outcome(label, (job, part._replace(workload=workload)), CHANGED_WORKLOAD)


def without_the_check(part: WorkloadPart) -> Iterator[Outcome]:
    """Do what Kueue does once our check was taken out of the queue: unlist it, and admit without it.

    No promise survives this, as the README says; it is here so that what Kueue was seen to do is compared with it.
    """
    found = part.workload
    if found is None or found.deleting or found.finished:
        return
    if found.check:
        yield _stored("takes the check off", part, found._replace(check="", ahead=False), FAULT)
    elif found.active and not found.gate and not found.evicted and found.admitted is not True:
        yield _stored("admits without the check", part, found._replace(reserved=True, admitted=True), RESERVED)


WITHOUT_THE_CHECK = Rule("Kueue", (WORKLOAD,), without_the_check)
RULES = (
    Rule("Kueue", (WORKLOAD,), workload_reconciler),
    Rule("Kueue", (WORKLOAD,), scheduler),
    Rule("Kueue", (TRAINJOB, WORKLOAD), job_reconciler),
)
