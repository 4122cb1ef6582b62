"""The search: breadth first over millions of states, with tables for what was worked out once.

Every value of a part of the world, and every operation under way, is given a number when it is first met. A state is a
row of such numbers, a frontier an array of rows. A rule's steps on the few parts that it looks at are worked out once,
by the model and the shipped generators, and kept in a table; the search itself only looks up and compares numbers.
States that were met are kept as 64-bit fingerprints: among a hundred million states the chance that any two share one
is below 0.03 %.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from explorer import promises
from explorer.actors import Product
from explorer.model import PARTS, Model, Scenario, State, Step, spent
from explorer.rules import EVICTED, JOB, JOBSET, LATE, PODS, READY, RESERVED, TRAINJOB, WORKLOAD, Outcome, Rule
from explorer.values import dense, ranks, renamed

Rows: TypeAlias = NDArray[np.int32]
Keys: TypeAlias = NDArray[np.int64]
_BITS: Final = 20
"""Bits of a key for one number; a table's key joins up to three of them."""
CHUNK: Final = 1 << 16


class Numbers:
    """Gives each value of one kind a number."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._ranks = np.zeros(64, np.int64)

    def of(self, value: Any) -> int:
        """Return the number of a value."""
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            assert found < 1 << _BITS, "too many values of one kind"
            self.values.append(value)
            if found >= len(self._ranks):
                self._ranks = np.concatenate([self._ranks, np.zeros_like(self._ranks)])
            self._ranks[found] = ranks(value)
        return found

    def ranks(self, numbers: Rows) -> Keys:
        """Return the ranks that each of these values uses, as bits."""
        found: Keys = self._ranks[numbers]
        return found


class Table:
    """Remembers what was worked out for a key: one row of numbers, or several rows where there are several outcomes."""

    def __init__(self, compute: Callable[[int], Sequence[tuple[int, ...]]], width: int) -> None:
        self._compute = compute
        self._keys = np.zeros(0, np.int64)
        self._starts = np.zeros(0, np.int64)
        self._counts = np.zeros(0, np.int64)
        self._outcomes = np.zeros((0, width), np.int32)

    def outcomes(self, keys: Keys) -> tuple[NDArray[np.int64], Rows]:
        """Return all outcomes for some keys: the position of the key, and the outcome, for each."""
        at = self._find(keys)
        counts = self._counts[at]
        total = int(counts.sum())
        origin = np.repeat(np.arange(len(keys)), counts)
        first = np.repeat(self._starts[at] - (np.cumsum(counts) - counts), counts)
        return origin, self._outcomes[first + np.arange(total)]

    def single(self, keys: Keys) -> Rows:
        """Return the one outcome for each key."""
        if not len(keys):
            return np.zeros((0, self._outcomes.shape[1]), np.int32)
        at = self._find(keys)
        return self._outcomes[self._starts[at]]

    def _find(self, keys: Keys) -> NDArray[np.int64]:
        at = np.searchsorted(self._keys, keys)
        if len(self._keys):
            missing = self._keys[np.minimum(at, len(self._keys) - 1)] != keys
        else:
            missing = np.ones(len(keys), bool)
        if missing.any():
            self._learn(np.unique(keys[missing]))
            at = np.searchsorted(self._keys, keys)
        return at

    def _learn(self, keys: Keys) -> None:
        found = [self._compute(int(key)) for key in keys]
        counts = np.array([len(outcomes) for outcomes in found], np.int64)
        starts = len(self._outcomes) + np.cumsum(counts) - counts
        fresh = [outcome for outcomes in found for outcome in outcomes]
        if fresh:
            self._outcomes = np.concatenate([self._outcomes, np.array(fresh, np.int32)])
        everything = np.concatenate([self._keys, keys])
        order = np.argsort(everything, kind="stable")
        self._keys = everything[order]
        self._starts = np.concatenate([self._starts, starts])[order]
        self._counts = np.concatenate([self._counts, counts])[order]


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
        of_kind = {kind: Numbers() for kind in dict.fromkeys(kinds)}
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

    def expand(self, rows: Rows) -> Iterator[Found]:
        """Yield the successors of some states, rule by rule."""
        for job, columns, table in self._rules:
            origin, outcomes = table.outcomes(joined(*(rows[:, column] for column in columns)))
            if len(origin):
                yield self._finished(rows, origin, columns, outcomes, job, None)
        wanted = {index: self._wanted[index].single(rows[:, index].astype(np.int64))[:, 0] for index in self._wanted}
        for index, job, column, table in self._actors:
            (asking,) = np.nonzero(wanted[index] >> column & 1)
            if len(asking):
                origin, outcomes = table.outcomes(joined(rows[asking, index], rows[asking, column]))
                if len(origin):
                    yield self._finished(rows, asking[origin], (index, column), outcomes, job, index)
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
            held = sum(self._holds(rows[origin, PARTS * other + WORKLOAD]) for other in range(scenario.jobs))
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
            keep[ready] &= approved[:, 4] != 0
        late = np.where(effects & READY, effects & ~LATE, effects)
        (changing,) = np.nonzero(late)
        for index in self._noted:
            if index != own:
                key = joined(after[changing, index], late[changing], job)
                after[changing, index] = self._noted[index].single(key)[:, 0]

    def _holds(self, workloads: Rows) -> NDArray[np.int32]:
        values = self.numbers[WORKLOAD].values
        held = np.array([value.workload is not None and value.workload.reserved for value in values], np.int32)
        return held[workloads]

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
        values = self.numbers[column].values
        found = np.array([value is not None and value[0] == str(job) for value in values], bool)
        return found[numbers]


class Met:
    """The fingerprints of the states that were met, in a few sorted runs of growing size."""

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []
        self.count = 0

    def fresh(self, prints: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the positions of those not met before, one of each, and note them as met."""
        found, first = np.unique(prints, return_index=True)
        for run in self._runs:
            at = np.minimum(np.searchsorted(run, found), len(run) - 1)
            missing = run[at] != found
            found, first = found[missing], first[missing]
        self.count += len(found)
        while self._runs and len(self._runs[-1]) < 2 * len(found):
            found = np.sort(np.concatenate([self._runs.pop(), found]), kind="stable")
        if len(found):
            self._runs.append(found)
        return first


