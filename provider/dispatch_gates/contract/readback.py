"""Comparing what Start sent with what the API server holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dispatch_gates.contract import names
from dispatch_gates.contract.count import our_patches
from dispatch_gates.contract.objects import JsonObject, dig, strings


@dataclass(frozen=True)
class Difference:
    """One field that is not as it was sent."""

    path: str
    sent: Any
    found: Any

    def __str__(self) -> str:
        return f"{self.path}: sent {self.sent!r}, found {self.found!r}"


def differences(sent: JsonObject, found: JsonObject) -> tuple[Difference, ...]:
    """Return what somebody changed on the way, among the fields that Start wrote.

    Fields that others own by design are left alone: what was added beside ours, Kueue's own runtime patch, the
    server's `time` in ours, and suspend in Kueue mode.
    """
    return tuple(_differences(sent, found))


def _differences(sent: JsonObject, found: JsonObject) -> Iterator[Difference]:
    for kind in ("labels", "annotations"):
        there = strings(found, "metadata", kind)
        for key, value in strings(sent, "metadata", kind).items():
            if there.get(key) != value:
                yield Difference(f"metadata.{kind}[{key}]", value, there.get(key))
    queue = dig(found, "metadata", "labels", names.QUEUE_NAME)
    kueue_mode = dig(sent, "metadata", "labels", names.QUEUE_NAME) is not None
    if not kueue_mode and queue is not None:
        # Kueue labels jobs of a namespace that has a LocalQueue named "default", and would then lift suspend.
        yield Difference(f"metadata.labels[{names.QUEUE_NAME}]", None, queue)
    if not kueue_mode and dig(found, "spec", "suspend") is not True:
        yield Difference("spec.suspend", True, dig(found, "spec", "suspend"))
    for key in ("runtimeRef", "trainer", "initializer", "activeDeadlineSeconds"):
        yield from _subset(f"spec.{key}", dig(sent, "spec", key), dig(found, "spec", key))
    managed_by = dig(found, "spec", "managedBy")
    if managed_by not in (None, names.TRAINER_MANAGER):
        yield Difference("spec.managedBy", None, managed_by)
    patch_sent, patches_found = our_patches(sent), our_patches(found)
    yield from _subset(
        f"spec.runtimePatches[{names.PATCH_MANAGER}]",
        list(patch_sent),
        [{key: value for key, value in patch.items() if key != "time"} for patch in patches_found],
        exact=True,
    )


def _subset(path: str, sent: Any, found: Any, *, exact: bool = False) -> Iterator[Difference]:
    """Compare deeply, mappings by the keys sent (by all keys where `exact`), so that the server's defaults pass."""
    if isinstance(sent, Mapping) and isinstance(found, Mapping):
        keys = [*sent, *(key for key in found if key not in sent)] if exact else list(sent)
        for key in keys:
            yield from _subset(f"{path}.{key}", sent.get(key), found.get(key), exact=exact)
    elif isinstance(sent, list) and isinstance(found, list) and len(sent) == len(found):
        for index, (one, other) in enumerate(zip(sent, found, strict=True)):
            yield from _subset(f"{path}[{index}]", one, other, exact=exact)
    elif sent != found:
        yield Difference(path, sent, found)
