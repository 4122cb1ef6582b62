"""Building the TrainJob that Start creates: closed, with A at 0, and with what its containers read."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dispatch_gates.contract import names
from dispatch_gates.contract.count import patched_jobs, runtime_patch, template_count
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.objects import JsonObject, dig, entries, flag, number, text
from dispatch_gates.contract.syntax import KEY, NAME, is_annotation_key, is_label_key, is_label_value, quantity

OUR_ENV: Final = frozenset({names.ENV_ULID, names.ENV_SUBMISSION, names.ENV_ADMISSION_COUNT, names.ENV_RESTART_ATTEMPT})
_INITIALIZERS: Final = ("dataset", "model")
_TRAINER: Final = "node"  # the replicated job that Trainer gives the number of nodes, and its container
_STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"  # the label that says what a replicated job is for
_MAX_NAME: Final = 63
# JobSet checks `<job>-<replicated job>-<job index>-<pod index>-` and the five random characters of a pod's name.
_POD_SUFFIX: Final = len("-abcde")


class SpecError(ValueError):
    """What was asked for cannot be started; the message says what, where and what to do."""


@dataclass(frozen=True)
class JobSpec:
    """What Start is asked for.

    `queue` is the LocalQueue in Kueue mode, and None in plain mode. `spec` is the TrainJob's spec in the API's
    own spelling, without what the gates own: suspend, runtimePatches of ours, managedBy.
    """

    identity: Identity
    namespace: str
    queue: str | None
    spec: Mapping[str, Any]
    owner: str = ""
    priority_class: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def runtime(self) -> tuple[str, str]:
        """Kind and name of the runtime; the API server's default kind is ClusterTrainingRuntime."""
        kind = text(self.spec, "runtimeRef", "kind") or names.CLUSTER_TRAINING_RUNTIMES.kind
        return kind, text(self.spec, "runtimeRef", "name") or ""

    def digest(self) -> str:
        """Return a hash of all that was asked for: the same request gives the same hash, always."""
        asked = {
            "name": self.identity.name,
            "namespace": self.namespace,
            "queue": self.queue,
            "priorityClass": self.priority_class,
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
            "spec": self.spec,
        }
        canonical = json.dumps(asked, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Runtime:
    """What Start must know of a training runtime: its replicated jobs, each with its numbers of Jobs and of pods."""

    kind: str
    name: str
    replicated_jobs: tuple[tuple[str, int, int], ...]
    nodes: int
    raw: JsonObject = field(repr=False, compare=False)


def parse_runtime(raw: JsonObject) -> Runtime:
    """Parse a TrainingRuntime or ClusterTrainingRuntime."""
    jobs = entries(raw, "spec", "template", "spec", "replicatedJobs")
    return Runtime(
        kind=text(raw, "kind") or "",
        name=text(raw, "metadata", "name") or "",
        replicated_jobs=tuple(
            (
                text(job, "name") or "",
                number(job, "replicas") or 1,
                number(job, "template", "spec", "parallelism") or 1,
            )
            for job in jobs
        ),
        nodes=number(raw, "spec", "mlPolicy", "numNodes") or 1,
        raw=raw,
    )


def problems(asked: JobSpec) -> list[tuple[str, str]]:
    """Return what is wrong with a request, as (path, message), without looking at any cluster."""
    parts = _spec_problems, _shape_problems, _resource_problems, _environment_problems, _metadata_problems
    return [problem for part in parts for problem in part(asked)]


def _spec_problems(asked: JobSpec) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    spec = asked.spec
    if not asked.runtime[1]:
        found.append(("spec.runtimeRef.name", "the name of a runtime was expected"))
    if asked.runtime[0] not in (names.CLUSTER_TRAINING_RUNTIMES.kind, names.TRAINING_RUNTIMES.kind):
        found.append(("spec.runtimeRef.kind", f"{asked.runtime[0]!r} is no kind of runtime"))
    for key in ("suspend", "managedBy"):
        if key in spec:
            found.append((f"spec.{key}", "belongs to the gates; leave it out"))
    managers = {text(patch, "manager") for patch in entries(spec, "runtimePatches")}
    for manager in sorted(managers & {names.PATCH_MANAGER, names.KUEUE_PATCH_MANAGER}, key=str):
        found.append(("spec.runtimePatches", f"manager {manager} is not for users"))
    counting = [job for patch in entries(spec, "runtimePatches") for job in patched_jobs(patch)]
    if any(template_count(job) is not None for job in counting):
        found.append(("spec.runtimePatches", f"{names.ADMISSION_COUNT} is set by dispatch; leave it out"))
    return found


def _shape_problems(asked: JobSpec) -> list[tuple[str, str]]:
    """Look at the shape of what Start adds to: the API server would refuse any other, once the job is to be created."""
    spec = asked.spec
    patches = spec.get("runtimePatches", [])
    found: list[tuple[str, str]] = []
    if not isinstance(patches, list) or len(entries(spec, "runtimePatches")) < len(patches):
        found.append(("spec.runtimePatches", "a list of mappings was expected"))
    if not isinstance(spec.get("trainer", {}), Mapping):
        found.append(("spec.trainer", "a mapping was expected"))
    for path in (("initializer",), *(("initializer", name) for name in _INITIALIZERS)):
        if not isinstance(dig(spec, *path), Mapping | None):
            found.append((f"spec.{'.'.join(path)}", "a mapping was expected"))
    return found


def _resource_problems(asked: JobSpec) -> list[tuple[str, str]]:
    path = "spec.trainer.resourcesPerNode"
    resources = dig(asked.spec, "trainer", "resourcesPerNode")
    if not isinstance(resources, Mapping | None):
        return [(path, "a mapping with `requests` and `limits` was expected")]
    found: list[tuple[str, str]] = []
    for kind in ("requests", "limits"):
        wanted = dig(resources, kind)
        if not isinstance(wanted, Mapping | None):
            found.append((path, f"{kind}: quantities by resource were expected"))
            continue
        for name, given in (wanted or {}).items():
            amount = quantity(given)
            if amount is None or amount < 0:
                found.append((path, f"{kind}, {name!r}: {given!r} is no quantity, as 2, 500m and 1.5Gi are"))
    return found


def _environment_problems(asked: JobSpec) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for path in _containers(asked.spec):
        where = f"spec.{'.'.join(path)}.env"
        container = dig(asked.spec, *path)
        given = container.get("env", []) if isinstance(container, Mapping) else []
        variables = entries(asked.spec, *path, "env")
        # The values are not shown: they may be secret.
        if not isinstance(given, list) or len(variables) < len(given):
            found.append((where, "a list of mappings, with `name` and `value` or `valueFrom`, was expected"))
        elif not all(text(each, "name") and isinstance(each.get("value"), str | None) for each in variables):
            found.append((where, "each `name` must be a text that is not empty, each `value` a text; quote numbers"))
        taken = {text(each, "name") for each in variables} & OUR_ENV
        for name in sorted(taken, key=str):
            found.append((where, f"{name} is set by dispatch; choose another name"))
    return found


def _metadata_problems(asked: JobSpec) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for kind, keys, valid in (
        ("labels", asked.labels, is_label_key),
        ("annotations", asked.annotations, is_annotation_key),
    ):
        for key in sorted(keys):
            if key.startswith((f"{names.DOMAIN}/", "kueue.x-k8s.io/")):
                found.append((kind, f"{key} is set by the gates; leave it out"))
            elif not valid(key):
                found.append((kind, f"{key!r} is no key: {KEY} were expected"))
    for key, value in asked.labels.items():
        if not is_label_value(value):
            found.append(("labels", f"{key!r}: its value must be {NAME}, or an empty text"))
    for kind, name in (("queue", asked.queue), ("priority_class", asked.priority_class)):
        if name is not None and not is_label_value(name):
            found.append((kind, f"{name!r} cannot be the value of a label: {NAME} were expected"))
    return found


def name_problem(identity: Identity, runtime: Runtime, nodes: int | None) -> str | None:
    """Return which child name would be longer than Kubernetes allows, and by how much, or None.

    `nodes` is what the job asks for, None where it leaves that to the runtime.
    """
    for replicated, jobs, parallelism in runtime.replicated_jobs:
        pods = max((nodes or runtime.nodes) if replicated == _TRAINER else parallelism, 1)
        longest = f"{identity.name}-{replicated}-{jobs - 1}-{pods - 1}"
        excess = len(longest) + _POD_SUFFIX - _MAX_NAME
        if excess > 0:
            return (
                f"pod names of replicated job {replicated!r} of {runtime.kind} {runtime.name} would be {excess} "
                f"characters longer than the {_MAX_NAME} that Kubernetes allows: {longest}-abcde. "
                "Give the replicated job of the runtime a shorter name."
            )
    return None


def _containers(spec: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the paths of what takes environment variables; the trainer always, initializers where they are."""
    return [
        ("trainer",),
        *(("initializer", name) for name in _INITIALIZERS if isinstance(dig(spec, "initializer", name), Mapping)),
    ]


def annotation_only(runtime: Runtime, spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the replicated jobs none of whose containers Trainer gives what `manifest` adds to `env`.

    Their pods carry A as an annotation alone. Trainer goes by the step that a replicated job is labelled with and by
    the name of the container, `node` being the trainer's; where MPI's launcher is a node, `node` is the trainer's, too.
    """
    given = {path[-1] for path in _containers(spec)}
    launcher_is_node = flag(runtime.raw, "spec", "mlPolicy", "mpi", "runLauncherAsNode")
    found = []
    for job in entries(runtime.raw, "spec", "template", "spec", "replicatedJobs"):
        name, step = text(job, "name") or "", text(job, "template", "metadata", "labels", _STEP) or ""
        if launcher_is_node and name == _TRAINER:
            step = "trainer"
        containers = entries(job, "template", "spec", "template", "spec", "containers")
        container = _TRAINER if step == "trainer" else step
        if step.removesuffix("-initializer") not in given or container not in {
            text(each, "name") for each in containers
        }:
            found.append(name)
    return tuple(found)


def _environment(identity: Identity) -> list[JsonObject]:
    def field_ref(kind: str, key: str) -> JsonObject:
        return {"fieldRef": {"fieldPath": f"metadata.{kind}['{key}']"}}

    return [
        {"name": names.ENV_ULID, "value": identity.ulid},
        {"name": names.ENV_SUBMISSION, "value": str(identity.submission)},
        {"name": names.ENV_ADMISSION_COUNT, "valueFrom": field_ref("annotations", names.ADMISSION_COUNT)},
        {"name": names.ENV_RESTART_ATTEMPT, "valueFrom": field_ref("labels", names.RESTART_ATTEMPT)},
    ]


def manifest(asked: JobSpec, replicated_jobs: Sequence[str]) -> JsonObject:
    """Build the TrainJob: both gates set whatever the mode, so that each holds where the other's keeper is absent.

    `replicated_jobs` are those of the runtime. Raises `SpecError` where `problems` finds any.
    """
    if wrong := problems(asked):
        raise SpecError("; ".join(f"{path}: {message}" for path, message in wrong))
    spec: JsonObject = copy.deepcopy(dict(asked.spec))
    spec["suspend"] = True
    spec.setdefault("runtimePatches", []).append(runtime_patch(0, replicated_jobs))
    for path in _containers(spec):
        at = spec
        for key in path:
            at = at.setdefault(key, {})
        at["env"] = [*at.get("env", []), *_environment(asked.identity)]
    labels = {**asked.labels, names.ULID_LABEL: asked.identity.ulid}
    if asked.queue is not None:
        labels[names.QUEUE_NAME] = asked.queue
    if asked.priority_class is not None:
        labels[names.PRIORITY_CLASS] = asked.priority_class
    return {
        "apiVersion": names.TRAINJOBS.api_version,
        "kind": names.TRAINJOBS.kind,
        "metadata": {
            "name": asked.identity.name,
            "namespace": asked.namespace,
            "labels": labels,
            "annotations": {
                **asked.annotations,
                names.ADMISSION_GATED_BY: names.GATE,
                names.OWNER: asked.owner,
                names.SPEC_HASH: asked.digest(),
            },
        },
        "spec": spec,
    }
