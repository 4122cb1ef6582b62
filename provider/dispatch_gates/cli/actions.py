"""`open`, `hold`, `release` and `stop`: one job, by its name; refused as the Pulumi resources are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

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

Command = Callable[..., None]

_STOP_SECONDS: Final = 300.0
_timeout: Final = click.option(
    "--timeout", type=click.FloatRange(min=1.0), default=_STOP_SECONDS, show_default=True, help="Seconds to wait."
)


@dataclass(frozen=True)
class _Case:
    """One command about one job. `yes`: it is not to be asked for."""

    name: str
    namespace: str
    target: Target
    printer: Printer
    check: str
    yes: bool

    def __str__(self) -> str:
        return f"TrainJob {self.namespace}/{self.name}"

    def read(self) -> Status:
        """Read where the job stands; there has to be one."""
        from dispatch_gates.operations.status import status

        found = run(self.target, status(self.namespace, self.name, check=self.check))
        if found is None:
            raise failure(Exit.NO, f"there is no {self}.")
        return found

    def confirm(self, found: Status, will: str) -> None:
        """Say what is about to be done, and ask."""
        count = "unreadable" if found.admission_count is None else found.admission_count
        said = f"{self}: {found.state}, A={count}, {found.why}. {will}"
        click.echo(printable(said), err=not self.printer.for_people)
        if self.yes:
            return
        if not sys.stdin.isatty():
            raise failure(Exit.USAGE, "there is nobody to ask here: say --yes.")
        if not click.confirm("Do it?", err=not self.printer.for_people):
            raise failure(Exit.NO, "nothing was done.")

    def done(self, action: str, found: dict[str, Any], said: str) -> None:
        """Say what was done."""
        if self.printer.for_people:
            click.echo(printable(said))
        else:
            self.printer.document({"action": action, "namespace": self.namespace, "name": self.name, **found})


@dataclass(frozen=True)
class _Proof:
    """Preflight, as before every first Open or Release of a process."""

    controller_namespace: str
    lease: str
    watch_seconds: float

    def of(self, case: _Case, job: TrainJob) -> None:
        """Run it; end the command where the gate is not proven."""
        from dispatch_gates.cli.preflight import exit_code
        from dispatch_gates.cluster.preflight import prove
        from dispatch_gates.operations.preflight import Asked

        queue = case.namespace, job.queue, job.runtime, case.check
        asked = Asked(*queue, self.controller_namespace, self.lease, self.watch_seconds)
        click.echo(f"preflight: watching a probe for {self.watch_seconds:g} s", err=True)
        with told():
            report = prove(case.target, asked, warn=warn)
        if report.why:
            raise failure(exit_code(report), f"{report.verdict}, nothing was done: {'; '.join(report.why)}")


def _with_case(command: Command) -> Command:
    """Add the options that every command about a job has; the command takes them as its `_Case`."""

    @click.argument("name", callback=job_name)
    @options(
        namespace_option,
        click.option("-y", "--yes", is_flag=True, help="Do it without asking."),
        check_option,
        output_option,
        cluster_options,
    )
    @wraps(command)
    def wrapped(
        name: str,
        namespace: str,
        yes: bool,
        check: str,
        output: str,
        kubeconfig: str | None,
        context: str | None,
        **more: Any,
    ) -> None:
        from dispatch_gates.cluster import Target

        command(_Case(name, namespace, Target(kubeconfig, context), Printer(output), check, yes), **more)

    return wrapped


def _with_proof(command: Command) -> Command:
    """Add the options of the preflight that comes before; the command takes them as its `_Proof`."""

    @options(
        lease_options,
        click.option(
            "--watch-seconds",
            type=click.FloatRange(min=0.1),
            default=10.0,
            show_default=True,
            help="How long preflight watches its probe before anything is done.",
        ),
    )
    @wraps(command)
    def wrapped(*args: Any, controller_namespace: str, lease: str, watch_seconds: float, **more: Any) -> None:
        command(*args, proof=_Proof(controller_namespace, lease, watch_seconds), **more)

    return wrapped


def _marks(job: TrainJob) -> dict[str, Any]:
    return {"uid": job.meta.uid, "held": job.held, "opened": job.past_gate, "heldBy": list(job.gates.others)}


@click.command("open")
@_with_case
@_with_proof
def open_command(case: _Case, proof: _Proof) -> None:
    """Let the recorded job NAME past the start gate. What was opened cannot be closed again.

    Preflight comes first: where the gate is not proven nothing is opened.

    \b
    Example:
      dispatch-gates open dj-01arz3ndektsv4rrffq69g5fav-s1 -n training
    """  # noqa: D301  # click reads the escape
    from dispatch_gates.operations.opening import open_job

    found = case.read()
    job = found.job
    if not job.past_gate:
        then = "Kueue then decides when it runs" if job.kueue_mode else "it then runs at once, with the next A"
        then = "the hold stays" if job.held else then
        case.confirm(found, f"Open takes dispatch's entry out of its start gate; {then}.")
        proof.of(case, job)
    done = run(case.target, open_job(case.namespace, case.name, job.meta.uid))
    said = f"{case} {'was open already' if done.already else 'is open'}."
    if done.held_by:
        said += f" It is held by an administrator: {', '.join(done.held_by)}."
    case.done("open", {"already": done.already, **_marks(done.job)}, said)


@click.command("hold")
@_with_case
def hold_command(case: _Case) -> None:
    """Keep the job NAME from running until it is released. Pods that run are told to stop.

    \b
    Example:
      dispatch-gates hold dj-01arz3ndektsv4rrffq69g5fav-s1 -n training
    """  # noqa: D301  # click reads the escape
    from dispatch_gates.operations.holding import hold

    found = case.read()
    how = "deactivates its Workload" if found.job.kueue_mode else "suspends it"
    case.confirm(found, f"Hold sets the hold mark and {how}; pods that run are told to stop.")
    job = run(case.target, hold(case.namespace, case.name, found.job.meta.uid))
    case.done("hold", _marks(job), f"{case} is held. `status` names pods that are left.")


@click.command("release")
@_with_case
@_with_proof
@_timeout
def release_command(case: _Case, proof: _Proof, timeout: float) -> None:
    """Take the hold of the job NAME away. In plain mode it waits until the previous execution is over.

    Preflight comes first: where the gate is not proven nothing is released.

    \b
    Example:
      dispatch-gates release dj-01arz3ndektsv4rrffq69g5fav-s1 -n training
    """  # noqa: D301  # click reads the escape
    from dispatch_gates.operations.holding import release

    found = case.read()
    if found.job.held:
        then = "Kueue and the check come next" if found.job.kueue_mode else "it runs once its last execution is over"
        case.confirm(found, f"Release takes the hold away; {then}.")
        proof.of(case, found.job)
    job = run(case.target, release(case.namespace, case.name, found.job.meta.uid, seconds=timeout))
    said = "is released" if found.job.held else "was not held"
    case.done("release", {"already": not found.job.held, **_marks(job)}, f"{case} {said}.")


@click.command("stop")
@_with_case
@_timeout
def stop_command(case: _Case, timeout: float) -> None:
    """Delete the job NAME and wait until nothing of it is left. It can run again only as its next submission.

    \b
    Example:
      dispatch-gates stop dj-01arz3ndektsv4rrffq69g5fav-s1 -n training
    """  # noqa: D301  # click reads the escape
    from dispatch_gates.operations.stop import stop

    found = case.read()
    case.confirm(found, "Stop deletes it and waits until its pods are gone; that cannot be undone.")
    run(case.target, stop(case.namespace, case.name, found.job.meta.uid, seconds=timeout))
    case.done("stop", {"uid": found.job.meta.uid}, f"{case} and its pods are gone.")
