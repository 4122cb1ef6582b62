"""A Kueue Workload as the readmission gate sees it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum

from dispatch_gates.contract.gate import Gates
from dispatch_gates.contract.names import ADMISSION_GATED_BY
from dispatch_gates.contract.objects import (
    Conditions,
    JsonObject,
    Meta,
    copied,
    dig,
    entries,
    flag,
    parse_conditions,
    parse_meta,
    text,
)


class State(StrEnum):
    """The states of an admission check that we ever write."""

    PENDING = "Pending"
    READY = "Ready"


@dataclass(frozen=True)
class Check:
    """One entry of status.admissionChecks; `state` is whatever text was found."""

    name: str
    state: str
    message: str
    time: str


@dataclass(frozen=True)
class Workload:
    """One version of a Workload. `raw` is what was read; writes are made of copies of it."""

    meta: Meta
    active: bool
    admission: bool
    conditions: Conditions
    checks: tuple[Check, ...]
    raw: JsonObject = field(repr=False, compare=False)

    def entry(self, ours: Collection[str]) -> Check | None:
        """Return the entry of a check of `ours`, of several one that is still Pending; None where none is listed."""
        found = [check for check in self.checks if check.name in ours]
        return next((check for check in found if check.state == State.PENDING), found[0] if found else None)

    @property
    def gates(self) -> Gates:
        """The start gate as Kueue copied it here. Our own gate is read from the TrainJob alone."""
        return Gates(self.meta.annotations.get(ADMISSION_GATED_BY))

    @property
    def reserved(self) -> bool:
        """Whether quota is reserved: the condition says so, and there is an admission to back it."""
        return self.conditions.true("QuotaReserved") and self.admission


def parse_workload(raw: JsonObject) -> Workload:
    """Parse a Workload; raise `MalformedError` where its metadata is unreadable."""
    return Workload(
        meta=parse_meta(raw),
        active=flag(raw, "spec", "active") is not False,
        admission=dig(raw, "status", "admission") is not None,
        conditions=parse_conditions(raw),
        checks=tuple(
            Check(
                name=text(entry, "name") or "",
                state=text(entry, "state") or "",
                message=text(entry, "message") or "",
                time=text(entry, "lastTransitionTime") or "",
            )
            for entry in entries(raw, "status", "admissionChecks")
        ),
        raw=raw,
    )


def with_check(workload: Workload, name: str, state: State, message: str, time: str) -> JsonObject:
    """Return a copy of the Workload in which our entry alone says `state` and `message`.

    `time` (RFC 3339) becomes lastTransitionTime where the state changes. Order, other entries and fields that
    we do not know stay as they were.
    """
    written = copied(workload.raw)
    for entry in entries(written, "status", "admissionChecks"):
        if entry.get("name") == name:
            if entry.get("state") != state:
                entry["lastTransitionTime"] = time
            entry["state"] = str(state)
            entry["message"] = message
    return written
