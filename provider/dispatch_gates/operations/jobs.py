"""Reading one job by name and UID, and waiting for what belongs to it; shared by the operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dispatch_gates.contract.names import IDENTIFYING_NAMESPACE, JOB_UID, NAMESPACES, TRAINJOBS, WORKLOADS
from dispatch_gates.contract.objects import JsonObject, parse_meta
from dispatch_gates.contract.trainjob import TrainJob, parse_trainjob
from dispatch_gates.contract.workload import Workload, parse_workload
from dispatch_gates.requests import Changes, ExpiredError, Operation, Watch, find, get, select

T = TypeVar("T")


def read_job(namespace: str, name: str, uid: str | None = None) -> Operation[TrainJob | None]:
    """Read a TrainJob; None where there is none of this name, or it is another one (`uid` given and different)."""
    raw = yield from find(TRAINJOBS, namespace, name)
    if raw is None:
        return None
    job = parse_trainjob(raw)
    return job if uid in (None, job.meta.uid) else None


def read_workload(job: TrainJob) -> Operation[Workload | None]:
    """Read the Workload that Kueue made for this very TrainJob, if there is one."""
    found = yield from select(WORKLOADS, job.meta.namespace, f"{JOB_UID}={job.meta.uid}")
    return _owned(job, found.items)


def await_workload(job: TrainJob, seconds: float, enough: Callable[[Workload], bool]) -> Operation[Workload | None]:
    """Wait until the job's Workload is as wanted, `seconds` at most; return it as last seen, None if never."""
    selector = f"{JOB_UID}={job.meta.uid}"
    left = seconds

    def wanted(raw: JsonObject) -> bool:
        seen = _owned(job, (raw,))
        return seen is not None and enough(seen)

    while True:
        listing = yield from select(WORKLOADS, job.meta.namespace, selector)
        last, version = _owned(job, listing.items), listing.resource_version
        try:
            while not (last is not None and enough(last)):
                if left <= 0:
                    return last
                changes: Changes = yield Watch(
                    WORKLOADS, job.meta.namespace, version, left, selector=selector, until=wanted
                )
                left = changes.seconds_left
                for raw, deleted in changes.events:
                    version = parse_meta(raw).resource_version
                    seen = _owned(job, (raw,))
                    if seen is not None:
                        last = None if deleted else seen
            return last
        except ExpiredError:
            continue


def _owned(job: TrainJob, items: tuple[JsonObject, ...]) -> Workload | None:
    """Return the one that the TrainJob controls: the label alone proves nothing."""
    for item in items:
        workload = parse_workload(item)
        if workload.meta.owner is not None and workload.meta.owner.uid == job.meta.uid:
            return workload
    return None


def cluster_identity() -> Operation[str]:
    """Return what tells this cluster from every other one: the UID of its namespace kube-system."""
    raw = yield from get(NAMESPACES, "", IDENTIFYING_NAMESPACE)
    return parse_meta(raw).uid
