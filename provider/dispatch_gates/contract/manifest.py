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
from dispatch_gates.contract.objects import JsonObject, dig, entries, number, text

OUR_ENV: Final = frozenset({names.ENV_ULID, names.ENV_SUBMISSION, names.ENV_ADMISSION_COUNT, names.ENV_RESTART_ATTEMPT})
_INITIALIZERS: Final = ("dataset", "model")
_TRAINER: Final = "node"  # the replicated job that Trainer gives the number of nodes
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
    return [*_spec_problems(asked), *_environment_problems(asked), *_metadata_problems(asked)]


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


def _environment_problems(asked: JobSpec) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for path in _containers(asked.spec):
        taken = {text(env, "name") for env in entries(asked.spec, *path, "env")} & OUR_ENV
        for name in sorted(taken, key=str):
            found.append((f"spec.{'.'.join(path)}.env", f"{name} is set by dispatch; choose another name"))
    return found


def _metadata_problems(asked: JobSpec) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for kind, keys in (("labels", asked.labels), ("annotations", asked.annotations)):
        for key in sorted(keys):
            if key.startswith((f"{names.DOMAIN}/", "kueue.x-k8s.io/")):
                found.append((kind, f"{key} is set by the gates; leave it out"))
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
