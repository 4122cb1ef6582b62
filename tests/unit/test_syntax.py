"""Quantities and keys: what is taken, and what is refused. `start_gate/test_syntax.py` asks an API server the same."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from dispatch_gates.contract.syntax import is_annotation_key, is_dns_label, is_label_key, is_label_value, quantity

LABEL_KEYS = {
    "team": True,
    "A_b-c.9": True,
    "x": True,
    "example.org/team": True,
    "a/b": True,
    "a" * 63: True,
    f"{'a.' * 126}a/b": True,
    "": False,
    "my team": False,
    "team\n": False,
    "-a": False,
    "a.": False,
    "ü": False,
    "a" * 64: False,
    "/a": False,
    "a/": False,
    "a/b/c": False,
    "Example.org/team": False,
    "a..b/c": False,
    "a_b/c": False,
    f"{'a.' * 126}aa/b": False,
}
ANNOTATION_KEYS = {**LABEL_KEYS, "Example.org/team": True}
LABEL_VALUES = {
    "": True,
    "a": True,
    "A_b-c.9": True,
    "9" * 63: True,
    "9" * 64: False,
    "my team": False,
    "a/b": False,
    "-a": False,
    "a_": False,
    "a\n": False,
    "ü": False,
}
QUANTITIES: dict[Any, Decimal | None] = {
    "1": Decimal(1),
    2: Decimal(2),
    "0.5": Decimal("0.5"),
    ".5": Decimal("0.5"),
    "5.": Decimal(5),
    "+1": Decimal(1),
    "500m": Decimal("0.5"),
    "7n": Decimal("7e-9"),
    "1.5Gi": Decimal(1610612736),
    "2k": Decimal(2000),
    "1E": Decimal(10**18),
    "1e3": Decimal(1000),
    "1E-3": Decimal("0.001"),
    "lots": None,
    "": None,
    "1 Gi": None,
    "1GB": None,
    "1K": None,
    "1gi": None,
    "1e": None,
    "nan": None,
    "1_000": None,
    "1,5": None,
}


@pytest.mark.parametrize(("key", "valid"), LABEL_KEYS.items())
def test_key_of_a_label(key: str, valid: bool) -> None:
    assert is_label_key(key) is valid


@pytest.mark.parametrize(("key", "valid"), ANNOTATION_KEYS.items())
def test_key_of_an_annotation(key: str, valid: bool) -> None:
    assert is_annotation_key(key) is valid


@pytest.mark.parametrize(("value", "valid"), LABEL_VALUES.items())
def test_value_of_a_label(value: str, valid: bool) -> None:
    assert is_label_value(value) is valid


@pytest.mark.parametrize(("value", "amount"), QUANTITIES.items())
def test_quantity(value: Any, amount: Decimal | None) -> None:
    assert quantity(value) == amount


def test_what_is_no_text() -> None:
    for value in (None, 3, True, ["a"]):
        assert [test(value) for test in (is_label_key, is_annotation_key, is_label_value, is_dns_label)] == [False] * 4
    assert quantity(True) is None
    assert quantity(None) is None
