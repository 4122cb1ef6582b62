"""`make soak`: hundreds of runs of all kinds, several jobs side by side on one real cluster, in random order.

The seed that is printed plays the same runs again. The audit of identities looks through the API server's log
every now and then and at the end: a run is good if it ended as its kind says, all are good if the audit finds nothing.
"""

from __future__ import annotations

import signal
import statistics
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import click
from rich.console import Console
from rich.table import Table

from dispatch_gates.audit import read
from dispatch_gates.contract.names import ADMISSION_CHECK
from dispatch_local.cluster import Cluster
from readmission.foreign import FOREIGN, all_frameworks, keep_waiting, waiting, waved_through
from readmission.kinds import KINDS, Needs, Run, begin
from readmission.passes import BY_REQUEST
from readmission.surroundings import Surroundings
from world import Deployment, World

STALLS = "replica-stalls-between-requests"
KILLS = "replica-killed-between-requests"
SHARE = 40
"""Of so many runs each ordinary kind gets one; stalls, of which there must be most, get what is left."""
RUNS_OF_A_JOB = 6
AUDIT_EVERY = 60
LONG_LEASE = 15.0
TERMINATED = 143


@dataclass(frozen=True)
class Round:
    """Runs that are played together: of one kind at once, or of several kinds as the lanes are free."""

    together: bool
    runs: tuple[tuple[int, str], ...]


