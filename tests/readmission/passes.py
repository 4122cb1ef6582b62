"""One replica of the controller, request by request: the shipped pass, stopped and killed between any two requests."""

from __future__ import annotations

from dispatch_admission.act import Outcome, Result, readmit
from dispatch_gates.cluster import run
from dispatch_gates.contract import names
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_gates.requests import ApiError, Operation, Replace, ReplaceStatus, Request
from dispatch_local.cluster import Cluster
from world import World, until

BY_REQUEST = "dispatch-by-request"
"""An AdmissionCheck that no controller process serves."""


def world_by_request(cluster: Cluster) -> World:
    """Return a world whose check is served by passes of the tests alone, whatever controllers run.

    The passes are sent by the controller's account, with its rights. The guard rails, which know another check, do not
    hold here.
    """
    return World(cluster, checks=(BY_REQUEST,), ours=BY_REQUEST, guarded=False).make()


class Pass:
    """One pass over a job's Workload that can be stopped between any two requests."""

    def __init__(self, world: World, job: TrainJob) -> None:
        workload = world.workload(job)
        assert workload is not None
        name = workload["metadata"]["name"]
        self._world = world
        self._operation: Operation[Outcome] = readmit(world.namespace, name, frozenset({world.ours}))
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
                reply = run(self._world.controller, _one(request))
            except ApiError as error:
                self._request = self._operation.throw(error)
            else:
                self._request = self._operation.send(reply)
        except StopIteration as end:
            self._request, self.outcome = None, end.value

    def steps(self, number: int) -> None:
        """Send so many requests, or what there is."""
        for _ in range(number):
            if not self.over:
                self.step()

    def finish(self) -> Outcome:
        """Send what is left."""
        while self.outcome is None:
            self.step()
        return self.outcome

    @property
    def over(self) -> bool:
        return self.outcome is not None

    @property
    def writes(self) -> list[Request]:
        """What it sent that changes something."""
        return [request for request in self.sent if isinstance(request, Replace | ReplaceStatus)]


def _one(request: Request) -> Operation[object]:
    return (yield request)


def admit(world: World, job: TrainJob) -> int:
    """Run passes until one admits the job, as the controller's queue would; return its A."""

    def admitted() -> int | None:
        outcome = Pass(world, job).finish()
        assert outcome.result in (Result.ADMITTED, Result.WAITING, Result.CONFLICT, Result.NOTHING), outcome
        return outcome.count if outcome.result is Result.ADMITTED else None

    return until(f"{job.meta.name} to be admitted", admitted)


def reserved_and_quiet(world: World, job: TrainJob) -> None:
    """Evict the job, if it holds quota, and wait until it has quota anew and its old execution is seen to be over."""
    if world.condition(job, "Admitted") == "True" or world.condition(job, "QuotaReserved") == "True":
        world.evict(job)
    until("quota to be reserved", lambda: world.condition(job, "QuotaReserved") == "True")
    until("the check to be pending", lambda: world.check(job).get("state") == "Pending")
    # Passes begin once the old pods are gone and the Jobs are seen suspended, so that each is the longest there is.
    until("the old pods to be gone", lambda: not world.pods_of(job))

    def suspended() -> bool:
        jobs = world.list(names.JOBS, f"{names.JOBSET_NAME}={job.meta.name}")
        return bool(jobs) and all(_is_suspended(batch) for batch in jobs)

    until("the Jobs to be suspended", suspended)


def _is_suspended(batch: JsonObject) -> bool:
    status = batch.get("status") or {}
    seen = any(entry["type"] == "Suspended" and entry["status"] == "True" for entry in status.get("conditions") or [])
    return (seen or "startTime" not in status) and not status.get("terminating")


def killed_after(world: World, job: TrainJob, requests: int) -> int | None:
    """Kill a replica after so many requests of a pass, let another one go on; return the A that the job then runs with.

    None where the whole pass is shorter than that.
    """
    reserved_and_quiet(world, job)
    doomed = Pass(world, job)
    doomed.steps(requests)
    short = doomed.over and len(doomed.sent) < requests
    # Here the process is gone: nothing of it is kept, and the next one begins anew.
    count = world.count(job) if world.check(job).get("state") == "Ready" else admit(world, job)
    world.running_as(job, count)
    return None if short else count


def stalled_after(world: World, job: TrainJob, requests: int) -> Outcome | None:
    """Stall a replica after so many requests of a pass, across an execution by another and the reservation after it.

    Return what became of its late requests, which must have changed nothing of the Workload; None where the whole
    pass is shorter than that. The job runs again at the end.
    """
    reserved_and_quiet(world, job)
    stalled = Pass(world, job)
    stalled.steps(requests)
    if stalled.over:
        world.running_as(job, world.count(job))
        return None
    world.running_as(job, admit(world, job))
    reserved_and_quiet(world, job)
    before = world.check(job)
    outcome = stalled.finish()
    assert world.check(job) == before, f"a stale pass changed the check from {before} to {world.check(job)}: {outcome}"
    world.running_as(job, admit(world, job))
    return outcome
