"""A pass that stalls, crashes, loses a reply or gets an error at every one of its requests, as named checks.

See `test_pass` and `test_preconditions`. However it goes: no A is used by two executions, no promise is broken, and
passes that follow bring the job to Ready.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

from dispatch_admission.act import Outcome, Result, readmit
from dispatch_gates.contract.names import WORKLOADS
from dispatch_gates.requests import (
    ApiError,
    BadReplyError,
    ConflictError,
    DeniedError,
    ExpiredError,
    InvalidError,
    NotFoundError,
    NotServedError,
    Replace,
    ReplaceStatus,
    Request,
    ThrottledError,
    UnreachableError,
)
from model.apiserver import Crash, Process
from model.objects import NAME, TEAM, WORKLOAD
from model.players import Cluster
from model.promises import broken, count, readies
from unit.checks import Checks
from unit.pass_checks import OURS
from unit.story_checks import counts_only_grow

CHECKS = Checks()

Step = Callable[[Cluster], object]


def fresh(cluster: Cluster) -> Process[Outcome]:
    """A replica that begins a pass; it does not know what others do."""
    return Process(cluster.server, readmit(TEAM, WORKLOAD, OURS))


def settles(cluster: Cluster) -> None:
    """Once faults stop, a few passes bring the job to Ready, and Kueue starts it under a new A."""
    cluster.server.before = lambda _: None
    cluster.server.after = lambda _, __: None
    cluster.trainer_acts()
    for _ in range(3):
        if fresh(cluster).finish().result in (Result.ADMITTED, Result.NOTHING):
            break
    assert cluster.entry["state"] == "Ready" or cluster.executions, f"never Ready: {cluster.entry}"
    cluster.admit()
    assert cluster.executions, "the job never ran"
    counts_only_grow(cluster)


def admitted_by_the_other(cluster: Cluster) -> None:
    """The other replica runs a whole pass; it may find that it must wait."""
    fresh(cluster).finish()


def admitted_and_run(cluster: Cluster) -> None:
    admitted_by_the_other(cluster)
    cluster.admit()


def run_and_evicted(cluster: Cluster) -> None:
    admitted_and_run(cluster)
    if cluster.executions:
        cluster.evict()


def run_and_evicted_with_pods_left(cluster: Cluster) -> None:
    admitted_and_run(cluster)
    if cluster.executions:
        cluster.evict(linger=True)


def run_and_evicted_and_admitted_anew(cluster: Cluster) -> None:
    run_and_evicted(cluster)
    admitted_by_the_other(cluster)


def run_and_being_evicted(cluster: Cluster) -> None:
    admitted_and_run(cluster)
    if cluster.executions:
        cluster.begin_eviction()


def evicted_before_it_ran(cluster: Cluster) -> None:
    """Kueue takes the reservation back, and makes another one."""
    cluster.begin_eviction()
    cluster.clear_quota()
    cluster.reserve()


MEANWHILE: tuple[Step, ...] = (
    admitted_by_the_other,
    admitted_and_run,
    run_and_evicted,
    run_and_evicted_with_pods_left,
    run_and_evicted_and_admitted_anew,
    run_and_being_evicted,
    evicted_before_it_ran,
)


def _steps(process: Process[Outcome], number: int) -> bool:
    """Send so many requests; return whether there are more."""
    for _ in range(number):
        if process.pending is not None:
            process.step()
    return process.pending is not None


def _stalled(meanwhile: Step) -> None:
    """For each request: a replica stops before it, the world goes on, the replica goes on."""
    for stop in itertools.count():
        cluster = Cluster()
        stale = fresh(cluster)
        if not _steps(stale, stop):
            break
        meanwhile(cluster)
        ready = len(readies(cluster.server.entries))
        outcome = stale.finish()
        if stop > 0:
            # Its Workload has changed since it was read.
            assert len(readies(cluster.server.entries)) == ready, f"a late Ready, stopped at {stop}"
            assert outcome.result in (Result.CONFLICT, Result.NOTHING, Result.WAITING), (stop, outcome)
        assert broken(cluster.server) == [], f"stopped at {stop}"
        counts_only_grow(cluster)
        _to_the_end(cluster)
    assert stop > 0


def _to_the_end(cluster: Cluster) -> None:
    """Finish what Kueue has begun, and run the job once more."""
    ran = len(cluster.executions)
    if not cluster.admit():
        conditions = {e["type"]: e["status"] for e in cluster.server.read(WORKLOADS, WORKLOAD)["status"]["conditions"]}
        if conditions.get("Evicted") == "True":
            cluster.suspend()
            cluster.clear_quota()
            cluster.reserve()
        elif conditions.get("Admitted") == "True":
            return
        cluster.end_pods()
        settles(cluster)
    assert len(cluster.executions) > ran
    counts_only_grow(cluster)


for _step in MEANWHILE:
    CHECKS.add(f"a replica stalls, meanwhile: {_step.__name__}", partial(_stalled, _step))


@CHECKS
def two_replicas_take_turns() -> None:
    """Both lead; every way to run one of them up to a request, the other up to another, and both to the end."""
    length = _length()
    for first, second in itertools.product(range(length + 1), repeat=2):
        cluster = Cluster()
        one, other = fresh(cluster), fresh(cluster)
        for process, number in ((one, first), (other, second), (one, length), (other, length)):
            _steps(process, number)
        one.finish()
        other.finish()
        assert broken(cluster.server) == [], (first, second)
        assert len(readies(cluster.server.entries)) <= 1, (first, second)
        settles(cluster)


def _length() -> int:
    """Return how many requests a pass sends that admits."""
    cluster = Cluster()
    fresh(cluster).finish()
    return len(cluster.server.requests)


class _At:
    """Does something at the n-th request of a kind, once."""

    def __init__(self, number: int, act: Callable[[], None], kinds: tuple[type, ...] = (object,)) -> None:
        self._left = number
        self._act = act
        self._kinds = kinds

    def __call__(self, request: Request, _: Any = None) -> None:
        if isinstance(request, self._kinds):
            if self._left == 0:
                self._left -= 1
                self._act()
            self._left -= 1


def _throw(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def _crashes(where: str, runs: int) -> None:
    """For each request: the process is killed before it is sent or after it was applied; the next starts anew."""
    for number in range(_length()):
        cluster = Cluster()
        for _ in range(runs):
            fresh(cluster).finish()
            cluster.admit()
            cluster.evict()
        hook = _At(number, _throw(Crash()))
        setattr(cluster.server, where, hook)
        crashed = False
        try:
            fresh(cluster).finish()
        except Crash:
            crashed = True
        assert crashed, f"there is no request {number}"
        settles(cluster)
        assert len(cluster.executions) == runs + 1


for _where in ("before", "after"):
    for _runs in (0, 2):
        CHECKS.add(f"crash {_where} each request, after {_runs} executions", partial(_crashes, _where, _runs))


@CHECKS
def crash_after_each_raise_again_and_again() -> None:
    """A may skip numbers; it never repeats one."""
    cluster = Cluster()
    for expected in range(1, 6):
        cluster.server.after = _At(0, _throw(Crash()), (Replace,))
        with contextlib.suppress(Crash):
            fresh(cluster).finish()
        cluster.trainer_acts()
        assert count(cluster.server, NAME) == expected
    settles(cluster)
    assert cluster.executions == [6]


@CHECKS
def a_lost_reply_of_each_write() -> None:
    """The write was applied, the answer is lost: the pass ends with the error, the next one begins with reads."""
    for kind, last in ((Replace, 2), (ReplaceStatus, 1)):
        cluster = Cluster()
        cluster.server.after = _At(0, _throw(UnreachableError("connection lost")), (kind,))
        try:
            outcome = fresh(cluster).finish()
        except UnreachableError:
            outcome = None
        assert outcome is None, f"a pass went on without the answer to its {kind.__name__}"
        settles(cluster)
        assert cluster.executions == [last]


_ERRORS: tuple[type[ApiError], ...] = (
    BadReplyError,
    ConflictError,
    DeniedError,
    ExpiredError,
    InvalidError,
    NotFoundError,
    NotServedError,
    ThrottledError,
    UnreachableError,
)


def _error(kind: type[ApiError]) -> None:
    """For each request: the API server answers it with an error, once. Never Ready on the strength of it."""
    for number in range(_length()):
        cluster = Cluster()
        cluster.server.before = _At(number, _throw(kind(f"{kind.__name__} at {number}")))
        process = fresh(cluster)
        try:
            outcome: Outcome | None = process.finish()
        except ApiError:
            outcome = None
        asked = [type(request) for request in cluster.server.requests]
        if outcome is not None and outcome.result is Result.ADMITTED:
            # Only a watch that could not be held may be passed over: what it waits for is read again after it.
            assert asked[number].__name__ == "Watch", (number, outcome)
        assert broken(cluster.server) == [], (number, outcome)
        settles(cluster)


for _kind in _ERRORS:
    CHECKS.add(f"an error at each request: {_kind.__name__}", partial(_error, _kind))


@CHECKS
def a_storm_of_conflicts() -> None:
    """Somebody else writes the TrainJob or the Workload before each of our writes: never Ready, and no stale write."""
    cluster = Cluster()

    def touch(request: Request) -> None:
        if isinstance(request, Replace | ReplaceStatus):
            labels = {"touched": str(cluster.server.state.version)}
            name = str(request.body["metadata"]["name"])
            cluster.server.edit(request.resource, name, lambda body: body["metadata"].update(labels=labels))

    cluster.server.before = touch
    for _ in range(5):
        assert fresh(cluster).finish().result is Result.CONFLICT
    assert cluster.server.writes == []
    settles(cluster)
    assert cluster.executions == [1]
