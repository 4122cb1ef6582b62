"""Random sequences of requests, as plans that mean the same against any API server.

A plan names objects by slot and versions by how long ago they were seen, never by what a server made up, so that
the same steps can be asked of the model and of the real one, and any part of a plan is a plan again.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dispatch_gates.contract import names
from dispatch_gates.contract.names import Resource
from dispatch_gates.contract.objects import JsonObject

FINALIZER: Final = "example.org/keep"
SEQUENCE: Final = "sequence"
"""The label by which the objects of one sequence are told from those of others on the same server."""
NOBODY: Final = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True)
class Slot:
    """A place for an object: in the sequence's namespace, or, for a cluster-scoped kind, a name of the sequence's."""

    resource: Resource
    name: str

    @property
    def scoped(self) -> bool:
        """Whether it has a namespace."""
        return self.resource != names.ADMISSION_CHECKS


SLOTS: Final = (
    Slot(names.TRAINJOBS, "train-a"),
    Slot(names.TRAINJOBS, "train-b"),
    Slot(names.WORKLOADS, "work-a"),
    Slot(names.WORKLOADS, "work-b"),
    Slot(names.JOBSETS, "set"),
    Slot(names.JOBS, "job"),
    Slot(names.PODS, "pod-a"),
    Slot(names.PODS, "pod-b"),
    Slot(names.LEASES, "lease"),
    Slot(names.ADMISSION_CHECKS, "check"),
)
_WEIGHTS: Final = (6, 3, 6, 3, 2, 2, 2, 2, 2, 2)
RESOURCES: Final = tuple(dict.fromkeys(slot.resource for slot in SLOTS))
WITHOUT_STATUS: Final = {names.LEASES}


@dataclass(frozen=True)
class Step:
    """One thing to ask. `age` counts versions back from the latest that was seen; `value` varies an edit."""

    action: str
    slot: int
    age: int = 0
    how: str = ""
    value: int = 0
    inner: tuple[Step, ...] = ()
    """What is asked between the pages of a list."""

    def __str__(self) -> str:
        slot = SLOTS[self.slot]
        more = [self.how] if self.how else []
        more += [f"value {self.value}"] if self.value else []
        more += [f"{self.age} version(s) ago"] if self.age else []
        more += [f"between the pages: {'; '.join(map(str, self.inner))}"] if self.inner else []
        return f"{self.action} {slot.resource.plural}/{slot.name}" + (f" ({', '.join(more)})" if more else "")


def drawn(seed: int, length: int = 30) -> tuple[Step, ...]:
    """Return the plan of a seed: it begins with an object or two, so that there is something to ask about."""
    chance = random.Random(seed)
    begin = tuple(Step("create", slot, value=chance.randrange(4)) for slot in chance.sample(range(len(SLOTS)), 3))
    return begin + tuple(_step(chance) for _ in range(length - len(begin)))


_ACTIONS: Final = {
    "get": 9,
    "list": 7,
    "pages": 2,
    "create": 14,
    "replace": 24,
    "replace status": 18,
    "delete": 9,
    "watch": 9,
    "watch expired": 1,
}
_CREATIONS: Final = ("", "", "", "", "finalizer", "finalizer", "unknown field", "no namespace", "invalid", "bad name")
_EDITS: Final = ("nothing", "label", "unlabel", "annotate", "finalizer", "no finalizer", "spec", "status", "both")
_LIES: Final = ("", "", "", "", "", "", "", "uid", "version", "invalid")
_SELECTORS: Final = ("", "", "a", "a=1", "a=2", "a=1,b", "a in (1,3)", "b,a in (0,2)")


def _step(chance: random.Random) -> Step:
    (action,) = chance.choices(tuple(_ACTIONS), tuple(_ACTIONS.values()))
    (slot,) = chance.choices(range(len(SLOTS)), _WEIGHTS)
    if action == "watch expired":
        slot = chance.randrange(5)  # of a kind that came later than the first version: what is kept begins there
    age = chance.choice((0, 0, 0, 0, 0, 0, 1, 1, 2, 5))
    value = chance.randrange(4)
    match action:
        case "create":
            return Step(action, slot, how=chance.choice(_CREATIONS), value=value)
        case "replace" | "replace status":
            how = chance.choice(_EDITS)
            if lie := chance.choice(_LIES):
                how = lie if lie == "invalid" else f"{how}, wrong {lie}"
            return Step(action, slot, age, how, value)
        case "delete":
            return Step(action, slot, age, chance.choice(("", "", "", "wrong uid", "wrong version")))
        case "list" | "watch":
            scope = chance.choice(("here", "here", "everywhere") + (("one",) if action == "watch" else ()))
            selector = "" if scope == "one" else chance.choice(_SELECTORS)
            return Step(action, slot, chance.randrange(8), f"{scope}: {selector}")
        case "pages":
            inner = tuple(_step(chance) for _ in range(chance.randrange(1, 4)))
            return Step(action, slot, how=chance.choice(_SELECTORS), inner=tuple(_plain(step) for step in inner))
    return Step(action, slot)


def _plain(step: Step) -> Step:
    """Return a step that is no list of pages."""
    return Step("get", step.slot) if step.action == "pages" else step


# What is created.


def new(slot: Slot, namespace: str, how: str, value: int) -> JsonObject:
    """Return the object that a `create` step sends."""
    metadata: dict[str, Any] = {
        "name": slot.name if slot.scoped else f"{namespace}-{slot.name}",
        "labels": {SEQUENCE: namespace} | ({"a": str(value)} if value else {}),
    }
    if slot.scoped:
        metadata["namespace"] = f"no-{namespace}" if how == "no namespace" else namespace
    if how == "finalizer":
        metadata["finalizers"] = [FINALIZER]
    if how == "bad name":
        metadata["name"] = "Not-a-Name"
    body: JsonObject = {"apiVersion": slot.resource.api_version, "kind": slot.resource.kind, "metadata": metadata}
    body |= copy.deepcopy(_SPECS[slot.resource])
    if slot.name == "pod-b":
        body["spec"]["nodeName"] = "no-such-node"
    if how == "unknown field" and slot.resource in _STRICT:
        body["spec"]["unheardOf"] = "x"
    if how == "invalid":
        _INVALID.get((slot.resource, False), _nothing)(body, value)
    return body


_CONTAINER: Final = {"name": "c", "image": "example.org/c:1"}
_TEMPLATE: Final = {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [_CONTAINER]}}


def _patch(count: str) -> JsonObject:
    template = {"metadata": {"annotations": {names.ADMISSION_COUNT: count}}}
    replicated = [{"name": "node", "template": {"spec": {"template": template}}}]
    runtime = {"template": {"spec": {"replicatedJobs": replicated}}}
    return {"manager": names.PATCH_MANAGER, "trainingRuntimeSpec": runtime}


_SPECS: Final[Mapping[Resource, JsonObject]] = {
    names.TRAINJOBS: {
        "spec": {
            "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "torch"},
            "trainer": {"numNodes": 1},
            "runtimePatches": [_patch("0")],
        },
        "status": {"conditions": []},
    },
    names.WORKLOADS: {"spec": {"queueName": "q", "podSets": [{"name": "node", "count": 1, "template": _TEMPLATE}]}},
    names.JOBSETS: {
        "spec": {
            "replicatedJobs": [
                {"name": "node", "groupName": "default", "replicas": 1, "template": {"spec": {"template": _TEMPLATE}}}
            ]
        }
    },
    names.JOBS: {"spec": {"suspend": True, "template": _TEMPLATE}},
    names.PODS: {"spec": {"containers": [_CONTAINER], "automountServiceAccountToken": False}},
    names.LEASES: {"spec": {"holderIdentity": "first", "leaseDurationSeconds": 15}},
    names.ADMISSION_CHECKS: {"spec": {"controllerName": names.CONTROLLER_NAME}},
}
_STRICT: Final = {names.TRAINJOBS, names.ADMISSION_CHECKS}


# How it is edited.

Edit = Callable[[JsonObject, int], object]
TIME: Final = "2026-01-01T00:00:00Z"


def _nothing(_: JsonObject, __: int) -> None:
    pass


def _finalizers(wanted: bool) -> Edit:
    def edit(body: JsonObject, _: int) -> None:
        body["metadata"].pop("finalizers", None)
        if wanted:
            body["metadata"]["finalizers"] = [FINALIZER]

    return edit


def _condition(kind: str, value: int) -> JsonObject:
    status = ("True", "False", "Unknown")[value % 3]
    return {"type": kind, "status": status, "reason": "Tests", "message": "", "lastTransitionTime": TIME}


def _trainjob_spec(body: JsonObject, value: int) -> None:
    body["spec"].update(suspend=bool(value % 2), runtimePatches=[_patch(str(value))])


def _workload_status(body: JsonObject, value: int) -> None:
    check = {"name": "dispatch", "state": ("Pending", "Ready")[value % 2], "message": "", "lastTransitionTime": TIME}
    other = {"name": "other", "state": "Pending", "message": "", "lastTransitionTime": TIME}
    body["status"] = {
        "admissionChecks": [check] + ([other] if value > 1 else []),
        "conditions": [_condition("Evicted", value)],
    }


def _conditions(kind: str) -> Edit:
    return lambda body, value: body.update(status={"conditions": [_condition(kind, value)]})


_SPEC_EDITS: Final[Mapping[Resource, Edit]] = {
    names.TRAINJOBS: _trainjob_spec,
    names.WORKLOADS: lambda body, value: body["spec"].update(active=bool(value % 2)),
    names.JOBSETS: lambda body, value: body["spec"].update(suspend=bool(value % 2)),
    names.JOBS: lambda body, value: body["spec"].update(suspend=bool(value % 2)),
    names.PODS: _nothing,
    names.LEASES: lambda body, value: body["spec"].update(holderIdentity=f"holder-{value}"),
    names.ADMISSION_CHECKS: _nothing,
}
_STATUS_EDITS: Final[Mapping[Resource, Edit]] = {
    names.TRAINJOBS: _conditions("Suspended"),
    names.WORKLOADS: _workload_status,
    names.JOBSETS: _conditions("Suspended"),
    names.JOBS: lambda body, value: body.setdefault("status", {}).update(active=value + 1),
    names.PODS: lambda body, value: body.setdefault("status", {}).update(
        phase=("Pending", "Running", "Unknown", "Failed")[value]
    ),
    names.LEASES: _nothing,
    names.ADMISSION_CHECKS: _conditions("Active"),
}


def _both(slot: Slot) -> Edit:
    def edit(body: JsonObject, value: int) -> None:
        body["metadata"]["labels"]["b"] = str(value)
        _SPEC_EDITS[slot.resource](body, value)
        _STATUS_EDITS[slot.resource](body, value)

    return edit


def _unknown_state(body: JsonObject, value: int) -> None:
    _workload_status(body, 2)
    if value % 2:
        body["status"]["admissionChecks"][0]["state"] = "Perhaps"
    else:
        body["status"]["admissionChecks"][1]["name"] = "dispatch"  # two entries of one name


_INVALID: Final[Mapping[tuple[Resource, bool], Edit]] = {
    (names.TRAINJOBS, False): lambda body, value: body["spec"].update(trainer={"numNodes": -value or 7}),
    (names.WORKLOADS, True): _unknown_state,
    (names.ADMISSION_CHECKS, False): lambda body, _: body["spec"].update(controllerName=""),
}


def edited(slot: Slot, body: JsonObject, step: Step) -> JsonObject:
    """Return the object that a `replace` or `replace status` step sends, from a version that was seen."""
    body = copy.deepcopy(body)
    body["metadata"].setdefault("labels", {})
    how, _, lie = step.how.partition(", wrong ")
    edits: dict[str, Edit] = {
        "nothing": _nothing,
        "label": lambda body, value: body["metadata"]["labels"].update(a=str(value)),
        "unlabel": lambda body, _: body["metadata"]["labels"].pop("a", None),
        "annotate": lambda body, value: body["metadata"].update(annotations={"example.org/n": str(value)}),
        "finalizer": _finalizers(True),
        "no finalizer": _finalizers(False),
        "spec": _SPEC_EDITS[slot.resource],
        "status": _STATUS_EDITS[slot.resource],
        "both": _both(slot),
        "invalid": _INVALID.get((slot.resource, step.action == "replace status"), _nothing),
    }
    edits[how](body, step.value)
    lies: dict[str, Any] = {"uid": ("uid", NOBODY), "version": ("resourceVersion", "1")}
    if lie:
        key, wrong = lies[lie]
        body["metadata"][key] = wrong
    return body
