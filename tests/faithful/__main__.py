"""What a person types: `python -m faithful requests` in tests/."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import click

from explorer.mutations import TABLE_FILE, as_shipped, table
from explorer.walk import SCENARIOS, walk
from faithful.bare import bare_cluster
from faithful.play import play_seeds
from faithful.recorded import recorded
from faithful.transitions import compared, possible

_STATES_AS_SHIPPED = 50_000


@click.group()
def main() -> None:
    """Check the models of the tests against the real thing."""


@main.command()
@click.option("--sequences", default=2000, show_default=True, help="How many sequences of requests.")
@click.option("--seed", default=0, show_default=True, help="The first one; the others follow it.")
def requests(sequences: int, seed: int) -> None:
    """Ask the model API server and the real one the same, in random sequences."""
    began = time.monotonic()
    with bare_cluster(f"test-requests-{os.getpid()}") as target:
        reports = asyncio.run(play_seeds(target, range(seed, seed + sequences)))
    click.echo(f"{sequences} sequences compared, {len(reports)} differ ({time.monotonic() - began:.0f} s)")
    if reports:
        raise click.ClickException("\n".join(reports))


@main.command()
@click.argument("log", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def transitions(log: Path) -> None:
    """Compare what an API server's audit log says with what the explorer's model can do."""
    found = compared(recorded(log), possible())
    click.echo(str(found))
    if found.strange:
        raise click.ClickException(f"{found.strangers} transitions are not the model's")


@main.command()
def mutants() -> None:
    """Take away each precondition, have the explorer find it, and write the table of it: tests/mutants.md."""
    began = time.monotonic()
    TABLE_FILE.write_text(table())
    broken = as_shipped(_STATES_AS_SHIPPED)
    click.echo(f"{TABLE_FILE.name} written ({time.monotonic() - began:.0f} s)")
    if broken:
        raise click.ClickException("\n".join(["the code as it is breaks promises, too:", *broken]))


@main.command()
@click.option("--steps", default=50_000, show_default=True, help="How many steps of each run.")
@click.option("--seed", default=0, show_default=True, help="The first run's; the others follow it.")
@click.option("--runs", default=1, show_default=True, help="How many runs of each scenario.")
def simulate(steps: int, seed: int, runs: int) -> None:
    """Take long random runs through the explorer's model. The same seed and commit give the same run."""
    for scenario in SCENARIOS:
        for number in range(seed, seed + runs):
            found = walk(scenario, number, steps)
            said = f"{found.steps:,} steps, begun {found.beginnings} times, {found.resumes} resumes"
            click.echo(f"{scenario.name}, seed {number}: {said}")
            if found.violation is not None:
                raise click.ClickException(str(found.violation))


if __name__ == "__main__":
    main()
