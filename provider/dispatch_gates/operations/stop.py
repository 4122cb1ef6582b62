"""Stop: delete a job and wait until nothing of it is left."""

from __future__ import annotations

from typing import Final

from dispatch_gates.contract.names import JOBS, JOBSET_NAME, JOBSETS, PODS, TRAINJOBS, Resource
from dispatch_gates.contract.objects import listed, parse_meta
from dispatch_gates.operations.errors import RefusedError, TimedOutError
from dispatch_gates.operations.jobs import read_job
from dispatch_gates.operations.tries import CONFLICTS
from dispatch_gates.requests import (
    Changes,
    ConflictError,
    Delete,
    ExpiredError,
    NotFoundError,
    Operation,
    Pause,
    Watch,
    find,
    select,
)

_EXPIRED_SECONDS: Final = 0.5
"""After how long it is looked again where a version is too old to watch from."""


def delete_job(namespace: str, name: str, uid: str) -> Operation[None]:
    """Delete the TrainJob of this UID; success where it is gone or on its way already. What it owns goes after it.

    Raises `RefusedError` where there is another TrainJob of that name: that one is not touched.
    """
    for _ in range(CONFLICTS):
        job = yield from read_job(namespace, name)
        if job is None or (job.meta.uid == uid and job.meta.deleting):
            return
        if job.meta.uid != uid:
            raise RefusedError(
                f"TrainJob {namespace}/{name} is another one (uid {job.meta.uid}, {uid} was expected); not deleted. "
                "The one that was meant is gone: look whose this one is before you stop it by its name."
            )
        try:
            yield Delete(TRAINJOBS, namespace, name, uid, job.meta.resource_version)
        except NotFoundError:
            return
        except ConflictError:
            continue
        return
    raise TimedOutError(
        f"TrainJob {namespace}/{name} was not deleted: it changed {CONFLICTS} times in a row. Try again."
    )


def stop(namespace: str, name: str, uid: str, *, seconds: float) -> Operation[None]:
    """Delete the job and wait until nothing of it is left, `seconds` at most (then `TimedOutError`).

    Owners first, since each creates the next: what a later read does not show cannot come any more.
    """
    yield from delete_job(namespace, name, uid)
    left = yield from _await_gone(TRAINJOBS, namespace, name, uid, seconds)
    left = yield from _await_gone(JOBSETS, namespace, name, None, left)
    for resource in (JOBS, PODS):
        left = yield from _await_none(resource, namespace, name, left)


def _await_gone(resource: Resource, namespace: str, name: str, uid: str | None, seconds: float) -> Operation[float]:
    """Wait for the end of one object (of this UID); return how many seconds are left."""
    left = seconds
    while True:
        raw = yield from find(resource, namespace, name)
        if raw is None or uid not in (None, parse_meta(raw).uid):
            return left
        if left <= 0:
            finalizers = raw["metadata"].get("finalizers") or []
            raise TimedOutError(
                f"{resource.kind} {namespace}/{name} is still there, being deleted; finalizers: {finalizers}. "
                "Whoever set a finalizer has to take it away; without one, the garbage collector is behind. See to "
                "that and repeat this, or give it more time."
            )
        left = yield from _watched(Watch(resource, namespace, parse_meta(raw).resource_version, left, name=name), left)


def _await_none(resource: Resource, namespace: str, name: str, seconds: float) -> Operation[float]:
    """Wait for the end of all Jobs, or pods, of the job; return how many seconds are left."""
    selector, left = f"{JOBSET_NAME}={name}", seconds
    while True:
        listing = yield from select(resource, namespace, selector)
        if not listing.items:
            return left
        if left <= 0:
            found = sorted(parse_meta(item).name for item in listing.items)
            raise TimedOutError(
                f"TrainJob {namespace}/{name} is gone, its {resource.plural} are not yet: {listed(found, len(found))}. "
                "They are being deleted too, pods once their nodes report their end: "
                f"`kubectl -n {namespace} get {resource.plural} -l {selector} -o wide` shows them."
            )
        left = yield from _watched(Watch(resource, namespace, listing.resource_version, left, selector=selector), left)


def _watched(request: Watch, left: float) -> Operation[float]:
    """Wait for the next change; return how many seconds are left."""
    try:
        changes: Changes = yield request
    except ExpiredError:
        # Of an object that has not changed for long the version may be forgotten, and would be again.
        yield Pause(pause := min(left, _EXPIRED_SECONDS))
        return left - pause
    return changes.seconds_left
