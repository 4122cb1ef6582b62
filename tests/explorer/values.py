"""What the model knows of the cluster: frozen values, small enough that a few hundred of each kind are all there are.

Nothing in here grows without bound. Versions are not kept at all: an API server only compares them for equality, so
that each operation under way carries, for each object that it has read, whether it has changed since (`actors`).
Admission counts are ranks: 0, 1, 2, ... in their order, renamed after each step so that none is left out
(`renamed`). That is sound because nothing computes with A but "one above the highest that I saw", and a write of that
is carried out only where the TrainJob, which holds the highest of all, has not changed since it was read.

By convention every `int` in these values that is no `bool` is a rank; -1 stands for none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

NONE = -1
LAG = 2
"""How many versions an informer may be behind."""


class TrainJob(NamedTuple):
    """A TrainJob: what the gates, Kueue and Trainer look at. `other`: made anew, of another UID under the same name."""

    suspend: bool
    rank: int
    gate: bool = False
    held: bool = False
    opened: bool = False
    ended: bool = False
    deleting: bool = False
    other: bool = False


class Workload(NamedTuple):
    """A Workload. `check` is our entry's state, empty where it is not listed.

    `ahead`: our entry changed later than Admitted did, by the times that both carry.
    """

    active: bool = True
    gate: bool = False
    reserved: bool = False
    admitted: bool | None = None
    evicted: bool = False
    check: str = ""
    ahead: bool = False
    finished: bool = False
    deleting: bool = False


class JobSet(NamedTuple):
    """A JobSet with one replicated job."""

    suspend: bool
    rank: int


class Job(NamedTuple):
    """A batch Job of one pod. `seen`: its condition Suspended is True; the counters are what its status says."""

    suspend: bool
    rank: int
    started: bool = False
    seen: bool = False
    active: bool = False
    terminating: bool = False
    finished: bool = False


class Pod(NamedTuple):
    """A pod that may run: its phase is Pending, Running or Unknown. One that has ended is not kept.

    `hidden`: somebody took JobSet's label off it. The Job controller, which goes by labels of its own, still counts it.
    """

    rank: int
    phase: str
    deleting: bool = False
    hidden: bool = False


class Reader(NamedTuple):
    """A controller that acts on a view of its own: what it has read and will carry out, at any later time.

    `unseen` are the versions that passed since then, the last `LAG` of them: its informer may still show them to its
    next pass. They are kept only while it is busy: a pass that begins late with an old view does what one that began
    with that view, when it was new, does late.
    """

    carried: tuple[Any, ...] | None = None
    unseen: tuple[Any, ...] = ()

    def moved(self, old: tuple[Any, ...]) -> Reader:
        """Note that what it reads has changed from `old` to something else."""
        if self.carried is None or old == (self.unseen[-1] if self.unseen else self.carried):
            return self
        return Reader(self.carried, (*self.unseen, old)[-LAG:])

    def done(self) -> list[Reader]:
        """Return how it may go on once it has carried out what it carried: idle, or with any view not yet seen."""
        return [Reader(), *(Reader(view, self.unseen[index + 1 :]) for index, view in enumerate(self.unseen))]


class TrainJobPart(NamedTuple):
    """The TrainJob, Trainer at work on it, and whether Kueue is about to start it."""

    job: TrainJob | None = None
    trainer: Reader = Reader()
    starting: bool = False

    def put(self, job: TrainJob | None) -> TrainJobPart:
        """Store another version: Trainer's view is behind by one more, and Kueue's decision meets a conflict."""
        before = self.job
        if before == job:
            return self
        trainer = self.trainer
        if before is not None and (job is None or before[:2] != job[:2]):
            trainer = trainer.moved((before.suspend, before.rank))
        return TrainJobPart(job, trainer, False)


class WorkloadPart(NamedTuple):
    """The Workload, and the scheduler's copy of our entry while it is about to reserve quota.

    Two marks of the checker: the A for which our check was last set Ready, and whether an admission has used that.
    """

    workload: Workload | None = None
    picked: str | None = None
    approved: int = NONE
    served: bool = False


class JobSetPart(NamedTuple):
    """The JobSet, and the JobSet controller at work on it."""

    jobset: JobSet | None = None
    controller: Reader = Reader()

    def put(self, jobset: JobSet | None) -> JobSetPart:
        """Store another version."""
        if self.jobset == jobset:
            return self
        return JobSetPart(jobset, self.controller.moved(self.jobset) if self.jobset else self.controller)


class JobPart(NamedTuple):
    """The Job, and the A of the pod that the Job controller is about to create."""

    job: Job | None = None
    creating: int = NONE


class PodsPart(NamedTuple):
    """The pods. Marks of the checker: the A of the last execution that started, and of a resume that has no pod yet."""

    pods: tuple[Pod, ...] = ()
    started: int = NONE
    resumed: int = NONE


def ranks(value: Any) -> int:
    """Return the ranks in a value, as bits."""
    if isinstance(value, tuple):
        found = 0
        for item in value:
            found |= ranks(item)
        return found
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return 1 << value
    return 0


def renamed(value: Any, names: Mapping[int, int]) -> Any:
    """Return the value with its ranks renamed."""
    if isinstance(value, tuple):
        items = [renamed(item, names) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, int) and not isinstance(value, bool):
        return names.get(value, value)
    return value


def dense(used: int) -> dict[int, int]:
    """Return the renaming that leaves no rank out, from the ranks in use as bits."""
    return {rank: (used & ((1 << rank) - 1)).bit_count() for rank in range(used.bit_length()) if used >> rank & 1}
