"""The admission count A in our runtime patch.

Aspects: text that is A and text that is not; carriers that disagree; raising it in every replicated job and nowhere
else; a patch that was stripped, in whole or in part.
"""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch_gates.contract.count import (
    MAX_COUNT,
    Unreadable,
    agreed,
    count_of_patches,
    our_patches,
    parse_count,
    patched_jobs,
    runtime_patch,
    template_count,
    with_count,
)
from dispatch_gates.contract.names import ADMISSION_COUNT, PATCH_MANAGER
from dispatch_gates.contract.objects import JsonObject
from model import objects


@pytest.mark.parametrize(
    "value",
    [
        "01",
        "-1",
        "+1",
        "1.0",
        "1e3",
        " 1",
        "1 ",
        "1\n",
        "",
        "x",
        "0x1",
        "\uff11",
        "\u0663",
        str(2**63),
        str(10**18),
        2,
        1.0,
        True,
        [],
    ],
    ids=repr,
)
def test_not_a_count(value: object) -> None:
    found = parse_count(value)
    assert isinstance(found, Unreadable)
    assert found.seen == repr(value)


def test_what_is_seen_is_cut() -> None:
    found = parse_count("1" * 5000)
    assert isinstance(found, Unreadable)
    assert len(found.seen) == 80


@given(st.integers(0, MAX_COUNT))
def test_counts_are_read_as_written(count: int) -> None:
    assert parse_count(str(count)) == count


def test_no_count() -> None:
    assert parse_count(None) is None


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([], None),
        ([None], None),
        ([3], 3),
        ([3, 3], 3),
        ([3, 4], Unreadable("unequal: 3, 4")),
        ([3, None], Unreadable("unequal: 3, None")),
        ([3, Unreadable("'x'"), 4], Unreadable("'x'")),
    ],
    ids=str,
)
def test_agreement(counts: list[int | Unreadable | None], expected: object) -> None:
    assert agreed(counts) == expected


def test_disagreement_is_short() -> None:
    found = agreed(range(1000))
    assert isinstance(found, Unreadable)
    assert len(found.seen) < 100


def job(*patches: JsonObject) -> JsonObject:
    return objects.trainjob(patches=patches)


def count(trainjob: JsonObject) -> object:
    return count_of_patches(our_patches(trainjob))


@pytest.mark.parametrize(
    ("trainjob", "expected"),
    [
        (job(objects.patch({"node": 2, "other": 2})), 2),
        (job(objects.KUEUE_PATCH, objects.patch({"node": 2})), 2),
        (job(objects.patch({"node": 2}, manager="example.org/other")), None),
        (job(objects.KUEUE_PATCH), None),
        (job({"manager": PATCH_MANAGER}), None),
        (job(), None),
        ({"spec": None}, None),
        ({"spec": {"runtimePatches": "x"}}, None),
        ({"spec": {"runtimePatches": [None, 3, {"manager": 7}]}}, None),
    ],
    ids=["two jobs", "beside Kueue's", "another manager", "Kueue's alone", "empty", "none", "no spec", "text", "odd"],
)
def test_only_our_patch_carries_it(trainjob: JsonObject, expected: object) -> None:
    assert count(trainjob) == expected


def test_two_patches_of_ours_must_agree() -> None:
    assert isinstance(count(job(objects.patch({"node": 1}), objects.patch({"node": 2}))), Unreadable)


@given(st.integers(0, MAX_COUNT - 1), st.sets(st.sampled_from(["node", "dataset", "model", "a", "b"]), min_size=1))
def test_raise(before: int, names: set[str]) -> None:
    """All of the raise is in our patch, and in all of its replicated jobs."""
    trainjob = job(objects.KUEUE_PATCH, objects.patch(dict.fromkeys(sorted(names), before)))
    untouched = copy.deepcopy(trainjob)
    raised = with_count(trainjob, before + 1, sorted(names))
    assert trainjob == untouched
    assert count(raised) == before + 1
    expected = copy.deepcopy(untouched)
    for replicated in patched_jobs(our_patches(expected)[0]):
        annotations = replicated["template"]["spec"]["template"]["metadata"]["annotations"]
        assert annotations == {ADMISSION_COUNT: str(before)}
        annotations[ADMISSION_COUNT] = str(before + 1)
    assert raised == expected


@pytest.mark.parametrize(
    ("trainjob", "kept"),
    [
        (job(), 0),
        (job(objects.KUEUE_PATCH), 1),
        (job(objects.patch({"node": 7}, manager="example.org/other")), 1),
        (job({"manager": PATCH_MANAGER}), 0),
        (job({"manager": PATCH_MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": []}}}}), 0),
    ],
    ids=["no patch", "Kueue's alone", "another's alone", "ours without content", "ours without jobs"],
)
def test_raise_writes_a_stripped_patch_anew(trainjob: JsonObject, kept: int) -> None:
    raised = with_count(trainjob, 5, ("dataset", "node"))
    patches = raised["spec"]["runtimePatches"]
    assert patches[:kept] == trainjob["spec"]["runtimePatches"][:kept]
    assert len(patches) == kept + 1
    assert patches[kept] == runtime_patch(5, ("dataset", "node"))


def test_raise_without_any_patches() -> None:
    trainjob = job()
    del trainjob["spec"]["runtimePatches"]
    assert with_count(trainjob, 1, ["node"])["spec"]["runtimePatches"] == [runtime_patch(1, ["node"])]


def test_raise_keeps_what_else_our_patch_says() -> None:
    patch = objects.patch({"node": 1})
    patch["trainingRuntimeSpec"]["template"]["metadata"] = {"labels": {"a": "b"}}
    patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"] = {
        "x": 1
    }
    raised = with_count(job(patch), 2, ["node", "late"])
    found = our_patches(raised)[0]
    assert found["trainingRuntimeSpec"]["template"]["metadata"] == {"labels": {"a": "b"}}
    node, late = patched_jobs(found)
    assert node["template"]["spec"]["template"]["spec"] == {"x": 1}
    assert (template_count(node), template_count(late), late["name"]) == (2, 2, "late")
    assert found["time"] == objects.T0


def test_count_is_written_as_text() -> None:
    patch = runtime_patch(2, ["node"])
    assert patched_jobs(patch)[0]["template"]["spec"]["template"]["metadata"]["annotations"] == {ADMISSION_COUNT: "2"}
