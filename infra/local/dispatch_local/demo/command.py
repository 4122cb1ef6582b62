"""The command line of the demo."""

from __future__ import annotations

import os
import sys
import time

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dispatch_local.cluster import Cluster
from dispatch_local.demo.play import Play
from dispatch_local.demo.stage import Stage
from dispatch_local.demo.story import Line, Story
from dispatch_local.errors import LocalError

STYLES = {"patient": "cyan", "urgent": "magenta", "": "green"}
INTERRUPTED = 130
PLAIN_WIDTH = 120


class Teller:
    """Prints lines with the time since it was made: in colour on a terminal, plain elsewhere."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        if not self._console.is_terminal:
            self._console = Console(highlight=False, soft_wrap=True, width=PLAIN_WIDTH)
        self._began = time.monotonic()

    def clock(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def line(self, line: Line) -> None:
        """Print one line of the story."""
        style = STYLES.get(line.job, "")
        text = Text(f"{_minutes(self.clock())}  ")
        text.append(f"{line.job:8} ", style)
        text.append(line.text, f"bold {style}" if line.loud else "")
        self._console.print(text)

    def progress(self, text: str) -> None:
        """Print what is being prepared."""
        self._console.print(Text(f"{_minutes(self.clock())}  {'':8} {text}", "dim"))

    def summary(self, story: Story) -> None:
        """Print the table of executions."""
        table = Table(title="Executions", title_justify="left")
        for heading in ("job", "A", "pod", "started", "ended", "why it ended"):
            table.add_column(heading, overflow="fold")
        for job in story.jobs.values():
            for run in job.executions.values():
                times = (_minutes(run.started or run.created), _minutes(run.ended or 0))
                table.add_row(job.title, run.a, run.pod, *times, run.why, style=STYLES.get(job.title))
        self._console.print(table)


@click.command("demo")
@click.pass_obj
def demo_command(cluster: Cluster) -> None:
    """Play the whole story on a fresh cluster of this name, which stays up afterwards (root)."""
    teller = Teller()
    stage = Stage(cluster.name, teller.progress)
    play = Play(stage, teller.line, teller.clock)
    near = os.path.relpath(sys.executable)
    down = f"{sys.executable if near.startswith('..') else near} -m dispatch_local --name {cluster.name} down"
    try:
        play.perform()
    except KeyboardInterrupt:
        click.echo("\nInterrupted: taking the demo's cluster down.", err=True)
        stage.cluster.down()
        raise SystemExit(INTERRUPTED) from None
    except LocalError as error:
        click.echo(f"\nThe demo failed. {error}", err=True)
        if cluster.is_up():
            click.echo(f"The cluster is still up, for a look at it. Take it down with: {down}", err=True)
        raise SystemExit(error.exit_code) from None
    teller.summary(play.story)
    click.echo(
        "Each execution had a higher A than the last, and none began before the last was over.\n"
        f"Everything is still up: export KUBECONFIG={cluster.kubeconfig}\n"
        f"Take it all down with: {down}"
    )


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{seconds % 60:04.1f}"
