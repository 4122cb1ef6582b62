"""Reading JSON that somebody else wrote: nothing here raises on a wrong shape, save `parse_meta`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

J = TypeVar("J")
JsonObject: TypeAlias = dict[str, Any]
"""One object as the API server sent it. Treated as read-only: writes are made of deep copies."""


class MalformedError(ValueError):
    """An object has not the shape that its kind promises; the message says where."""


def dig(value: Any, *path: str) -> Any:
    """Return what is at `path`, or None where a step is missing or is no mapping."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def text(value: Any, *path: str) -> str | None:
    """Return the string at `path`, or None."""
    found = dig(value, *path)
    return found if isinstance(found, str) else None


def flag(value: Any, *path: str) -> bool | None:
    """Return the boolean at `path`, or None."""
    found = dig(value, *path)
    return found if isinstance(found, bool) else None


def number(value: Any, *path: str) -> int | None:
    """Return the integer at `path`, or None."""
    found = dig(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def entries(value: Any, *path: str) -> tuple[JsonObject, ...]:
    """Return the mappings of the list at `path`; anything else counts as an empty list."""
    found = dig(value, *path)
    return tuple(item for item in found if isinstance(item, dict)) if isinstance(found, list) else ()


def strings(value: Any, *path: str) -> Mapping[str, str]:
    """Return the string-to-string entries of the mapping at `path`."""
    found = dig(value, *path)
    if not isinstance(found, Mapping):
        return {}
    return {key: item for key, item in found.items() if isinstance(key, str) and isinstance(item, str)}


def copied(value: J) -> J:
    """Return a copy of JSON that shares nothing that can be changed; several times as fast as `copy.deepcopy`."""
    found: J = _copied(value)
    return found


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value


@dataclass(frozen=True)
class Owner:
    """A controller owner reference."""

    api_version: str
    kind: str
    name: str
    uid: str

    @property
    def group(self) -> str:
        """The API group, empty for the core group."""
        return self.api_version.rpartition("/")[0]


@dataclass(frozen=True)
class Meta:
    """The part of metadata that decisions rest on. Name, uid and version are not empty; the namespace may be."""

    name: str
    uid: str
    resource_version: str
    namespace: str = ""
    deleting: bool = False
    owner: Owner | None = None
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)


def parse_meta(raw: Any) -> Meta:
    """Parse metadata; raise `MalformedError` without name, uid or resourceVersion, or with two controllers."""
    name, uid, version = (text(raw, "metadata", key) for key in ("name", "uid", "resourceVersion"))
    if not name or not uid or not version:
        raise MalformedError(f"{text(raw, 'kind') or 'object'} {name!r}: metadata lacks name, uid or resourceVersion")
    return Meta(
        name=name,
        uid=uid,
        resource_version=version,
        namespace=text(raw, "metadata", "namespace") or "",
        deleting=dig(raw, "metadata", "deletionTimestamp") is not None,
        owner=_controller(name, raw),
        labels=strings(raw, "metadata", "labels"),
        annotations=strings(raw, "metadata", "annotations"),
    )


def _controller(name: str, raw: Any) -> Owner | None:
    found = [ref for ref in entries(raw, "metadata", "ownerReferences") if flag(ref, "controller")]
    if not found:
        return None
    parts = [text(found[0], key) for key in ("apiVersion", "kind", "name", "uid")]
    if len(found) > 1 or not all(parts):
        raise MalformedError(f"{text(raw, 'kind') or 'object'} {name!r}: its controller owner reference is unreadable")
    return Owner(*(part or "" for part in parts))


@dataclass(frozen=True)
class Condition:
    """One entry of status.conditions."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    time: str = ""


@dataclass(frozen=True)
class Conditions:
    """status.conditions, asked in two ways, so that an unknown or doubled condition is neither true nor clear."""

    found: tuple[Condition, ...] = ()

    def get(self, kind: str) -> Condition | None:
        """Return the first condition of this type."""
        return next((condition for condition in self.found if condition.type == kind), None)

    def _statuses(self, kind: str) -> set[str]:
        return {condition.status for condition in self.found if condition.type == kind}

    def true(self, kind: str) -> bool:
        """Whether the condition is there and says True, and nothing else."""
        return self._statuses(kind) == {"True"}

    def clear(self, kind: str) -> bool:
        """Whether the condition is absent, or says False and nothing else."""
        return self._statuses(kind) <= {"False"}


def parse_conditions(raw: Any) -> Conditions:
    """Parse status.conditions; an entry without type or status reads as status Unknown."""
    return Conditions(
        tuple(
            Condition(
                type=text(entry, "type") or "",
                status=text(entry, "status") or "Unknown",
                reason=text(entry, "reason") or "",
                message=text(entry, "message") or "",
                time=text(entry, "lastTransitionTime") or "",
            )
            for entry in entries(raw, "status", "conditions")
        )
    )


def listed(names: Iterable[str], total: int, at_most: int = 3) -> str:
    """Join a few names for a message, with the total where there are more."""
    shown = list(names)[:at_most]
    more = total - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
