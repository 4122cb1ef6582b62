"""Measures what the README of this folder promises: the time of a warm `up`, and the memory of an idle cluster."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dispatch_local.cluster import Cluster

# Long enough for what the start has left over to be collected.
SETTLE_SECONDS = 20.0


@dataclass(frozen=True)
class Case:
    """One kind of cluster, and what is promised of it."""

    title: str
    node: bool
    seconds: float
    gibibytes: float = 1.5


CASES = (
    Case("control plane and KWOK nodes (`up --without-node`)", node=False, seconds=15),
    Case("with the real node and its three images (`up`)", node=True, seconds=30),
)


@dataclass(frozen=True)
class Figures:
    """What was measured of one case: seconds of each `up`, and bytes when idle."""

    case: Case
    seconds: tuple[float, ...]
    memory: int

    @property
    def kept(self) -> bool:
        """Whether the promise holds."""
        return statistics.median(self.seconds) <= self.case.seconds and self.memory / 2**30 <= self.case.gibibytes


def measure(case: Case, rounds: int, say: Callable[[str], None]) -> Figures:
    """Bring a cluster of this kind up and down `rounds` times."""
    cluster = Cluster(f"bench-{os.getpid()}", say)
    seconds, memory = list[float](), 0
    for _ in range(rounds):
        started = time.monotonic()
        try:
            cluster.up(node=case.node)
            seconds.append(time.monotonic() - started)
            if len(seconds) == rounds:
                time.sleep(SETTLE_SECONDS)
                memory = sum(cluster.memory().values())
        finally:
            cluster.down()
    return Figures(case, tuple(seconds), memory)


def table(figures: list[Figures]) -> str:
    """Return the figures as Markdown, with the machine they were measured on."""
    lines = ["| cluster | up, warm | at most | idle memory | at most |", "|---|---|---|---|---|"]
    for each in figures:
        middle, low, high = statistics.median(each.seconds), min(each.seconds), max(each.seconds)
        lines.append(
            f"| {each.case.title} | {middle:.1f} s ({low:.1f} to {high:.1f}, {len(each.seconds)} times) "
            f"| {each.case.seconds:.0f} s | {each.memory / 2**30:.2f} GiB | {each.case.gibibytes} GiB |"
        )
    total = int(Path("/proc/meminfo").read_text().split()[1]) / 2**20
    lines += ["", f"{os.cpu_count()} processors, {total:.0f} GiB; load average at the end {os.getloadavg()[0]:.1f}."]
    return "\n".join(lines)
