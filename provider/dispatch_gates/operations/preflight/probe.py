"""The probe: a gated job that no node can run, watched from before it exists until it is deleted.

Both watches begin at versions read before the probe is created. So they miss nothing that happened meanwhile, however
short, and the read-only checks are done beside them. A version that is no longer kept is a gap, and proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from dispatch_gates.contract import names
from dispatch_gates.contract.execution import parse_pod
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.manifest import JobSpec, Runtime, manifest
from dispatch_gates.contract.readback import differences
from dispatch_gates.contract.trainjob import TrainJob, parse_trainjob
from dispatch_gates.contract.workload import Workload, parse_workload
from dispatch_gates.operations.errors import OperationError
from dispatch_gates.operations.preflight.proof import Seen, is_gated
from dispatch_gates.operations.preflight.values import PROBE_OWNER, Asked, Probe, Stands
from dispatch_gates.operations.stop import delete_job
from dispatch_gates.requests import (
    ApiError,
    BadReplyError,
    Changes,
    ConflictError,
    Create,
    Delete,
    NotFoundError,
    NotServedError,
    Operation,
    Pause,
    UnreachableError,
    Watch,
    find,
    select,
    write,
)

NOWHERE: Final = f"{names.DOMAIN}/nowhere"
"""A node label that nobody sets: the probe asks for it, so that no node takes a pod of it."""
PATCH: Final = f"{names.DOMAIN}/preflight"
"""Manager of the runtime patch that asks for it."""
_SETTLE_SECONDS: Final = 0.5
_REPLAY_SECONDS: Final = 1.0
"""How long a watch is held at least, so that what happened before it began comes in."""
_LOOKS: Final = 3


def probe_spec(asked: Asked, probe: Identity, runtime: Runtime) -> JobSpec:
    """Build the smallest job there is, kept off all nodes."""
    pod = {"spec": {"nodeSelector": {NOWHERE: "true"}}}
    replicated = [{"name": name, "template": {"spec": {"template": pod}}} for name, *_ in runtime.replicated_jobs]
    patch = {"manager": PATCH, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": replicated}}}}
    return JobSpec(
        identity=probe,
        namespace=asked.namespace,
        queue=asked.queue,
        spec={
            "runtimeRef": {"kind": runtime.kind, "name": runtime.name},
            "trainer": {"numNodes": 1, "resourcesPerNode": {"requests": {"cpu": "1m"}}},
            "runtimePatches": [patch],
        },
        owner=PROBE_OWNER,
    )


@dataclass(frozen=True)
class Versions:
    """The versions of pods and of Workloads (Kueue mode) that the watches begin at."""

    pods: str
    workloads: str = ""


def begin(asked: Asked, probe: Identity) -> Operation[Versions]:
    """Read the versions to watch from. Selectors that match nothing: only the versions count."""
    pods = yield from select(names.PODS, asked.namespace, f"{names.JOBSET_NAME}={probe.name}")
    if asked.queue is None:
        return Versions(pods.resource_version)
    workloads = yield from select(names.WORKLOADS, asked.namespace, f"{names.JOB_UID}={probe.name}")
    return Versions(pods.resource_version, workloads.resource_version)


def create(asked: Asked, probe: Identity, runtime: Runtime) -> Operation[Seen]:
    """Create the probe; where the answer is lost, find it. Raises what kept it from being created."""
    spec = probe_spec(asked, probe, runtime)
    body = manifest(spec, [name for name, *_ in runtime.replicated_jobs])
    try:
        stored = yield from write(Create(names.TRAINJOBS, body))
    except (UnreachableError, BadReplyError) as error:
        found = yield from find(names.TRAINJOBS, asked.namespace, probe.name)
        if found is None:
            raise error
        stored = found
    return Seen(parse_trainjob(stored), differences(body, stored))


def watch(asked: Asked, seen: Seen, versions: Versions, until: float, clock: Callable[[], float]) -> Operation[Seen]:
    """Watch the probe until `until` by `clock`, then list the end state; ends early where it leaks."""
    if not seen.leaks:
        seen = yield from _watch_pods(asked, seen, versions.pods, until - clock())
    return (yield from _end_state(asked, seen, versions.workloads))


def watch_workload(asked: Asked, seen: Seen, versions: Versions, seconds: float) -> Operation[tuple[Seen, Versions]]:
    """Watch until Kueue has said that the Workload is gated; return the version seen up to, too.

    To be run as soon as the probe is there: where many Workloads change at once, the API server soon has forgotten what
    came after a version that no change had.
    """
    version = versions.workloads
    selector, left = f"{names.JOB_UID}={seen.job.meta.uid}", max(seconds, _REPLAY_SECONDS)
    while left > 0 and not seen.leaks and not (seen.workloads and is_gated(seen.workloads[-1])):
        request = Watch(names.WORKLOADS, asked.namespace, version, left, selector=selector, settle=_SETTLE_SECONDS)
        try:
            changes: Changes = yield request
        except ApiError as error:
            return replace(seen, gaps=(*seen.gaps, f"its Workload could not be watched: {error}")), versions
        seen, version = _with_workloads(seen, changes, version)
        left = changes.seconds_left
    return seen, replace(versions, workloads=version)


def _with_workloads(seen: Seen, changes: Changes, version: str) -> tuple[Seen, str]:
    found = [parse_workload(raw) for raw, _ in changes.events]
    ours = [found_one for found_one in found if _owned(seen, found_one)]
    version = found[-1].meta.resource_version if found else version
    return replace(seen, workloads=(*seen.workloads, *ours)), version


def _owned(seen: Seen, workload: Workload) -> bool:
    return workload.meta.owner is not None and workload.meta.owner.uid == seen.job.meta.uid


def _watch_pods(asked: Asked, seen: Seen, version: str, seconds: float) -> Operation[Seen]:
    """Watch for a pod; long enough that what came before is shown, even where the time is over."""
    selector, left = f"{names.JOBSET_NAME}={seen.job.meta.name}", max(seconds, _REPLAY_SECONDS)
    while left > 0:
        try:
            changes: Changes = yield Watch(names.PODS, asked.namespace, version, left, selector=selector)
        except ApiError as error:
            return replace(seen, gaps=(*seen.gaps, f"pods could not be watched: {error}"))
        if changes.events:
            return replace(seen, pods=tuple(str(parse_pod(raw)) for raw, _ in changes.events))
        left = changes.seconds_left
    return seen


def _end_state(asked: Asked, seen: Seen, version: str) -> Operation[Seen]:
    """List what there is of the probe at the end, and make sure that no change of its Workload was missed."""
    pods = yield from select(names.PODS, asked.namespace, f"{names.JOBSET_NAME}={seen.job.meta.name}")
    if not seen.pods:
        seen = replace(seen, pods=tuple(str(parse_pod(raw)) for raw in pods.items))
    selector = f"{names.JOB_UID}={seen.job.meta.uid}"
    try:
        listing = yield from select(names.WORKLOADS, asked.namespace, selector)
    except NotServedError:
        if asked.queue is not None:
            raise  # what was not seen is no end state
        return seen  # no such kind: Kueue is not installed
    last = [found for found in map(parse_workload, listing.items) if _owned(seen, found)]
    if asked.queue is not None and last and not seen.leaks:
        seen = yield from _catch_up(asked, seen, version, last[-1])
    return replace(seen, workloads=(*seen.workloads, *last))


def _catch_up(asked: Asked, seen: Seen, version: str, last: Workload) -> Operation[Seen]:
    """Read the changes of the Workload up to the version that the list showed."""
    selector = f"{names.JOB_UID}={seen.job.meta.uid}"
    request = Watch(names.WORKLOADS, asked.namespace, "", _REPLAY_SECONDS, selector=selector, settle=_SETTLE_SECONDS)
    for _ in range(_LOOKS):
        if last.meta.resource_version in {workload.meta.resource_version for workload in seen.workloads}:
            return seen
        try:
            changes: Changes = yield replace(request, resource_version=version)
        except ApiError as error:
            return replace(seen, gaps=(*seen.gaps, f"changes of its Workload could not be read: {error}"))
        seen, version = _with_workloads(seen, changes, version)
    return replace(seen, gaps=(*seen.gaps, "changes of its Workload were lost"))


def remove(job: TrainJob) -> Operation[str]:
    """Delete a probe of this version, or as it is by now; return what kept it from being deleted, empty if nothing."""
    meta = job.meta
    try:
        try:
            yield Delete(names.TRAINJOBS, meta.namespace, meta.name, meta.uid, meta.resource_version)
        except (ConflictError, UnreachableError):
            yield from delete_job(meta.namespace, meta.name, meta.uid)
    except NotFoundError:
        return ""
    except (ApiError, OperationError) as error:
        return str(error)
    return ""


def remove_probe(probe: Probe) -> Operation[bool]:
    """Delete the probe that preflight was cut off over; return whether it is certainly gone.

    Where it is not there yet it is looked for again: a create whose answer was not awaited may still arrive.
    """
    for _ in range(_LOOKS):
        raw = yield from find(names.TRAINJOBS, probe.namespace, probe.name)
        if raw is not None:
            return not (yield from remove(parse_trainjob(raw)))
        if probe.stands is not Stands.SENT:
            return True
        yield Pause(_SETTLE_SECONDS)
    return False
