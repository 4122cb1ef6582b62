"""The TrainJob that Start sends, and what is refused before it is built.

Aspects: closed in both modes; A at 0 in every replicated job; what containers read, and those of which replicated
jobs do not; what the user gave is kept; what belongs to the gates; the hash of a request.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch_gates.contract.count import count_of_patches, our_patches, patched_jobs, runtime_patch
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.manifest import JobSpec, SpecError, annotation_only, manifest, parse_runtime, problems
from dispatch_gates.contract.names import (
    ADMISSION_GATED_BY,
    GATE,
    KUEUE_PATCH_MANAGER,
    PATCH_MANAGER,
    PRIORITY_CLASS,
    QUEUE_NAME,
    ULID_LABEL,
)
from dispatch_gates.contract.objects import JsonObject
from model.objects import NAME, TEAM, ULID
from unit.adapter import asked

RUNTIME = {"runtimeRef": {"name": "torch"}}
ENV = [
    {"name": "DISPATCH_ULID", "value": ULID},
    {"name": "DISPATCH_SUBMISSION", "value": "1"},
    {
        "name": "DISPATCH_ADMISSION_COUNT",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['dispatch.phpboyscout.uk/admission-count']"}},
    },
    {
        "name": "DISPATCH_RESTART_ATTEMPT",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"}},
    },
]


STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def built(**more: Any) -> JsonObject:
    return manifest(asked(**more), ["dataset-initializer", "node"])


@pytest.mark.parametrize("queue", ["training", None], ids=["Kueue mode", "plain mode"])
def test_closed_in_both_modes(queue: str | None) -> None:
    body = built(queue=queue)
    assert body["metadata"]["annotations"][ADMISSION_GATED_BY] == GATE
    assert body["spec"]["suspend"] is True
    assert body["metadata"]["labels"].get(QUEUE_NAME) == queue


def test_named_by_the_identity_alone() -> None:
    metadata = built()["metadata"]
    assert (metadata["name"], metadata["namespace"]) == (NAME, TEAM)
    assert "generateName" not in metadata
    assert metadata["labels"][ULID_LABEL] == ULID
    assert Identity.parse(metadata["name"]) == Identity(metadata["labels"][ULID_LABEL], 1)


def test_count_is_zero_in_every_replicated_job() -> None:
    body = built(spec=RUNTIME | {"runtimePatches": [{"manager": "example.org/mine"}]})
    assert count_of_patches(our_patches(body)) == 0
    assert [job["name"] for job in patched_jobs(our_patches(body)[0])] == ["dataset-initializer", "node"]
    assert [patch["manager"] for patch in body["spec"]["runtimePatches"]] == ["example.org/mine", PATCH_MANAGER]


@pytest.mark.parametrize(
    ("spec", "paths"),
    [
        ({}, [("trainer",)]),
        ({"trainer": {"env": [{"name": "A", "value": "b"}]}}, [("trainer",)]),
        ({"initializer": {"dataset": {}}}, [("trainer",), ("initializer", "dataset")]),
        (
            {"initializer": {"dataset": {"env": []}, "model": {"storageUri": "x"}}},
            [("trainer",), ("initializer", "dataset"), ("initializer", "model")],
        ),
        ({"initializer": {"model": None}}, [("trainer",)]),
    ],
    ids=["trainer alone", "beside the user's", "dataset", "both", "null"],
)
def test_what_containers_read(spec: JsonObject, paths: list[tuple[str, ...]]) -> None:
    body = built(spec=RUNTIME | spec)
    for path in [("trainer",), ("initializer", "dataset"), ("initializer", "model")]:
        at: Any = body["spec"]
        for key in path:
            at = (at or {}).get(key)
        env = (at or {}).get("env") or []
        assert env[-4:] == (ENV if path in paths else [])
    if spec.get("trainer"):
        assert body["spec"]["trainer"]["env"][0] == {"name": "A", "value": "b"}


def step(name: str, label: str | None, container: str) -> JsonObject:
    metadata = {} if label is None else {"labels": {STEP: label}}
    pod = {"spec": {"containers": [{"name": "sidecar"}, {"name": container}]}}
    return {"name": name, "template": {"metadata": metadata, "spec": {"template": pod}}}


@pytest.mark.parametrize(
    ("replicated", "mpi", "spec", "expected"),
    [
        ([step("node", "trainer", "node")], None, {}, ()),
        ([step("node", None, "node")], None, {}, ("node",)),
        ([step("node", "trainer", "main")], None, {}, ("node",)),
        ([step("node", "trainer", "node"), step("launcher", None, "launcher")], None, {}, ("launcher",)),
        ([step("data", "dataset-initializer", "dataset-initializer")], None, {"initializer": {"dataset": {}}}, ()),
        ([step("data", "dataset-initializer", "dataset-initializer")], None, {"initializer": {"model": {}}}, ("data",)),
        ([step("data", "dataset-initializer", "node")], None, {"initializer": {"dataset": {}}}, ("data",)),
        ([step("launcher", "trainer", "node"), step("node", None, "node")], {}, {}, ("node",)),
        ([step("launcher", "trainer", "node"), step("node", None, "node")], {"runLauncherAsNode": True}, {}, ()),
        ([{"name": "bare"}], None, {}, ("bare",)),
    ],
    ids=[
        "the trainer's",
        "no label",
        "another container",
        "beside the trainer's",
        "an initializer's",
        "an initializer's that the job does not ask for",
        "an initializer's, another container",
        "MPI",
        "MPI, the launcher is a node",
        "nothing",
    ],
)
def test_whose_containers_are_not_given_a(
    replicated: list[JsonObject], mpi: JsonObject | None, spec: JsonObject, expected: tuple[str, ...]
) -> None:
    policy = {} if mpi is None else {"mlPolicy": {"mpi": mpi}}
    runtime = parse_runtime({"spec": {**policy, "template": {"spec": {"replicatedJobs": replicated}}}})
    assert annotation_only(runtime, spec) == expected


def test_what_was_given_is_kept_and_not_changed() -> None:
    spec = RUNTIME | {"trainer": {"image": "x", "numNodes": 3}, "activeDeadlineSeconds": 60}
    before = copy.deepcopy(spec)
    body = built(spec=spec, labels={"a": "b"}, annotations={"c": "d"}, priority_class="high")
    assert spec == before
    assert body["spec"]["runtimeRef"] == {"name": "torch"}
    assert body["spec"]["activeDeadlineSeconds"] == 60
    assert body["spec"]["trainer"]["numNodes"] == 3
    assert body["metadata"]["labels"] | {"a": "b", PRIORITY_CLASS: "high"} == body["metadata"]["labels"]
    assert body["metadata"]["annotations"]["c"] == "d"
    assert "managedBy" not in body["spec"]


_WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no runtime": ({"spec": {}}, ["spec.runtimeRef.name"]),
    "kind of runtime": ({"spec": {"runtimeRef": {"name": "x", "kind": "Pod"}}}, ["spec.runtimeRef.kind"]),
    "suspend": ({"spec": RUNTIME | {"suspend": True}}, ["spec.suspend"]),
    "managedBy": ({"spec": RUNTIME | {"managedBy": "x"}}, ["spec.managedBy"]),
    "A in another's patch": (
        {"spec": RUNTIME | {"runtimePatches": [runtime_patch(7, ["node"]) | {"manager": "example.org/mine"}]}},
        ["spec.runtimePatches"],
    ),
    "our patch": ({"spec": RUNTIME | {"runtimePatches": [{"manager": PATCH_MANAGER}]}}, ["spec.runtimePatches"]),
    "Kueue's patch": (
        {"spec": RUNTIME | {"runtimePatches": [{"manager": KUEUE_PATCH_MANAGER}]}},
        ["spec.runtimePatches"],
    ),
    "our env": (
        {"spec": RUNTIME | {"trainer": {"env": [{"name": "DISPATCH_ULID"}, {"name": "DISPATCH_SUBMISSION"}]}}},
        ["spec.trainer.env", "spec.trainer.env"],
    ),
    "our env in an initializer": (
        {"spec": RUNTIME | {"initializer": {"model": {"env": [{"name": "DISPATCH_RESTART_ATTEMPT"}]}}}},
        ["spec.initializer.model.env"],
    ),
    "patches that are no list": ({"spec": RUNTIME | {"runtimePatches": {}}}, ["spec.runtimePatches"]),
    "patches that are null": ({"spec": RUNTIME | {"runtimePatches": None}}, ["spec.runtimePatches"]),
    "a patch that is no mapping": ({"spec": RUNTIME | {"runtimePatches": ["x"]}}, ["spec.runtimePatches"]),
    "trainer that is null": ({"spec": RUNTIME | {"trainer": None}}, ["spec.trainer"]),
    "initializer that is no mapping": ({"spec": RUNTIME | {"initializer": ["x"]}}, ["spec.initializer"]),
    "dataset that is no mapping": ({"spec": RUNTIME | {"initializer": {"dataset": "x"}}}, ["spec.initializer.dataset"]),
    "env that is null": ({"spec": RUNTIME | {"trainer": {"env": None}}}, ["spec.trainer.env"]),
    "env that is a mapping": ({"spec": RUNTIME | {"trainer": {"env": {"A": "b"}}}}, ["spec.trainer.env"]),
    "env of texts": ({"spec": RUNTIME | {"trainer": {"env": ["A=b"]}}}, ["spec.trainer.env"]),
    "env without a name": ({"spec": RUNTIME | {"trainer": {"env": [{"value": "b"}]}}}, ["spec.trainer.env"]),
    "env of a number": ({"spec": RUNTIME | {"trainer": {"env": [{"name": "A", "value": 3}]}}}, ["spec.trainer.env"]),
    "env of an initializer": (
        {"spec": RUNTIME | {"initializer": {"model": {"env": None}}}},
        ["spec.initializer.model.env"],
    ),
    "quantity": (
        {"spec": RUNTIME | {"trainer": {"resourcesPerNode": {"requests": {"cpu": "lots"}, "limits": {"cpu": "-1"}}}}},
        ["spec.trainer.resourcesPerNode", "spec.trainer.resourcesPerNode"],
    ),
    "requests that are no mapping": (
        {"spec": RUNTIME | {"trainer": {"resourcesPerNode": {"requests": ["cpu"]}}}},
        ["spec.trainer.resourcesPerNode"],
    ),
    "resources that are no mapping": (
        {"spec": RUNTIME | {"trainer": {"resourcesPerNode": "lots"}}},
        ["spec.trainer.resourcesPerNode"],
    ),
    "key of a label": ({"labels": {"my team": "a"}}, ["labels"]),
    "value of a label": ({"labels": {"team": "my team"}}, ["labels"]),
    "key of an annotation": ({"annotations": {"a/b/c": "d"}}, ["annotations"]),
    "queue": ({"queue": "my queue"}, ["queue"]),
    "priority": ({"priority_class": "x" * 64}, ["priority_class"]),
    "our label": ({"labels": {"dispatch.phpboyscout.uk/ulid": "x"}}, ["labels"]),
    "Kueue's label": ({"labels": {QUEUE_NAME: "x"}}, ["labels"]),
    "our annotation": ({"annotations": {"dispatch.phpboyscout.uk/opened": "true"}}, ["annotations"]),
    "the gate": ({"annotations": {ADMISSION_GATED_BY: "a.io/x"}}, ["annotations"]),
    "two at once": ({"spec": {"suspend": False}}, ["spec.runtimeRef.name", "spec.suspend"]),
}


@pytest.mark.parametrize(("more", "paths"), _WRONG.values(), ids=_WRONG.keys())
def test_refused(more: dict[str, Any], paths: list[str]) -> None:
    found = problems(asked(**more))
    assert [path for path, _ in found] == paths
    assert all(message for _, message in found)
    with pytest.raises(SpecError) as caught:
        built(**more)
    for path, message in found:
        assert f"{path}: {message}" in str(caught.value)


@pytest.mark.parametrize(
    "more",
    [
        {"runtimePatches": [{"manager": "example.org/mine"}]},
        {"runtimePatches": []},
        {"initializer": None},
        {"trainer": {"env": [{"name": "A"}, {"name": "B", "valueFrom": {}}, {"name": "C", "value": ""}]}},
        {"trainer": {"resourcesPerNode": {"requests": {"cpu": 0.5, "memory": "1.5Gi"}, "claims": []}}},
        {"trainer": {"resourcesPerNode": {"limits": {"nvidia.com/gpu": 1, "memory": "1e9"}}}},
    ],
    ids=str,
)
def test_nothing_wrong(more: JsonObject) -> None:
    spec = RUNTIME | more
    found = asked(spec=spec, labels={"a.io/B": "", "c_d": "E.f"}, annotations={"A.io/b": "any {}\n", "c": ""})
    assert problems(found) == []
    manifest(found, ["node"])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=4))
def test_hash_is_of_content_not_of_order(spec: dict[str, Any]) -> None:
    shuffled = dict(reversed(spec.items()))
    assert asked(spec=spec).digest() == asked(spec=shuffled).digest()


def test_hash_tells_every_part_apart() -> None:
    others: list[JobSpec] = [
        asked(),
        asked(identity=Identity(ULID, 2)),
        asked(namespace="other"),
        asked(queue="other"),
        asked(queue=None),
        asked(spec=RUNTIME),
        asked(priority_class="high"),
        asked(labels={"a": "b"}),
        asked(annotations={"a": "b"}),
    ]
    assert len({other.digest() for other in others}) == len(others)
    assert asked(owner="another").digest() == asked().digest(), "the owner is a mark of its own"
