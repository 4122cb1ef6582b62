"""Our check in a ClusterQueue that somebody else owns.

One entry of one list is ours. It is written by hand, so to speak: a read, the list with our entry, a replacement of the
version that was read. The API server then counts that entry alone as ours, and its owner's applies leave it where it
is. (pulumi-kubernetes' patch resources compare lists by position, and would find our entry changed at every update.)

The operations return what is wrong, as a sentence with what to do, and nothing where all is well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dispatch_gates.contract import names
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.objects import JsonObject, copied, entries, listed, text
from dispatch_gates.contract.workload import Workload, parse_workload
from dispatch_gates.operations.preflight.queue import gate_problem
from dispatch_gates.requests import ConflictError, Operation, Pause, Replace, find, select, write

TRIES: Final = 150
PAUSE_SECONDS: Final = 0.2
"""Half a minute in all: Kueue takes a reservation back within a second."""


def problem(cluster_queue: str, check: str) -> Operation[str]:
    """Return what lets jobs of the ClusterQueue past our check."""
    raw = yield from find(names.CLUSTER_QUEUES, "", cluster_queue)
    return _absent(cluster_queue) if raw is None else _let_past(raw, cluster_queue, check)


def wire(cluster_queue: str, check: str, instead_of: str = "") -> Operation[str]:
    """List our check in the ClusterQueue, where every job is then held for it; otherwise change nothing.

    Where it stands `instead_of` an earlier one, both changes are one write.
    """
    for _ in range(TRIES):
        raw = yield from find(names.CLUSTER_QUEUES, "", cluster_queue)
        if raw is None:
            return _absent(cluster_queue)
        wanted = with_check(without_check(raw, instead_of) if instead_of != check else raw, check)
        if found := _let_past(wanted, cluster_queue, check):
            return found
        if wanted == raw or (yield from _replaced(wanted)):
            return ""
        yield Pause(PAUSE_SECONDS)
    return _contended(cluster_queue)


def unwire(cluster_queue: str, check: str) -> Operation[str]:
    """Take our check out of the ClusterQueue, once Kueue can start no job of dispatch's for want of it.

    Jobs that lost their LocalQueue lose their reservation soon, which is waited for. Jobs that are queued there stay,
    and whatever of them is admitted later has no new admission count: nothing is taken out then, unless the queue's
    owner stopped it.
    """
    jobs: list[str] = []
    for _ in range(TRIES):
        raw = yield from find(names.CLUSTER_QUEUES, "", cluster_queue)
        if raw is None or without_check(raw, check) == raw:
            return ""
        # After the queue itself: what gets a reservation meanwhile changes its version.
        workloads = yield from _dispatchs()
        stopped = (text(raw, "spec", "stopPolicy") or "None") != "None"
        if jobs := [] if stopped else (yield from _queued(workloads, cluster_queue)):
            break
        jobs = _named(workload for workload in workloads if _waits(workload, cluster_queue))
        if not jobs and (yield from _replaced(without_check(raw, check))):
            return ""
        yield Pause(PAUSE_SECONDS)
    if not jobs:
        return _contended(cluster_queue)
    return (
        f"ClusterQueue {cluster_queue} still has jobs of dispatch's: {listed(jobs, len(jobs))}. Without AdmissionCheck "
        f"{check} Kueue would start them with an admission count that they have had. To do: end them or move them, or "
        "have the owner of the queue set stopPolicy: Hold, and destroy again."
    )


def with_check(raw: JsonObject, check: str) -> JsonObject:
    """Return a ClusterQueue with the check before every flavor, if it does not list it yet."""
    if any(text(entry, "name") == check for entry in _checks(raw)):
        return raw
    return _with(raw, [*_checks(raw), {"name": check}])


def without_check(raw: JsonObject, check: str) -> JsonObject:
    """Return a ClusterQueue without the check."""
    left = [entry for entry in _checks(raw) if text(entry, "name") != check]
    return raw if len(left) == len(_checks(raw)) else _with(raw, left)


def _checks(raw: JsonObject) -> tuple[JsonObject, ...]:
    return entries(raw, "spec", "admissionChecksStrategy", "admissionChecks")


def _with(raw: JsonObject, checks: list[JsonObject]) -> JsonObject:
    body = copied(raw)
    if checks:
        body["spec"]["admissionChecksStrategy"] = {"admissionChecks": copied(checks)}
    else:
        # Kueue wants one entry at least where the strategy is there at all.
        body["spec"].pop("admissionChecksStrategy", None)
    return body


def _replaced(body: JsonObject) -> Operation[bool]:
    try:
        yield from write(Replace(names.CLUSTER_QUEUES, body))
    except ConflictError:
        return False
    return True


def _dispatchs() -> Operation[list[Workload]]:
    """Return the Workloads of all jobs of dispatch's that have not ended."""
    found = map(parse_workload, (yield from select(names.WORKLOADS, "", "")).items)
    return [
        workload
        for workload in found
        if workload.meta.owner and Identity.parse(workload.meta.owner.name) and not workload.conditions.true("Finished")
    ]


def _queued(workloads: list[Workload], cluster_queue: str) -> Operation[list[str]]:
    """Return those that a LocalQueue of the ClusterQueue leads there, running or not."""
    local = (yield from select(names.LOCAL_QUEUES, "", "")).items
    queues = {
        (text(queue, "metadata", "namespace"), text(queue, "metadata", "name"))
        for queue in local
        if text(queue, "spec", "clusterQueue") == cluster_queue
    }
    return _named(
        workload
        for workload in workloads
        if (workload.meta.namespace, text(workload.raw, "spec", "queueName")) in queues
    )


def _waits(workload: Workload, cluster_queue: str) -> bool:
    """Whether it holds a reservation in the queue and is not admitted yet: the checks are all it waits for."""
    there = text(workload.raw, "status", "admission", "clusterQueue") == cluster_queue
    return there and not workload.conditions.true("Admitted")


def _named(workloads: Iterable[Workload]) -> list[str]:
    return sorted(f"{each.meta.namespace}/{each.meta.owner.name}" for each in workloads if each.meta.owner)


def _let_past(raw: JsonObject, cluster_queue: str, check: str) -> str:
    found = gate_problem(raw, cluster_queue, check)
    return f"{found[0]}. To do: {found[1]}." if found else ""


def _absent(cluster_queue: str) -> str:
    return f"ClusterQueue {cluster_queue} does not exist: its owner has to create it first."


def _contended(cluster_queue: str) -> str:
    return (
        f"ClusterQueue {cluster_queue} was changed by somebody else at every try for {TRIES * PAUSE_SECONDS:.0f} s. "
        "To do: look who writes it all the time, and run it again."
    )
