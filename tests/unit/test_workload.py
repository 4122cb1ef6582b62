"""A Workload: what is read of it, and the one entry that is written (BL-21).

Aspects: conditions that are missing, doubled or unknown; our entry alone changes; the time moves with the state; what
is not understood is kept.
"""

from __future__ import annotations

import copy

import pytest

from dispatch_gates.contract.objects import JsonObject, MalformedError
from dispatch_gates.contract.workload import State, parse_workload, with_check
from model import objects
from model.objects import CHECK, check_state

LATER = "2026-03-03T03:03:03Z"
OTHER = {
    "name": "prov-test",
    "state": "Ready",
    "message": "",
    "lastTransitionTime": objects.T0,
    "podSetUpdates": [{"name": "node", "labels": {"a": "b"}}],
    "retryCount": 2,
    "unheardOf": {"deep": [1, {"x": None}]},
}
OURS = check_state(message="old", requeueAfterSeconds=3, unheardOf=True)


def written(state: State, message: str, checks: list[JsonObject]) -> tuple[JsonObject, JsonObject]:
    """Return the Workload before and after a write."""
    raw = objects.workload(checks=checks)
    raw["metadata"]["resourceVersion"] = "7"
    raw["status"]["unheardOf"] = {"kept": True}
    before = copy.deepcopy(raw)
    after = with_check(parse_workload(raw), CHECK, state, message, LATER)
    assert raw == before, "what was read is never changed"
    return before, after


@pytest.mark.parametrize("index", [0, 1, 2])
def test_only_our_entry_changes(index: int) -> None:
    checks = [OTHER, check_state("z", "Retry")]
    checks.insert(index, OURS)
    before, after = written(State.READY, "go", checks)
    assert after["status"]["admissionChecks"].pop(index) == OURS | {
        "state": "Ready",
        "message": "go",
        "lastTransitionTime": LATER,
    }
    before["status"]["admissionChecks"].pop(index)
    assert after == before


@pytest.mark.parametrize(
    ("state", "message", "time"),
    [(State.READY, "old", LATER), (State.PENDING, "new", objects.T0), (State.PENDING, "old", objects.T0)],
    ids=["state", "message alone", "nothing"],
)
def test_time_moves_with_the_state(state: State, message: str, time: str) -> None:
    _, after = written(state, message, [OURS])
    assert after["status"]["admissionChecks"][0]["lastTransitionTime"] == time


def test_state_is_written_as_plain_text() -> None:
    _, after = written(State.READY, "go", [OURS])
    assert type(after["status"]["admissionChecks"][0]["state"]) is str


@pytest.mark.parametrize(
    ("conditions", "reserved"),
    [
        ([objects.condition("QuotaReserved", True)], True),
        ([objects.condition("QuotaReserved", False)], False),
        ([objects.condition("QuotaReserved", "Unknown")], False),
        ([objects.condition("QuotaReserved", True), objects.condition("QuotaReserved", False)], False),
        ([{"type": "QuotaReserved"}], False),
        ([{"status": "True"}, "text", None], False),
        ("text", False),
        (None, False),
        ([], False),
    ],
    ids=["True", "False", "Unknown", "doubled", "no status", "no type", "no list", "null", "none"],
)
def test_reserved(conditions: object, reserved: bool) -> None:
    raw = objects.workload({"QuotaReserved": True}) | {"kind": "Workload"}
    raw["metadata"]["resourceVersion"] = "7"
    raw["status"]["conditions"] = conditions
    assert parse_workload(raw).reserved is reserved


@pytest.mark.parametrize(
    ("found", "clear"),
    [
        ([], True),
        ([False], True),
        ([True], False),
        (["Unknown"], False),
        ([False, True], False),
        ([False, False], True),
    ],
    ids=str,
)
def test_a_doubtful_condition_is_neither_true_nor_clear(found: list[bool | str], clear: bool) -> None:
    raw = objects.workload()
    raw["metadata"]["resourceVersion"] = "7"
    raw["status"]["conditions"] = [objects.condition("Evicted", status) for status in found]
    conditions = parse_workload(raw).conditions
    assert conditions.clear("Evicted") is clear
    assert conditions.true("Evicted") is (found == [True])


def test_eight_checks_and_odd_ones() -> None:
    raw = objects.workload(checks=[{"name": f"c{index}"} for index in range(6)] + [OURS, {"state": 3}])
    raw["metadata"]["resourceVersion"] = "7"
    raw["status"]["admissionChecks"].insert(0, "text")
    workload = parse_workload(raw)
    assert len(workload.checks) == 8
    entry = workload.entry({CHECK})
    assert entry is not None
    assert (entry.state, entry.message) == ("Pending", "old")
    assert workload.entry({"elsewhere"}) is None


@pytest.mark.parametrize("key", ["name", "uid", "resourceVersion"])
@pytest.mark.parametrize("value", [None, "", 7])
def test_metadata_must_be_whole(key: str, value: object) -> None:
    raw = objects.workload()
    raw["metadata"]["resourceVersion"] = "7"
    raw["metadata"][key] = value
    with pytest.raises(MalformedError, match=r"Workload .* lacks name, uid or resourceVersion"):
        parse_workload(raw)


def test_two_controllers_are_unreadable() -> None:
    raw = objects.workload()
    raw["metadata"] |= {"resourceVersion": "7", "ownerReferences": [objects.owner("Job", "a", "u")] * 2}
    with pytest.raises(MalformedError, match="controller owner reference is unreadable"):
        parse_workload(raw)
