"""What the API server takes as a quantity, as a key or value of a label, and as a key of an annotation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

_QUANTITY: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,3}))?", re.ASCII)
_SUFFIXES: Final[Mapping[str, Decimal]] = {
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate(("n", "u", "m", "", "k", *"MGTPE"), -3)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}
# k8s.io/apimachinery/pkg/util/validation/validation.go: IsQualifiedName, IsDNS1123Subdomain, IsValidLabelValue.
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_DNS_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_DNS_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_MAX_SUBDOMAIN: Final = 253

NAME: Final = "at most 63 of A-Z, a-z, 0-9, '-', '_' and '.', a letter or digit first and last"
"""What the value of a label must be where it is not empty, and a key after its prefix."""
KEY: Final = f"a DNS name and '/', which may be left out, and then {NAME}"
"""What a key must be."""


def quantity(value: Any) -> Decimal | None:
    """Return the number that a quantity stands for, or None where the value is none."""
    found = _QUANTITY.fullmatch(str(value)) if not isinstance(value, bool) else None
    if found is None:
        return None
    number, suffix, exponent = found.groups()
    return Decimal(number) * (_SUFFIXES[suffix or ""] * Decimal(10) ** int(exponent or 0))


def is_dns_label(value: Any) -> bool:
    """Whether the value can name a namespace."""
    return isinstance(value, str) and bool(_DNS_LABEL.fullmatch(value))


def is_label_key(value: Any) -> bool:
    """Whether the value can be the key of a label: `name` or `dns.name/name`."""
    prefix, slash, name = value.rpartition("/") if isinstance(value, str) else ("", "", "")
    prefixed = len(prefix) <= _MAX_SUBDOMAIN and _DNS_SUBDOMAIN.fullmatch(prefix)
    return bool(_NAME.fullmatch(name) and (prefixed or not slash))


def is_annotation_key(value: Any) -> bool:
    """Whether the value can be the key of an annotation: as of a label, in either case."""
    return isinstance(value, str) and is_label_key(value.lower())


def is_label_value(value: Any) -> bool:
    """Whether the value can be that of a label."""
    return isinstance(value, str) and (not value or bool(_NAME.fullmatch(value)))
