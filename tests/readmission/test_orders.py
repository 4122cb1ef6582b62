"""The pass, cut off and held up between any two of its requests, on a real control plane.

What is tested: a crash at each request, and a stall at each request across an eviction and the next reservation,
never lead to a second execution with the same A, nor to one beside the other. Each pass is the shipped generator,
sent request by request; the judge is the API server's audit log.
"""

from __future__ import annotations

import pytest

import judge
from dispatch_admission.act import Outcome, Result, readmit
from dispatch_gates.cluster import run
from dispatch_gates.contract import names
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_gates.requests import ApiError, Operation, Replace, ReplaceStatus, Request
from dispatch_local.cluster import Cluster
from world import World, until


@pytest.fixture(scope="module")
def world(cluster: Cluster) -> World:
    """A world whose check is served by the tests alone, request by request: no controller runs."""
    world = World(cluster).make()
    world.activate(names.ADMISSION_CHECK)
    return world


class Pass:
    """One pass over a job's Workload that can be stopped between any two requests."""

    def __init__(self, world: World, job: TrainJob) -> None:
        workload = world.workload(job)
        assert workload is not None
        name = workload["metadata"]["name"]
        self._world = world
        self._operation: Operation[Outcome] = readmit(world.namespace, name, frozenset({names.ADMISSION_CHECK}))
        self._request: Request | None = next(self._operation)
        self.sent: list[Request] = []
        self.outcome: Outcome | None = None

    def step(self) -> None:
        """Send one request, and take the reply or the error."""
        assert self._request is not None
        request = self._request
        self.sent.append(request)
        try:
            try:
                reply = run(self._world.target, _one(request))
            except ApiError as error:
                self._request = self._operation.throw(error)
            else:
                self._request = self._operation.send(reply)
        except StopIteration as end:
            self._request, self.outcome = None, end.value

    def finish(self) -> Outcome:
        """Send what is left."""
        while self.outcome is None:
            self.step()
        return self.outcome

    @property
    def over(self) -> bool:
        return self.outcome is not None


def _one(request: Request) -> Operation[object]:
    return (yield request)


def admit(world: World, job: TrainJob) -> int:
    """Run passes until one admits the job, as the controller's queue would; return its A."""

    def admitted() -> int | None:
        outcome = Pass(world, job).finish()
        assert outcome.result in (Result.ADMITTED, Result.WAITING, Result.CONFLICT, Result.NOTHING), outcome
        return outcome.count if outcome.result is Result.ADMITTED else None

    return until(f"{job.meta.name} to be admitted", admitted)


def readmitted(world: World, job: TrainJob) -> None:
    """Evict the job, if it runs, and wait until Kueue reserves quota for it again."""
    if world.condition(job, "Admitted") == "True" or world.condition(job, "QuotaReserved") == "True":
        world.set_active(job, False)
        until("the quota to be given back", lambda: world.condition(job, "QuotaReserved") == "False")
        world.set_active(job, True)
    until("quota to be reserved", lambda: world.condition(job, "QuotaReserved") == "True")
    until("the check to be pending", lambda: world.check(job).get("state") == "Pending")
    # Passes begin once the old pods are gone and the Jobs are seen suspended, so that each is the longest there is.
    until("the old pods to be gone", lambda: not world.pods_of(job))

    def suspended() -> bool:
        jobs = world.list(names.JOBS, f"{names.JOBSET_NAME}={job.meta.name}")
        return bool(jobs) and all(_is_suspended(batch) for batch in jobs)

    until("the Jobs to be suspended", suspended)


def _is_suspended(batch: dict[str, dict[str, object]]) -> bool:
    status = batch.get("status") or {}
    conditions = status.get("conditions") or []
    assert isinstance(conditions, list)
    seen = any(entry["type"] == "Suspended" and entry["status"] == "True" for entry in conditions)
    return (seen or "startTime" not in status) and not status.get("terminating")


def judged(world: World, job: TrainJob) -> list[int]:
    """Return the raises of A that the audit log shows; fail on any violation."""
    timeline = judge.read(world.cluster.audit_log)
    assert [line for line in timeline.violations() if world.namespace in line] == []
    return [count for count, _ in timeline.jobs[f"{world.namespace}/{job.meta.name}"].raises]


def test_pass_is_two_writes_and_a_few_reads(world: World) -> None:
    job = world.started_and_opened()
    readmitted(world, job)
    longest = Pass(world, job)
    assert longest.finish().result is Result.ADMITTED
    writes = [request for request in longest.sent if isinstance(request, Replace | ReplaceStatus)]
    assert [type(request) for request in writes] == [Replace, ReplaceStatus]
    assert len(longest.sent) <= 12, longest.sent
    world.running(job, 1)
    world.stop(job)


def test_crash_at_each_request(world: World) -> None:
    job = world.started_and_opened()
    executions: list[int] = []
    crashes, boundary = 0, 0
    while True:
        boundary += 1
        readmitted(world, job)
        doomed = Pass(world, job)
        for _ in range(boundary):
            if not doomed.over:
                doomed.step()
        if doomed.over and len(doomed.sent) < boundary:
            break
        # Here the process is gone: nothing of it is kept, and the next one begins anew.
        crashes += 1
        admitted = world.check(job).get("state") == "Ready"
        executions.append(world.count(job) if admitted else admit(world, job))
        world.running_as(job, executions[-1])
    assert crashes >= 10
    assert executions == sorted(set(executions))
    raises = judged(world, job)
    assert raises == sorted(set(raises))
    world.stop(job)


def test_stall_at_each_request_across_an_eviction_and_a_new_reservation(world: World) -> None:
    job = world.started_and_opened()
    conflicts, boundary = 0, 0
    while True:
        boundary += 1
        readmitted(world, job)
        stalled = Pass(world, job)
        for _ in range(boundary):
            if not stalled.over:
                stalled.step()
        if stalled.over:
            break
        # While it sleeps, another replica admits the job, Kueue evicts it and reserves quota for it anew.
        world.running_as(job, admit(world, job))
        readmitted(world, job)
        before = world.check(job)
        outcome = stalled.finish()
        wrote = [request for request in stalled.sent[boundary:] if isinstance(request, Replace | ReplaceStatus)]
        if outcome.result is Result.CONFLICT:
            conflicts += 1
            assert world.check(job) == before, "a stale pass changed the check"
        else:
            # Stopped before it read the Workload's version that it would write: it decided on what is there now.
            assert not wrote or outcome.result is Result.ADMITTED, outcome
        if world.check(job).get("state") != "Ready":
            admit(world, job)
        world.running_as(job, world.count(job))
    assert conflicts >= 8
    raises = judged(world, job)
    assert raises == sorted(set(raises))
    world.stop(job)
