"""The command line: `python -m dispatch_local [--name NAME] COMMAND`; `--help` lists the commands."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from types import FrameType

import click
from rich.console import Console
from rich.table import Table

from dispatch_local import bench as measuring
from dispatch_local import build as building
from dispatch_local import host, paths, programs
from dispatch_local import images as making
from dispatch_local.cluster import IMAGES, KWOK_NODES, Cluster
from dispatch_local.demo import bars
from dispatch_local.demo import svg as drawing
from dispatch_local.demo.command import demo_command
from dispatch_local.demo.story import LABEL
from dispatch_local.demo.timeline import Timeline, from_audit_log
from dispatch_local.errors import LocalError, NotUpError

INTERRUPTED = 130
EPILOG = (
    "Exit codes: 0 done; 1 failed; 2 wrong usage; 3 the cluster is not up; "
    "4 the machine lacks something (Go, root, a package); 130 interrupted."
)


def _say(line: str) -> None:
    # One write a line, so that lines of several threads do not mix in a log.
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--name", default="dispatch", show_default=True, help="Which cluster.")
@click.pass_context
def cli(context: click.Context, name: str) -> None:
    """Run a throwaway Kubernetes cluster on this machine, with Kueue, JobSet and Trainer; no Docker."""
    context.obj = Cluster(name, _say)


@cli.command()
@click.option("--without-node", is_flag=True, help="Control plane and KWOK nodes only; faster.")
@click.option("--kwok-nodes", default=KWOK_NODES, show_default=True, help="How many fake nodes.")
@click.option("--image", "images", multiple=True, default=IMAGES, show_default=True, help="For the real node.")
@click.pass_obj
def up(cluster: Cluster, without_node: bool, kwok_nodes: int, images: tuple[str, ...]) -> None:
    """Bring the cluster up and wait until it is ready; without root it has KWOK nodes alone."""
    started = time.monotonic()
    if not without_node and not host.is_root():
        _say(
            f"without root there is no real node, and no pod really runs: {host.WHY_ROOT}. All else is there: etcd, "
            "API server, controllers, Kueue, JobSet, Trainer, and KWOK nodes, whose pods are pretended. With sudo it "
            "is the full cluster."
        )
        without_node = True
    cluster.up(node=not without_node, images=images, kwok_nodes=kwok_nodes)
    name = cluster.name
    _say(f"cluster {name} is up ({time.monotonic() - started:.1f} s)")
    _say(f"  export KUBECONFIG={cluster.kubeconfig}")
    _say(f"  see it:  python -m dispatch_local --name {name} status")
    _say(f"  end it:  python -m dispatch_local --name {name} down")


@cli.command()
@click.pass_obj
def down(cluster: Cluster) -> None:
    """End the cluster and remove everything of it."""
    cluster.down()


@cli.command()
@click.pass_obj
def status(cluster: Cluster) -> None:
    """Show the cluster's parts."""
    table = Table(title=f"cluster {cluster.name}", title_justify="left")
    for column in ("part", "state", "up for", "starts", "memory"):
        table.add_column(column, justify="left" if column in {"part", "state"} else "right")
    memory = cluster.memory()
    for name, part in cluster.status().items():
        state = "held (SIGSTOP)" if part["paused"] else "running" if part["pid"] else f"ended, {part['exit']}"
        table.add_row(
            name,
            state,
            f"{time.time() - part['since']:.0f} s" if part["pid"] else "-",
            str(part["starts"]),
            f"{memory.get(part['pid'], 0) / 1e6:.0f} MB",
        )
    table.add_row("all processes", "", "", "", f"{sum(memory.values()) / 1e6:.0f} MB", style="bold")
    Console().print(table)
    _say(f"kubeconfig: {cluster.kubeconfig}")
    _say(f"audit log:  {cluster.audit_log}")


@cli.command()
@click.argument("part")
@click.option("--lines", default=200, show_default=True, help="How many of the last lines.")
@click.pass_obj
def logs(cluster: Cluster, part: str, lines: int) -> None:
    """Show the end of a part's log; "init" is the log of starts and ends."""
    file = cluster.logs_dir / f"{part}.log"
    if not file.is_file():
        known = sorted(each.stem for each in cluster.logs_dir.glob("*.log"))
        if not known:
            raise NotUpError(f"cluster {cluster.name} is not up; there are no logs")
        raise click.UsageError(f"there is no log of {part!r}; there are: {', '.join(known)}")
    _say(cluster.log_tail(part, lines))


