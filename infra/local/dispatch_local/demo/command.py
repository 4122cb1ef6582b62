"""The command line of the demo."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dispatch_local.cluster import Cluster
from dispatch_local.demo import bars
from dispatch_local.demo import svg as drawing
from dispatch_local.demo.guest import Guest
from dispatch_local.demo.play import Play
from dispatch_local.demo.stage import Stage
from dispatch_local.demo.story import Line, Story
from dispatch_local.demo.timeline import Timeline
from dispatch_local.errors import LocalError, MissingError

STYLES = {"patient": "cyan", "urgent": "magenta", "": "green"}
INTERRUPTED = 130
PLAIN_WIDTH = 120


class Teller:
    """Prints lines with the time since it was made: in colour on a terminal, plain elsewhere.

    On a terminal the timeline stays below the lines and grows while they are told.
    """

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        if not self._console.is_terminal:
            self._console = Console(highlight=False, soft_wrap=True, width=PLAIN_WIDTH)
        self._began = time.monotonic()
        self._live: Live | None = None

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

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Have a timeline below the lines, once `look` has given one."""
        try:
            yield
        finally:
            if self._live is not None:
                self._live.stop()

    def look(self, timeline: Timeline) -> None:
        """Draw the timeline as it is now."""
        lines = bars.draw(timeline, self._console.width, self.clock())
        if not lines or not self._console.is_terminal:
            return
        if self._live is None:
            # Drawn by this thread only: nobody changes the timeline meanwhile. Gone at the end, when it is printed.
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(Group(Text(), *lines), refresh=True)

    def summary(self, story: Story, timeline: Timeline) -> None:
        """Print the table of executions and the timeline."""
        table = Table(title="Executions", title_justify="left")
        for heading in ("job", "A", "pod", "started", "ended", "why it ended"):
            table.add_column(heading, overflow="fold")
        for job in story.jobs.values():
            for run in job.executions.values():
                times = (_minutes(run.started or run.created), _minutes(run.ended or 0))
                table.add_row(job.title, run.a, run.pod, *times, run.why, style=STYLES.get(job.title))
        self._console.print(table)
        for line in bars.draw(timeline, self._console.width, timeline.end()):
            self._console.print(line)


@click.command("demo")
@click.option("--context", help="Play on a cluster of yours, by the name of its context in your kubeconfig.")
@click.option(
    "--plain", is_flag=True, help="Plain mode: without Kueue; a hold and its release instead of a preemption."
)
@click.option(
    "--svg", type=click.Path(dir_okay=False, writable=True, path_type=Path), help="Also write the timeline there."
)
@click.option("--yes", is_flag=True, help="With --context: do not ask before creating anything.")
@click.option("--image", help="With --context: the training image in a registry of yours.")
@click.option("--controller-image", help="With --context: the controller's image in a registry of yours.")
@click.pass_obj
def demo_command(
    cluster: Cluster,
    context: str | None,
    plain: bool,
    svg: Path | None,
    yes: bool,
    image: str | None,
    controller_image: str | None,
) -> None:
    """Play the whole story: on a fresh local cluster, which stays up (root), or on yours, which stays as it was."""
    teller = Teller()
    if context is not None:
        guest = Guest(context, teller.progress, plain=plain, training=image, controller=controller_image)
        with guest:
            _ask(guest, yes)
            _tell(Play(guest, teller.line, teller.clock, teller.look), teller, svg)
        click.echo("Each execution had a higher A than the last, and none began before the last was over.")
        return
    if image or controller_image or yes:
        raise click.UsageError("--image, --controller-image and --yes are for --context")
    stage = Stage(cluster.name, teller.progress, plain=plain)
    near = os.path.relpath(sys.executable)
    down = f"{sys.executable if near.startswith('..') else near} -m dispatch_local --name {cluster.name} down"
    try:
        _tell(Play(stage, teller.line, teller.clock, teller.look), teller, svg)
    except KeyboardInterrupt:
        click.echo("\nInterrupted: taking the demo's cluster down.", err=True)
        stage.cluster.down()
        raise SystemExit(INTERRUPTED) from None
    except LocalError as error:
        click.echo(f"\nThe demo failed. {error}", err=True)
        if cluster.is_up():
            click.echo(f"The cluster is still up, for a look at it. Take it down with: {down}", err=True)
        raise SystemExit(error.exit_code) from None
    click.echo(
        "Each execution had a higher A than the last, and none began before the last was over.\n"
        f"Everything is still up: export KUBECONFIG={cluster.kubeconfig}\n"
        f"Take it all down with: {down}"
    )


def _tell(play: Play, teller: Teller, svg: Path | None) -> None:
    with teller.showing():
        play.perform()
    teller.summary(play.story, play.timeline)
    if svg is not None:
        svg.write_text(drawing.draw(play.timeline))
        click.echo(f"written: {svg}")


def _ask(guest: Guest, yes: bool) -> None:
    """Say what is missing, then what would be created; go on only if that is wanted."""
    missing = guest.missing()
    if missing:
        raise MissingError(
            "This cluster is not ready for the demo; nothing was changed.\n  - " + "\n  - ".join(missing)
        )
    users_own = guest.engine()
    plan = guest.plan(users_own)
    click.echo("The demo creates these, and the jobs and pods in them, and removes them at the end:")
    for each in plan:
        click.echo(f"  {each}")
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("nobody is there to be asked whether to go on: say --yes (make demo YES=1)")
    click.confirm(f"Create them in {guest.context}?", abort=True)


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{seconds % 60:04.1f}"