def plan(count: int, lanes: int, seed: int, only: Collection[str] = ()) -> list[Round]:
    """Return about `count` runs in random order: the same ones for the same seed. `only` names the kinds to play."""
    random = Random(seed)
    each = max(1, count // SHARE if not only else count // len(only))
    kinds = {name: kind.needs for name, kind in KINDS.items() if not only or name in only}
    rounds = [name for name, needs in kinds.items() if needs is Needs.CLUSTER for _ in range(-(-each // lanes))]
    single = [name for name, needs in kinds.items() if needs is Needs.NOTHING for _ in range(each)]
    single += [KILLS] * (2 * each) if KILLS in kinds else []
    single += [STALLS] * max(0, count - len(single) - len(rounds) * lanes) if STALLS in kinds else []
    random.shuffle(rounds)
    random.shuffle(single)
    planned: list[Round] = []
    number = 0
    phases = max(1, len(rounds))
    for index in range(phases):
        part = single[index * len(single) // phases : (index + 1) * len(single) // phases]
        for together, names in ((False, part), (True, rounds[index : index + 1] * lanes)):
            if names:
                planned.append(Round(together, tuple(enumerate(names, number))))
                number += len(names)
    return planned


@dataclass
class Soak:
    """One soak: what is played where, and what became of it."""

    cluster: Cluster
    controllers: Deployment
    second: Deployment
    lanes: int
    seed: int
    total: int
    free: dict[bool, list[Run]] = field(default_factory=lambda: {True: [], False: []})
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    failures: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _played: Counter[str] = field(default_factory=Counter)

    @property
    def done(self) -> int:
        """How many runs have ended."""
        return sum(map(len, self.seconds.values()))

    def play(self, planned: Round) -> None:
        """Play the runs of a round."""
        parties = len(planned.runs) if planned.together else 1
        surroundings = Surroundings(self.cluster, self.controllers, self.second, parties)
        pool = ThreadPoolExecutor(self.lanes)
        try:
            list(pool.map(lambda each: self._play(each[0], each[1], surroundings), planned.runs))
        finally:
            # After Ctrl-C the cluster goes, and what is under way ends with it.
            pool.shutdown(wait=False, cancel_futures=True)

    def _play(self, number: int, name: str, surroundings: Surroundings) -> None:
        kind, random = KINDS[name], Random(f"{self.seed}-{number}")
        by_request = kind.needs is Needs.NO_CONTROLLER
        began = time.monotonic()
        try:
            run = self._take(by_request) or begin(kind, self.cluster, surroundings, random)
            run.surroundings, run.random = surroundings, random
            kind.play(run)
            self._give_back(by_request, run)
        except Exception:
            surroundings.give_up()
            self._say(number, name, began, "FAILED", traceback.format_exc())
        else:
            self._say(number, name, began, "ok")

    def _take(self, by_request: bool) -> Run | None:
        with self._lock:
            return self.free[by_request].pop() if self.free[by_request] else None

    def _give_back(self, by_request: bool, run: Run) -> None:
        """Keep the job for the next run, unless it has served long enough."""
        self._played[run.job.meta.uid] += 1
        if self._played[run.job.meta.uid] < RUNS_OF_A_JOB:
            with self._lock:
                self.free[by_request].append(run)
        else:
            run.world.stop(run.job)

    def _say(self, number: int, name: str, began: float, how: str, more: str = "") -> None:
        seconds = time.monotonic() - began
        with self._lock:
            self.seconds[name].append(seconds)
            self.failures[name] += how != "ok"
            click.echo(f"[{self.done:4}/{self.total}] run {number:4}  {name:32} {how:6} {seconds:6.1f} s")
            if more:
                click.echo(more, err=True)

    def audited(self) -> bool:
        """Say what the audit of identities finds so far; whether it is nothing."""
        timeline = read([self.cluster.audit_log], checks=[ADMISSION_CHECK, BY_REQUEST])
        executions = sum(len(job.resumes) for job in timeline.jobs.values())
        click.echo(
            f"audit: {timeline.reading.lines} lines, {len(timeline.jobs)} jobs, {executions} executions: ", nl=False
        )
        for wrong in (*map(str, timeline.violations()), *timeline.gaps()):
            click.echo(f"\n  {wrong}", nl=False)
        good = not timeline.violations() and not timeline.gaps()
        click.echo("nothing wrong" if good else "")
        return good

    def summary(self) -> Table:
        """What was played, by kind."""
        table = Table("kind", "runs", "failed", "seconds: median", "most", box=None)
        for name, seconds in self.seconds.items():
            median, most = f"{statistics.median(seconds):.1f}", f"{max(seconds):.1f}"
            table.add_row(name, str(len(seconds)), str(self.failures[name]), median, most)
        return table


def among_many(cluster: Cluster, controller: Deployment, number: int) -> None:
    """Have foreign jobs waved through while `number` Workloads wait; raises where they are not."""
    with cluster.configured("kueue", all_frameworks), controller:
        world = World(cluster, pods=number + 50).make()
        alone = {kind: waved_through(world, kind, f"alone-{kind.lower()}") for kind in FOREIGN}
        job = world.started_and_opened()
        world.linger(world.running(job, 1))
        world.evict(job)
        began = time.monotonic()
        keep_waiting(world, job, number)
        click.echo(f"{number} Workloads wait at the check, after {time.monotonic() - began:.0f} s")
        among = {kind: waved_through(world, kind, f"among-{kind.lower()}") for kind in FOREIGN}
        assert waiting(world) == number
    for kind in FOREIGN:
        click.echo(f"foreign {kind}: Ready after {alone[kind]:.1f} s alone, {among[kind]:.1f} s among {number}")


@click.command()
@click.option("--count", default=240, show_default=True, type=click.IntRange(min=1), help="How many runs.")
@click.option("--seed", type=int, help="Play the runs of this seed; a new one by default.")
@click.option("--lanes", default=4, show_default=True, type=click.IntRange(min=1), help="How many jobs side by side.")
@click.option("--only", multiple=True, type=click.Choice(list(KINDS)), help="Play this kind alone; may be repeated.")
@click.option(
    "--waiting", "number", default=5000, show_default=True, help="Workloads among which foreign jobs must run."
)
@click.option("--cluster", "name", default="soak", show_default=True, help="Name of the local cluster.")
def main(count: int, seed: int | None, lanes: int, only: tuple[str, ...], number: int, name: str) -> None:
    """Play many runs of all kinds on a real cluster. Exit codes: 0 all good, 1 not, 2 usage."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # takes the cluster down on the way
    seed = seed if seed is not None else Random().randrange(10**6)
    planned = plan(count, lanes, seed, only)
    total = sum(len(each.runs) for each in planned)
    again = f"--seed {seed} --count {count} --lanes {lanes}" + "".join(f" --only {kind}" for kind in only)
    click.echo(f"{total} runs, {lanes} side by side; again: make soak ARGS='{again}'")
    cluster = Cluster(name, click.echo)
    began = time.monotonic()
    good = True
    try:
        cluster.up(node=False)
        with tempfile.TemporaryDirectory() as folder:
            base = World(cluster).make()
            second = Deployment(base, Path(folder), "second")
            with Deployment(base, Path(folder), "soak") as controllers:
                soak = Soak(cluster, controllers, second, lanes, seed, total)
                for each in planned:
                    before = soak.done
                    soak.play(each)
                    if before // AUDIT_EVERY < soak.done // AUDIT_EVERY:
                        good = soak.audited() and good
                click.echo(f"{total} runs in {(time.monotonic() - began) / 60:.1f} min")
            if number:
                # Nothing is killed here, so that the Lease may last as long as people's.
                among_many(cluster, Deployment(base, Path(folder), "many", lease_seconds=LONG_LEASE), number)
        good = soak.audited() and not soak.failures.total() and good
        Console().print(soak.summary())
    finally:
        cluster.down()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
