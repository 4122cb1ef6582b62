"""The kinds of runs: each way in which an execution ends and the next one begins, and what may go wrong around it.

One table for the tests, which play one run of each, and for the soak, which plays hundreds. A run is given a job that
runs, and leaves it running in a later execution. What it must have kept is read from the audit log afterwards; here is
asserted only what the log cannot show.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from random import Random
from typing import Any

from dispatch_admission.act import Result
from dispatch_gates.contract import names
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_local.cluster import Cluster
from readmission.passes import admit, killed_after, stalled_after, world_by_request
from readmission.surroundings import Surroundings
from world import World, count_of, until

OTHER = "other"
"""A second check, whose controller the tests play."""


@dataclass
class Run:
    """One run: a job that runs, in a world of its own, in surroundings that others may share."""

    world: World
    job: TrainJob
    surroundings: Surroundings
    random: Random
    executions: int = 1
    """How many the job has had: the present one is the last of them."""

    @property
    def pod(self) -> JsonObject:
        """A pod of the present execution."""
        return self.world.running(self.job, self.executions)

    def runs_again(self) -> None:
        """Wait for the next execution."""
        self.executions += 1
        self.world.running(self.job, self.executions)

    def waits_for_old_pod(self) -> JsonObject:
        """Evict the job with a pod that lingers, until the check waits for it at the new reservation."""
        old = self.pod
        self.world.linger(old)
        self.world.evict(self.job)
        message = self.world.waits(self.job, "StillRunning")
        assert old["metadata"]["name"] in message
        assert self.world.count(self.job) == count_of(old)
        return old

    def evicted(self) -> None:
        """Deactivate the job's Workload, until Kueue has begun to evict it."""
        self.world.set_active(self.job, False)
        until("the eviction to begin", lambda: self.world.condition(self.job, "Evicted") == "True")

    def given_back(self) -> None:
        """Wait until the quota is given back."""
        until("the quota to be given back", lambda: self.world.condition(self.job, "QuotaReserved") == "False")


# Ends of an execution


def preempted(run: Run) -> None:
    run.world.preempt()
    run.runs_again()


def deactivated(run: Run) -> None:
    run.world.evict(run.job)
    run.runs_again()


def pod_lingers(run: Run) -> None:
    run.world.let_go(run.waits_for_old_pod())
    run.runs_again()


def held_and_released(run: Run) -> None:
    run.world.hold(run.job)
    run.given_back()
    run.world.release(run.job)
    run.runs_again()


def cluster_queue_drained(run: Run) -> None:
    run.world.queue(lambda spec: spec.update(stopPolicy="HoldAndDrain"))
    run.given_back()
    run.world.queue(lambda spec: spec.update(stopPolicy="None"))
    run.runs_again()


def local_queue_drained(run: Run) -> None:
    def policy(value: str) -> Callable[[JsonObject], None]:
        return lambda body: body["spec"].update(stopPolicy=value)

    run.world.change(names.LOCAL_QUEUES, "queue", policy("HoldAndDrain"))
    run.given_back()
    run.world.change(names.LOCAL_QUEUES, "queue", policy("None"))
    run.runs_again()


def check_taken_out_and_put_back(run: Run) -> None:
    """Over a running job, which it must leave alone."""
    world, pod = run.world, run.pod
    world.list_checks()
    until("the check to be taken out", lambda: world.check(run.job) == {})
    world.list_checks(world.ours)
    until("the check to be put back", lambda: world.check(run.job).get("state") == "Pending")
    # Workloads are watched in one stream: once this job runs, the entry that was put back was seen.
    world.give_room(2)
    other = world.started_and_opened()
    world.running(other, 1)
    assert world.check(run.job)["state"] == "Pending"
    assert world.condition(run.job, "Admitted") == "True"
    assert world.count(run.job) == count_of(pod)
    assert [each["metadata"]["uid"] for each in world.pods_of(run.job)] == [pod["metadata"]["uid"]]
    world.stop(other)
    world.give_room(1)
    deactivated(run)


def retry_by_another_check(run: Run) -> None:
    world = run.world
    world.make_check(OTHER)
    world.list_checks(world.ours, OTHER)
    world.set_check(run.job, OTHER, "Retry")
    until("the check to be reset", lambda: world.check(run.job, OTHER).get("state") == "Pending")
    until("our check to be Ready again", lambda: world.check(run.job).get("state") == "Ready")
    world.set_check(run.job, OTHER, "Ready")
    run.runs_again()
    world.list_checks(world.ours)
    until("the other check to be taken out", lambda: world.check(run.job, OTHER) == {})


