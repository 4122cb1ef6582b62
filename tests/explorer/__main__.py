"""`make prove`: each part of the proof, searched whole or as far as it says, with figures. Exit code 1: not proved."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from explorer.actors import Running, shipped
from explorer.liveness import stuck
from explorer.model import Model, Scenario
from explorer.search import Search, run

OPERATIONS: Final = ("Start", "Open", "Hold", "Release")
REPEATS: Final = ("S1", "S3: a second execution", "S3: A was lowered", "S5", "S6")
"""What must hold even without the assumption: an A never repeats, and nothing else is written."""


@dataclass(frozen=True)
class Part:
    """One part of the proof. `whole`: every state must have been met; otherwise it is searched up to `states`."""

    scenario: Scenario
    whole: bool = True
    states: float = 1e9
    seconds: float = 900.0
    live: bool = False
    broken: bool = False
    """A breach is expected, and shown."""


_NOT_ASSUMED: Final = "without the assumption, one job, one replica"
PARTS: Final = (
    Part(Scenario("one job, one replica", replicas=1), live=True),
    Part(Scenario("one job, two replicas active at once")),
    Part(
        Scenario(
            "one job, one replica; Start, Open, Hold, Release",
            replicas=1,
            adapters=1,
            adapter=OPERATIONS,
            started=False,
            people=(),
            losses=0,
            conflicts=0,
        ),
        live=True,
    ),
    Part(
        Scenario(
            "plain mode, one job; Start, Open, Hold, Release",
            replicas=0,
            kueue=False,
            adapters=1,
            adapter=OPERATIONS,
            started=False,
            people=(),
        ),
        live=True,
    ),
    Part(
        Scenario(
            f"{_NOT_ASSUMED}, 2 evictions: A never repeats",
            replicas=1,
            people=(),
            evictions=2,
            assumed=False,
            judged=REPEATS,
        )
    ),
    Part(Scenario(f"{_NOT_ASSUMED}: the trace", replicas=1, assumed=False), whole=False, broken=True),
    Part(
        Scenario(
            "two jobs, quota for one, two replicas; Start, Open, Hold, Release; 2 crashes, 2 evictions, 1 lost reply",
            jobs=2,
            adapters=1,
            adapter=OPERATIONS,
            started=False,
            crashes=2,
            evictions=2,
            quota=1,
        ),
        whole=False,
        states=10_000_000,
    ),
)


def prove(part: Part, console: Console) -> tuple[bool, tuple[str, ...]]:
    """Search one part; return whether it holds, and a line of the table."""
    began = time.monotonic()
    scenario = part.scenario
    console.print(f"[bold]{scenario.name}")
    product = shipped(kueue=scenario.kueue, foresight=True)
    search = Search(Model(scenario, product))
    result = run(
        search,
        max_states=part.states,
        max_seconds=part.seconds,
        progress=lambda text: console.print(f"  {text.removeprefix(scenario.name + ': ')}"),
    )
    for violation in result.violations:
        console.print(str(violation), markup=False, highlight=False)
    enough = result.exhausted or (not part.whole and result.states >= part.states)
    holds = bool(result.violations) if part.broken else enough and not result.violations
    notes = ["as expected, broken" if part.broken else "all states" if result.exhausted else "the first states"]
    if part.live and holds:
        found = stuck(search)
        holds = holds and not found.stuck
        notes.append(f"{found.stuck} stuck")
        for step in found.steps:
            console.print(f"  stuck after: {step}", markup=False)
    wrong = _short_sighted(search) if scenario.replicas == 1 else []
    if wrong:
        holds = False
        console.print(f"a pass was given up that could have gone on: {wrong[0]}", markup=False)
    figures = (f"{result.states:,}", f"{result.transitions:,}", str(result.depth), f"{time.monotonic() - began:.0f} s")
    return holds, (scenario.name, *figures, ", ".join(notes), "holds" if holds else "NOT PROVED")


def _short_sighted(search: Search) -> list[Running]:
    """Return the passes that were given up although they could have gone on. Two replicas run the same ones."""
    (passes,) = (actor for _, actor in search.tables.model.actors if "pass" in actor.operations)
    return passes.short_sighted(search.tables.met)


def main() -> int:
    """Search every part, or those whose number is given."""
    console = Console(highlight=False)
    chosen = [PARTS[int(number) - 1] for number in sys.argv[1:]] or PARTS
    table = Table("what", "states", "transitions", "depth", "time", "how far", "result")
    proved = True
    for part in chosen:
        holds, line = prove(part, console)
        console.print(f"  {', '.join(line[1:])}")
        proved = proved and holds
        table.add_row(*line)
    console.print(table)
    return 0 if proved else 1


if __name__ == "__main__":
    sys.exit(main())
