"""A TrainJob as the gates see it."""

from __future__ import annotations

from dataclasses import dataclass, field

from dispatch_gates.contract.count import Count, count_of_patches, our_patches
from dispatch_gates.contract.gate import Gates
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.names import ADMISSION_GATED_BY, HOLD, OPENED, OWNER, QUEUE_NAME, SPEC_HASH
from dispatch_gates.contract.objects import (
    Conditions,
    JsonObject,
    Meta,
    copied,
    flag,
    parse_conditions,
    parse_meta,
    text,
)


@dataclass(frozen=True)
class TrainJob:
    """One version of a TrainJob. `raw` is what was read; writes are made of copies of it."""

    meta: Meta
    suspended: bool
    gates: Gates
    conditions: Conditions
    patched: bool
    count: Count
    runtime: tuple[str, str]
    raw: JsonObject = field(repr=False, compare=False)

    @property
    def is_dispatch(self) -> bool:
        """Whether the job is dispatch's: by its name, or by a runtime patch under our manager.

        Labels are not consulted, so that stripping them waves no job past the check.
        """
        return self.patched or Identity.parse(self.meta.name) is not None

    @property
    def held(self) -> bool:
        """Whether the hold mark is set; any value counts."""
        return HOLD in self.meta.annotations

    @property
    def opened(self) -> bool:
        """Whether the opened mark of plain mode is set."""
        return OPENED in self.meta.annotations

    @property
    def queue(self) -> str | None:
        """The queue label: Kueue manages the job where it is set."""
        return self.meta.labels.get(QUEUE_NAME)

    @property
    def kueue_mode(self) -> bool:
        """Whether Kueue decides when the job runs; otherwise suspend is ours."""
        return self.queue is not None

    @property
    def past_gate(self) -> bool:
        """Whether the job was opened. Kueue mode: our entry is gone; plain mode: the opened mark is there."""
        return not self.gates.ours if self.kueue_mode else self.opened

    @property
    def ended(self) -> str | None:
        """`Complete` or `Failed` where the job has ended."""
        return next((kind for kind in ("Complete", "Failed") if self.conditions.true(kind)), None)

    @property
    def owner_mark(self) -> str | None:
        """What started the job: project, stack and name of a Pulumi resource, or preflight."""
        return self.meta.annotations.get(OWNER)

    @property
    def spec_hash(self) -> str | None:
        """The hash of what Start was asked for."""
        return self.meta.annotations.get(SPEC_HASH)


def parse_trainjob(raw: JsonObject) -> TrainJob:
    """Parse a TrainJob; raise `MalformedError` where its metadata is unreadable.

    `suspended` is True only where the field says so: unset means running.
    """
    meta = parse_meta(raw)
    patches = our_patches(raw)
    return TrainJob(
        meta=meta,
        suspended=flag(raw, "spec", "suspend") is True,
        gates=Gates(meta.annotations.get(ADMISSION_GATED_BY)),
        conditions=parse_conditions(raw),
        patched=bool(patches),
        count=count_of_patches(patches),
        runtime=(
            text(raw, "spec", "runtimeRef", "kind") or "",
            text(raw, "spec", "runtimeRef", "name") or "",
        ),
        raw=raw,
    )


def without_gate(job: TrainJob) -> JsonObject:
    """Return a copy of the TrainJob without our entry in the start gate, if it is there; all else as it was."""
    opened = copied(job.raw)
    if not job.gates.ours:
        return opened
    annotations = opened["metadata"]["annotations"]
    left = job.gates.without_ours().value
    if left is None:
        del annotations[ADMISSION_GATED_BY]
    else:
        annotations[ADMISSION_GATED_BY] = left
    return opened
