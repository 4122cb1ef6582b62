"""Each precondition of the safety rule, taken away; and two controllers that are wrong from the start.

The preconditions are taken away by the text mutants of `unit/test_preconditions.py`, one for each precondition here:
a switch that is in the tests alone. A hunt names the world in which the explorer finds the mutant soon, and who acts
in it. In the same world the code as it is keeps every promise.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from dispatch_admission.decide import not_our_turn
from dispatch_gates.contract.count import with_count
from dispatch_gates.contract.names import TRAINJOBS, WORKLOADS
from dispatch_gates.contract.trainjob import parse_trainjob
from dispatch_gates.contract.workload import State, Workload, parse_workload, with_check
from dispatch_gates.requests import ConflictError, Operation, Replace, ReplaceStatus, get, write
from explorer.actors import Product
from explorer.search import explore
from model.objects import CHECK, TEAM, WORKLOAD
from unit.mutants import Mutant, installed
from unit.test_preconditions import TABLE

MAX_STEPS: Final = 30
_MAX_STATES: Final = 400_000


@dataclass(frozen=True)
class Hunt:
    """Where to look: the world to begin with (`worlds`), what people do (`people`), what the adapter runs."""

    mutant: str
    world: str = "RUNS"
    people: tuple[str, ...] = ()
    adapter: tuple[str, ...] = ()
    replicas: int = 1
    rereads: bool = False
    """The mutant reads an object twice in a pass; the code as it is must not."""
    evictions: int | None = 1
    crashes: int | None = 0
    judged: tuple[str, ...] = ("S", "R")

    @property
    def precondition(self) -> str:
        """The precondition in the project's words."""
        return self.mutant.partition(":")[0]


_CONSEQUENCES: Final = ("S1", "S2: let run", "S3: let run", "S3: a second", "S3: an execution", "S3: one Ready")
"""Breaches that show in the cluster, beside those of the letter."""

HUNTS: Final = (
    Hunt("QuotaReserved"),
    Hunt("not Evicted", "NEW"),
    Hunt("not Admitted", "RELISTED"),
    Hunt("not Finished", "FINISHED"),
    Hunt("no deletionTimestamp", "NEW", ("DELETE_WORKLOAD",)),
    Hunt("spec.active", "NEW", ("SET_ACTIVE",)),
    Hunt("our entry present", "UNLISTED"),
    Hunt("our entry Pending", "NEW"),
    Hunt("the AdmissionCheck is ours (controllerName)", "NEW"),
    Hunt("owner is a TrainJob: one that is gone may have been", "NEW", ("GONE",)),
    Hunt("owner UID equals the live UID", "EVICTED", ("GONE", "AGAIN")),
    Hunt("TrainJob not being deleted", "NEW", ("DELETE_JOB",)),
    Hunt("TrainJob suspended", "UNSUSPENDED"),
    Hunt("TrainJob not ended"),
    Hunt("no hold mark", "NEW", (), ("Hold",)),
    Hunt("start gate open", "GATED", ("STRIP_GATE",)),
    Hunt("pods found by what the tenant cannot forge away: one without labels counts in its Job", people=("HIDE",)),
    Hunt("pods in phase Pending count", "BEGINS"),
    Hunt("Unknown counts", "BEGINS"),
    Hunt("terminating counts", "BEGINS"),
    Hunt("JobSet suspended", "EVICTED"),
    Hunt("JobSet carries the current A before the raise", "BEHIND"),
    Hunt("JobSet carries the new A after the raise", "NEW"),
    Hunt("Jobs finished or observed suspended", "EVICTED"),
    Hunt("no Job missing", "CHILDLESS"),
    Hunt("evidence read again after the raise", "EVICTED", judged=_CONSEQUENCES),
    Hunt("all pages read", "BEGINS"),
    Hunt("consistent read (never resourceVersion=0): lists", "BEGINS"),
    Hunt("Workload read before the evidence", "NEW", replicas=2, rereads=True),
    Hunt(
        "resourceVersion on the raise of A", "NEW", replicas=2, rereads=True, crashes=1, judged=("S3: A was lowered",)
    ),
    Hunt("resourceVersion on Ready", "NEW", replicas=2, rereads=True, judged=_CONSEQUENCES),
    Hunt("only our own entry changed", "NEW"),
)


def scenario(hunt: Hunt) -> Any:
    """Return the scenario of a hunt, of the modules as they are imported now."""
    model, worlds, people = (importlib.import_module(f"explorer.{name}") for name in ("model", "worlds", "people"))
    return model.Scenario(
        hunt.mutant,
        replicas=hunt.replicas,
        adapters=1 if hunt.adapter else 0,
        adapter=hunt.adapter,
        people=tuple(getattr(people, name) for name in hunt.people),
        world=getattr(worlds, hunt.world),
        evictions=hunt.evictions,
        crashes=hunt.crashes,
        judged=hunt.judged,
    )


def found(hunt: Hunt) -> Any:
    """Explore with the mutant in the place of the code; return the first violation, None where there is none."""
    with installed(mutant(hunt)):
        actors, search = (importlib.import_module(f"explorer.{name}") for name in ("actors", "search"))
        product = actors.shipped()
        product.rereads = hunt.rereads
        result = search.explore(scenario(hunt), product, max_states=_MAX_STATES)
        return result.violations[0] if result.violations else None


