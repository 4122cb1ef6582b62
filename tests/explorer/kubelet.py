"""The kubelet: pods start, are lost from sight, come back, end. One that is told to stop takes as long as it likes."""

from __future__ import annotations

from collections.abc import Iterator

from explorer.rules import FAULT, PODS, Outcome, Rule
from explorer.values import Pod, PodsPart


def act(part: PodsPart) -> Iterator[Outcome]:
    """Move one pod on."""
    for index, pod in enumerate(part.pods):
        others = part.pods[:index] + part.pods[index + 1 :]
        name = f"the pod with A={pod.rank}"
        for label, after, effects in _moves(pod):
            pods = others if after is None else tuple(sorted((*others, after)))
            yield Outcome(f"{name} {label}", (part._replace(pods=pods),), effects)


def _moves(pod: Pod) -> Iterator[tuple[str, Pod | None, int]]:
    if pod.phase == "Pending":
        if pod.deleting:
            yield "ends without having run", None, 0
        else:
            yield "runs", pod._replace(phase="Running"), 0
    elif pod.phase == "Running":
        yield "is lost from sight (Unknown)", pod._replace(phase="Unknown"), FAULT
        yield ("ends", None, 0) if pod.deleting else ("fails", None, FAULT)
    else:
        yield "is seen again", pod._replace(phase="Running"), 0


RULES = (Rule("kubelet", (PODS,), act),)
