"""Names and identities: what is refused, what maps back one to one, what fits.

Aspects: ULID text (BL-39); submissions; names both ways; the longest names that Kubernetes takes (BL-16).
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch_gates.contract.identity import (
    MAX_SUBMISSION,
    NAME_PATTERN,
    Identity,
    IdentityError,
    ulid_for,
    valid_submission,
    valid_ulid,
)
from dispatch_gates.contract.manifest import name_problem, parse_runtime
from model.objects import NAME, ULID

GOOD = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
ULIDS = st.from_regex(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", fullmatch=True)


@pytest.mark.parametrize("text", [GOOD, "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "0" * 26], ids=["usual", "highest", "lowest"])
def test_ulid_is_kept_as_it_is(text: str) -> None:
    assert valid_ulid(text) == text
    assert Identity.parse(Identity.of(text, 1).name) == Identity(text, 1)


@pytest.mark.parametrize(
    "value",
    [
        "81ARZ3NDEKTSV4RRFFQ69G5FAV",
        "8" + "Z" * 25,
        *(GOOD[:-1] + letter for letter in "ILOU"),
        GOOD[:-1],
        GOOD + "0",
        GOOD + "\n",
        " " + GOOD[1:],
        GOOD[1:] + " ",
        "",
        None,
        int(GOOD[:10], 36),
        GOOD.lower(),
        "\uff10" * 26,
        "\u0663" * 26,
        GOOD[:10] + "-" + GOOD[11:],
        b"01ARZ3NDEKTSV4RRFFQ69G5FAV",
    ],
    ids=repr,
)
def test_ulid_is_refused(value: object) -> None:
    with pytest.raises(IdentityError, match="is not a ULID: 26 characters"):
        valid_ulid(value)


@given(ULIDS, st.text(), st.text())
def test_a_minted_ulid_serves_many_jobs(minted: str, key: str, other: str) -> None:
    made = ulid_for(minted, key)
    assert valid_ulid(made)[:10] == minted[:10], "the time"
    assert made == ulid_for(minted, key) != minted
    assert (made == ulid_for(minted, other)) is (key == other)


def test_what_was_made_of_a_minted_ulid_is_kept_for_ever() -> None:
    """Jobs are found again by it: another result would be other jobs, beside those that run."""
    assert ulid_for(GOOD, "rate-1e-4") == "01ARZ3NDEKAJP1FCTY7YNBYMZW"
    with pytest.raises(IdentityError):
        ulid_for(GOOD.lower(), "rate-1e-4")


@pytest.mark.parametrize(("value", "number"), [(1, 1), (2.0, 2), (MAX_SUBMISSION, MAX_SUBMISSION)], ids=repr)
def test_submission(value: object, number: int) -> None:
    assert valid_submission(value) == number
    assert type(valid_submission(value)) is int


@pytest.mark.parametrize(
    "value", [0, -1, "01", "1", 1.5, None, True, MAX_SUBMISSION + 1, float("nan"), float("inf"), [1]], ids=repr
)
def test_submission_is_refused(value: object) -> None:
    with pytest.raises(IdentityError, match="a whole number from 1 to"):
        valid_submission(value)


@given(ULIDS, st.integers(0, MAX_SUBMISSION))
def test_name_maps_back(ulid: str, submission: int) -> None:
    identity = Identity(ulid, submission)
    assert len(identity.name) == 31 + len(str(submission))
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", identity.name)
    assert re.fullmatch(NAME_PATTERN, identity.name)
    assert Identity.parse(identity.name) == identity


@pytest.mark.parametrize(
    "name",
    [
        NAME.upper(),
        NAME + "\n",
        NAME[:-1] + "01",
        NAME[:-1],
        NAME[:-1] + "-1",
        NAME + "0" * 9,
        "x" + NAME,
        NAME + "x",
        NAME.replace("dj-0", "dj-8"),
        NAME.replace("q", "i"),
        NAME[:-1] + "\u0661",
        "",
    ],
    ids=repr,
)
def test_name_of_somebody_else(name: str) -> None:
    assert Identity.parse(name) is None
    assert not re.fullmatch(NAME_PATTERN, name)


def test_submission_zero_is_for_probes() -> None:
    assert Identity.parse(f"dj-{ULID.lower()}-s0") == Identity(ULID, 0)
    with pytest.raises(IdentityError):
        Identity.of(ULID, 0)


def problem(
    submission: int,
    job: str,
    *,
    pods: int | None = None,
    nodes: int | None = None,
    replicas: int | None = None,
    parallelism: int | None = None,
) -> str | None:
    """Ask for a name's problem: `pods` of the job's own numNodes, the rest as the runtime says."""
    replicated = {"name": job, "replicas": replicas, "template": {"spec": {"parallelism": parallelism}}}
    raw = {
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "rt"},
        "spec": {"mlPolicy": {"numNodes": nodes}, "template": {"spec": {"replicatedJobs": [replicated]}}},
    }
    return name_problem(Identity(ULID, submission), parse_runtime(raw), pods)


@pytest.mark.parametrize("pods", [1, 200])
def test_the_usual_runtime_fits(pods: int) -> None:
    assert problem(1, "node", pods=pods) is None
    assert problem(MAX_SUBMISSION, "node", pods=pods) is None


def test_dataset_initializer_fits_to_99_submissions() -> None:
    """33 characters are the limit: two digits of N."""
    assert problem(99, "dataset-initializer") is None
    assert problem(100, "dataset-initializer") is not None
    assert problem(9999, "model-initializer") is None
    assert problem(99999, "model-initializer") is not None


def test_the_message_names_the_child_and_the_excess() -> None:
    found = problem(1, "x" * 30)
    assert found is not None
    assert f"{NAME}-{'x' * 30}-0-0-abcde" in found
    assert "10 characters longer than the 63" in found
    assert "ClusterTrainingRuntime rt" in found


@pytest.mark.parametrize(
    ("name_length", "job", "pods", "fits"),
    [
        (48, "node", 1, True),
        (48, "node", 10, True),
        (49, "node", 10, False),
        (47, "node", 11, True),
        (48, "node", 11, False),
        (47, "node", 100, True),
        (46, "node", 101, True),
        (47, "node", 101, False),
        (33, "dataset-initializer", 1, True),
        (34, "dataset-initializer", 1, False),
        (35, "model-initializer", 1, True),
        (36, "model-initializer", 1, False),
    ],
)
def test_limits_that_jobset_was_seen_to_have(name_length: int, job: str, pods: int, fits: bool) -> None:
    """The limits as measured on the real one; a long submission makes a long name."""
    identity = Identity(ULID, 10 ** (name_length - 32))
    assert len(identity.name) == name_length
    raw = {"spec": {"template": {"spec": {"replicatedJobs": [{"name": job}]}}}}
    assert (name_problem(identity, parse_runtime(raw), pods) is None) is fits


@pytest.mark.parametrize(
    ("counts", "digits"),
    [
        ({"replicas": 11}, 1),
        ({"replicas": 101}, 2),
        ({"parallelism": 11}, 1),
        ({"parallelism": 11, "replicas": 11}, 2),
        ({"pods": 2000}, 0),
        ({"nodes": 2000}, 0),
    ],
    ids=str,
)
def test_every_digit_counts(counts: dict[str, int], digits: int) -> None:
    """Indices of Jobs and pods make a name longer; numNodes is for the replicated job `node` alone."""
    room = 63 - len(f"{NAME}--0-0-abcde")
    assert problem(1, "x" * (room - digits), **counts) is None
    assert problem(1, "x" * (room - digits + 1), **counts) is not None


def test_nodes_of_the_runtime_count_where_the_job_leaves_them_out() -> None:
    identity, room = "node", 63 - len(f"{NAME}-node-0-0-abcde")
    assert room > 0
    long_name = Identity(ULID, 1)
    raw = {
        "spec": {
            "mlPolicy": {"numNodes": 10 ** (room + 2)},
            "template": {"spec": {"replicatedJobs": [{"name": identity}]}},
        }
    }
    assert name_problem(long_name, parse_runtime(raw), None) is not None
    assert name_problem(long_name, parse_runtime(raw), 1) is None
