"""The search: breadth first over millions of states, with tables for what was worked out once.

Every value of a part of the world, and every operation under way, is given a number when it is first met. A state is a
row of such numbers, a frontier an array of rows. A rule's steps on the few parts that it looks at are worked out once,
by the model and the shipped generators, and kept in a table; the search itself only looks up and compares numbers.
States that were met are kept as 64-bit fingerprints: among a hundred million states the chance that any two share one
is below 0.03 %.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from explorer import promises
from explorer.actors import Product
from explorer.model import PARTS, Model, Scenario, State, spent
from explorer.rules import (
    EVICTED,
    FAULT,
    JOB,
    JOBSET,
    LATE,
    NOTED,
    PODS,
    READY,
    RESERVED,
    TRAINJOB,
    WORKLOAD,
    Outcome,
    Rule,
)
from explorer.values import WorkloadPart, dense, ranks, renamed

Rows: TypeAlias = NDArray[np.int32]
Keys: TypeAlias = NDArray[np.int64]
Prints: TypeAlias = NDArray[np.uint64]
_BITS: Final = 20
"""Bits of a key for one number; a table's key joins up to three of them."""
CHUNK: Final = 1 << 15
WORKERS: Final = 2
PROGRESS_SECONDS: Final = 10.0


class Numbers:
    """Gives each value of one kind a number. `note` is worked out once for each value, and looked up as `notes`."""

    def __init__(self, note: Callable[[Any], int] = lambda _: 0) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._ranks = np.zeros(64, np.int64)
        self.notes = np.zeros(64, np.int8)
        self._note = note

    def of(self, value: Any) -> int:
        """Return the number of a value."""
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            assert found < 1 << _BITS, "too many values of one kind"
            self.values.append(value)
            if found >= len(self._ranks):
                self._ranks = np.concatenate([self._ranks, np.zeros_like(self._ranks)])
                self.notes = np.concatenate([self.notes, np.zeros_like(self.notes)])
            self._ranks[found] = ranks(value)
            self.notes[found] = self._note(value)
        return found

    def ranks(self, numbers: Rows) -> Keys:
        """Return the ranks that each of these values uses, as bits."""
        found: Keys = self._ranks[numbers]
        return found


class Table:
    """Remembers what was worked out for a key: one row of numbers, or several rows where there are several outcomes.

    Threads may look up at any time; one at a time works out what is not known yet.
    """

    _learning: ClassVar = threading.RLock()

    def __init__(self, compute: Callable[[int], Sequence[tuple[int, ...]]], width: int) -> None:
        self._compute = compute
        # Keys in order, and for each where its outcomes begin and how many there are; then all outcomes.
        self._known = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))
        self._outcomes = np.zeros((0, width), np.int32)

    def outcomes(self, keys: Keys) -> tuple[Keys, Rows]:
        """Return all outcomes for some keys: the position of the key, and the outcome, for each."""
        starts, counts = self._find(keys)
        total = int(counts.sum())
        origin = np.repeat(np.arange(len(keys)), counts)
        first = np.repeat(starts - (np.cumsum(counts) - counts), counts)
        return origin, self._outcomes[first + np.arange(total)]

    def single(self, keys: Keys) -> Rows:
        """Return the one outcome for each key."""
        starts, _ = self._find(keys)
        return self._outcomes[starts]

    def _find(self, keys: Keys) -> tuple[Keys, Keys]:
        if not len(keys):
            return keys, keys
        known, starts, counts = self._known
        at = np.searchsorted(known, keys)
        missing = known[np.minimum(at, len(known) - 1)] != keys if len(known) else np.ones(len(keys), bool)
        if missing.any():
            with self._learning:
                self._learn(np.setdiff1d(keys[missing], self._known[0]))
                known, starts, counts = self._known
            at = np.searchsorted(known, keys)
        return starts[at], counts[at]

    def _learn(self, keys: Keys) -> None:
        found = [self._compute(int(key)) for key in keys]
        fresh = [outcome for outcomes in found for outcome in outcomes]
        added = np.array([len(outcomes) for outcomes in found], np.int64)
        begins = len(self._outcomes) + np.cumsum(added) - added
        if fresh:
            self._outcomes = np.concatenate([self._outcomes, np.array(fresh, np.int32)])
        known, starts, counts = self._known
        joint = np.concatenate([known, keys])
        order = np.argsort(joint, kind="stable")
        self._known = (joint[order], np.concatenate([starts, begins])[order], np.concatenate([counts, added])[order])


