"""Reading whose a Workload is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dispatch_admission.decide import Foreign, Ours, Owner, Unknown
from dispatch_gates.contract.names import JOBS, JOBSETS, TRAINJOBS, WORKLOADS, Resource
from dispatch_gates.contract.next_execution import Reason
from dispatch_gates.contract.objects import MalformedError, parse_meta
from dispatch_gates.contract.trainjob import parse_trainjob
from dispatch_gates.contract.workload import Workload
from dispatch_gates.requests import ApiError, DeniedError, Operation, find

_FOLLOWED: Final[Mapping[tuple[str, str], Resource]] = {
    (resource.group, resource.kind): resource for resource in (TRAINJOBS, WORKLOADS, JOBSETS, JOBS)
}
_MAX_DEPTH: Final = 5


def read_owner(workload: Workload) -> Operation[Owner]:
    """Follow the controller owners up to a TrainJob. Only what is known not to be dispatch's is foreign."""
    child, variant = workload.meta, False
    for _ in range(_MAX_DEPTH):
        if child.owner is None:
            return Foreign(f"{child.name} has no controller owner")
        kind, name = child.owner.kind, child.owner.name
        resource = _FOLLOWED.get((child.owner.group, kind))
        if resource is None:
            return Foreign(f"owned by {kind} {name}")
        try:
            raw = yield from find(resource, workload.meta.namespace, name)
            if raw is None:
                return Unknown(Reason.OWNER_UNREADABLE, f"its owner {kind} {name} is gone")
            meta = parse_meta(raw)
        except (ApiError, MalformedError) as error:
            # The class alone: a message that changes with each try would be written each time. A refusal, which says
            # what right is missing, is the same each time.
            why = error if isinstance(error, DeniedError) else type(error).__name__
            return Unknown(Reason.OWNER_UNREADABLE, f"its owner {kind} {name} cannot be read ({why})")
        if meta.uid != child.owner.uid:
            return Unknown(
                Reason.OWNER_UNREADABLE, f"its owner {kind} {name} is gone; there is another one of that name"
            )
        if resource == TRAINJOBS:
            job = parse_trainjob(raw)
            if not job.is_dispatch:
                return Foreign(f"owned by TrainJob {name}, which dispatch did not start")
            if variant:
                return Unknown(
                    Reason.CONCURRENT_ADMISSION,
                    "concurrent admission is not supported for dispatch's jobs; turn it off",
                )
            return Ours(job)
        variant = variant or resource == WORKLOADS
        child = meta
    return Unknown(Reason.OWNER_UNREADABLE, f"more than {_MAX_DEPTH} owners, one above the other")
