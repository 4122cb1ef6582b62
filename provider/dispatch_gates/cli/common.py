"""What the commands share: options, running an operation, and writing a result for programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from dispatch_gates.cli.exits import Exit, failure
from dispatch_gates.contract.names import ADMISSION_CHECK, CONTROLLER, CONTROLLER_NAMESPACE
from dispatch_gates.printable import printable

if TYPE_CHECKING:
    from dispatch_gates.cluster import Target
    from dispatch_gates.requests import Operation

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

SCHEMA_VERSION: Final = 1
"""`version` of every JSON and YAML document; the fields are in provider/README.md."""
_OUTPUTS: Final = ("table", "json", "yaml")


def options(*found: Callable[[F], F]) -> Callable[[F], F]:
    """Put several options into one decorator."""

    def decorate(command: F) -> F:
        for option in reversed(found):
            command = option(command)
        return command

    return decorate


cluster_options: Final = options(
    click.option("--context", help="Context of the kubeconfig; its current one by default."),
    click.option("--kubeconfig", type=click.Path(), help="Path of the kubeconfig; KUBECONFIG by default."),
)
namespace_option: Final = click.option("-n", "--namespace", default="default", show_default=True, help="Namespace.")
check_option: Final = click.option(
    "--check", default=ADMISSION_CHECK, show_default=True, help="Name of dispatch's AdmissionCheck."
)
lease_options: Final = options(
    click.option(
        "--controller-namespace", default=CONTROLLER_NAMESPACE, show_default=True, help="The controller's namespace."
    ),
    click.option("--lease", default=CONTROLLER, show_default=True, help="Name of the controller's Lease."),
)
output_option: Final = click.option(
    "-o", "--output", type=click.Choice(_OUTPUTS), default="table", show_default=True, help="For people or programs."
)


def run(target: Target, operation: Operation[T], seconds: float | None = None) -> T:
    """Run an operation; every error becomes one message and an exit code, never a stack trace."""
    from dispatch_gates import cluster

    with told():
        return cluster.run(target, operation, seconds)


class told:  # noqa: N801  # a context manager, used like a function
    """Turns what operations and the driver raise into a failure."""

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        from dispatch_gates.cluster import ClusterConfigError
        from dispatch_gates.contract.objects import MalformedError
        from dispatch_gates.operations.errors import OperationError
        from dispatch_gates.requests import ApiError

        if isinstance(error, OperationError):
            raise failure(Exit.NO, str(error)) from error
        if isinstance(error, ApiError | ClusterConfigError | MalformedError):
            raise failure(Exit.CANNOT_TELL, str(error)) from error


@dataclass(frozen=True)
class Printer:
    """Writes documents for programs, in the format that was asked for."""

    output: str

    @property
    def for_people(self) -> bool:
        """Whether a person reads it."""
        return self.output == "table"

    def document(self, found: dict[str, Any], *, compact: bool = False) -> None:
        """Write one document, with its version; `compact`: one line, or one YAML document of several."""
        whole = {"version": SCHEMA_VERSION, **found}
        if self.output == "json":
            click.echo(json.dumps(whole, indent=None if compact else 2))
        else:
            import yaml

            text = yaml.safe_dump(whole, sort_keys=False, allow_unicode=True)
            click.echo(("---\n" if compact else "") + text, nl=False)


def warn(message: str) -> None:
    """Tell a person something beside the result, on standard error."""
    click.echo(printable(message), err=True)


def job_name(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Check the name of a job, as a callback of its argument."""
    from dispatch_gates.contract.identity import Identity

    if value is not None and Identity.parse(value) is None:
        raise click.BadParameter(f"{value!r} is not the name of a job: dj-<ulid in lower case>-s<N> was expected.")
    return value