def mutant(hunt: Hunt) -> Mutant:
    """Return the text mutant of a hunt."""
    return TABLE[hunt.mutant]


# Two controllers that are wrong from the start.


def hasty(namespace: str, name: str, checks: frozenset[str]) -> Operation[str]:
    """Quota reserved and own check Pending is enough."""
    workload = parse_workload((yield from get(WORKLOADS, namespace, name)))
    check = workload.entry(checks)
    if check is None or check.state != "Pending" or not workload.reserved:
        return "waits"
    yield from _raise(workload)
    yield from write(ReplaceStatus(WORKLOADS, with_check(workload, check.name, State.READY, "", check.time)))
    return "ready"


def forced(namespace: str, name: str, checks: frozenset[str]) -> Operation[str]:
    """A cached read, and a forced apply without a version: over whatever is there when it arrives.

    There is no request without a version; a write over a read of its own, tried until it is taken, is the same.
    """
    workload = parse_workload((yield from get(WORKLOADS, namespace, name)))
    check = workload.entry(checks)
    if check is None or check.state != "Pending" or not_our_turn(workload):
        return "waits"
    yield from _raise(workload)
    while True:
        now = parse_workload((yield from get(WORKLOADS, namespace, name)))
        if now.entry(checks) is None:
            return "the check is gone"
        try:
            yield from write(ReplaceStatus(WORKLOADS, with_check(now, check.name, State.READY, "forced", check.time)))
        except ConflictError:
            continue
        return "ready"


def _raise(workload: Workload) -> Operation[None]:
    assert workload.meta.owner is not None
    job = parse_trainjob((yield from get(TRAINJOBS, workload.meta.namespace, workload.meta.owner.name)))
    assert isinstance(job.count, int)
    yield from write(Replace(TRAINJOBS, with_count(job.raw, job.count + 1, ["node"])))


WRONG: Final = {
    "quota reserved and own check Pending is enough": (hasty, Hunt("", "RUNS", judged=_CONSEQUENCES)),
    "cached read, forced apply without a version": (forced, Hunt("", "NEW", rereads=True, judged=_CONSEQUENCES)),
}


def found_wrong(name: str) -> Any:
    """Explore a controller that is wrong from the start; return the first violation."""
    operation, hunt = WRONG[name]
    ours = frozenset({CHECK})
    product = Product({"pass": lambda: operation(TEAM, WORKLOAD, ours)}, rereads=True)
    result = explore(scenario(hunt), product, max_states=_MAX_STATES)
    return result.violations[0] if result.violations else None


# The table.

TABLE_FILE: Final = Path(__file__).resolve().parents[1] / "mutants.md"
_HEAD: Final = f"""# What happens when a precondition is taken away

Generated: `python -m faithful mutants` in `tests/` writes this file, and `make test` fails where it is out of date.
Each row is one text mutant of the code, the unit check that fails on it (`unit/test_preconditions.py`), and the
shortest trace to a broken promise that the explorer finds from the world named (`explorer/worlds.py`); at most
{MAX_STEPS} steps. R is what reliability.md asks of the moment at which A is raised; S1 to S6 are its invariants.

| precondition | unit check that fails | world | steps | broken promise |
|---|---|---|---|---|
"""


def row(hunt: Hunt, violation: Any) -> str:
    """Return the line of the table for a mutant."""
    check = mutant(hunt).caught_by
    return f"| {hunt.mutant} | {check} | {hunt.world} | {len(violation.steps)} | {violation.broken} |"


def wrong_row(name: str, violation: Any) -> str:
    """Return the line of the table for a controller that is wrong from the start."""
    world = WRONG[name][1].world
    return f"| a wrong controller: {name} | - | {world} | {len(violation.steps)} | {violation.broken} |"


def table() -> str:
    """Run everything and return the table; raise where something is not found."""
    rows = []
    for hunt in HUNTS:
        violation = found(hunt)
        assert violation is not None, f"the explorer does not notice: {hunt.mutant}"
        rows.append(row(hunt, violation))
    for name in WRONG:
        violation = found_wrong(name)
        assert violation is not None, f"the explorer does not notice: {name}"
        rows.append(wrong_row(name, violation))
    return _HEAD + "\n".join(rows) + "\n"


def as_shipped(max_states: int) -> list[str]:
    """Explore the code as it is in the world of each hunt; return what it breaks, which should be nothing."""
    broken = []
    for hunt in _distinct():
        result = explore(scenario(hunt), max_states=max_states)
        broken += [f"{hunt.world} with {', '.join(hunt.people)}: {violation}" for violation in result.violations]
    return broken


def _distinct() -> list[Hunt]:
    """One hunt for each world with its people."""
    found: dict[Hunt, Hunt] = {}
    for hunt in HUNTS:
        whole = replace(hunt, mutant="as it is", judged=("S", "R"))
        found.setdefault(replace(whole, rereads=False), whole)
    return list(found.values())