def joined(*numbers: Any) -> Keys:
    """Join numbers to keys."""
    key = np.asarray(numbers[0], np.int64)
    for other in numbers[1:]:
        key = (key << _BITS) | other
    return key


def split(key: int, count: int) -> list[int]:
    """Take a key apart again."""
    return [key >> (_BITS * (count - 1 - index)) & ((1 << _BITS) - 1) for index in range(count)]


@dataclass
class Found:
    """Successors: for each its parent in the frontier, the row, the number of its breach (0: none)."""

    origin: NDArray[np.int64]
    rows: Rows
    broken: NDArray[np.int32]


class Tables:
    """The steps of a model as tables."""

    def __init__(self, model: Model) -> None:
        self.model = model
        scenario = model.scenario
        kinds = [*"TWSJP" * scenario.jobs, *("C" * scenario.replicas), *("A" * scenario.adapters), "B"]
        notes: dict[str, Callable[[Any], int]] = {"W": _holds_quota, "C": _job_of, "A": _job_of}
        of_kind = {kind: Numbers(notes.get(kind, lambda _: 0)) for kind in dict.fromkeys(kinds)}
        self.numbers = [of_kind[kind] for kind in kinds]
        self.breaches: list[str] = [""]
        self._rules = [
            (job, tuple(PARTS * job + part for part in rule.parts), self._rule_table(rule, PARTS * job))
            for rule in model.rules
            for job in range(scenario.jobs)
        ]
        by_actor: dict[tuple[int, int, int], Table] = {}
        self._actors: list[tuple[int, int, int, Table]] = []
        for index, (_, actor) in enumerate(model.actors, model.first_actor):
            for job in range(scenario.jobs):
                for part in range(PARTS):
                    key = (id(actor), job, part)
                    if key not in by_actor:
                        by_actor[key] = self._actor_table(index, job, part)
                    self._actors.append((index, job, PARTS * job + part, by_actor[key]))
        self._noted = {
            index: Table(lambda key, index=index: self._note(key, index), 1)  # type: ignore[misc]
            for index in range(model.first_actor, len(kinds) - 1)
        }
        self._wanted = {
            index: Table(lambda key, index=index: self._wants(key, index), 1)  # type: ignore[misc]
            for index in range(model.first_actor, len(kinds) - 1)
        }
        self._renames = {
            kind: Table(lambda key, numbers=numbers: self._rename(key, numbers), 1)  # type: ignore[misc]
            for kind, numbers in of_kind.items()
        }
        self._kinds = kinds
        self._budget = Table(self._spend, 1)
        self._approve = Table(self._approved, 5)
        self._approve_first = Table(self._approve_pair, 1)
        self._pairs = Numbers()
        self._closed = Table(self._is_closed, 1)

    def encode(self, state: State) -> Rows:
        """Return the row of a state."""
        return np.array([[numbers.of(value) for numbers, value in zip(self.numbers, state, strict=True)]], np.int32)

    def decode(self, row: Rows) -> State:
        """Return the state of a row, in the model's order of replicas."""
        return self.model.canonical(
            tuple(numbers.values[number] for numbers, number in zip(self.numbers, row, strict=True))
        )

    def met(self, part: int) -> set[Any]:
        """Return what was met of one part of the world, as a read of it shows it."""
        return {value[0] for value in self.numbers[part].values}

    def breach(self, broken: str) -> int:
        """Return the number of a breach that is judged, and 0 for none."""
        broken = self.model.judged(broken)
        if broken not in self.breaches:
            self.breaches.append(broken)
        return self.breaches.index(broken)

    # What is worked out once

    def _outcome(self, columns: Sequence[int], outcome: Outcome) -> tuple[int, ...]:
        after = [self.numbers[column].of(value) for column, value in zip(columns, outcome.after, strict=True)]
        return (*after, outcome.effects, self.breach(outcome.broken))

    def _rule_table(self, rule: Rule, at: int) -> Table:
        columns = [at + part for part in rule.parts]

        def compute(key: int) -> list[tuple[int, ...]]:
            numbers = split(key, len(columns))
            values = [self.numbers[column].values[number] for column, number in zip(columns, numbers, strict=True)]
            return [
                self._outcome(columns, outcome)
                for outcome in rule.steps(*values)
                if list(outcome.after) != values or outcome.broken
            ]

        return Table(compute, len(columns) + 2)

    def _actor_table(self, index: int, job: int, part: int) -> Table:
        column = PARTS * job + part
        actor = self.model.actors[index - self.model.first_actor][1]

        def compute(key: int) -> list[tuple[int, ...]]:
            operation, number = split(key, 2)
            under_way, value = self.numbers[index].values[operation], self.numbers[column].values[number]
            if under_way is not None and under_way[0] != str(job):
                return []
            running = under_way[1] if under_way is not None else None
            if part not in actor.parts(running):
                return []
            found = []
            for outcome in actor.steps(running, part, value):
                going, after = outcome.after
                tagged = outcome._replace(after=((str(job), going) if going is not None else None, after))
                if tagged.after != (under_way, value) or outcome.broken:
                    found.append(self._outcome((index, column), tagged))
            return found

        return Table(compute, 4)

    def _wants(self, key: int, index: int) -> list[tuple[int, ...]]:
        """Which columns an operation asks about next, as bits."""
        under_way = self.numbers[index].values[key]
        actor = self.model.actors[index - self.model.first_actor][1]
        jobs = range(self.model.scenario.jobs) if under_way is None else [int(under_way[0])]
        parts = actor.parts(under_way[1] if under_way is not None else None)
        return [(sum(1 << (PARTS * job + part) for job in jobs for part in parts if part >= 0),)]

    def _note(self, key: int, index: int) -> list[tuple[int, ...]]:
        operation, effects, job = split(key, 3)
        under_way = self.numbers[index].values[operation]
        actor = self.model.actors[index - self.model.first_actor][1]
        if under_way is None or under_way[0] != str(job):
            return [(operation,)]
        going = actor.noted(under_way[1], effects)
        return [(self.numbers[index].of(None if going is None else (under_way[0], going)),)]

    def _rename(self, key: int, numbers: Numbers) -> list[tuple[int, ...]]:
        number, used = split(key, 2)
        return [(numbers.of(renamed(numbers.values[number], dense(used))),)]

    def _spend(self, key: int) -> list[tuple[int, ...]]:
        budget, what = split(key, 2)
        left = spent(self.numbers[-1].values[budget], ("crashes", "evictions")[what])
        return [(-1 if left is None else self.numbers[-1].of(left),)]

    def _approve_pair(self, key: int) -> list[tuple[int, ...]]:
        return [(self._pairs.of(tuple(str(number) for number in split(key, 3))),)]

    def _approved(self, key: int) -> list[tuple[int, ...]]:
        pair, pods, tainted = split(key, 3)
        trainjob, workload, rest = (int(number) for number in self._pairs.values[pair])
        jobset, job = (int(number) for number in self._pairs.values[rest][:2])
        numbers = (trainjob, workload, jobset, job, pods)
        parts = [self.numbers[part].values[number] for part, number in enumerate(numbers)]
        found = promises.approve(*parts, tainted=bool(tainted), assumed=self.model.scenario.assumed)
        after = (found.workload, found.jobset, found.job)
        columns = (WORKLOAD, JOBSET, JOB)
        return [
            (
                *(self.numbers[column].of(value) for column, value in zip(columns, after, strict=True)),
                self.breach(found.broken),
                int(found.possible),
            )
        ]

    def _is_closed(self, key: int) -> list[tuple[int, ...]]:
        job, pods = split(key, 2)
        broken = promises.closed(self.numbers[TRAINJOB].values[job], self.numbers[PODS].values[pods])
        return [(self.breach(broken),)]

    # Steps of many states at once

    def expand(self, rows: Rows, *, faults: bool = True) -> Iterator[Found]:
        """Yield the successors of some states, rule by rule; without `faults` only those that no fault makes."""
        for job, columns, table in self._rules:
            origin, outcomes = table.outcomes(joined(*(rows[:, column] for column in columns)))
            if not faults:
                origin, outcomes = _faultless(origin, outcomes)
            if len(origin):
                yield self._finished(rows, origin, columns, outcomes, job, None)
        wanted = {index: self._wanted[index].single(rows[:, index].astype(np.int64))[:, 0] for index in self._wanted}
        for index, job, column, table in self._actors:
            (asking,) = np.nonzero(wanted[index] >> column & 1)
            if len(asking):
                origin, outcomes = table.outcomes(joined(rows[asking, index], rows[asking, column]))
                if not faults:
                    origin, outcomes = _faultless(origin, outcomes)
                if len(origin):
                    yield self._finished(rows, asking[origin], (index, column), outcomes, job, index)
        if faults:
            yield from self._crashes(rows)

    def _crashes(self, rows: Rows) -> Iterator[Found]:
        budget = self._budget.single(joined(rows[:, -1], 0))[:, 0]
        for index in self._wanted:
            idle = self.numbers[index].of(None)
            (origin,) = np.nonzero((rows[:, index] != idle) & (budget >= 0))
            if len(origin):
                after = rows[origin]
                after[:, index] = idle
                after[:, -1] = budget[origin]
                yield Found(origin, self._canonical(after), np.zeros(len(origin), np.int32))

    def _finished(
        self, rows: Rows, origin: NDArray[np.int64], columns: Sequence[int], outcomes: Rows, job: int, own: int | None
    ) -> Found:
        after = rows[origin]
        after[:, list(columns)] = outcomes[:, : len(columns)]
        effects, broken = outcomes[:, -2], outcomes[:, -1].copy()
        keep = np.ones(len(origin), bool)
        if effects.any():
            self._with_effects(rows, origin, after, effects, broken, keep, job, own)
        if self.model.scenario.adapters:
            at = PARTS * job
            closed = self._closed.single(joined(after[:, at + TRAINJOB], after[:, at + PODS]))[:, 0]
            broken = np.where(broken == 0, closed, broken)
        if not keep.all():
            origin, after, broken = origin[keep], after[keep], broken[keep]
        return Found(origin, self._canonical(after), broken)

    def _with_effects(
        self,
        rows: Rows,
        origin: NDArray[np.int64],
        after: Rows,
        effects: NDArray[np.int32],
        broken: NDArray[np.int32],
        keep: NDArray[np.bool_],
        job: int,
        own: int | None,
    ) -> None:
        at = PARTS * job
        scenario = self.model.scenario
        if scenario.quota is not None and (effects & RESERVED).any():
            taking = (effects & RESERVED) != 0
            held = np.zeros(len(origin), np.int8)
            for other in range(scenario.jobs):
                held += self.numbers[WORKLOAD].notes[rows[origin, PARTS * other + WORKLOAD]]
            keep &= ~(taking & (held >= scenario.quota))
        (evicting,) = np.nonzero(effects & EVICTED)
        if len(evicting):
            left = self._budget.single(joined(after[evicting, -1], 1))[:, 0]
            keep[evicting] &= left >= 0
            after[evicting, -1] = np.maximum(left, 0)
        (ready,) = np.nonzero(effects & READY)
        if len(ready):
            found = after[ready]
            zero = np.zeros(len(ready), np.int64)
            rest = self._approve_first.single(joined(found[:, at + JOBSET], found[:, at + JOB], zero))[:, 0]
            pair = self._approve_first.single(joined(found[:, at + TRAINJOB], found[:, at + WORKLOAD], rest))[:, 0]
            tainted = (effects[ready] & LATE) != 0
            approved = self._approve.single(joined(pair, found[:, at + PODS], tainted.astype(np.int64)))
            for offset, column in enumerate((WORKLOAD, JOBSET, JOB)):
                after[ready, at + column] = approved[:, offset]
            broken[ready] = np.where(broken[ready] == 0, approved[:, 3], broken[ready])
            ruled_out = ready[approved[:, 4] == 0]
        else:
            ruled_out = ready
        late = np.where(effects & READY, effects & ~LATE, effects) & NOTED
        (changing,) = np.nonzero(late)
        for index in self._noted:
            if index != own:
                key = joined(after[changing, index], late[changing], job)
                after[changing, index] = self._noted[index].single(key)[:, 0]
        if len(ruled_out):
            assert own is not None, "the environment lets no job run"
            after[ruled_out] = rows[origin[ruled_out]]
            after[ruled_out, own] = self.numbers[own].of(None)
            broken[ruled_out] = 0

    def _canonical(self, rows: Rows) -> Rows:
        model = self.model
        for job in range(model.scenario.jobs):
            columns = range(PARTS * job, PARTS * job + PARTS)
            actors = range(model.first_actor, rows.shape[1] - 1)
            used = np.zeros(len(rows), np.int64)
            for column in columns:
                used |= self.numbers[column].ranks(rows[:, column])
            if model.scenario.jobs == 1:
                for column in actors:
                    used |= self.numbers[column].ranks(rows[:, column])
            else:
                for column in actors:
                    used |= np.where(
                        self._of_job(column, rows[:, column], job), self.numbers[column].ranks(rows[:, column]), 0
                    )
            (sparse,) = np.nonzero(used & (used + 1))
            if len(sparse):
                some, mask = rows[sparse], used[sparse]
                for column in (*columns, *actors):
                    name = self._renames[self._kinds[column]].single(joined(some[:, column], mask))[:, 0]
                    if column >= model.first_actor and model.scenario.jobs > 1:
                        name = np.where(self._of_job(column, some[:, column], job), name, some[:, column])
                    some[:, column] = name
                rows[sparse] = some
        replicas = slice(model.first_actor, model.first_actor + model.scenario.replicas)
        if model.scenario.replicas > 1:
            rows[:, replicas] = np.sort(rows[:, replicas], axis=1)
        return rows

    def _of_job(self, column: int, numbers: Rows, job: int) -> NDArray[np.bool_]:
        """Return which of these operations are about a job."""
        return np.asarray(self.numbers[column].notes[numbers] == job + 1)