def pods_ready_timeout(run: Run) -> None:
    """Kueue evicts by itself what was ready and is not for a while."""
    world = run.world

    def soon(body: dict[str, Any]) -> None:
        requeuing = {"timestamp": "Eviction", "backoffBaseSeconds": 1, "backoffMaxSeconds": 1}
        body["waitForPodsReady"] = {"timeout": "30m", "recoveryTimeout": "1s", "requeuingStrategy": requeuing}

    def not_ready(body: JsonObject) -> None:
        for condition in body["status"]["conditions"]:
            if condition["type"] in ("Ready", "ContainersReady"):
                condition["status"] = "False"

    with run.surroundings.configured("kueue", soon):
        old = run.pod
        world.linger(old)
        # What was never ready has half an hour; what was and is not any more has a second. A Kueue that has just
        # started may not have the JobSet in its cache, and then it begins to count at once.
        until(
            "Kueue to see the pods ready",
            lambda: ("PodsReady", "True") in _conditions(world, run.job) or _timeouts(world, run.job),
        )
        if not _timeouts(world, run.job):
            world.change(names.PODS, old["metadata"]["name"], not_ready, status=True)
        until("Kueue to evict the job", lambda: _timeouts(world, run.job))
        world.let_go(old)
        run.runs_again()


def _timeouts(world: World, job: TrainJob) -> int:
    """Return how often Kueue evicted a job for its pods; this stays, unlike the condition."""
    stats = ((world.workload(job) or {}).get("status") or {}).get("schedulingStats") or {}
    return sum(each["count"] for each in stats.get("evictions") or [] if each["reason"] == "PodsReadyTimeout")


def _conditions(world: World, job: TrainJob) -> set[tuple[str, str]]:
    conditions = ((world.workload(job) or {}).get("status") or {}).get("conditions") or []
    return {(entry["type"], entry["status"]) for entry in conditions}


# Parts that stand still, or start again, in the middle of an eviction


def stands_still(part: str, seconds: float = 0.5) -> Callable[[Run], None]:
    """Return a kind: the part is stopped in the middle of an eviction, for about so many seconds, and goes on."""

    def kind(run: Run) -> None:
        count = run.world.count(run.job)
        until("the TrainJob to say that a pod is active", lambda: _active(run))
        run.evicted()
        with run.surroundings.standing_still(part):
            time.sleep(seconds * run.random.uniform(0.5, 2))  # not a wait: how long it stands is what is played
            assert run.world.count(run.job) == count
        run.given_back()
        run.world.set_active(run.job, True)
        run.runs_again()

    return kind


def stands_still_until_activated(part: str) -> Callable[[Run], None]:
    """Return a kind: the part stands still from before the eviction until after the Workload is active again."""

    def kind(run: Run) -> None:
        count = run.world.count(run.job)
        until("the TrainJob to say that a pod is active", lambda: _active(run))
        with run.surroundings.standing_still(part):
            run.world.set_active(run.job, False)
            until("the TrainJob to be suspended", lambda: run.world.job(run.job.meta.name).suspended)
            run.world.set_active(run.job, True)
            # Quota comes back only where Kueue believes that no pod is active; either way A must stay.
            assert run.world.count(run.job) == count
        run.runs_again()

    return kind


def _active(run: Run) -> bool:
    raw = run.world.get(names.TRAINJOBS, run.job.meta.name) or {}
    return any(entry.get("active") for entry in (raw.get("status") or {}).get("jobsStatus") or [])


def kueue_starts_again(run: Run) -> None:
    old = run.pod
    run.world.linger(old)
    run.evicted()
    run.surroundings.start_again("kueue")
    run.given_back()
    run.world.set_active(run.job, True)
    run.world.waits(run.job, "StillRunning")
    assert run.world.count(run.job) == count_of(old)
    run.world.let_go(old)
    run.runs_again()


def api_server_starts_again(run: Run) -> None:
    old = run.waits_for_old_pod()
    run.surroundings.start_again("kube-apiserver")
    assert run.world.count(run.job) == count_of(old)
    run.world.let_go(old)
    run.runs_again()


