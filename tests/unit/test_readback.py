"""Reading back: each field that somebody changed on the way is noticed; what others own by design is not minded."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from dispatch_gates.contract import names
from dispatch_gates.contract.count import runtime_patch
from dispatch_gates.contract.manifest import manifest
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.contract.readback import differences
from model import objects
from unit.adapter import asked

Change = Callable[[JsonObject], Any]
SPEC = {
    "runtimeRef": {"name": "torch"},
    "trainer": {
        "image": "a",
        "command": ["x", "y"],
        "env": [{"name": "A", "value": "b"}],
        "resourcesPerNode": {"requests": {"cpu": "1000m"}, "limits": {"cpu": 2, "memory": "1.5Gi"}},
    },
    "initializer": {"dataset": {"storageUri": "s3://x"}},
    "activeDeadlineSeconds": 60,
}


def found_after(change: Change, queue: str | None = "training") -> list[str]:
    """Return the paths that differ after somebody's change."""
    sent = manifest(asked(queue=queue, spec=SPEC, labels={"team": "a"}, annotations={"note": "b"}), ["dataset", "node"])
    stored = copy.deepcopy(sent)
    change(stored)
    before = copy.deepcopy((sent, stored))
    paths = [difference.path for difference in differences(sent, stored)]
    assert (sent, stored) == before
    return paths


def marks(kind: str, **values: str | None) -> Change:
    """Change labels or annotations; None takes one away."""

    def change(body: JsonObject) -> None:
        for key, value in values.items():
            if value is None:
                del body["metadata"][kind][key]
            else:
                body["metadata"][kind][key] = value

    return change


def spec(**values: Any) -> Change:
    return lambda body: body["spec"].update(values)


def at(path: str, value: Any) -> Change:
    """Change what is deep inside the spec."""

    def change(body: JsonObject) -> None:
        *parents, last = path.split(".")
        inner = body["spec"]
        for key in parents:
            inner = inner[int(key)] if key.isdecimal() else inner[key]
        inner[int(last) if last.isdecimal() else last] = value

    return change


