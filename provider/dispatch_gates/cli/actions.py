"""`open`, `hold`, `release` and `stop`: one job, by its name; refused as the Pulumi resources are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from dispatch_gates.cli.common import (
    Printer,
    check_option,
    cluster_options,
    job_name,
    lease_options,
    namespace_option,
    options,
    output_option,
    run,
    told,
    warn,
)
from dispatch_gates.cli.exits import Exit, failure
from dispatch_gates.printable import printable

if TYPE_CHECKING:
    from dispatch_gates.cluster import Target
    from dispatch_gates.contract.trainjob import TrainJob
    from dispatch_gates.operations.status import Status

F = TypeVar("F", bound=Callable[..., Any])

_STOP_SECONDS: Final = 300.0
_name: Final = click.argument("name", callback=job_name)
_yes: Final = click.option("-y", "--yes", is_flag=True, help="Do it without asking.")
_common: Final = options(namespace_option, _yes, check_option, output_option, cluster_options)
_timeout: Final = click.option(
    "--timeout", type=click.FloatRange(min=1.0), default=_STOP_SECONDS, show_default=True, help="Seconds to wait."
)
_proof: Final = options(
    lease_options,
    click.option(
        "--watch-seconds",
        type=click.FloatRange(min=0.1),
        default=10.0,
        show_default=True,
        help="How long preflight watches its probe before anything is done.",
    ),
)


@dataclass(frozen=True)
class _Case:
    """One command about one job."""

    name: str
    namespace: str
    target: Target
    printer: Printer
    check: str

    def read(self) -> Status:
        """Read where the job stands; there has to be one."""
        from dispatch_gates.operations.status import status

        found = run(self.target, status(self.namespace, self.name, check=self.check))
        if found is None:
            raise failure(Exit.NO, f"there is no TrainJob {self.namespace}/{self.name}.")
        return found

    def confirm(self, found: Status, will: str, yes: bool) -> None:
        """Say what is about to be done, and ask."""
        count = "unreadable" if found.admission_count is None else found.admission_count
        said = f"TrainJob {self.namespace}/{self.name}: {found.state}, A={count}, {found.why}. {will}"
        click.echo(printable(said), err=not self.printer.for_people)
        if yes:
            return
        if not sys.stdin.isatty():
            raise failure(Exit.USAGE, "there is nobody to ask here: say --yes.")
        if not click.confirm("Do it?", err=not self.printer.for_people):
            raise failure(Exit.NO, "nothing was done.")

    def prove(self, job: TrainJob, controller_namespace: str, lease: str, watch_seconds: float) -> None:
        """Run preflight, as before every first Open or Release of a process."""
        from dispatch_gates.cli.preflight import exit_code
        from dispatch_gates.cluster.preflight import prove
        from dispatch_gates.operations.preflight import Asked

        asked = Asked(self.namespace, job.queue, job.runtime, self.check, controller_namespace, lease, watch_seconds)
        click.echo(f"preflight: watching a probe for {watch_seconds:g} s", err=True)
        with told():
            report = prove(self.target, asked, warn=warn)
        if report.why:
            raise failure(exit_code(report), f"{report.verdict}, nothing was done: {'; '.join(report.why)}")

    def done(self, action: str, found: dict[str, Any], said: str) -> None:
        """Say what was done."""
        if self.printer.for_people:
            click.echo(printable(said))
        else:
            self.printer.document({"action": action, "namespace": self.namespace, "name": self.name, **found})


def _case(name: str, namespace: str, check: str, output: str, kubeconfig: str | None, context: str | None) -> _Case:
    from dispatch_gates.cluster import Target

    return _Case(name, namespace, Target(kubeconfig, context), Printer(output), check)


def _marks(job: TrainJob) -> dict[str, Any]:
    return {"uid": job.meta.uid, "held": job.held, "opened": job.past_gate, "heldBy": list(job.gates.others)}


@click.command("open")
@_name
@_common
@_proof
def open_command(
    name: str,
    namespace: str,
    yes: bool,
    check: str,
    output: str,
    kubeconfig: str | None,
    context: str | None,
    controller_namespace: str,
    lease: str,
    watch_seconds: float,
) -> None:
    """Let the recorded job NAME past the start gate. What was opened cannot be closed again.

    Preflight comes first: where the gate is not proven nothing is opened.

    \b
    Example:
      dispatch-gates open dj-01arz3ndektsv4rrffq69g5fav-s1 -n training
    """  # noqa: D301  # click reads the escape
    from dispatch_gates.operations.opening import open_job

    case = _case(name, namespace, check, output, kubeconfig, context)
    found = case.read()
    job = found.job
    if not job.past_gate:
        then = "Kueue then decides when it runs" if job.kueue_mode else "it then runs at once, with the next A"
        then = "the hold stays" if job.held else then
        case.confirm(found, f"Open takes dispatch's entry out of its start gate; {then}.", yes)
        case.prove(job, controller_namespace, lease, watch_seconds)
    done = run(case.target, open_job(namespace, name, job.meta.uid))
    said = f"TrainJob {namespace}/{name} {'was open already' if done.already else 'is open'}."
    if done.held_by:
        said += f" It is held by an administrator: {', '.join(done.held_by)}."
    case.done("open", {"already": done.already, **_marks(done.job)}, said)


@click.command("hold")
@_name
@_common
def hold_command(
    name: str, namespace: str, yes: bool, check: str, output: str, kubeconfig: str | None, context: str | None
) -> None:
    """Keep the job NAME from running until it is released. Pods that run are told to stop.

    \b
    Example:
      dispatch-gates hold dj-01arz3ndektsv4rrffq69g5fav-s1 -n training
    """  # noqa: D301  # click reads the escape
    from dispatch_gates.operations.holding import hold

    case = _case(name, namespace, check, output, kubeconfig, context)
    found = case.read()
    how = "deactivates its Workload" if found.job.kueue_mode else "suspends it"
    case.confirm(found, f"Hold sets the hold mark and {how}; pods that run are told to stop.", yes)
    job = run(case.target, hold(namespace, name, found.job.meta.uid))
    case.done("hold", _marks(job), f"TrainJob {namespace}/{name} is held. `status` names pods that are left.")


@click.command("release")
@_name
@_common
@_proof
@_timeout
def release_command(
    name: str,
    namespace: str,
    yes: bool,
    check: str,
    output: str,
    kubeconfig: str | None,
    context: str | None,
    controller_namespace: str,
    lease: str,
    watch_seconds: float,
    timeout: float,
) -> None:
    """Take the hold of the job NAME away. In plain mode it waits until the previous execution is over.

    Preflight comes first: where the gate is not proven nothing is released.

    \b
    Example:
      dispatch-gates release dj-01arz3ndektsv4rrffq69g5fav-s1 -n training
    """  # noqa: D301  # click reads the escape
    from dispatch_gates.operations.holding import release

    case = _case(name, namespace, check, output, kubeconfig, context)
    found = case.read()
    if found.job.held:
        then = "Kueue and the check come next" if found.job.kueue_mode else "it runs once its last execution is over"
        case.confirm(found, f"Release takes the hold away; {then}.", yes)
        case.prove(found.job, controller_namespace, lease, watch_seconds)
    job = run(case.target, release(namespace, name, found.job.meta.uid, seconds=timeout))
    said = "is released" if found.job.held else "was not held"
    case.done("release", {"already": not found.job.held, **_marks(job)}, f"TrainJob {namespace}/{name} {said}.")


@click.command("stop")
@_name
@_common
@_timeout
def stop_command(
    name: str,
    namespace: str,
    yes: bool,
    check: str,
    output: str,
    kubeconfig: str | None,
    context: str | None,
    timeout: float,
) -> None:
    """Delete the job NAME and wait until nothing of it is left. It can run again only as its next submission.

    \b
    Example:
      dispatch-gates stop dj-01arz3ndektsv4rrffq69g5fav-s1 -n training
    """  # noqa: D301  # click reads the escape
    from dispatch_gates.operations.stop import stop

    case = _case(name, namespace, check, output, kubeconfig, context)
    found = case.read()
    case.confirm(found, "Stop deletes it and waits until its pods are gone; that cannot be undone.", yes)
    run(case.target, stop(namespace, name, found.job.meta.uid, seconds=timeout))
    case.done("stop", {"uid": found.job.meta.uid}, f"TrainJob {namespace}/{name} and its pods are gone.")