def _holds_quota(part: WorkloadPart) -> int:
    return int(part.workload is not None and part.workload.reserved)


def _job_of(under_way: tuple[str, Any] | None) -> int:
    """Return the job that an operation is about, from 1 on; 0 for none."""
    return 0 if under_way is None else int(under_way[0]) + 1


def _faultless(origin: Keys, outcomes: Rows) -> tuple[Keys, Rows]:
    kept = (outcomes[:, -2] & FAULT) == 0
    return origin[kept], outcomes[kept]


class Met:
    """The fingerprints of the states that were met, in a few sorted runs of growing size."""

    def __init__(self) -> None:
        self._runs: list[Prints] = []
        self.count = 0

    def missing(self, prints: Prints) -> tuple[Prints, Keys]:
        """Return those not met before, one of each and in order, and their positions."""
        found, first = np.unique(prints, return_index=True)
        for run in self._runs:
            missing = run[np.minimum(np.searchsorted(run, found), len(run) - 1)] != found
            found, first = found[missing], first[missing]
        return found, first

    def add(self, found: Prints) -> None:
        """Note what was not met before; in order."""
        self.count += len(found)
        while self._runs and len(self._runs[-1]) < 2 * len(found):
            found = np.sort(np.concatenate([self._runs.pop(), found]), kind="stable")
        if len(found):
            self._runs.append(found)

    def all(self) -> Prints:
        """Return all of them, in order."""
        return np.sort(np.concatenate(self._runs), kind="stable") if self._runs else np.zeros(0, np.uint64)


