"""Stop: delete a job and wait until nothing of it is left."""

from __future__ import annotations

from typing import Final

from dispatch_gates.contract.names import JOBSET_NAME, PODS, TRAINJOBS
from dispatch_gates.contract.objects import listed, parse_meta
from dispatch_gates.operations.errors import RefusedError, TimedOutError
from dispatch_gates.operations.jobs import read_job
from dispatch_gates.requests import (
    Changes,
    ConflictError,
    Delete,
    ExpiredError,
    NotFoundError,
    Operation,
    Watch,
    find,
    select,
)

_ATTEMPTS: Final = 8


def delete_job(namespace: str, name: str, uid: str) -> Operation[None]:
    """Delete the TrainJob of this UID in the foreground; success where it is gone or on its way already.

    Raises `RefusedError` where there is another TrainJob of that name: that one is not touched.
    """
    for _ in range(_ATTEMPTS):
        job = yield from read_job(namespace, name)
        if job is None or (job.meta.uid == uid and job.meta.deleting):
            return
        if job.meta.uid != uid:
            raise RefusedError(
                f"TrainJob {namespace}/{name} is another one (uid {job.meta.uid}, {uid} was expected); not deleted."
            )
        try:
            yield Delete(TRAINJOBS, namespace, name, uid, job.meta.resource_version)
        except NotFoundError:
            return
        except ConflictError:
            continue
        return
    raise TimedOutError(
        f"TrainJob {namespace}/{name} was not deleted: it changed {_ATTEMPTS} times in a row. Try again."
    )


def stop(namespace: str, name: str, uid: str, *, seconds: float) -> Operation[None]:
    """Delete the job and wait until the TrainJob and its pods are gone, `seconds` at most (then `TimedOutError`)."""
    yield from delete_job(namespace, name, uid)
    left = seconds
    left = yield from _await_job_gone(namespace, name, uid, left)
    yield from _await_pods_gone(namespace, name, left)


def _await_job_gone(namespace: str, name: str, uid: str, seconds: float) -> Operation[float]:
    left = seconds
    while True:
        raw = yield from find(TRAINJOBS, namespace, name)
        if raw is None or parse_meta(raw).uid != uid:
            return left
        if left <= 0:
            finalizers = raw["metadata"].get("finalizers") or []
            raise TimedOutError(
                f"TrainJob {namespace}/{name} is still there after {seconds:g} s, being deleted; "
                f"finalizers: {finalizers}."
            )
        left = yield from _watched(Watch(TRAINJOBS, namespace, parse_meta(raw).resource_version, left, name=name), left)


def _await_pods_gone(namespace: str, name: str, seconds: float) -> Operation[None]:
    selector, left = f"{JOBSET_NAME}={name}", seconds
    while True:
        listing = yield from select(PODS, namespace, selector)
        if not listing.items:
            return
        if left <= 0:
            pods = sorted(parse_meta(item).name for item in listing.items)
            raise TimedOutError(
                f"TrainJob {namespace}/{name} is gone, its pods are not yet: {listed(pods, len(pods))}."
            )
        left = yield from _watched(Watch(PODS, namespace, listing.resource_version, left, selector=selector), left)


def _watched(request: Watch, left: float) -> Operation[float]:
    """Wait for the next change; return how many seconds are left."""
    try:
        changes: Changes = yield request
    except ExpiredError:
        return left
    return changes.seconds_left
