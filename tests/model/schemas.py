"""What the model API server knows of the kinds themselves: the few rules and defaults that the product can run into.

Taken from the CRDs of Kueue, Trainer and JobSet. Everything else is stored as it is sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from dispatch_gates.contract import names
from dispatch_gates.contract.names import Resource
from dispatch_gates.contract.objects import JsonObject, dig, entries
from dispatch_gates.requests import InvalidError

_DEFAULTS: Final[Mapping[Resource, JsonObject]] = {
    names.TRAINJOBS: {"suspend": False, "managedBy": names.TRAINER_MANAGER},
    names.WORKLOADS: {"active": True},
}
_IMMUTABLE: Final[Mapping[Resource, tuple[str, ...]]] = {
    names.TRAINJOBS: ("runtimeRef", "initializer", "trainer", "managedBy", "activeDeadlineSeconds"),
    names.ADMISSION_CHECKS: ("controllerName",),
}
_FIELDS: Final[Mapping[Resource, frozenset[str]]] = {
    names.TRAINJOBS: frozenset((*_IMMUTABLE[names.TRAINJOBS], "suspend", "runtimePatches")),
    names.ADMISSION_CHECKS: frozenset(("controllerName", "parameters")),
}
_STATES: Final = ("Pending", "Ready", "Retry", "Rejected")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_WITHOUT_GENERATION: Final = {names.LEASES, names.EVENTS, names.NAMESPACES}


def has_generation(resource: Resource) -> bool:
    """Whether objects of the kind count their changes."""
    return resource not in _WITHOUT_GENERATION


def refuse_unknown(resource: Resource, body: JsonObject) -> None:
    """Raise what strict validation answers to a field that the kind does not have."""
    known = _FIELDS.get(resource)
    for name in dig(body, "spec") or {}:
        if known is not None and name not in known:
            raise InvalidError(f'{resource}: strict decoding error: unknown field "spec.{name}"', status=400)


def fill(resource: Resource, body: JsonObject) -> None:
    """Set what is not said to the kind's defaults."""
    for name, value in _DEFAULTS.get(resource, {}).items():
        body["spec"].setdefault(name, value)


def check(resource: Resource, body: JsonObject, before: JsonObject | None) -> None:
    """Raise where an object may not be stored as it is, or may not become so."""
    metadata = body["metadata"]
    if not _NAME.fullmatch(metadata["name"]):
        raise InvalidError(f"{resource} {metadata['name']!r}: metadata.name: Invalid value", status=422)
    if before is not None:
        for name in _IMMUTABLE.get(resource, ()):
            if dig(body, "spec", name) != dig(before, "spec", name):
                raise InvalidError(f"{resource}: spec.{name}: field is immutable", status=422)
        added = set(metadata.get("finalizers") or ()) - set(before["metadata"].get("finalizers") or ())
        if added and before["metadata"].get("deletionTimestamp"):
            raise InvalidError(f"{resource}: no new finalizers can be added if the object is being deleted", status=422)
    if resource == names.ADMISSION_CHECKS and not dig(body, "spec", "controllerName"):
        raise InvalidError(f"{resource}: spec.controllerName: Invalid value", status=422)
    if resource == names.WORKLOADS:
        found = entries(body, "status", "admissionChecks")
        if len({entry.get("name") for entry in found}) < len(found):
            raise InvalidError(f"{resource}: status.admissionChecks: Duplicate value", status=422)
        if any(entry.get("state") not in _STATES for entry in found):
            raise InvalidError(f"{resource}: status.admissionChecks.state: Unsupported value", status=422)