_OURS = "runtimePatches.0.trainingRuntimeSpec.template.spec.replicatedJobs"
_COUNT = ".template.spec.template.metadata.annotations"
_PATCH = f"spec.runtimePatches[{names.PATCH_MANAGER}]"
NOTICED: dict[str, tuple[Change, str]] = {
    "label": (marks("labels", team="b"), "metadata.labels[team]"),
    "label gone": (marks("labels", team=None), "metadata.labels[team]"),
    "queue": (marks("labels", **{names.QUEUE_NAME: "other"}), f"metadata.labels[{names.QUEUE_NAME}]"),
    "ULID": (marks("labels", **{names.ULID_LABEL: "x"}), f"metadata.labels[{names.ULID_LABEL}]"),
    "annotation": (marks("annotations", note=""), "metadata.annotations[note]"),
    "gate": (
        marks("annotations", **{names.ADMISSION_GATED_BY: None}),
        f"metadata.annotations[{names.ADMISSION_GATED_BY}]",
    ),
    "gate's name": (
        marks("annotations", **{names.ADMISSION_GATED_BY: "a.io/x"}),
        f"metadata.annotations[{names.ADMISSION_GATED_BY}]",
    ),
    "hash": (marks("annotations", **{names.SPEC_HASH: "0"}), f"metadata.annotations[{names.SPEC_HASH}]"),
    "all annotations": (lambda body: body["metadata"].pop("annotations"), "metadata.annotations[note]"),
    "runtime": (spec(runtimeRef={"name": "other"}), "spec.runtimeRef.name"),
    "runtime gone": (lambda body: body["spec"].pop("runtimeRef"), "spec.runtimeRef"),
    "image": (at("trainer.image", "b"), "spec.trainer.image"),
    "processes that were not asked for": (at("trainer.numProcPerNode", 2), "spec.trainer.numProcPerNode"),
    "args that were not asked for": (at("trainer.args", ["x"]), "spec.trainer.args"),
    "initializer that was not asked for": (
        at("initializer.model", {"storageUri": "s3://z"}),
        "spec.initializer.model",
    ),
    "secret that was not asked for": (at("initializer.dataset.secretRef", {}), "spec.initializer.dataset.secretRef"),
    "opened mark": (marks("annotations", **{names.OPENED: "true"}), f"metadata.annotations[{names.OPENED}]"),
    "hold mark": (marks("annotations", **{names.HOLD: "true"}), f"metadata.annotations[{names.HOLD}]"),
    "gate beside another that only looks like ours": (
        marks("annotations", **{names.ADMISSION_GATED_BY: f"a.io/x,x{names.GATE}"}),
        f"metadata.annotations[{names.ADMISSION_GATED_BY}]",
    ),
    "A in another's patch": (
        lambda body: body["spec"]["runtimePatches"].append(runtime_patch(7, ["node"]) | {"manager": "x.io/y"}),
        f"spec.runtimePatches[x.io/y]: {names.ADMISSION_COUNT}",
    ),
    "quantity": (at("trainer.resourcesPerNode.requests.cpu", "1001m"), "spec.trainer.resourcesPerNode.requests.cpu"),
    "no quantity": (at("trainer.resourcesPerNode.limits.cpu", "x"), "spec.trainer.resourcesPerNode.limits.cpu"),
    "command": (at("trainer.command", ["x"]), "spec.trainer.command"),
    "word of the command": (at("trainer.command.1", "z"), "spec.trainer.command[1]"),
    "env": (at("trainer.env.0.value", "z"), "spec.trainer.env[0].value"),
    "env added": (lambda body: body["spec"]["trainer"]["env"].append({"name": "B"}), "spec.trainer.env"),
    "A's env": (at("trainer.env.3.valueFrom", None), "spec.trainer.env[3].valueFrom"),
    "initializer": (at("initializer.dataset.storageUri", "s3://y"), "spec.initializer.dataset.storageUri"),
    "initializer gone": (spec(initializer=None), "spec.initializer"),
    "deadline": (spec(activeDeadlineSeconds=61), "spec.activeDeadlineSeconds"),
    "deadline gone": (lambda body: body["spec"].pop("activeDeadlineSeconds"), "spec.activeDeadlineSeconds"),
    "managed by": (spec(managedBy="kueue.x-k8s.io/multikueue"), "spec.managedBy"),
    "our patch gone": (spec(runtimePatches=[]), _PATCH),
    "our patch doubled": (lambda body: body["spec"].update(runtimePatches=body["spec"]["runtimePatches"] * 2), _PATCH),
    "A": (
        at(f"{_OURS}.1{_COUNT}", {names.ADMISSION_COUNT: "1"}),
        f"{_PATCH}[0].trainingRuntimeSpec.template.spec.replicatedJobs[1].template.spec.template.metadata.annotations"
        f".{names.ADMISSION_COUNT}",
    ),
    "job of our patch gone": (
        lambda body: body["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"][
            "replicatedJobs"
        ].pop(),
        f"{_PATCH}[0].trainingRuntimeSpec.template.spec.replicatedJobs",
    ),
    "something added to our patch": (
        at(f"{_OURS}.0.template.spec.template.spec", {"nodeSelector": {"a": "b"}}),
        f"{_PATCH}[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec",
    ),
}


@pytest.mark.parametrize("queue", ["training", None], ids=["Kueue mode", "plain mode"])
@pytest.mark.parametrize(("change", "path"), NOTICED.values(), ids=NOTICED.keys())
def test_noticed(change: Change, path: str, queue: str | None) -> None:
    assert path in found_after(change, queue)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (marks("labels", **{names.QUEUE_NAME: "default"}), f"metadata.labels[{names.QUEUE_NAME}]"),
        (spec(suspend=False), "spec.suspend"),
        (lambda body: body["spec"].pop("suspend"), "spec.suspend"),
    ],
    ids=["queue label", "suspend lifted", "suspend gone"],
)
def test_noticed_in_plain_mode(change: Change, path: str) -> None:
    assert found_after(change, None) == [path]


