"""The whole: jobs, those who act on them, the product's operations under way; and one step of any of them.

A state is a tuple: five parts for each job, then each replica of the controller, then the adapter, then what is left of
the budget. `successors` is the definition of a step; `search` does the same with tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from explorer import job_controller, jobset, kubelet, kueue, people, promises, trainer
from explorer.actors import Actor, Product, shipped
from explorer.rules import EVICTED, JOB, JOBSET, LATE, NOTED, PODS, READY, RESERVED, TRAINJOB, WORKLOAD, Outcome, Rule
from explorer.values import (
    JobPart,
    JobSetPart,
    PodsPart,
    TrainJob,
    TrainJobPart,
    WorkloadPart,
    dense,
    ranks,
    renamed,
)

PARTS: Final = 5
State = tuple[Any, ...]


class Budget(NamedTuple):
    """What may still go wrong; strings, since numbers are ranks here. None: without limit."""

    crashes: str
    evictions: str


@dataclass(frozen=True)
class Scenario:
    """What is explored, and within which bounds. Where no number is given, there is no bound."""

    name: str
    jobs: int = 1
    replicas: int = 2
    kueue: bool = True
    adapters: int = 0
    adapter: tuple[str, ...] = ()
    started: bool = True
    """Whether the job exists at the beginning, opened."""
    people: tuple[Rule, ...] = (people.DELETE_WORKLOAD,)
    without: tuple[Rule, ...] = ()
    assumed: bool = True
    """The assumption of the README: the children finish early what they decided before an eviction."""
    judged: tuple[str, ...] = ("S", "R")
    """Which promises are judged, by what their breach begins with."""
    world: tuple[Any, ...] | None = None
    """The five parts of each job at the beginning, where they are not as `started` says; A begins with 0 there."""
    losses: int = 1
    """How many replies an operation of the adapter may lose; it then goes on, where a crash would end it."""
    conflicts: int = 1
    """How many conflicts it handles itself; at the next one it is begun anew."""
    crashes: int | None = None
    evictions: int | None = None
    quota: int | None = None


class Step(NamedTuple):
    """One step, and the state after it; `broken`: the promise that it breaks."""

    actor: str
    label: str
    state: State
    broken: str = ""

    @property
    def name(self) -> str:
        """How a trace spells it."""
        return f"{self.actor} {self.label}"


class Model:
    """The steps of one scenario."""

    def __init__(self, scenario: Scenario, product: Product | None = None) -> None:
        self.scenario = scenario
        self.product = product or shipped(kueue=scenario.kueue)
        self.rules = self._environment()
        controller, adapter = (
            Actor(self.product, ("pass",)),
            Actor(self.product, scenario.adapter, losses=scenario.losses, conflicts=scenario.conflicts),
        )
        self.actors = [(f"replica {n + 1}", controller) for n in range(scenario.replicas)] + [
            (f"adapter {n + 1}" if scenario.adapters > 1 else "adapter", adapter) for n in range(scenario.adapters)
        ]
        self.first_actor = PARTS * scenario.jobs

    def _environment(self) -> list[Rule]:
        scenario = self.scenario
        machines = (trainer, jobset, job_controller, kubelet) + ((kueue,) if scenario.kueue else ())
        found = [rule for machine in machines for rule in machine.RULES]
        return [rule for rule in (*found, *scenario.people) if rule not in scenario.without]

    @property
    def initial(self) -> State:
        """The state at the beginning."""
        job = TrainJob(suspend=True, rank=0) if self.scenario.started else None
        world = self.scenario.world or (TrainJobPart(job), WorkloadPart(), JobSetPart(), JobPart(), PodsPart())
        budget = Budget(_limit(self.scenario.crashes), _limit(self.scenario.evictions))
        return (*world * self.scenario.jobs, *(None for _ in self.actors), budget)

    def successors(self, state: State) -> list[Step]:
        """Return every step from a state, and where it leads; steps that change nothing are left out."""
        return [step for step in self._successors(state) if step.state != state or step.broken]

    def _successors(self, state: State) -> Iterator[Step]:
        for job in range(self.scenario.jobs):
            at = PARTS * job
            suffix = f" (job {job + 1})" if self.scenario.jobs > 1 else ""
            for rule in self.rules:
                columns = tuple(at + part for part in rule.parts)
                for outcome in rule.steps(*(state[column] for column in columns)):
                    yield from self._step(state, rule.actor, suffix, columns, outcome, at, None)
            for index, (name, actor) in enumerate(self.actors, self.first_actor):
                for column, outcome in self.actor_steps(actor, state[index], state, job):
                    yield from self._step(state, name, suffix, (index, column), outcome, at, index)
        for index, (name, actor) in enumerate(self.actors, self.first_actor):
            if (running := state[index]) is not None:
                for outcome in actor.crash(running[1]):
                    budget = spent(state[-1], "crashes")
                    if budget is not None:
                        after = (*state[:index], None, *state[index + 1 : -1], budget)
                        yield Step(name, outcome.label, self.canonical(after))

    def actor_steps(self, actor: Actor, under_way: Any, state: State, job: int) -> Iterator[tuple[int, Outcome]]:
        """Yield the steps of an operation on one job, each with the column of the part that it is about.

        Under way is (job, operation): which job is kept as a word, numbers are ranks.
        """
        if under_way is not None and under_way[0] != str(job):
            return
        running = under_way[1] if under_way is not None else None
        for part in actor.parts(running):
            column = PARTS * job + part
            for outcome in actor.steps(running, part, state[column]):
                going, after = outcome.after
                yield column, outcome._replace(after=((str(job), going) if going is not None else None, after))

    def _step(
        self,
        state: State,
        actor: str,
        suffix: str,
        columns: tuple[int, ...],
        outcome: Outcome,
        at: int,
        own: int | None,
    ) -> Iterator[Step]:
        """Carry a step through: what else changes with it, beside the parts that the rule looked at."""
        after = list(state)
        for column, value in zip(columns, outcome.after, strict=True):
            after[column] = value
        effects, broken = outcome.effects, outcome.broken
        if effects & RESERVED and self.scenario.quota is not None and self._reserved(state) >= self.scenario.quota:
            return
        if effects & EVICTED:
            after[-1] = spent(after[-1], "evictions")
            if after[-1] is None:
                return
        if effects & READY:
            found = promises.approve(
                *after[at : at + PARTS], tainted=bool(effects & LATE), assumed=self.scenario.assumed
            )
            if not found.possible:
                # What the assumption rules out does not happen; for all else, the operation is as good as cut off.
                lost = tuple(None if index == own else value for index, value in enumerate(state))
                yield Step(actor, f"{outcome.label}{suffix}: ruled out by the assumption", self.canonical(lost))
                return
            after[at + WORKLOAD], after[at + JOBSET], after[at + JOB] = found.workload, found.jobset, found.job
            broken = self.judged(broken) or found.broken
            effects &= ~LATE
        if effects & NOTED:
            for index, (_, other) in enumerate(self.actors, self.first_actor):
                if index != own:
                    after[index] = noted(other, after[index], at, effects & NOTED)
        broken = self.judged(broken) or promises.closed(after[at + TRAINJOB], after[at + PODS])
        yield Step(actor, outcome.label + suffix, self.canonical(tuple(after)), self.judged(broken))

    def _reserved(self, state: State) -> int:
        """How many jobs hold quota."""
        workloads = [state[PARTS * job + WORKLOAD].workload for job in range(self.scenario.jobs)]
        return sum(found is not None and found.reserved for found in workloads)

    def judged(self, broken: str) -> str:
        """Return a breach if this scenario judges it."""
        is_product = broken.startswith("an assertion")
        return broken if is_product or any(broken.startswith(code) for code in self.scenario.judged) else ""

    def canonical(self, state: State) -> State:
        """Return the state with its ranks made dense, job by job, and with replicas, which are alike, in order."""
        found = list(state)
        for job in range(self.scenario.jobs):
            columns = [PARTS * job + part for part in range(PARTS)]
            columns += [
                index
                for index in range(self.first_actor, len(state) - 1)
                if state[index] is not None and state[index][0] == str(job)
            ]
            used = 0
            for column in columns:
                used |= ranks(found[column])
            if used & (used + 1):
                names = dense(used)
                for column in columns:
                    found[column] = renamed(found[column], names)
        replicas = slice(self.first_actor, self.first_actor + self.scenario.replicas)
        found[replicas] = sorted(found[replicas], key=repr)
        return tuple(found)


def replay(model: Model, names: Sequence[str]) -> set[str]:
    """Take the steps of a trace, by their names, and return the promises that the last one breaks.

    Raises `ValueError` where the model cannot take one of them. Where two replicas are alike, a name may fit both.
    """
    states, broken = {model.initial}, set[str]()
    for number, name in enumerate(names, 1):
        steps = [step for state in states for step in model.successors(state) if step.name == name]
        if not steps:
            raise ValueError(f"step {number} cannot be taken here: {name}")
        states, broken = {step.state for step in steps}, {step.broken for step in steps if step.broken}
    return broken


def noted(actor: Actor, under_way: Any, at: int, effects: int) -> Any:
    """Return an operation under way once somebody else has changed something of the job whose parts begin at `at`."""
    if under_way is None or under_way[0] != str(at // PARTS):
        return under_way
    going = actor.noted(under_way[1], effects)
    return None if going is None else (under_way[0], going)


def _limit(number: int | None) -> str:
    return "" if number is None else str(number)


def spent(budget: Budget, what: str) -> Budget | None:
    """Return the budget less one of a kind; None where nothing is left of it."""
    left: str = getattr(budget, what)
    if left == "":
        return budget
    return None if left == "0" else budget._replace(**{what: str(int(left) - 1)})