# Controllers that are killed, doubled, stalled


def controller_killed(run: Run) -> None:
    world, old = run.world, run.waits_for_old_pod()
    with run.surroundings.without_controller():
        world.let_go(old)
        until("the old pod to be gone", lambda: not world.pods_of(run.job))
        assert world.check(run.job)["state"] == "Pending"
        assert world.condition(run.job, "QuotaReserved") == "True"
        assert world.count(run.job) == count_of(old)
    run.runs_again()


def two_leaders(run: Run) -> None:
    with run.surroundings.two_leaders():
        for _ in range(2):
            deactivated(run)


def second_leader_stalls(run: Run) -> None:
    """A replica that leads, too, stands still across an eviction and a new reservation, whatever it was doing."""
    world = run.world
    with run.surroundings.two_leaders():
        old = run.waits_for_old_pod()
        run.surroundings.signal_second(signal.SIGSTOP)
        world.let_go(old)
        run.runs_again()
        old = run.waits_for_old_pod()
        run.surroundings.signal_second(signal.SIGCONT)
        world.let_go(old)
        run.runs_again()


def replica_stalls_between_requests(run: Run) -> None:
    """It stalls after so many requests of a pass, across an execution by another and the reservation after it."""
    outcome = None
    while outcome is None:
        outcome = stalled_after(run.world, run.job, run.random.randint(1, LONGEST_PASS))
    assert outcome.result is Result.CONFLICT, outcome


def replica_killed_between_requests(run: Run) -> None:
    """It is killed after so many requests of a pass, and another one begins anew."""
    assert killed_after(run.world, run.job, run.random.randint(1, LONGEST_PASS)) is not None


LONGEST_PASS = 8
"""Requests after which every pass that admits a job still has one to send."""


class Needs(Enum):
    """What a kind has to have for itself."""

    NOTHING = auto()
    CLUSTER = auto()
    """Something happens to the cluster, so that all that runs beside it must play the same kind."""
    NO_CONTROLLER = auto()
    """A world whose check is served by the run itself, request by request."""


@dataclass(frozen=True)
class Kind:
    """One kind of runs."""

    play: Callable[[Run], None]
    needs: Needs = Needs.NOTHING


KINDS = {
    "preempted": Kind(preempted),
    "deactivated": Kind(deactivated),
    "pod-lingers": Kind(pod_lingers),
    "held-and-released": Kind(held_and_released),
    "cluster-queue-drained": Kind(cluster_queue_drained),
    "local-queue-drained": Kind(local_queue_drained),
    "check-put-back": Kind(check_taken_out_and_put_back),
    "retry-by-another-check": Kind(retry_by_another_check),
    "pods-ready-timeout": Kind(pods_ready_timeout, Needs.CLUSTER),
    "kueue-stands-still": Kind(stands_still("kueue"), Needs.CLUSTER),
    "trainer-stands-still": Kind(stands_still("trainer"), Needs.CLUSTER),
    "jobset-stands-still": Kind(stands_still_until_activated("jobset"), Needs.CLUSTER),
    "job-controller-stands-still": Kind(stands_still_until_activated("kube-controller-manager"), Needs.CLUSTER),
    "kueue-starts-again": Kind(kueue_starts_again, Needs.CLUSTER),
    "api-server-starts-again": Kind(api_server_starts_again, Needs.CLUSTER),
    "controller-killed": Kind(controller_killed, Needs.CLUSTER),
    "two-leaders": Kind(two_leaders, Needs.CLUSTER),
    "second-leader-stalls": Kind(second_leader_stalls, Needs.CLUSTER),
    "replica-stalls-between-requests": Kind(replica_stalls_between_requests, Needs.NO_CONTROLLER),
    "replica-killed-between-requests": Kind(replica_killed_between_requests, Needs.NO_CONTROLLER),
}


def begin(
    kind: Kind, cluster: Cluster, surroundings: Surroundings, random: Random, *, check: str = names.ADMISSION_CHECK
) -> Run:
    """Return a run of this kind: a job that runs, in a world of its own, behind a check that the controller serves."""
    by_request = kind.needs is Needs.NO_CONTROLLER
    world = world_by_request(cluster) if by_request else World(cluster, checks=(check,), ours=check).make()
    job = world.started_and_opened()
    if by_request:
        admit(world, job)
    world.running(job, 1)
    return Run(world, job, surroundings, random)