def prints(rows: Rows) -> Prints:
    """Return a fingerprint of each row."""
    found = np.full(len(rows), 0x9E3779B97F4A7C15, np.uint64)
    for column in range(rows.shape[1]):
        found ^= rows[:, column].astype(np.uint64)
        found *= np.uint64(0xBF58476D1CE4E5B9)
        found ^= found >> np.uint64(29)
        found *= np.uint64(0x94D049BB133111EB)
        found ^= found >> np.uint64(32)
    return found


@dataclass(frozen=True)
class Violation:
    """A promise that was broken, and the shortest way to it."""

    broken: str
    steps: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{number:3} {name}" for number, name in enumerate(self.steps, 1)]
        return "\n".join([f"{self.broken}, after {len(self.steps)} steps:", *lines])


@dataclass
class Result:
    """What a search has found. `exhausted`: every state within the bounds was met."""

    scenario: Scenario
    states: int
    transitions: int
    depth: int
    seconds: float
    exhausted: bool
    violations: list[Violation] = field(default_factory=list)

    def __str__(self) -> str:
        how = "all of them" if self.exhausted else "the bound holds more"
        return (
            f"{self.scenario.name}: {self.states:,} states ({how}), {self.transitions:,} transitions, "
            f"depth {self.depth}, {self.seconds:.1f} s, {len(self.violations)} violations"
        )


