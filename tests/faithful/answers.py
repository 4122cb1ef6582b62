"""Comparing what two API servers answer: equal, up to the names that each makes up, and what only one of them sets.

Left out of the comparison, on both sides: managedFields and selfLink, the time of creation and of deletion (that
there is one counts), and the wording of messages. UIDs and versions count up to renaming; the
renaming of versions must keep their order. Of Jobs and pods, which the real one fills with dozens of defaults, the
metadata, `suspend`, the phase and the number of active pods are compared; of all other kinds, everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dispatch_gates.contract import names
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.requests import ApiError, Changes, Listing

_SET_BY_SERVER = ("managedFields", "selfLink")
_FILLED = {names.JOBS.kind: (("spec", "suspend"), ("status", "active")), names.PODS.kind: (("status", "phase"),)}


@dataclass
class Renaming:
    """Which UID and version of the real API server stands for which of the model's."""

    uids: dict[str, str] = field(default_factory=dict)
    versions: dict[int, int] = field(default_factory=dict)

    def uid(self, real: str, model: str) -> bool:
        """Whether the two may be the same; from then on they are."""
        return self.uids.setdefault(real, model) == model and list(self.uids.values()).count(model) == 1

    def version(self, real: str, model: str) -> bool:
        """Whether the two may be the same, and in the same order to all others; from then on they are."""
        pair = int(real), int(model)
        if pair[0] in self.versions:
            return self.versions[pair[0]] == pair[1]
        fits = all((pair[0] < other) == (pair[1] < renamed) for other, renamed in self.versions.items())
        if fits and pair[1] not in self.versions.values():
            self.versions[pair[0]] = pair[1]
            return True
        return False


def differences(renaming: Renaming, real: Any, model: Any, kind: str = "") -> list[str]:
    """Return in words how two replies differ; errors are replies, too."""
    return list(_compared(renaming, real, model, kind))


def _compared(renaming: Renaming, real: Any, model: Any, kind: str) -> Iterator[str]:
    if isinstance(real, ApiError) and isinstance(model, ApiError):
        if (type(real), real.status) != (type(model), model.status):
            yield f"real: {_said(real)}; model: {_said(model)}"
        return
    shown = [_shown(reply) for reply in (real, model)]
    if shown[0] is None or shown[1] is None:
        if real is not None or model is not None:
            yield f"real: {_said(real)}; model: {_said(model)}"
        return
    told = [[(body["metadata"]["name"], gone) for body, gone in found] for found in shown if found is not None]
    if told[0] != told[1]:
        yield f"(name, deleted): real {told[0]}, model {told[1]}"
        return
    for (one, _), (other, _) in zip(shown[0], shown[1], strict=True):
        yield from _bodies(renaming, one, other, kind)


def _shown(reply: Any) -> tuple[tuple[JsonObject, bool], ...] | None:
    """Return the objects of a reply, each with whether it is gone; None where it is an error or says nothing."""
    match reply:
        case Listing(items, _):
            return tuple((body, False) for body in items)
        case Changes(events, _):
            return events
        case dict():
            return ((reply, False),)
    return None


def _said(reply: Any) -> str:
    return f"{type(reply).__name__} {getattr(reply, 'status', '')} {str(reply)[:200]}".strip()


def _bodies(renaming: Renaming, real: JsonObject, model: JsonObject, kind: str) -> Iterator[str]:
    for key, same in (("uid", renaming.uid), ("resourceVersion", renaming.version)):
        one, other = real["metadata"].get(key, ""), model["metadata"].get(key, "")
        if bool(one) != bool(other) or (one and not same(one, other)):
            yield f"{real['metadata']['name']}: {key} {one!r} cannot stand for the model's {other!r}"
    yield from _unequal(_reduced(real, kind), _reduced(model, kind), real["metadata"]["name"])


def _reduced(body: JsonObject, kind: str) -> JsonObject:
    kept = {key: value for key, value in body.items() if value not in ({}, None)}
    kept["metadata"] = {
        key: value if key not in ("creationTimestamp", "deletionTimestamp") else "some time"
        for key, value in body["metadata"].items()
        if value not in ({}, [], None) and key not in (*_SET_BY_SERVER, "uid", "resourceVersion")
    }
    for field_name, key in _FILLED.get(kind, ()):
        kept[field_name] = {key: (body.get(field_name) or {}).get(key)}
    if kind == names.PODS.kind:
        kept.pop("spec")
    return kept


def _unequal(real: Any, model: Any, path: str) -> Iterator[str]:
    if isinstance(real, dict) and isinstance(model, dict):
        for key in sorted({*real, *model}):
            yield from _unequal(real.get(key), model.get(key), f"{path}.{key}")
    elif real != model:
        yield f"{path}: real {real!r}, model {model!r}"
