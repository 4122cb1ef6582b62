"""The command line: `make bench`, or `python -m bench --output json`."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from bench import measure
from bench.record import record
from bench.site import Site
from dispatch_local.cluster import Cluster
from dispatch_local.errors import LocalError

TERMINATED = 143
_ERR = Console(stderr=True, highlight=False)


def _say(text: str) -> None:
    _ERR.print(text, style="dim")


@contextmanager
def _site(name: str) -> Iterator[Site]:
    """A bare cluster for the length of the measurement."""
    cluster = Cluster(name, _say)
    try:
        cluster.up(node=False, bare=True)
        site = Site(cluster)
        site.prepare()
        yield site
    finally:
        cluster.down()


@click.command()
@click.option("--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--smoke", is_flag=True, help="Small numbers: shows that it works, measures nothing (half a minute).")
@click.option("--only", multiple=True, type=click.Choice(["latency", "rate", "memory", "events"]), help="Parts of it.")
@click.option("--seconds", default=15.0, show_default=True, help="How long a rate is measured at the most.")
@click.option("--backlog", multiple=True, type=int, default=(1000, 5000), show_default=True, help="For the rate.")
@click.option("--other-pods", multiple=True, type=int, default=(0, 20_000), show_default=True, help="For the rate.")
@click.option("--record", "anew", is_flag=True, help="Record the job that is multiplied on a whole cluster, and end.")
def main(
    output: str,
    smoke: bool,
    only: tuple[str, ...],
    seconds: float,
    backlog: tuple[int, ...],
    other_pods: tuple[int, ...],
    anew: bool,
) -> None:
    """Measure what the admission controller costs, beside a raw driver, on a bare local cluster (root, 8 minutes)."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # takes the cluster down on the way
    name = f"bench-{os.getpid()}"
    try:
        if anew:
            cluster = Cluster(name, _say)
            try:
                cluster.up(node=False)
                record(cluster)
            finally:
                cluster.down()
            return
        with _site(name) as site, tempfile.TemporaryDirectory() as folder:
            rates = _rates(site, Path(folder), (300,) if smoke else backlog, (100,) if smoke else other_pods, seconds)
            found = _measure(site, Path(folder), only, smoke, rates)
    except LocalError as error:
        click.echo(f"bench: {error}", err=True)
        sys.exit(1)
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    else:
        _print(found)


def _measure(
    site: Site, folder: Path, only: tuple[str, ...], smoke: bool, rates: Iterator[dict[str, Any]]
) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def wanted(part: str) -> bool:
        return not only or part in only

    if wanted("latency"):
        rows = []
        for driver in measure.DRIVERS:
            _say(f"latency: {driver.name}")
            rows.append(_row(measure.latency(site, folder, driver, 10 if smoke else 150)))
        found["latency"] = rows
    if wanted("rate"):
        found["rate"] = list(rates)
    if wanted("events"):
        sizes = (5, 20) if smoke else (100, 5000)
        found["events"] = []
        for waiting in sizes:
            _say(f"cost of an event: {waiting} Workloads wait")
            found["events"].append(_row(measure.event_cost(site, folder, waiting, 20 if smoke else 500)))
    if wanted("memory"):
        sizes = (100, 200) if smoke else (10_000, 50_000)
        _say(f"memory: {sizes[0]} Workloads, {sizes[1]} pods")
        found["memory"] = _row(measure.memory(site, folder, *sizes))
    return found


def _rates(
    site: Site, folder: Path, backlogs: tuple[int, ...], other_pods: tuple[int, ...], seconds: float
) -> Iterator[dict[str, Any]]:
    for backlog in backlogs:
        for pods in other_pods:
            for driver in measure.DRIVERS:
                _say(f"rate: {driver.name}, {backlog} Workloads, {pods} other pods")
                filled = site.fill(backlog, reserved=True, other_pods=pods)
                try:
                    yield _row(measure.rate(site, folder, driver, filled, pods, seconds, 1000))
                finally:
                    site.empty(filled)


def _row(measured: Any) -> dict[str, Any]:
    """Say at once what was measured: an interrupted run is not for nothing."""
    row = {name: round(value, 2) if isinstance(value, float) else value for name, value in asdict(measured).items()}
    _say(f"  {row}")
    return row


def _print(found: dict[str, Any]) -> None:
    console = Console()
    for title, rows in found.items():
        rows = rows if isinstance(rows, list) else [rows]
        table = Table(title=title, title_justify="left")
        for column in rows[0]:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(str(value) for value in row.values()))
        console.print(table)


if __name__ == "__main__":
    main()
