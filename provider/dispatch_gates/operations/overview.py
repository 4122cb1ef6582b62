"""Status of many jobs at once, of their queue and of the controller; and waiting for the next change."""

from __future__ import annotations

from dataclasses import dataclass

from dispatch_gates.contract import names
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.objects import JsonObject, number, parse_conditions, text
from dispatch_gates.contract.trainjob import TrainJob, parse_trainjob
from dispatch_gates.contract.workload import Workload, parse_workload
from dispatch_gates.operations.evidence import read_evidence_of_all
from dispatch_gates.operations.status import Status, judge
from dispatch_gates.requests import (
    ApiError,
    DeniedError,
    ExpiredError,
    NotServedError,
    Operation,
    Pause,
    Watch,
    find,
    select,
)


@dataclass(frozen=True)
class Controller:
    """The controller's health as its Lease shows it: who leads, and when that was last said (RFC 3339).

    `problem` is set where that cannot be told, or nobody leads.
    """

    lease: str
    holder: str = ""
    renewed: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Queue:
    """A LocalQueue: where it leads, what it counts, and what is wrong with it, if anything."""

    name: str
    cluster_queue: str = ""
    pending: int = 0
    reserving: int = 0
    admitted: int = 0
    problem: str = ""


@dataclass(frozen=True)
class Overview:
    """All jobs of a namespace, or of one of its queues; `version` is what a watch for the next change begins at."""

    jobs: tuple[Status, ...]
    version: str


def overview(namespace: str, queue: str | None = None, *, check: str = names.ADMISSION_CHECK) -> Operation[Overview]:
    """Read where the jobs of a namespace stand, those of one queue where it is given; probes are left out."""
    listing = yield from select(names.TRAINJOBS, namespace, "")
    jobs = [job for job in map(parse_trainjob, listing.items) if _is_job(job) and queue in (None, job.queue)]
    workloads: dict[str, Workload] = {}
    if any(job.kueue_mode for job in jobs):
        try:
            found = yield from select(names.WORKLOADS, namespace, names.JOB_UID)
            parsed = map(parse_workload, found.items)
            workloads = {each.meta.owner.uid: each for each in parsed if each.meta.owner is not None}
        except NotServedError:
            pass  # no such kind: Kueue is not installed, or no more
    evidence_of = yield from read_evidence_of_all(namespace)
    statuses = []
    for job in jobs:
        workload, evidence = workloads.get(job.meta.uid), evidence_of(job.meta.name)
        statuses.append(Status(job, workload, evidence, judge(job, workload, evidence, check)))
    return Overview(tuple(sorted(statuses, key=lambda status: status.job.meta.name)), listing.resource_version)


def _is_job(job: TrainJob) -> bool:
    identity = Identity.parse(job.meta.name)
    return job.is_dispatch if identity is None else identity.submission > 0


def controller(namespace: str, lease: str) -> Operation[Controller]:
    """Read who leads. Whether the Lease is being renewed is preflight's question: it takes two looks."""
    where = f"{namespace}/{lease}"
    try:
        raw = yield from find(names.LEASES, namespace, lease)
    except DeniedError as error:
        return Controller(where, problem=str(error))
    if raw is None:
        return Controller(where, problem="does not exist: no controller has ever led there")
    holder, renewed = text(raw, "spec", "holderIdentity") or "", text(raw, "spec", "renewTime") or ""
    return Controller(where, holder, renewed, "" if holder else "is held by nobody: no controller leads")


def queue_state(namespace: str, name: str) -> Operation[Queue]:
    """Read a LocalQueue."""
    try:
        raw = yield from find(names.LOCAL_QUEUES, namespace, name)
    except ApiError as error:
        return Queue(name, problem=str(error))
    return _queue(name, raw)


def _queue(name: str, raw: JsonObject | None) -> Queue:
    if raw is None:
        return Queue(name, problem="does not exist")
    active, policy = parse_conditions(raw).get("Active"), text(raw, "spec", "stopPolicy") or "None"
    problem = f"stopped ({policy})" if policy != "None" else ""
    if not problem and (active is None or active.status != "True"):
        problem = f"not active: {active.message}" if active else "Kueue has not looked at it"
    pending, reserving, admitted = (
        number(raw, "status", f"{kind}Workloads") or 0 for kind in ("pending", "reserving", "admitted")
    )
    return Queue(name, text(raw, "spec", "clusterQueue") or "", pending, reserving, admitted, problem)


def await_change(namespace: str, version: str, seconds: float, name: str = "") -> Operation[None]:
    """Wait until a TrainJob of the namespace, or the one of this name, changes, `seconds` at most.

    A wake-up, no evidence.
    """
    try:
        yield Watch(names.TRAINJOBS, namespace, version, seconds, name=name)
    except ExpiredError:
        yield Pause(seconds)  # it would be as old the next time: one that did not change keeps its version
