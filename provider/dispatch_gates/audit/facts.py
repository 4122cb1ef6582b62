"""What matters of the objects in an audit log: a few facts of each write, so that bodies need not be kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from dispatch_gates.contract.names import (
    ADMISSION_COUNT,
    ADMISSION_GATED_BY,
    GATE,
    JOBSET_NAME,
    PATCH_MANAGER,
    QUEUE_NAME,
)

Object: TypeAlias = Mapping[str, Any]

OURS: Final = re.compile(r"dj-[0-7][0-9a-hjkmnp-tv-z]{25}-s(0|[1-9][0-9]*)")
"""How a job of dispatch's is named."""


@dataclass(frozen=True, slots=True)
class About:
    """An object's metadata. `kept` is by finalizers, `gated` by dispatch's entry in the start gate."""

    uid: str
    name: str
    generation: int
    deleting: bool
    grace: int | None
    kept: bool
    owner: tuple[str, str]
    gated: bool


@dataclass(frozen=True, slots=True)
class Partial:
    """A write that was answered with metadata alone, as the garbage collector's: all else is as it was."""

    about: About


@dataclass(frozen=True, slots=True)
class TrainJobFacts:
    """A TrainJob. `counts` are the A of each replicated job in our runtime patch; empty without that patch."""

    about: About
    suspended: bool
    counts: tuple[int | None, ...]
    queued: bool


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """A Workload: its admission checks that are Ready, and its conditions that are True."""

    about: About
    active: bool
    ready: frozenset[str]
    true: frozenset[str]


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A batch Job of a JobSet."""

    about: About
    jobset: str
    count: int | None
    suspended: bool
    finished: bool


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod of a JobSet. `ended`: an end phase, and no container that still runs."""

    about: About
    jobset: str
    count: int | None
    running: bool
    ended: bool


Facts: TypeAlias = Partial | TrainJobFacts | WorkloadFacts | JobFacts | PodFacts


def facts_of(resource: str, body: Object) -> Facts:
    """Take the facts from an object of this resource; a shape that no API server sends raises one of `SHAPE_ERRORS`."""
    about = _about(body)
    if body.get("kind") == "PartialObjectMetadata":
        return Partial(about)
    match resource:
        case "trainjobs":
            queued = bool(at(body, "metadata", "labels", QUEUE_NAME))
            return TrainJobFacts(about, bool(at(body, "spec", "suspend")), tuple(_counts(body)), queued)
        case "workloads":
            checks = at(body, "status", "admissionChecks") or []
            ready = frozenset(each["name"] for each in checks if each.get("state") == "Ready")
            return WorkloadFacts(about, at(body, "spec", "active") is not False, ready, _true(body))
        case "jobs":
            template = at(body, "spec", "template", "metadata") or {}
            finished = bool(_true(body) & {"Complete", "Failed"})
            return JobFacts(about, _jobset(body), count_in(template), bool(at(body, "spec", "suspend")), finished)
        case _:
            phase = at(body, "status", "phase")
            ended = phase in ("Succeeded", "Failed") and not _has_live_container(body)
            return PodFacts(about, _jobset(body), count_in(body.get("metadata") or {}), phase == "Running", ended)


SHAPE_ERRORS: Final = (AttributeError, KeyError, TypeError, ValueError)


def at(value: Any, *path: str) -> Any:
    """Follow `path` into nested objects; None where it ends early."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def count_in(metadata: Object) -> int | None:
    """Read A from annotations; None where it is missing or is no number."""
    text = at(metadata, "annotations", ADMISSION_COUNT)
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() else None


def _about(body: Object) -> About:
    metadata = body.get("metadata") or {}
    owners = (owner for owner in metadata.get("ownerReferences") or [] if owner.get("controller"))
    owner: Object = next(owners, {})
    # Entries are trimmed, as Kueue reads them.
    entries = str(at(metadata, "annotations", ADMISSION_GATED_BY) or "").split(",")
    return About(
        uid=str(metadata.get("uid") or ""),
        name=str(metadata.get("name") or ""),
        generation=int(metadata.get("generation") or 0),
        deleting=bool(metadata.get("deletionTimestamp")),
        grace=metadata.get("deletionGracePeriodSeconds"),
        kept=bool(metadata.get("finalizers")),
        owner=(str(owner.get("kind") or ""), str(owner.get("name") or "")),
        gated=GATE in (entry.strip() for entry in entries),
    )


def _jobset(body: Object) -> str:
    return str(at(body, "metadata", "labels", JOBSET_NAME) or "")


def _counts(body: Object) -> Iterator[int | None]:
    for patch in at(body, "spec", "runtimePatches") or []:
        if patch.get("manager") == PATCH_MANAGER:
            for job in at(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs") or []:
                yield count_in(at(job, "template", "spec", "template", "metadata") or {})


def _true(body: Object) -> frozenset[str]:
    conditions = at(body, "status", "conditions") or []
    return frozenset(each["type"] for each in conditions if each.get("status") == "True")


def _has_live_container(body: Object) -> bool:
    """Tell whether a container of an ended pod still runs; one that waits will not be started any more."""
    kinds = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    states = [status.get("state") or {} for kind in kinds for status in at(body, "status", kind) or []]
    return any("terminated" not in state and "waiting" not in state for state in states)
