"""The previous execution, as evidence: the JobSet, its Jobs and its pods; and whether it is over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dispatch_gates.contract.count import Count, agreed, parse_count, template_count
from dispatch_gates.contract.names import ADMISSION_COUNT
from dispatch_gates.contract.objects import (
    Conditions,
    JsonObject,
    Meta,
    dig,
    entries,
    flag,
    number,
    parse_conditions,
    parse_meta,
    text,
)


@dataclass(frozen=True)
class ReplicatedJob:
    """One replicated job of a JobSet: how many Jobs it makes, and what it waits for (name and status)."""

    name: str
    replicas: int
    depends_on: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class JobSet:
    """One version of a JobSet."""

    meta: Meta
    suspended: bool
    replicated_jobs: tuple[ReplicatedJob, ...]
    count: Count


@dataclass(frozen=True)
class Job:
    """One version of a batch Job of a JobSet."""

    meta: Meta
    suspended: bool
    started: bool
    active: int
    terminating: int
    ready: int
    parallelism: int
    conditions: Conditions
    count: Count

    @property
    def complete(self) -> bool:
        """Whether the Job ended well."""
        return self.conditions.true("Complete")

    @property
    def finished(self) -> bool:
        """Whether the Job ended, well or not."""
        return self.complete or self.conditions.true("Failed")

    @property
    def over(self) -> bool:
        """Whether nothing of this Job runs or can still start.

        A suspended Job counts once the Job controller is seen to have acted on it: until then it may be about
        to create a pod from an old view.
        """
        stopped = self.finished or (self.suspended and (self.conditions.true("Suspended") or not self.started))
        return stopped and self.active == 0 and self.terminating == 0


@dataclass(frozen=True)
class Pod:
    """One version of a pod of a job."""

    meta: Meta
    phase: str
    node: str
    running: tuple[str, ...]
    count: Count

    @property
    def may_run(self) -> bool:
        """Whether a process of this pod may still run, or may still be started.

        A deletionTimestamp makes nothing safe, and neither does an end phase while a container is reported to
        run. A phase that we do not know counts as running.
        """
        return self.phase not in ("Succeeded", "Failed") or bool(self.running)

    def __str__(self) -> str:
        where = f" on {self.node}" if self.node else ""
        ending = ", being deleted" if self.meta.deleting else ""
        return f"pod {self.meta.name} ({self.phase or 'no phase'}{where}{ending})"


def alive(pods: Iterable[Pod]) -> list[str]:
    """Name the pods that may still run, in order."""
    return sorted(str(pod) for pod in pods if pod.may_run)


@dataclass(frozen=True)
class Evidence:
    """What one pass has read of an execution, the pods last; and what of it could not be read, in words."""

    jobset: JobSet | None
    jobs: tuple[Job, ...] = ()
    pods: tuple[Pod, ...] = ()
    unreadable: tuple[str, ...] = ()

    def remains(self) -> tuple[str, ...]:
        """Name everything that keeps the execution from being over, pods first; empty means quiescent."""
        return (
            *alive(self.pods),
            *self.unreadable,
            *self._unsuspended(),
            *sorted(_why_not_over(job) for job in self.jobs if not job.over),
            *self._missing(),
        )

    def highest_count(self) -> int:
        """Return the highest A that anything carries; what is unreadable does not count.

        Pods can be edited by tenants, and each A that a pod was given was on the TrainJob before.
        """
        carriers = [self.jobset.count if self.jobset else None]
        carriers += [job.count for job in self.jobs] + [pod.count for pod in self.pods]
        return max((count for count in carriers if isinstance(count, int)), default=0)

    def _unsuspended(self) -> Iterator[str]:
        if self.jobset is None:
            yield "its JobSet does not exist yet"
        elif self.jobset.meta.deleting:
            yield f"JobSet {self.jobset.meta.name} is being deleted"
        elif not self.jobset.suspended:
            yield f"JobSet {self.jobset.meta.name} is not suspended"

    def _missing(self) -> Iterator[str]:
        """Name Jobs that a replicated job must have and has not: JobSet may be about to create them."""
        if self.jobset is None:
            return
        found = {job.meta.name: job for job in self.jobs if _belongs(job.meta, self.jobset.meta)}
        prefix = self.jobset.meta.name
        expected = {
            replicated.name: [f"{prefix}-{replicated.name}-{index}" for index in range(replicated.replicas)]
            for replicated in self.jobset.replicated_jobs
        }
        for replicated in self.jobset.replicated_jobs:
            needed = [
                (status, [found.get(name) for name in expected.get(other, [])])
                for other, status in replicated.depends_on
            ]
            if all(_reached(status, jobs) for status, jobs in needed):
                for name in expected[replicated.name]:
                    if name not in found:
                        yield f"Job {name} does not exist yet"


def _belongs(child: Meta, parent: Meta) -> bool:
    return child.owner is not None and child.owner.uid == parent.uid


def _reached(status: str, jobs: list[Job | None]) -> bool:
    """Whether a dependency is reached. An unknown one counts as reached, so that the missing Job is waited for."""
    if status == "Complete":
        return all(job is not None and job.complete for job in jobs)
    if status == "Ready":
        return all(job is not None and (job.complete or job.ready >= job.parallelism) for job in jobs)
    return True


def _why_not_over(job: Job) -> str:
    if not job.suspended and not job.finished:
        return f"Job {job.meta.name} is not suspended"
    if job.active or job.terminating:
        return f"Job {job.meta.name} counts {job.active} active and {job.terminating} terminating pods"
    return f"Job {job.meta.name} is not yet seen to be suspended"


def parse_jobset(raw: JsonObject) -> JobSet:
    """Parse a JobSet; raise `MalformedError` where its metadata is unreadable."""
    jobs = entries(raw, "spec", "replicatedJobs")
    return JobSet(
        meta=parse_meta(raw),
        suspended=flag(raw, "spec", "suspend") is True,
        replicated_jobs=tuple(
            ReplicatedJob(
                name=text(job, "name") or "",
                replicas=replicas if (replicas := number(job, "replicas")) is not None else 1,
                depends_on=tuple(
                    (text(needed, "name") or "", text(needed, "status") or "") for needed in entries(job, "dependsOn")
                ),
            )
            for job in jobs
        ),
        count=agreed(template_count(job) for job in jobs),
    )


def parse_job(raw: JsonObject) -> Job:
    """Parse a batch Job; raise `MalformedError` where its metadata is unreadable."""
    annotation = dig(raw, "spec", "template", "metadata", "annotations", ADMISSION_COUNT)
    return Job(
        meta=parse_meta(raw),
        suspended=flag(raw, "spec", "suspend") is True,
        started=dig(raw, "status", "startTime") is not None,
        active=number(raw, "status", "active") or 0,
        terminating=number(raw, "status", "terminating") or 0,
        ready=number(raw, "status", "ready") or 0,
        parallelism=parallelism if (parallelism := number(raw, "spec", "parallelism")) is not None else 1,
        conditions=parse_conditions(raw),
        count=parse_count(annotation),
    )


def parse_pod(raw: JsonObject) -> Pod:
    """Parse a pod; raise `MalformedError` where its metadata is unreadable."""
    statuses = [
        status
        for kind in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
        for status in entries(raw, "status", kind)
    ]
    return Pod(
        meta=parse_meta(raw),
        phase=text(raw, "status", "phase") or "",
        node=text(raw, "spec", "nodeName") or "",
        running=tuple(
            text(status, "name") or "?"
            for status in statuses
            # Beside an end phase, "waiting" is a container that the kubelet will not start any more: a failed init
            # container leaves the others so for ever.
            if not any(isinstance(dig(status, "state", kind), Mapping) for kind in ("terminated", "waiting"))
        ),
        count=parse_count(dig(raw, "metadata", "annotations", ADMISSION_COUNT)),
    )