class Search:
    """One search under way, breadth first, level by level."""

    def __init__(self, model: Model) -> None:
        self.tables = Tables(model)
        self.frontier = self.tables.encode(model.initial)
        self.levels: list[tuple[NDArray[np.int32], Rows]] = []
        """Each level that is done: the rows, and for each of the next level's rows which of them it came from."""
        self.met = Met()
        self.met.add(prints(self.frontier))
        self.transitions = 0
        self.violations: list[Violation] = []

    def level(self, pool: ThreadPoolExecutor, max_states: float) -> None:
        """Take the next level; stop where a promise is broken, or when there are too many states."""
        level = Met()
        parents, rows = [np.zeros(0, np.int32)], [self.frontier[:0]]
        starts = range(0, len(self.frontier), CHUNK)
        for chunk in _in_order(pool, self._chunk, starts):
            self.transitions += chunk.transitions
            if chunk.broken is not None:
                self.violations = _violations(self.tables, self.levels, self.frontier, *chunk.broken)
                return
            found, first = level.missing(chunk.prints)
            level.add(found)
            parents.append(chunk.parents[first])
            rows.append(chunk.rows[first])
            if self.met.count + level.count > max_states:
                break
        self.met.add(level.all())
        self.levels.append((np.concatenate(parents), self.frontier))
        self.frontier = np.concatenate(rows)

    def way_to(self, index: int) -> tuple[str, ...]:
        """Return the steps to a state that was met; `index` counts through the levels."""
        depth = 0
        while index >= len(self.levels[depth][1]):
            index -= len(self.levels[depth][1])
            depth += 1
        row = self.levels[depth][1][index]
        return walked(self.tables, [*_way(self.levels[:depth], index), row])[0]

    def _chunk(self, start: int) -> _Chunk:
        steps = list(self.tables.expand(self.frontier[start : start + CHUNK]))
        if not steps:
            return _Chunk(0, np.zeros(0, np.int32), self.frontier[:0], np.zeros(0, np.uint64))
        rows = np.concatenate([step.rows for step in steps])
        origin = np.concatenate([step.origin for step in steps]) + start
        broken = np.concatenate([step.broken for step in steps])
        if broken.any():
            return _Chunk(len(rows), np.zeros(0, np.int32), rows[:0], np.zeros(0, np.uint64), (origin, broken))
        found, first = self.met.missing(prints(rows))
        return _Chunk(len(rows), origin[first].astype(np.int32), rows[first], found)


