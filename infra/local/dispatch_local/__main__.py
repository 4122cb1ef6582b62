"""The command line: `python -m dispatch_local [--name NAME] up | down | status | logs | kubeconfig | build`."""

from __future__ import annotations

import signal
import sys
import time
from types import FrameType

import click
from rich.console import Console
from rich.table import Table

from dispatch_local import build as building
from dispatch_local import programs
from dispatch_local.cluster import IMAGES, KWOK_NODES, Cluster
from dispatch_local.demo.command import demo_command
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
    """Bring the cluster up and wait until it is ready (root)."""
    started = time.monotonic()
    cluster.up(node=not without_node, images=images, kwok_nodes=kwok_nodes)
    name = cluster.name
    _say(f"cluster {name} is up ({time.monotonic() - started:.1f} s)")
    _say(f"  export KUBECONFIG={cluster.kubeconfig}")
    _say(f"  see it:  python -m dispatch_local --name {name} status")
    _say(f"  end it:  python -m dispatch_local --name {name} down")


@cli.command()
@click.pass_obj
def down(cluster: Cluster) -> None:
    """End the cluster and remove everything of it (root)."""
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


cli.add_command(demo_command)


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Run the command line; returns the exit code."""
    # Whoever ends us politely gets the same clean-up as Ctrl-C.
    signal.signal(signal.SIGTERM, _terminate)
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


if __name__ == "__main__":
    sys.exit(main())