def prints(rows: Rows) -> NDArray[np.uint64]:
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


def explore(
    scenario: Scenario,
    product: Product | None = None,
    *,
    max_states: int = 1_000_000,
    max_seconds: float = math.inf,
    max_depth: float = math.inf,
    progress: Callable[[str], None] = lambda _: None,
) -> Result:
    """Search a scenario, shortest ways first, until a promise is broken, all states are met, or a bound is reached."""
    began = time.monotonic()
    model = Model(scenario, product)
    tables = Tables(model)
    frontier = tables.encode(model.initial)
    met = Met()
    met.fresh(prints(frontier))
    levels: list[tuple[NDArray[np.int32], Rows]] = []
    transitions = 0
    result = Result(scenario, 1, 0, 0, 0.0, exhausted=False)
    while len(frontier) and met.count < max_states and result.depth < max_depth:
        if time.monotonic() - began > max_seconds:
            break
        parents, found = [], []
        for start in range(0, len(frontier), CHUNK):
            steps = list(tables.expand(frontier[start : start + CHUNK]))
            rows = np.concatenate([step.rows for step in steps])
            origin = np.concatenate([step.origin for step in steps])
            broken = np.concatenate([step.broken for step in steps])
            transitions += len(rows)
            if broken.any():
                result.violations += _violations(tables, levels, frontier, origin + start, broken)
                break
            first = met.fresh(prints(rows))
            parents.append((origin[first] + start).astype(np.int32))
            found.append(rows[first])
            if met.count > max_states:
                break
        levels.append((np.concatenate(parents) if parents else np.zeros(0, np.int32), frontier))
        result.depth += 1
        if result.violations:
            break
        frontier = np.concatenate(found)
        progress(f"{scenario.name}: depth {result.depth}, {met.count:,} states, {time.monotonic() - began:.0f} s")
    result.exhausted = not len(frontier) and not result.violations
    result.states, result.transitions, result.seconds = met.count, transitions, time.monotonic() - began
    return result


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
        found.append(replayed(tables, [*way, frontier[index]], tables.breaches[number]))
    return found


def _way(levels: list[tuple[NDArray[np.int32], Rows]], index: int) -> list[Rows]:
    """Return the rows that lead to a row of the frontier, from the beginning."""
    way = []
    for parents, before in reversed(levels):
        index = int(parents[index])
        way.append(before[index])
    return way[::-1]


def replayed(tables: Tables, way: Sequence[Rows], broken: str) -> Violation:
    """Walk a way again with the model alone, without tables: each step must be one that the model takes."""
    model = tables.model
    state = model.initial
    names: list[str] = []
    states = [tables.decode(row) for row in way[1:]]
    for after in states:
        step = next((step for step in model.successors(state) if step.state == after), None)
        assert step is not None, f"the tables took a step that the model does not take, after {names}"
        names.append(step.name)
        state = after
    step = next((step for step in model.successors(state) if step.broken == broken), None)
    assert step is not None, f"the model does not break {broken!r} after {names}"
    return Violation(broken, (*names, step.name))


__all__ = ["Result", "Step", "Violation", "explore"]