@dataclass
class _Chunk:
    """The successors of a part of the frontier that were not met in an earlier level."""

    transitions: int
    parents: NDArray[np.int32]
    rows: Rows
    prints: Prints
    broken: tuple[Keys, NDArray[np.int32]] | None = None


def _in_order(pool: ThreadPoolExecutor, work: Callable[[int], _Chunk], items: Iterable[int]) -> Iterator[_Chunk]:
    """Work on a few items at a time, and yield the results in order."""
    waiting: deque[Future[_Chunk]] = deque()
    for item in items:
        waiting.append(pool.submit(work, item))
        if len(waiting) > WORKERS:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def explore(
    scenario: Scenario,
    product: Product | None = None,
    *,
    max_states: float = 1_000_000,
    max_seconds: float = math.inf,
    max_depth: float = math.inf,
    progress: Callable[[str], None] = lambda _: None,
) -> Result:
    """Search a scenario, shortest ways first, until a promise is broken, all states are met, or a bound is reached."""
    search = Search(Model(scenario, product))
    return run(search, max_states=max_states, max_seconds=max_seconds, max_depth=max_depth, progress=progress)


def run(
    search: Search,
    *,
    max_states: float = math.inf,
    max_seconds: float = math.inf,
    max_depth: float = math.inf,
    progress: Callable[[str], None] = lambda _: None,
) -> Result:
    """Take levels until a promise is broken, all states are met, or a bound is reached."""
    began, spoken = time.monotonic(), time.monotonic()
    scenario = search.tables.model.scenario
    depth = 0
    with ThreadPoolExecutor(WORKERS) as pool:
        while len(search.frontier) and search.met.count < max_states and depth < max_depth:
            if time.monotonic() - began > max_seconds:
                break
            search.level(pool, max_states)
            depth += 1
            if search.violations:
                break
            if time.monotonic() - spoken > PROGRESS_SECONDS:
                spoken = time.monotonic()
                progress(f"{scenario.name}: depth {depth}, {search.met.count:,} states, {spoken - began:.0f} s")
    return Result(
        scenario,
        states=search.met.count,
        transitions=search.transitions,
        depth=depth,
        seconds=time.monotonic() - began,
        exhausted=not len(search.frontier) and not search.violations,
        violations=search.violations,
    )


