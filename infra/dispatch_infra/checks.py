"""Small rules that refuse a setting with a sentence about it: what was seen, what was expected."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_SUBDOMAIN: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL.pattern}(\.{_LABEL.pattern})*", re.ASCII)
_DIGEST: Final = re.compile(r"[^@\s]+@sha256:[0-9a-f]{64}", re.ASCII)


def name(value: str, what: str) -> None:
    """Raise `ValueError` unless `value` can name a Kubernetes object."""
    if not _SUBDOMAIN.fullmatch(value):
        raise ValueError(
            f"{what} {value!r} is not a Kubernetes name: lower-case letters, digits, '-' and '.' were expected."
        )


def label(value: str, what: str) -> None:
    """Raise `ValueError` unless `value` is a name without dots of at most 63 characters, as namespaces have."""
    if not _LABEL.fullmatch(value):
        raise ValueError(f"{what} {value!r} is not valid: 1 to 63 lower-case letters, digits and '-' were expected.")


def between(value: int, low: int, high: int, what: str) -> None:
    """Raise `ValueError` unless `value` lies between `low` and `high`, both included."""
    if not low <= value <= high:
        raise ValueError(f"{what} {value} is out of bounds: {low} to {high} was expected.")


def one_of(value: str, allowed: Collection[str], what: str) -> None:
    """Raise `ValueError` unless `value` is one of `allowed`."""
    if value not in allowed:
        raise ValueError(f"{what} {value!r} is not known: one of {', '.join(allowed)} was expected.")


def unique(values: Collection[str], what: str) -> None:
    """Raise `ValueError` if a value comes twice."""
    twice = sorted({value for value in values if list(values).count(value) > 1})
    if twice:
        raise ValueError(f"{what} {', '.join(twice)} given more than once.")


def image(reference: str, *, allow_tag: bool) -> str:
    """Return `reference`; raise `ValueError` if it is empty or, without `allow_tag`, names no digest.

    A tag can be moved to another program, which would then hold the controller's rights.
    """
    if not reference or any(character.isspace() for character in reference):
        raise ValueError(f"image {reference!r} is not an image reference: NAME@sha256:DIGEST was expected.")
    if not allow_tag and not _DIGEST.fullmatch(reference):
        raise ValueError(
            f"image {reference!r} names no digest: NAME@sha256:DIGEST was expected. "
            "Set allowImageTag (allow_image_tag) to run an image by its tag all the same."
        )
    return reference
