"""The inputs that `GatedTrainJob` and `GatedJob` share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Required, TypedDict

import pulumi

from dispatch_gates.contract import names
from dispatch_gates.operations.holding import RELEASE_SECONDS
from dispatch_gates.operations.start import WORKLOAD_SECONDS


class JobInputs(TypedDict, total=False):
    """What a program says of a job, as keyword arguments. Only `namespace` is required by its type."""

    namespace: Required[pulumi.Input[str]]
    """Where the TrainJob goes."""
    submission: pulumi.Input[int]
    """Number of the submission, from 1 (default). Raise it to run the job again, or with another specification."""
    queue: pulumi.Input[str] | None
    """The LocalQueue (Kueue mode). Without one the job is in plain mode: no queue, no quota, nobody re-admits it."""
    runtime: pulumi.Input[str] | None
    """Name of the training runtime."""
    runtime_kind: pulumi.Input[str] | None
    """`ClusterTrainingRuntime` (default) or `TrainingRuntime`."""
    image: pulumi.Input[str] | None
    """Image of the trainer's containers; default: the runtime's."""
    command: pulumi.Input[Sequence[pulumi.Input[str]]] | None
    """Command of the trainer's containers."""
    args: pulumi.Input[Sequence[pulumi.Input[str]]] | None
    """Arguments of the command."""
    nodes: pulumi.Input[int] | None
    """Number of training nodes, that is pods."""
    resources_per_node: pulumi.Input[Mapping[str, Any]] | None
    """Quantities by resource, used as requests and as limits; or a mapping with `requests` and `limits`."""
    env: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None
    """Environment variables of the trainer's containers; the values are texts."""
    priority_class: pulumi.Input[str] | None
    """The WorkloadPriorityClass (Kueue mode)."""
    deadline_seconds: pulumi.Input[int] | None
    """How long the job may be active, in seconds."""
    spec: pulumi.Input[Mapping[str, Any]] | None
    """All else of the TrainJob's spec, in the API's own spelling. What is given above must not be repeated here."""
    labels: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None
    """Labels of the TrainJob."""
    annotations: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None
    """Annotations of the TrainJob."""
    hold: pulumi.Input[bool] | None
    """True keeps the job from running, open or not, and ends its pods; False lets it run again, as its next execution.
    None (default): not managed here."""
    strict_executions: pulumi.Input[bool]
    """True: every execution must have an A of its own, restarts too. Refused where the cluster does not keep that
    (guard rails at level `executions`); default: False. Cannot change once the job is started."""
    check: pulumi.Input[str]
    """Name of the AdmissionCheck that must guard the queue; default: `dispatch`."""
    kubeconfig: pulumi.Input[str] | None
    """Path of a kubeconfig, never its content; default: as kubectl finds it. The path is stored in the state."""
    context: pulumi.Input[str] | None
    """Context of the kubeconfig; default: the current one."""
    workload_timeout_seconds: pulumi.Input[float]
    """How long Kueue may take to make the Workload, or Trainer the JobSet (plain mode), in seconds; default: 30."""
    release_timeout_seconds: pulumi.Input[float]
    """How long a release in plain mode waits for the previous execution to be over, in seconds; default: 300."""
    delete_timeout_seconds: pulumi.Input[float]
    """How long a deletion waits for the job and its pods to be gone, in seconds; default: 600."""


DEFAULTS: Final[dict[str, Any]] = {
    "submission": 1,
    "strict_executions": False,
    "check": names.ADMISSION_CHECK,
    "workload_timeout_seconds": WORKLOAD_SECONDS,
    "release_timeout_seconds": RELEASE_SECONDS,
    "delete_timeout_seconds": 600.0,
}


def setting(props: Mapping[str, Any], name: str) -> Any:
    """Return an input; its default where a state of an earlier release, in which there was no such input, lacks it."""
    return props.get(name, DEFAULTS[name])


def with_defaults(resource_name: str, inputs: JobInputs) -> dict[str, Any]:
    """Return the inputs with the defaults filled in; raise `TypeError` for one that does not exist."""
    if unknown := sorted(set(inputs) - set(JobInputs.__annotations__)):
        raise TypeError(f"{resource_name}: there is no input {unknown[0]!r}; there are {', '.join(_NAMES)}")
    return {**DEFAULTS, **{key: value for key, value in inputs.items() if value is not None}}


_NAMES: Final = tuple(JobInputs.__annotations__)