@cli.command()
@click.pass_obj
def kubeconfig(cluster: Cluster) -> None:
    """Print the path of the administrator's kubeconfig."""
    if not cluster.is_up():
        raise NotUpError(f"cluster {cluster.name} is not up; it has no kubeconfig")
    _say(str(cluster.kubeconfig))


@cli.command()
@click.argument("part")
@click.pass_obj
def pause(cluster: Cluster, part: str) -> None:
    """Hold a part up as it is (SIGSTOP), until `resume`; `status` names the parts."""
    cluster.pause(part)
    _say(f"{part} of cluster {cluster.name} is held; it does nothing until: resume {part}")


@cli.command()
@click.argument("part")
@click.pass_obj
def resume(cluster: Cluster, part: str) -> None:
    """Let a held part go on."""
    cluster.resume(part)
    _say(f"{part} of cluster {cluster.name} goes on")


@cli.command()
@click.argument("part")
@click.pass_obj
def restart(cluster: Cluster, part: str) -> None:
    """End a part, start it again and wait until it is ready."""
    started = time.monotonic()
    cluster.restart(part)
    _say(f"{part} of cluster {cluster.name} was started again ({time.monotonic() - started:.1f} s)")


@cli.command()
@click.option(
    "--audit-log",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Of which cluster's API server; default: the one of --name.",
)
@click.option(
    "--label",
    default=LABEL,
    show_default=True,
    help="The label whose value is a job's title; TrainJobs without it are left out.",
)
@click.option("--svg", type=click.Path(dir_okay=False, writable=True, path_type=Path), help="Write the picture there.")
@click.pass_obj
def timeline(cluster: Cluster, audit_log: Path | None, label: str, svg: Path | None) -> None:
    """Draw what each job waited for and which execution ran when, from an audit log."""
    log = audit_log or cluster.audit_log
    if not log.is_file():
        raise NotUpError(f"cluster {cluster.name} is not up, so there is no audit log; --audit-log names another")
    seen = Timeline(label)
    with log.open() as lines:
        for at, fact in from_audit_log(lines):
            seen.take(at, fact)
    if not seen.tracks:
        raise LocalError(f"{log} tells of no TrainJob with the label {label}; --label names another")
    console = Console(highlight=False)
    for line in bars.draw(seen, console.width, seen.end()):
        console.print(line)
    if svg is not None:
        svg.write_text(drawing.draw(seen))
        _say(f"written: {svg}")


@cli.command()
@click.option(
    "--only",
    multiple=True,
    type=click.Choice([group.name for group in programs.GROUPS]),
    help="Only this group of programs; may be repeated.",
)
@click.option("--force", is_flag=True, help="Build what is in the cache again.")
@click.option("--table", is_flag=True, help="Print versions, sizes and build times as a Markdown table.")
def build(only: tuple[str, ...], force: bool, table: bool) -> None:
    """Build the programs into the per-user cache; needs Go, not root."""
    names = only or tuple(group.name for group in programs.GROUPS)
    building.ensure(names, _say, force)
    if table:
        _say(building.table([programs.group(name) for name in names]))
    else:
        for name in names:
            _say(f"{name}: {programs.group(name).path}")


@cli.command()
@click.option("--rounds", default=3, show_default=True, help="How often each kind of cluster comes up.")
def bench(rounds: int) -> None:
    """Measure warm starts and idle memory, and print them as a Markdown table (root)."""
    building.ensure(programs.CLUSTER_GROUPS, _say)
    making.build(paths.cache() / "images", IMAGES, _say)
    figures = [measuring.measure(case, rounds, _say) for case in measuring.CASES]
    _say("")
    _say(measuring.table(figures))
    missed = [each.case.title for each in figures if not each.kept]
    if missed:
        raise LocalError(f"not as promised: {'; '.join(missed)}")


@cli.command()
def images() -> None:
    """Make the images of the demo as OCI archives, for a cluster of yours; prints their files (root)."""
    for name, file in making.build(paths.cache() / "images", IMAGES, _say).items():
        _say(f"{making.reference(name)}: {file}")


cli.add_command(demo_command)


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Run the command line; returns the exit code."""
    # Whoever ends us politely gets the same clean-up as Ctrl-C.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, _interrupted)
    try:
        cli.main(prog_name="python -m dispatch_local", standalone_mode=False)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("\ninterrupted; nothing was left running. The same command starts again.\n")
        return INTERRUPTED
    except LocalError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0
