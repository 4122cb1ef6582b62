"""`dispatch-gates`: what people type. Thin: options in, one operation, its result as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

from dispatch_gates.cluster import ClusterConfigError, Target, run
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.names import ADMISSION_CHECK
from dispatch_gates.operations.errors import OperationError
from dispatch_gates.operations.status import Status, status
from dispatch_gates.requests import ApiError, Operation

EXIT_FAILED = 1
EXIT_CANNOT_TELL = 4
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def _cluster_options(command: F) -> F:
    """Add the options that say which cluster."""
    for option in (
        click.option("--context", help="Context of the kubeconfig; its current one by default."),
        click.option("--kubeconfig", type=click.Path(), help="Path of the kubeconfig; KUBECONFIG by default."),
    ):
        command = option(command)
    return command


def _run(kubeconfig: str | None, context: str | None, operation: Operation[T]) -> T:
    """Run an operation; every error becomes one message and an exit code, never a stack trace."""
    try:
        return run(Target(kubeconfig, context), operation)
    except OperationError as error:
        raise _NoError(str(error)) from error
    except (ApiError, ClusterConfigError) as error:
        raise _CannotTellError(str(error)) from error


class _NoError(click.ClickException):
    exit_code = EXIT_FAILED


class _CannotTellError(click.ClickException):
    exit_code = EXIT_CANNOT_TELL


@click.group(context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "DISPATCH_GATES"})
@click.version_option(package_name="dispatch-gates")
def main() -> None:
    """Look at gated TrainJobs.

    Exit codes: 0 done; 1 no; 2 usage; 4 cannot tell (unreachable, no rights, no configuration).
    """


@main.command("status")
@click.argument("name")
@click.option("-n", "--namespace", default="default", show_default=True)
@click.option("--check", default=ADMISSION_CHECK, show_default=True, help="Name of dispatch's AdmissionCheck.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@_cluster_options
def status_command(
    name: str, namespace: str, check: str, output: str, kubeconfig: str | None, context: str | None
) -> None:
    """Say where the job NAME stands, and why.

    Example: dispatch-gates status dj-01arz3ndektsv4rrffq69g5fav-s1 -n training
    """
    if Identity.parse(name) is None:
        raise click.BadParameter(f"{name!r} is not the name of a job: dj-<ulid in lower case>-s<N> was expected.")
    found = _run(kubeconfig, context, status(namespace, name, check=check))
    if found is None:
        raise _NoError(f"there is no TrainJob {namespace}/{name}.")
    if output == "json":
        click.echo(json.dumps(_as_json(found)))
        return
    table = Table("job", "state", "A", "why", box=None)
    table.add_row(name, found.state, str(found.admission_count), found.why)
    Console().print(table)


def _as_json(found: Status) -> dict[str, object]:
    return {
        "version": 1,
        "name": found.job.meta.name,
        "namespace": found.job.meta.namespace,
        "uid": found.job.meta.uid,
        "state": found.state,
        "why": found.why,
        "admissionCount": found.admission_count,
        "heldBy": list(found.job.gates.others),
    }
