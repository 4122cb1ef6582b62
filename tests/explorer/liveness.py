"""Liveness: once faults stop, every job runs, or there is a reason why it must not.

On the graph of all states that a search has met: from each of them, by steps that no fault makes (no crash, no
preemption, no lost node, nobody who changes his mind), a state must be reachable in which each job runs, or is kept
from running by what it is: gated, held, deactivated, ended, being deleted. That is: no part of the graph that cannot
be left any more is without such a state, so that a cluster in which everybody gets his turn comes there. It is more
than L1 asks, which is content with a named wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from explorer.model import PARTS, Model, State
from explorer.rules import PODS, TRAINJOB, WORKLOAD
from explorer.search import CHUNK, Rows, Search, Table, joined, prints, split
from explorer.values import PodsPart, TrainJobPart, WorkloadPart

_CHUNK: Final = CHUNK


def settled(job: TrainJobPart, workload: WorkloadPart, pods: PodsPart, *, kueue: bool) -> bool:
    """Whether a job runs, or must not run."""
    found = job.job
    if found is None or found.ended or found.deleting or found.held or found.gate:
        return True
    if not kueue:
        return found.suspend or any(pod.phase == "Running" and not pod.deleting for pod in pods.pods)
    if workload.workload is not None and not workload.workload.active:
        return True
    return any(pod.phase == "Running" and not pod.deleting and pod.rank == found.rank for pod in pods.pods)


@dataclass(frozen=True)
class Stuck:
    """States from which nothing leads to where a job runs or must not run; one of them, and how many there are."""

    states: int
    edges: int
    stuck: int
    example: State | None
    steps: tuple[str, ...] = ()


def stuck(search: Search) -> Stuck:
    """Find the states of a search that is done from which no faultless steps lead to where all jobs are settled."""
    model = search.tables.model
    rows = np.concatenate([level for _, level in search.levels])
    found = prints(rows)
    order = np.argsort(found, kind="stable")
    in_order = found[order]
    origins, targets = [], []
    for start in range(0, len(rows), _CHUNK):
        for steps in search.tables.expand(rows[start : start + _CHUNK], faults=False):
            at = order[np.minimum(np.searchsorted(in_order, prints(steps.rows)), len(order) - 1)]
            origins.append((steps.origin + start).astype(np.int32))
            targets.append(at.astype(np.int32))
    origin, target = np.concatenate(origins), np.concatenate(targets)
    reached = _reaching(origin, target, _settled(search, model, rows))
    (left,) = np.nonzero(~reached)
    example, way = (search.tables.decode(rows[left[0]]), search.way_to(int(left[0]))) if len(left) else (None, ())
    return Stuck(len(rows), len(origin), len(left), example, way)


def _settled(search: Search, model: Model, rows: Rows) -> NDArray[np.bool_]:
    """Return which states have all jobs settled."""
    tables = search.tables

    def compute(key: int) -> list[tuple[int, ...]]:
        job, workload, pods = (
            tables.numbers[part].values[number]
            for part, number in zip((TRAINJOB, WORKLOAD, PODS), split(key, 3), strict=True)
        )
        return [(int(settled(job, workload, pods, kueue=model.scenario.kueue)),)]

    table = Table(compute, 1)
    good = np.ones(len(rows), bool)
    for job in range(model.scenario.jobs):
        columns = (PARTS * job + part for part in (TRAINJOB, WORKLOAD, PODS))
        good &= table.single(joined(*(rows[:, column] for column in columns)))[:, 0] != 0
    return good


def _reaching(origin: NDArray[np.int32], target: NDArray[np.int32], good: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which states reach a good one, from the edges: backwards, breadth first."""
    order = np.argsort(target, kind="stable")
    sources = origin[order]
    begins = np.searchsorted(target[order], np.arange(len(good) + 1))
    reached = good.copy()
    frontier: NDArray[np.signedinteger] = np.nonzero(good)[0]
    while len(frontier):
        counts = begins[frontier + 1] - begins[frontier]
        first = np.repeat(begins[frontier] - (np.cumsum(counts) - counts), counts)
        before = np.unique(sources[first + np.arange(int(counts.sum()))])
        frontier = before[~reached[before]]
        reached[frontier] = True
    return reached
