"""The admission count A, in the one place that carries it: a pod template annotation in our runtime patch.

Kueue leaves it alone, it does not make Kueue recreate the Workload, and it reaches the pods.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from dispatch_gates.contract.names import ADMISSION_COUNT, PATCH_MANAGER
from dispatch_gates.contract.objects import JsonObject, copied, dig, entries, text

_COUNT: Final = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)
MAX_COUNT: Final = 10**18 - 1


@dataclass(frozen=True)
class Unreadable:
    """An A that is malformed, negative, too large, or not the same everywhere; `seen` says what was found."""

    seen: str


Count = int | None | Unreadable
"""A where it is carried, None where nothing carries it."""


def parse_count(value: Any) -> Count:
    """Read A as text: decimal digits without a leading zero."""
    if value is None:
        return None
    if isinstance(value, str) and _COUNT.fullmatch(value):
        return int(value)
    return Unreadable(repr(value)[:80])


def agreed(counts: Iterable[Count]) -> Count:
    """Return the A that all carriers agree on; unequal ones, or carriers without any beside others, do not count."""
    found = list(counts)
    for count in found:
        if isinstance(count, Unreadable):
            return count
    distinct = set(found)
    if len(distinct) > 1:
        return Unreadable("unequal: " + ", ".join(sorted(str(count) for count in distinct)[:8]))
    return distinct.pop() if distinct else None


def our_patches(trainjob: Any) -> tuple[JsonObject, ...]:
    """Return the runtime patches under our manager; the API server allows one at the most."""
    return tuple(p for p in entries(trainjob, "spec", "runtimePatches") if text(p, "manager") == PATCH_MANAGER)


def patched_jobs(patch: Any) -> tuple[JsonObject, ...]:
    """Return the replicated jobs of a runtime patch."""
    return entries(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")


def template_count(replicated_job: Any) -> Count:
    """Read A from a replicated job, of a runtime patch or of a JobSet: both have the same shape here."""
    annotation = dig(replicated_job, "template", "spec", "template", "metadata", "annotations", ADMISSION_COUNT)
    return parse_count(annotation)


def count_of_patches(patches: Iterable[Any]) -> Count:
    """Read A from our runtime patches."""
    return agreed(template_count(job) for patch in patches for job in patched_jobs(patch))


def runtime_patch(count: int, replicated_jobs: Iterable[str]) -> JsonObject:
    """Build our runtime patch: A in the pod template of every replicated job."""
    return {
        "manager": PATCH_MANAGER,
        "trainingRuntimeSpec": {
            "template": {
                "spec": {
                    "replicatedJobs": [
                        {
                            "name": name,
                            "template": {
                                "spec": {"template": {"metadata": {"annotations": {ADMISSION_COUNT: str(count)}}}}
                            },
                        }
                        for name in replicated_jobs
                    ]
                }
            }
        },
    }


def with_count(trainjob: JsonObject, count: int, replicated_jobs: Iterable[str]) -> JsonObject:
    """Return a copy of the TrainJob whose patch carries `count` for each replicated job, and nothing else changed.

    `replicated_jobs` names those that must carry it; the patch is written anew where it was stripped. It must
    not be called with a count that is not higher than what the TrainJob carries.
    """
    before = count_of_patches(our_patches(trainjob))
    if not 0 < count <= MAX_COUNT or isinstance(before, Unreadable) or (before is not None and count <= before):
        raise AssertionError(f"A may only be raised: {before!r} to {count}")
    raised = copied(trainjob)
    patches = raised["spec"].setdefault("runtimePatches", [])
    ours = our_patches(raised)
    if not ours:
        patches.append(runtime_patch(count, replicated_jobs))
        return raised
    jobs = patched_jobs(ours[0])
    missing = set(replicated_jobs) - {text(job, "name") for job in jobs}
    if not jobs or missing:
        # Keep what else the patch may say; only A is ours to write.
        fresh = runtime_patch(count, sorted(missing) if jobs else replicated_jobs)
        spec = ours[0].setdefault("trainingRuntimeSpec", {}).setdefault("template", {}).setdefault("spec", {})
        spec["replicatedJobs"] = [*jobs, *patched_jobs(fresh)]
    for job in jobs:
        template = job.setdefault("template", {}).setdefault("spec", {}).setdefault("template", {})
        template.setdefault("metadata", {}).setdefault("annotations", {})[ADMISSION_COUNT] = str(count)
    return raised
