"""What a training runtime can do that would start an execution behind the gates' back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from dispatch_gates.contract.manifest import Runtime
from dispatch_gates.contract.objects import dig, entries, number, text

FORCED_DELETION: Final = "kueue.x-k8s.io/safe-to-forcefully-delete"
"""With it, Kueue deletes a pod's record while its process may still run."""


@dataclass(frozen=True)
class Hazard:
    """One setting of a runtime. `fatal`: Start refuses; else executions inside one admission share an A."""

    field: str
    why: str
    fatal: bool

    def __str__(self) -> str:
        return f"{self.field}: {self.why}"


def hazards(runtime: Runtime) -> tuple[Hazard, ...]:
    """Return what is dangerous about a runtime, the fatal first."""
    return tuple(sorted(_hazards(runtime.raw), key=lambda hazard: (not hazard.fatal, hazard.field)))


def _hazards(raw: Any) -> Iterator[Hazard]:
    template = "spec.template.spec"
    jobset = dig(raw, *template.split("."))
    if dig(jobset, "ttlSecondsAfterFinished") is not None:
        why = "Trainer makes the JobSet again once it is removed, and an ended job runs again without any admission"
        yield Hazard(f"{template}.ttlSecondsAfterFinished", why, fatal=True)
    strategy = text(jobset, "failurePolicy", "restartStrategy") or "Recreate"
    restarts = number(jobset, "failurePolicy", "maxRestarts") or 0
    if restarts and strategy != "BlockingRecreate":
        why = f"{restarts} restarts with {strategy} may overlap under one A; BlockingRecreate waits for the old pods"
        yield Hazard(f"{template}.failurePolicy.maxRestarts", why, fatal=False)
    for job in entries(jobset, "replicatedJobs"):
        yield from _job_hazards(job, f"{template}.replicatedJobs[{text(job, 'name')}].template")


def _job_hazards(job: Any, path: str) -> Iterator[Hazard]:
    spec = dig(job, "template", "spec")
    if dig(spec, "ttlSecondsAfterFinished") is not None:
        why = "the Job of an ended execution is removed, and with it what shows that it is over"
        yield Hazard(f"{path}.spec.ttlSecondsAfterFinished", why, fatal=True)
    if dig(spec, "template", "metadata", "annotations", FORCED_DELETION) is not None:
        why = f"{FORCED_DELETION} lets Kueue remove the record of a pod that may still run"
        yield Hazard(f"{path}.spec.template.metadata.annotations", why, fatal=True)
    backoff = number(spec, "backoffLimit")
    if backoff != 0:
        seen = "unset, which means 6" if backoff is None else str(backoff)
        yield Hazard(f"{path}.spec.backoffLimit", f"{seen}: failed pods are replaced under the same A", fatal=False)
    policy = text(spec, "podReplacementPolicy")
    if policy != "Failed":
        why = f"{policy or 'unset'}: a pod that is being deleted may be replaced while it still runs; Failed waits"
        yield Hazard(f"{path}.spec.podReplacementPolicy", why, fatal=False)
