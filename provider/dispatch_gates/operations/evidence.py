"""Reading an execution: JobSet, Jobs and, last, the pods. One operation for the controller and the adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from dispatch_gates.contract.execution import Evidence, JobSet, parse_job, parse_jobset, parse_pod
from dispatch_gates.contract.names import JOBS, JOBSET_NAME, JOBSETS, PODS
from dispatch_gates.contract.next_execution import Reason, next_count
from dispatch_gates.contract.objects import JsonObject, MalformedError, flag, text
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_gates.operations.errors import TimedOutError
from dispatch_gates.requests import Changes, DeniedError, ExpiredError, Operation, Pause, Watch, find, select

T = TypeVar("T")

_LOOK_SECONDS: Final = 0.5
"""How often an execution that is ending is looked at: several kinds of objects would have to be watched instead."""


def read_evidence(namespace: str, name: str) -> Operation[Evidence]:
    """Read what there is of the execution of the job `name`.

    In this order, since each is created by the one before: what a later read does not show was not started by
    what an earlier one showed. Pods are found by the JobSet's name and not by its UID, so that those of an
    earlier job of the same name count too.
    """
    unreadable: list[str] = []
    selector = f"{JOBSET_NAME}={name}"
    try:
        jobset = yield from find(JOBSETS, namespace, name)
        jobs = yield from select(JOBS, namespace, selector)
        pods = yield from select(PODS, namespace, selector)
    except DeniedError as error:
        return Evidence(jobset=None, unreadable=(f"no right to look: {error}",))
    return Evidence(
        jobset=next(_parsed(parse_jobset, (jobset,) if jobset is not None else (), unreadable), None),
        jobs=tuple(_parsed(parse_job, jobs.items, unreadable)),
        pods=tuple(_parsed(parse_pod, pods.items, unreadable)),
        unreadable=tuple(unreadable),
    )


def read_evidence_of_all(namespace: str) -> Operation[Callable[[str], Evidence]]:
    """Read what there is of the executions of all jobs of a namespace; return how to look one up by its name."""
    try:
        jobsets = (yield from select(JOBSETS, namespace, "")).items
        jobs = (yield from select(JOBS, namespace, JOBSET_NAME)).items
        pods = (yield from select(PODS, namespace, JOBSET_NAME)).items
    except DeniedError as error:
        blind = Evidence(jobset=None, unreadable=(f"no right to look: {error}",))
        return lambda _: blind
    by_name = {text(raw, "metadata", "name"): raw for raw in jobsets}
    jobs_of, pods_of = _by_jobset(jobs), _by_jobset(pods)

    def of(name: str) -> Evidence:
        unreadable: list[str] = []
        jobset = (by_name[name],) if name in by_name else ()
        return Evidence(
            jobset=next(_parsed(parse_jobset, jobset, unreadable), None),
            jobs=tuple(_parsed(parse_job, jobs_of.get(name, ()), unreadable)),
            pods=tuple(_parsed(parse_pod, pods_of.get(name, ()), unreadable)),
            unreadable=tuple(unreadable),
        )

    return of


def _by_jobset(items: Iterable[JsonObject]) -> dict[str, list[JsonObject]]:
    found: dict[str, list[JsonObject]] = {}
    for item in items:
        found.setdefault(text(item, "metadata", "labels", JOBSET_NAME) or "", []).append(item)
    return found


def _parsed(parse: Callable[[JsonObject], T], items: Iterable[JsonObject], unreadable: list[str]) -> Iterator[T]:
    """Parse each; what cannot be read is noted, and keeps the execution from counting as over."""
    for item in items:
        try:
            yield parse(item)
        except MalformedError as error:
            unreadable.append(str(error))


def await_next(job: TrainJob, seconds: float) -> Operation[tuple[int, tuple[str, ...]]]:
    """Wait until the next execution of this version of the job may begin; return its A and the replicated jobs.

    For plain mode, where the adapter itself begins it. Raises `TimedOutError`, saying what remains, after `seconds`.
    """
    left = seconds
    while True:
        evidence = yield from read_evidence(job.meta.namespace, job.meta.name)
        count = next_count(job, evidence)
        if isinstance(count, int):
            assert evidence.jobset is not None, "an execution without a JobSet is not over"
            return count, tuple(replicated.name for replicated in evidence.jobset.replicated_jobs)
        if left <= 0 or count.reason is Reason.COUNT_UNREADABLE:
            where = f"TrainJob {job.meta.namespace}/{job.meta.name}"
            raise TimedOutError(f"{where} cannot run yet, after {seconds - left:g} s: {count}")
        pause = min(left, _LOOK_SECONDS)
        yield Pause(pause)
        left -= pause


def await_count(jobset: JobSet, count: int, seconds: float) -> Operation[bool]:
    """Wait until this JobSet, suspended, carries `count`; return False where it does not within `seconds`.

    Trainer works on a job one pass at a time: once it has applied the new A, a late apply of an earlier pass is
    over. A JobSet that was resumed or replaced meanwhile never counts.
    """
    version, left = jobset.meta.resource_version, seconds
    while left > 0:
        try:
            changes: Changes = yield Watch(JOBSETS, jobset.meta.namespace, version, left, name=jobset.meta.name)
        except ExpiredError:
            return False
        left = changes.seconds_left
        for raw, deleted in changes.events:
            seen = parse_jobset(raw)
            version = seen.meta.resource_version
            if deleted or seen.meta.uid != jobset.meta.uid or flag(raw, "spec", "suspend") is not True:
                return False
            if seen.count == count:
                return True
    return False