def _violations(
    tables: Tables,
    levels: list[tuple[NDArray[np.int32], Rows]],
    frontier: Rows,
    origin: NDArray[np.int64],
    broken: NDArray[np.int32],
) -> list[Violation]:
    """Return one violation of each breach among these steps, with the way to it."""
    found = []
    for number in np.unique(broken[broken > 0]):
        at = int(np.nonzero(broken == number)[0][0])
        index = int(origin[at])
        way = _way(levels, index)
        found.append(_replayed(tables, [*way, frontier[index]], tables.breaches[number]))
    return found


def _way(levels: list[tuple[NDArray[np.int32], Rows]], index: int) -> list[Rows]:
    """Return the rows that lead to a row of the frontier, from the beginning."""
    way = []
    for parents, before in reversed(levels):
        index = int(parents[index])
        way.append(before[index])
    return way[::-1]


def walked(tables: Tables, way: Sequence[Rows]) -> tuple[tuple[str, ...], State]:
    """Walk a way again with the model alone, without tables: each step must be one that the model takes."""
    state = tables.model.initial
    names: list[str] = []
    for after in (tables.decode(row) for row in way[1:]):
        step = next((step for step in tables.model.successors(state) if step.state == after), None)
        assert step is not None, f"the tables took a step that the model does not take, after {names}"
        names.append(step.name)
        state = after
    return tuple(names), state


def _replayed(tables: Tables, way: Sequence[Rows], broken: str) -> Violation:
    """Return a violation, once the model alone has come to it."""
    names, state = walked(tables, way)
    step = next((step for step in tables.model.successors(state) if step.broken == broken), None)
    assert step is not None, f"the model does not break {broken!r} after {names}"
    return Violation(broken, (*names, step.name))
