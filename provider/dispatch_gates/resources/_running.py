"""Running an operation for the engine: which cluster, and errors and warnings in one line each."""

from __future__ import annotations

import os
from typing import Any, Final, TypeVar

import pulumi

from dispatch_gates.cluster import ClusterConfigError, Target
from dispatch_gates.cluster import run as run_on
from dispatch_gates.contract.objects import MalformedError
from dispatch_gates.operations.errors import OperationError
from dispatch_gates.operations.jobs import cluster_identity
from dispatch_gates.requests import ApiError, Operation
from dispatch_gates.resources._inputs import Props

T = TypeVar("T")

SKIP_CHECKPOINTS: Final = "PULUMI_SKIP_CHECKPOINTS"


class GatesError(Exception):
    """What the engine shows of a failed operation: one line that says what was seen and what to do."""


# The SDK prints the whole traceback; its last line is this name and the message.
GatesError.__module__ = "dispatch_gates"


def target(props: Props) -> Target:
    """Return the cluster that a resource names."""
    return Target(kubeconfig=props.get("kubeconfig"), context=props.get("context"))


def run(props: Props, operation: Operation[T]) -> T:
    """Run an operation in the cluster that the resource names; raise `GatesError` where it fails."""
    try:
        return run_on(target(props), operation)
    except (OperationError, ApiError, ClusterConfigError, MalformedError) as error:
        message = " ".join(str(error).split())
    raise GatesError(message)  # outside the handler, so that no second traceback is printed


def in_cluster(recorded: str | None, props: Props) -> Operation[str]:
    """Return which cluster answers; raise `GatesError` where it is not the one that the job was started in."""
    found = yield from cluster_identity()
    if recorded and found != recorded:
        raise GatesError(
            f"{_named(props)} leads to another cluster than the job's: kube-system has uid {found}, {recorded} was "
            "expected. Nothing was done. Point `kubeconfig` and `context` (or KUBECONFIG) at the job's cluster."
        )
    return found


def records_problem() -> str | None:
    """Return why the engine would not record a resource before it goes on, or None."""
    value = os.environ.get(SKIP_CHECKPOINTS, "")
    if value.lower() in ("", "0", "false"):
        return None
    return f"{SKIP_CHECKPOINTS} is set: jobs would run before they are recorded. Unset it."


def warn(outs: dict[str, Any]) -> None:
    """Print what keeps an opened job from running although nothing failed; the engine shows such lines."""
    if outs.get("held_by"):
        gates = ", ".join(outs["held_by"])
        pulumi.log.warn(
            f"TrainJob {outs['namespace']}/{outs['name']} is held by an administrator: it runs once these gates are "
            f"taken out of its annotation kueue.x-k8s.io/admission-gated-by: {gates}"
        )


def _named(props: Props) -> str:
    where = f"kubeconfig {props['kubeconfig']}" if props.get("kubeconfig") else "the default kubeconfig"
    return f"{where}, {'context ' + props['context'] if props.get('context') else 'current context'},"
