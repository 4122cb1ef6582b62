"""`audit`: API server audit logs in, broken promises out. What judges them is `dispatch_gates.audit`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dispatch_gates.cli.common import Printer, output_option
from dispatch_gates.cli.exits import Exit, failure
from dispatch_gates.contract.names import ADMISSION_CHECK

if TYPE_CHECKING:
    from dispatch_gates.audit import Timeline
    from dispatch_gates.audit.log import Reading


@click.command("audit")
@click.argument("files", nargs=-1, metavar="FILE...", type=click.Path())
@click.option("-n", "--namespace", "namespaces", multiple=True, help="Judge this namespace alone; may be repeated.")
@click.option(
    "--check",
    "checks",
    multiple=True,
    default=[ADMISSION_CHECK],
    show_default=True,
    help="Name of an AdmissionCheck of dispatch's; may be repeated.",
)
@click.option("--partial", is_flag=True, help="Exit 0 where nothing wrong was found, though the log does not tell all.")
@output_option
@click.option("--policy", "show_policy", is_flag=True, help="Print the audit policy that is needed, and end.")
def command(
    files: tuple[str, ...],
    namespaces: tuple[str, ...],
    checks: tuple[str, ...],
    partial: bool,
    output: str,
    show_policy: bool,
) -> None:
    """Look through API server audit logs for executions that broke a promise.

    Each FILE holds one JSON event a line, gzip or not. Several may be rotated ones, or of several API servers, in any
    order; `-` is standard input. Found are: two executions of one job with the same or a lower A, a pod before
    Open, an execution beside what is left of an earlier one, a check set Ready on anything but an unadmitted,
    unevicted reservation that saw A raised.

    Exit code 1 is a broken promise, 4 a log that cannot be read or lacks what is needed (see --policy).

    \b
    Example:
      dispatch-gates audit audit.log audit-*.log.gz
    """  # noqa: D301  # click reads the escape
    from dispatch_gates.audit import LogError, read
    from dispatch_gates.audit.policy import policy

    if show_policy:
        click.echo(policy(), nl=False)
        return
    if not files:
        raise click.UsageError("no audit log was named; `-` reads standard input.")
    try:
        with _progress(files) as progress:
            timeline = read(files, checks=checks, namespaces=namespaces, progress=progress)
    except LogError as error:
        raise failure(Exit.CANNOT_TELL, str(error)) from error
    printer = Printer(output)
    if printer.for_people:
        _print(timeline)
    else:
        printer.document(_document(timeline))
    if timeline.violations():
        sys.exit(Exit.NO)
    if timeline.gaps() and not partial:
        sys.exit(Exit.CANNOT_TELL)


@contextmanager
def _progress(files: Sequence[str]) -> Iterator[Callable[[Reading], None]]:
    """Show a person at a terminal how far reading is."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    sizes = [Path(name).stat().st_size if Path(name).is_file() else None for name in files]
    known = [size for size in sizes if size is not None]
    total = sum(known) if len(known) == len(sizes) else None
    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading", total=total)
        yield lambda reading: bar.update(task, completed=reading.bytes)


def _print(timeline: Timeline) -> None:
    from dispatch_gates.cli.terminal import Terminal

    terminal = Terminal()
    found, gaps = timeline.violations(), timeline.gaps()
    if found:
        rows = [
            (each.at.time, f"{each.resource} {each.namespace}/{each.name}", f"{each.verb} by {each.user}", each.what)
            for each in found
        ]
        terminal.table(("when", "object", "write", "what"), rows)
    for gap in gaps:
        terminal.line(f"cannot tell: {gap}")
    if gaps:
        terminal.line("The audit policy that is needed: dispatch-gates audit --policy")
    executions = sum(len(job.resumes) for job in timeline.jobs.values())
    verdict = f"{len(found)} broken promises" if found else "nothing wrong"
    as_far = ", as far as the log tells" if gaps and not found else ""
    terminal.line(
        f"{timeline.reading.lines} lines, {len(timeline.jobs)} jobs, {executions} executions: {verdict}{as_far}"
    )


def _document(timeline: Timeline) -> dict[str, Any]:
    return {
        "lines": timeline.reading.lines,
        "jobs": [
            {
                "name": job.key,
                "uid": job.uid,
                "executions": [{"admissionCount": a, "resumed": moment.time} for a, moment in job.resumes],
                "pods": len(job.pods),
            }
            for job in timeline.jobs.values()
        ],
        "violations": [
            {
                "time": each.at.time,
                "resourceVersion": each.at.order,
                "resource": each.resource,
                "namespace": each.namespace,
                "name": each.name,
                "what": each.what,
                "verb": each.verb,
                "user": each.user,
            }
            for each in timeline.violations()
        ],
        "cannotTell": timeline.gaps(),
    }
