"""Comparing what Start sent with what the API server holds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

from dispatch_gates.contract import names
from dispatch_gates.contract.count import our_patches, patched_jobs, template_count
from dispatch_gates.contract.gate import Gates
from dispatch_gates.contract.objects import JsonObject, dig, entries, strings, text
from dispatch_gates.contract.syntax import quantity

_MARKS: Final = "|".join(re.escape(key) for key in (names.QUEUE_NAME, names.PRIORITY_CLASS, names.ADMISSION_GATED_BY))
# Of all else the values are not told: what users write into commands, environments, labels and so on may be secret.
_TOLD: Final = re.compile(
    rf"metadata\.(labels|annotations)\[({_MARKS}|{re.escape(names.DOMAIN)}/[^]]*)\]"
    r"|spec\.(suspend|managedBy|activeDeadlineSeconds|runtimeRef(\.\w+)?)"
    r"|spec\.trainer\.(image|numNodes|numProcPerNode|resourcesPerNode(\..*)?)"
    rf"|spec\.runtimePatches\[.*{re.escape(names.ADMISSION_COUNT)}"
)


@dataclass(frozen=True)
class Difference:
    """One field that is not as it was sent."""

    path: str
    sent: Any
    found: Any

    def __str__(self) -> str:
        if _TOLD.fullmatch(self.path):
            return f"{self.path}: sent {self.sent!r}, found {self.found!r}"
        done = "added" if self.sent is None else "taken away" if self.found is None else "changed"
        return f"{self.path}: was {done}"


def differences(sent: JsonObject, found: JsonObject, *, adopted: bool = False) -> tuple[Difference, ...]:
    """Return what somebody changed on the way, among the fields that Start wrote.

    Fields that others own by design are left alone: labels and annotations beside ours, runtime patches under other
    managers that do not carry A, the server's `time` in ours and, in Kueue mode, suspend and administrators' entries
    in the start gate. On a job that was there before (`adopted`) the hold mark is no change: whoever held it meanwhile
    is right.
    """
    return tuple(_differences(sent, found, {names.HOLD} if adopted else set()))


def _differences(sent: JsonObject, found: JsonObject, later: Set[str]) -> Iterator[Difference]:
    kueue_mode = dig(sent, "metadata", "labels", names.QUEUE_NAME) is not None
    for kind in ("labels", "annotations"):
        there = strings(found, "metadata", kind)
        for key, value in strings(sent, "metadata", kind).items():
            # The start gate is a list that belongs to everybody: what counts is that our entry is on it. In plain
            # mode nobody would keep an administrator's entry.
            listed = key == names.ADMISSION_GATED_BY and kueue_mode and Gates(there.get(key)).ours
            if there.get(key) != value and not listed:
                yield Difference(f"metadata.{kind}[{key}]", value, there.get(key))
        for key in there:
            if key.startswith(f"{names.DOMAIN}/") and key not in strings(sent, "metadata", kind) and key not in later:
                # A mark that only we may set: opened, for example, would be believed.
                yield Difference(f"metadata.{kind}[{key}]", None, there[key])
    queue = dig(found, "metadata", "labels", names.QUEUE_NAME)
    if not kueue_mode and queue is not None:
        # Kueue labels jobs of a namespace that has a LocalQueue named "default", and would then lift suspend.
        yield Difference(f"metadata.labels[{names.QUEUE_NAME}]", None, queue)
    if not kueue_mode and dig(found, "spec", "suspend") is not True:
        yield Difference("spec.suspend", True, dig(found, "spec", "suspend"))
    for key, levels in (("runtimeRef", 0), ("trainer", 1), ("initializer", 2), ("activeDeadlineSeconds", 0)):
        # What was not asked for (an image, a command) is a change too; deeper down are the server's defaults.
        yield from _compared(f"spec.{key}", dig(sent, "spec", key), dig(found, "spec", key), levels)
    managed_by = dig(found, "spec", "managedBy")
    if managed_by not in (None, names.TRAINER_MANAGER):
        yield Difference("spec.managedBy", None, managed_by)
    yield from _foreign_counts(found)
    patch_sent, patches_found = our_patches(sent), our_patches(found)
    yield from _compared(
        f"spec.runtimePatches[{names.PATCH_MANAGER}]",
        list(patch_sent),
        [{key: value for key, value in patch.items() if key != "time"} for patch in patches_found],
        levels=_ALL,
    )


_ALL: Final = 99


def _foreign_counts(found: JsonObject) -> Iterator[Difference]:
    """Name runtime patches of others that carry A: a later one wins over ours."""
    for patch in entries(found, "spec", "runtimePatches"):
        manager = text(patch, "manager")
        for job in patched_jobs(patch) if manager != names.PATCH_MANAGER else ():
            if (count := template_count(job)) is not None:
                yield Difference(f"spec.runtimePatches[{manager}]: {names.ADMISSION_COUNT}", None, count)


def _compared(path: str, sent: Any, found: Any, levels: int) -> Iterator[Difference]:
    """Compare deeply, mappings by all keys on so many levels, and below by the keys sent."""
    if isinstance(sent, Mapping) and isinstance(found, Mapping):
        added = [key for key in found if key not in sent] if levels > 0 else []
        for key in (*sent, *added):
            yield from _compared(f"{path}.{key}", sent.get(key), found.get(key), levels - 1)
    elif isinstance(sent, list) and isinstance(found, list) and len(sent) == len(found):
        for index, (one, other) in enumerate(zip(sent, found, strict=True)):
            yield from _compared(f"{path}[{index}]", one, other, levels - 1)
    elif sent != found and not (".resourcesPerNode." in path and _same_quantity(sent, found)):
        yield Difference(path, sent, found)


def _same_quantity(one: Any, other: Any) -> bool:
    """Whether two quantities are equal: the API server's webhooks write 1000m as 1, and 1 as "1"."""
    first, second = quantity(one), quantity(other)
    return first is not None and first == second