MINDED_NOT: dict[str, Change] = {
    "nothing": lambda _: None,
    "quantities in the server's spelling": at(
        "trainer.resourcesPerNode", {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1536Mi"}}
    ),
    "quantities with exponents": at(
        "trainer.resourcesPerNode", {"requests": {"cpu": "1e0"}, "limits": {"cpu": "2.0", "memory": "1610612736"}}
    ),
    "label added": marks("labels", other="x"),
    "annotation added": marks("annotations", other="x"),
    "the server's metadata": lambda body: body["metadata"].update(uid="u", resourceVersion="7", generation=1),
    "status": lambda body: body.update(status={"conditions": []}),
    "default of managedBy": spec(managedBy=names.TRAINER_MANAGER),
    "defaults of runtimeRef": at("runtimeRef.kind", "ClusterTrainingRuntime"),
    "a default inside env": at("trainer.env.3.valueFrom.fieldRef.apiVersion", "v1"),
    "time of our patch": at("runtimePatches.0.time", objects.T0),
    "Kueue's patch": lambda body: body["spec"]["runtimePatches"].append(objects.KUEUE_PATCH),
    "another's patch, first": lambda body: body["spec"]["runtimePatches"].insert(0, {"manager": "x.io/y"}),
    "a field that we never send": spec(unheardOf=1),
}


@pytest.mark.parametrize("queue", ["training", None], ids=["Kueue mode", "plain mode"])
@pytest.mark.parametrize("change", MINDED_NOT.values(), ids=MINDED_NOT.keys())
def test_not_minded(change: Change, queue: str | None) -> None:
    assert found_after(change, queue) == []


@pytest.mark.parametrize("queue", ["training", None], ids=["Kueue mode", "plain mode"])
def test_administrators_gates_are_kueues_to_keep(queue: str | None) -> None:
    change = marks("annotations", **{names.ADMISSION_GATED_BY: f" a.io/x , {names.GATE},b.io/y"})
    assert found_after(change, queue) == ([] if queue else [f"metadata.annotations[{names.ADMISSION_GATED_BY}]"])


@pytest.mark.parametrize("value", [False, None])
def test_suspend_is_kueues_in_kueue_mode(value: bool | None) -> None:
    assert found_after(spec(suspend=value)) == []


def test_a_trainer_or_deadline_that_was_not_sent() -> None:
    sent = manifest(asked(spec={"runtimeRef": {"name": "torch"}}), ["node"])
    stored = copy.deepcopy(sent)
    stored["spec"] |= {"activeDeadlineSeconds": 60, "initializer": {"model": {}}}
    assert [str(difference) for difference in differences(sent, stored)] == [
        "spec.initializer: was added",
        "spec.activeDeadlineSeconds: sent None, found 60",
    ]


def said_after(change: Change, queue: str | None) -> str:
    """Return what people are told of somebody's change to a job in which all that may be a secret is one."""
    secret = {
        "trainer": {
            "image": "a",
            "numNodes": 2,
            "command": ["x", "T0KEN"],
            "args": ["T0KEN"],
            "env": [{"name": "A", "value": "T0KEN"}],
            "resourcesPerNode": {"requests": {"cpu": 2}},
        },
        "initializer": {"dataset": {"storageUri": "s3://T0KEN", "env": [{"name": "A", "value": "T0KEN"}]}},
    }
    marked = {"labels": {"team": "T0KEN"}, "annotations": {"note": "T0KEN"}}
    sent = manifest(asked(queue=queue, spec=SPEC | secret, **marked), ["node"])
    stored = copy.deepcopy(sent)
    change(stored)
    return "; ".join(str(difference) for difference in differences(sent, stored))


MAY_BE_SECRET: dict[str, tuple[Change, str]] = {
    "label": (marks("labels", team="T0KEN2"), "metadata.labels[team]: was changed"),
    "label gone": (marks("labels", team=None), "metadata.labels[team]: was taken away"),
    "annotation": (marks("annotations", note="T0KEN2"), "metadata.annotations[note]: was changed"),
    "command": (at("trainer.command", ["T0KEN"]), "spec.trainer.command: was changed"),
    "word of the command": (at("trainer.command.1", "T0KEN2"), "spec.trainer.command[1]: was changed"),
    "args": (at("trainer.args.0", "T0KEN2"), "spec.trainer.args[0]: was changed"),
    "args gone": (at("trainer.args", None), "spec.trainer.args: was taken away"),
    "env": (at("trainer.env.0.value", "T0KEN2"), "spec.trainer.env[0].value: was changed"),
    "trainer gone": (spec(trainer=None), "spec.trainer: was taken away"),
    "storage": (
        at("initializer.dataset.storageUri", "s3://T0KEN2"),
        "spec.initializer.dataset.storageUri: was changed",
    ),
    "env of an initializer": (at("initializer.dataset.env", []), "spec.initializer.dataset.env: was changed"),
    "initializer added": (at("initializer.model", {"storageUri": "T0KEN"}), "spec.initializer.model: was added"),
    "field added": (at("trainer.other", "T0KEN"), "spec.trainer.other: was added"),
    "more in our patch": (
        at(f"{_OURS}.0.template.spec.template.spec", {"containers": [{"name": "node", "args": ["T0KEN"]}]}),
        ".template.spec.template.spec: was added",
    ),
}


@pytest.mark.parametrize("queue", ["training", None], ids=["Kueue mode", "plain mode"])
@pytest.mark.parametrize(("change", "says"), MAY_BE_SECRET.values(), ids=MAY_BE_SECRET.keys())
def test_what_may_be_secret_is_not_told(change: Change, says: str, queue: str | None) -> None:
    said = said_after(change, queue)
    assert says in said
    assert "T0KEN" not in said


TOLD: dict[str, tuple[Change, str]] = {
    "gate": (
        marks("annotations", **{names.ADMISSION_GATED_BY: "a.io/x"}),
        f"[{names.ADMISSION_GATED_BY}]: sent '{names.GATE}', found 'a.io/x'",
    ),
    "opened mark": (marks("annotations", **{names.OPENED: "true"}), f"[{names.OPENED}]: sent None, found 'true'"),
    "queue": (marks("labels", **{names.QUEUE_NAME: "other"}), f"metadata.labels[{names.QUEUE_NAME}]: sent "),
    "runtime": (at("runtimeRef.name", "other"), "spec.runtimeRef.name: sent 'torch', found 'other'"),
    "image": (at("trainer.image", "mirror/a"), "spec.trainer.image: sent 'a', found 'mirror/a'"),
    "nodes": (at("trainer.numNodes", 3), "spec.trainer.numNodes: sent 2, found 3"),
    "quantity": (
        at("trainer.resourcesPerNode.requests.cpu", "3"),
        "spec.trainer.resourcesPerNode.requests.cpu: sent 2, found '3'",
    ),
    "deadline": (spec(activeDeadlineSeconds=61), "spec.activeDeadlineSeconds: sent 60, found 61"),
    "managed by": (spec(managedBy="a.io/x"), "spec.managedBy: sent None, found 'a.io/x'"),
    "A": (at(f"{_OURS}.0{_COUNT}", {names.ADMISSION_COUNT: "1"}), f"{names.ADMISSION_COUNT}: sent '0', found '1'"),
    "A in another's patch": (
        lambda body: body["spec"]["runtimePatches"].append(runtime_patch(7, ["node"]) | {"manager": "x.io/y"}),
        f"spec.runtimePatches[x.io/y]: {names.ADMISSION_COUNT}: sent None, found 7",
    ),
}


@pytest.mark.parametrize("queue", ["training", None], ids=["Kueue mode", "plain mode"])
@pytest.mark.parametrize(("change", "says"), TOLD.values(), ids=TOLD.keys())
def test_what_is_no_secret_is_told(change: Change, says: str, queue: str | None) -> None:
    assert says in said_after(change, queue)
