"""The start gate's comma list (BL-13), which belongs to everybody.

Aspects: our entry by its whole name; removing it leaves the others in order; an absent key where none is left; what
gates without a name.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch_gates.contract.gate import Gates
from dispatch_gates.contract.names import GATE

ITEMS = st.lists(st.one_of(st.just(GATE), st.from_regex(r"[a-z]{1,3}\.io/[a-z]{1,3}", fullmatch=True)), max_size=6)
BLANK = st.text(alphabet=" \t", max_size=2)


@pytest.mark.parametrize(
    ("value", "ours", "closed", "left", "others"),
    [
        (GATE, True, True, None, ()),
        (f"a.io/x,{GATE}", True, True, "a.io/x", ("a.io/x",)),
        (f" a.io/x , {GATE} ", True, True, "a.io/x", ("a.io/x",)),
        (f"{GATE},a.io/x", True, True, "a.io/x", ("a.io/x",)),
        (f"b.io/y,{GATE},a.io/x", True, True, "b.io/y,a.io/x", ("b.io/y", "a.io/x")),
        (f"{GATE},{GATE}", True, True, None, ()),
        (f"{GATE},", True, True, None, ()),
        (f",{GATE}, ,", True, True, None, ()),
        ("a.io/x", False, True, "a.io/x", ("a.io/x",)),
        (f"a.io/x,x{GATE}", False, True, f"a.io/x,x{GATE}", ("a.io/x", f"x{GATE}")),
        (f"a.io/x,{GATE}/extra", False, True, f"a.io/x,{GATE}/extra", ("a.io/x", f"{GATE}/extra")),
        (GATE.upper(), False, True, GATE.upper(), (GATE.upper(),)),
        (" ", False, True, " ", ()),
        (",", False, True, ",", ()),
        ("", False, False, "", ()),
        (None, False, False, None, ()),
    ],
    ids=repr,
)
def test_value(value: str | None, ours: bool, closed: bool, left: str | None, others: tuple[str, ...]) -> None:
    gates = Gates(value)
    assert (gates.ours, gates.closed, gates.others) == (ours, closed, others)
    assert gates.without_ours().value == left


@given(ITEMS, BLANK, BLANK)
def test_removing_ours(items: list[str], before: str, after: str) -> None:
    gates = Gates(",".join(before + item + after for item in items) or None)
    left = gates.without_ours()
    assert not left.ours
    assert left.others == gates.others == tuple(item for item in items if item != GATE)
    assert left.without_ours() == left
    assert left.closed is bool(left.others)
    if gates.ours:
        assert left.value == (",".join(gates.others) or None)
    else:
        assert left == gates
