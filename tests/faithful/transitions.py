"""Whether what the real system did is something that the explorer's model can do.

What the model can do to one object is found by exploring it: every rule and every operation notes what it makes of the
object it is about. Compared are the object before, the object after, and who did it; not when: which versions of the
other objects the actor had seen is not in the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Final

from explorer import people, worlds
from explorer.actors import Actor
from explorer.kueue import WITHOUT_THE_CHECK
from explorer.model import Model, Scenario
from explorer.rules import JOB, JOBSET, PODS, TRAINJOB, WORKLOAD, Outcome, Rule
from explorer.search import Search, run
from faithful.recorded import WRONG, Recorded, Transition, reduced

_KINDS: Final = {TRAINJOB: "TrainJob", WORKLOAD: "Workload", JOBSET: "JobSet", JOB: "Job", PODS: "Pod"}
_PEOPLE: Final = (
    people.DELETE_WORKLOAD,
    people.DELETE_JOB,
    people.SUSPEND,
    people.GONE,
    people.SET_ACTIVE,
    people.STRIP_GATE,
)
_OPERATIONS: Final = ("Start", "Open", "Hold", "Release")
_STATES: Final = 40_000


class Noting:
    """The transitions of single objects that a model was seen to take."""

    def __init__(self) -> None:
        self.found: set[Transition] = set()

    def model(self, scenario: Scenario) -> Model:
        """Return the model of a scenario, whose rules and operations note what they do."""
        model = Model(scenario)
        model.rules = [self._rule(rule) for rule in model.rules]
        model.actors = [(name, self._actor(name, actor)) for name, actor in model.actors]
        return model

    def _rule(self, rule: Rule) -> Rule:
        def steps(*parts: Any) -> Iterator[Outcome]:
            for outcome in rule.steps(*parts):
                for number, before, after in zip(rule.parts, parts, outcome.after, strict=True):
                    self._note(rule.actor, number, before, after)
                yield outcome

        return replace(rule, steps=steps)

    def _actor(self, name: str, actor: Actor) -> Actor:
        noting, who = self, "controller" if name.startswith("replica") else "people"

        class Noted(Actor):
            def steps(self, running: Any, number: int, part: Any) -> Iterator[Outcome]:
                for outcome in super().steps(running, number, part):
                    noting._note(who, number, part, outcome.after[1])
                    yield outcome

        return Noted(actor.product, actor.operations, losses=actor.losses)

    def _note(self, actor: str, number: int, before: Any, after: Any) -> None:
        if number == PODS:
            gone = [pod for pod in before[0] if pod not in after[0]]
            come = [pod for pod in after[0] if pod not in before[0]]
            pairs = list(zip_longest(gone, come))
        else:
            pairs = [(before[0], after[0])]
        for one, other in pairs:
            if (found := reduced(actor, _KINDS[number], one, other)) is not None:
                self.found.add(found)
                if found.kind == "Workload" and found.after is None:
                    self.found.add(found._replace(actor="Kueue"))  # whose finalizer it is that people wait for


def possible() -> set[Transition]:
    """Return the transitions of single objects that the explorer's model takes, within bounds that hold them all."""
    noting = Noting()
    kueue = [
        Scenario(f"from {name}", replicas=1, people=who, world=getattr(worlds, name))
        for name in ("NEW", "RUNS", "BEGINS", "EVICTED", "GATED")
        for who in ((), _PEOPLE)
    ]
    started = [
        Scenario("Kueue mode", replicas=1, adapters=1, adapter=_OPERATIONS, started=False, people=_PEOPLE),
        Scenario("plain mode", kueue=False, replicas=0, adapters=1, adapter=_OPERATIONS, started=False, people=_PEOPLE),
    ]
    held = [
        Scenario(f"held from {name}", replicas=1, adapters=1, adapter=("Hold", "Release"), people=(), world=world)
        for name, world in (("NEW", worlds.NEW), ("RUNS", worlds.RUNS))
    ]
    unlisted = [
        Scenario(f"unlisted from {name}", replicas=1, people=(WITHOUT_THE_CHECK,), world=world, judged=())
        for name, world in (("NEW", worlds.NEW), ("RUNS", worlds.RUNS), ("GATED", worlds.GATED))
    ]
    plain = Scenario("runs in plain mode", kueue=False, replicas=0, people=(), world=worlds.PLAIN)
    for scenario in (*kueue, *started, *held, *unlisted, plain):
        run(Search(noting.model(scenario)), max_states=_STATES)
    return noting.found


@dataclass
class Compared:
    """What a comparison has found. `strange`: transitions that the model does not take, each with where it was seen.

    A job is followed until it or its namespace is deleted, until something acts on it that may be wrong on purpose, and
    until people do to it what the model's people do not do: what becomes of it then is not the model's to say.
    """

    same: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    strange: dict[Transition, list[Recorded]] = field(default_factory=dict)

    @property
    def strangers(self) -> int:
        """How many transitions the model does not take."""
        return sum(len(found) for found in self.strange.values())

    def __str__(self) -> str:
        strange = self.strangers
        kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(self.kinds.items()))
        left_out = ", ".join(f"{number} {why}" for why, number in sorted(self.left_out.items()))
        lines = [
            f"{self.same + strange} transitions recorded ({kinds}), {strange} that the model does not take",
            f"not compared: {left_out or 'none'}",
        ]
        for what, where in self.strange.items():
            first = where[0]
            lines.append(f"  {len(where)} x {what} [first: {first.name}, version {first.at}]")
        return "\n".join(lines)


def compared(found: Iterable[Recorded], model: set[Transition]) -> Compared:
    """Compare what was recorded with what the model takes."""
    result = Compared()
    over: dict[str, str] = {}
    for each in found:
        what = each.what
        if each.job not in over and (why := _ends(what, model)):
            over[each.job] = why
        if each.job in over:
            result.left_out[over[each.job]] += 1
        elif each.left_out:
            result.left_out[each.left_out] += 1
        else:
            result.kinds[what.kind] += 1
            if _is_taken(what, model):
                result.same += 1
            else:
                result.strange.setdefault(what, []).append(each)
    return result


def _is_taken(what: Transition, model: set[Transition]) -> bool:
    """Whether the model takes a transition; tests play the kubelet where KWOK is told to leave a pod alone."""
    return what in model or (what.actor == "people" and what._replace(actor="kubelet") in model)


def _ends(what: Transition, model: set[Transition]) -> str:
    """Return why a job is not followed any more, from this transition on."""
    if what.actor == WRONG:
        return "after what is wrong on purpose"
    if what.kind == "TrainJob" and (what.after is None or getattr(what.after, "deleting", False)):
        return "of jobs that are deleted"
    if what.actor == "people" and not _is_taken(what, model):
        return "after people have done what the model's do not"
    return ""
