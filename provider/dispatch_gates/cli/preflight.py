"""`preflight`: prove the gates, and say line by line what there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from dispatch_gates.cli.common import (
    Printer,
    check_option,
    cluster_options,
    lease_options,
    namespace_option,
    output_option,
    told,
    warn,
)
from dispatch_gates.cli.exits import Exit

if TYPE_CHECKING:
    from dispatch_gates.cli.terminal import Terminal
    from dispatch_gates.contract.capability import Capability
    from dispatch_gates.operations.preflight import Probe, Report

_KINDS: Final = {"trainingruntime": "TrainingRuntime", "clustertrainingruntime": "ClusterTrainingRuntime"}
_STYLES: Final = {"yes": "green", "no": "bold red", "cannot tell": "bold magenta"}
_ANSWER: Final = 13
_NAME: Final = 17


def parse_runtime(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, str] | None:
    """Read a runtime: `NAME` or `KIND/NAME`."""
    if value is None:
        return None
    kind, slash, name = value.rpartition("/")
    found = _KINDS.get(kind.lower()) if slash else "ClusterTrainingRuntime"
    if found is None or not name:
        raise click.BadParameter(f"{value!r}: NAME, TrainingRuntime/NAME or ClusterTrainingRuntime/NAME was expected.")
    return found, name


@click.command("preflight")
@namespace_option
@click.option("-q", "--queue", help="LocalQueue that jobs will use; plain mode (no Kueue) without it.")
@click.option(
    "-r",
    "--runtime",
    callback=parse_runtime,
    help="Runtime that jobs will use: NAME of a ClusterTrainingRuntime, or TrainingRuntime/NAME. All, without it.",
)
@check_option
@lease_options
@click.option(
    "--watch-seconds",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    help="How long the probe is watched. Less proves less.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1.0),
    default=60.0,
    show_default=True,
    help="Seconds after which it is given up, beside the watch.",
)
@output_option
@click.option("--quiet", is_flag=True, help="Print nothing: the exit code says it.")
@cluster_options
def command(
    namespace: str,
    queue: str | None,
    runtime: tuple[str, str] | None,
    check: str,
    controller_namespace: str,
    lease: str,
    watch_seconds: float,
    timeout: float,
    output: str,
    quiet: bool,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Prove the gates of a namespace and queue, before anything runs.

    It creates a job that no node can run, watches that it stays closed, deletes it, and looks at all that the gates
    rest on. The verdict is "ready", or "observe-only" with what is missing and what mends it. Nothing else in the
    queue is disturbed: the probe never holds quota.

    \b
    Examples:
      dispatch-gates preflight -n training -q gpus
      dispatch-gates preflight -n training -q gpus -r torch-distributed -o json
      dispatch-gates preflight -n training                # plain mode
    """  # noqa: D301  # click reads the escape
    from dispatch_gates.cluster import Target
    from dispatch_gates.cluster.preflight import run_preflight
    from dispatch_gates.operations.preflight import Asked

    asked = Asked(namespace, queue, runtime, check, controller_namespace, lease, watch_seconds)
    target, printer = Target(kubeconfig, context), Printer(output)
    with told():
        if quiet or not printer.for_people:
            report = run_preflight(target, asked, warn=warn, limit_seconds=timeout)
        else:
            report = shown(target, asked, timeout)
    if not quiet and not printer.for_people:
        printer.document(as_document(report))
    raise SystemExit(exit_code(report))


def shown(target: Any, asked: Any, timeout: float) -> Report:
    """Run preflight, print each line as it is known, then the verdict."""
    from dispatch_gates.cli.terminal import Terminal
    from dispatch_gates.cluster.preflight import run_preflight

    terminal = Terminal()
    where = f"queue {asked.queue}" if asked.queue else "plain mode"
    terminal.line(f"preflight of namespace {asked.namespace}, {where}", "bold")
    with terminal.progress("watching the probe", asked.watch_seconds):
        report = run_preflight(
            target, asked, tell=lambda news: show_line(terminal, news), warn=warn, limit_seconds=timeout
        )
    show_verdict(terminal, report)
    return report


def show_line(terminal: Terminal, news: Capability | Probe) -> None:
    """Print a capability; where the probe stands is not told."""
    from dispatch_gates.operations.preflight import Probe

    if isinstance(news, Probe):
        return
    style = _STYLES[news.answer] if news.needed or news.answer == "yes" else "yellow"
    terminal.row((news.answer, _ANSWER, style), (news.name, _NAME, "bold"), (news.reason, 0, ""))
    if news.remedy and news.answer != "yes":
        terminal.row(("", _ANSWER, ""), ("", _NAME, ""), (f"-> {news.remedy}", 0, "dim"))


def show_verdict(terminal: Terminal, report: Report) -> None:
    """Print the verdict."""
    if report.removed:
        terminal.line(f"deleted probes that were left over: {', '.join(report.removed)}")
    if not report.why:
        terminal.line(f"{report.verdict}: jobs can be started and opened here", "bold green")
        return
    names = [line.name for line in report.capabilities if line.blocks]
    because = f"for want of a yes: {', '.join(names)}" if names else "though every answer is yes"
    style = "bold magenta" if report.cannot_tell else "bold red"
    terminal.line(f"{report.verdict}, {because}. Nothing is started, opened or released here.", style)
    if report.left_behind:
        terminal.line(f"The probe could not be deleted. This deletes it: {report.left_behind}", style)


def as_document(report: Report) -> dict[str, Any]:
    """Return the report for programs. The fields are in provider/README.md."""
    asked = report.asked
    return {
        "verdict": str(report.verdict),
        "cannotTell": report.cannot_tell,
        "why": list(report.why),
        "mode": asked.mode,
        "namespace": asked.namespace,
        "queue": asked.queue,
        "watchSeconds": asked.watch_seconds,
        "capabilities": [
            {
                "name": str(line.name),
                "answer": str(line.answer),
                "reason": line.reason,
                "remedy": line.remedy,
                "needed": line.needed,
            }
            for line in report.capabilities
        ],
        "removedProbes": list(report.removed),
        "leftBehind": report.left_behind,
    }


def exit_code(report: Report) -> Exit:
    """Return the exit code that a report stands for."""
    if not report.why:
        return Exit.DONE
    return Exit.CANNOT_TELL if report.cannot_tell else Exit.OBSERVE_ONLY
