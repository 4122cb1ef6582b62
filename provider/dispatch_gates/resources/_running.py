"""Running an operation for the engine: in which cluster, and its errors in one line each.

The client is imported by whoever first needs a cluster: programs, which only declare, are spared a second.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from dispatch_gates.contract.objects import MalformedError
from dispatch_gates.operations.errors import OperationError
from dispatch_gates.operations.jobs import cluster_identity
from dispatch_gates.printable import kubeconfig_named, printable
from dispatch_gates.requests import ApiError, Operation
from dispatch_gates.resources._inputs import Props, name_of
from dispatch_gates.resources._telling import told

if TYPE_CHECKING:
    from dispatch_gates.cluster import Target

T = TypeVar("T")

SKIP_CHECKPOINTS: Final = "PULUMI_SKIP_CHECKPOINTS"


class GatesError(Exception):
    """What the engine shows of a failed operation: one line that says what was seen and what to do."""


# The SDK prints the whole traceback; its last line is this name and the message.
GatesError.__module__ = "dispatch_gates"


def target(props: Props) -> Target:
    """Return the cluster that a resource names."""
    from dispatch_gates.cluster import Target

    return Target(kubeconfig=props.get("kubeconfig"), context=props.get("context"))


Todo: TypeAlias = Mapping[type[Exception], str]
"""What a user of Pulumi does about an error, beside what its message says."""


def run(props: Props, operation: Operation[T], then: Todo = MappingProxyType({})) -> T:
    """Run an operation in the cluster that the resource names; raise `GatesError` where it fails."""
    from dispatch_gates.cluster import run

    return without_traceback(lambda: run(target(props), told(operation, _subject(props))), then)


def without_traceback(work: Callable[[], T], then: Todo = MappingProxyType({})) -> T:
    """Do what needs a cluster; raise what goes wrong as a `GatesError`, of which the engine shows one line."""
    from dispatch_gates.cluster import ClusterConfigError

    try:
        return work()
    except (OperationError, ApiError, ClusterConfigError, MalformedError) as error:
        problem = GatesError(printable(f"{error} {then.get(type(error), '')}".rstrip()))
    raise problem  # outside the handler, so that no second traceback is printed


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


def _subject(props: Props) -> str:
    return f"TrainJob {props['namespace']}/{name_of(props)}"


def _named(props: Props) -> str:
    where = kubeconfig_named(props.get("kubeconfig"))
    return f"{where}, {'context ' + props['context'] if props.get('context') else 'current context'},"
