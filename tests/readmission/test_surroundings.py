"""The readmission gate while its surroundings misbehave: real Kueue, JobSet, Trainer; KWOK runs the pods.

What is tested: each way in which an execution ends and the next one begins (hold and drain, another check's Retry, a
check taken out and put back); parts that stand still in the middle of an eviction; an API server that starts again;
two replicas that both lead; a controller that is killed. Judge: the audit log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import judge
from dispatch_gates.contract import names
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_local.cluster import Cluster
from world import ControllerProcess, World, count_of, until

OTHER = "other"


@pytest.fixture
def world(cluster: Cluster) -> World:
    return World(cluster).make()


def judged(world: World, job: TrainJob) -> list[int]:
    """Return the A of each execution that the audit log shows; fail on any violation, or where A does not rise."""
    timeline = judge.read(world.cluster.audit_log)
    assert [line for line in timeline.violations() if world.namespace in line] == []
    executions = [count for count, _ in timeline.jobs[f"{world.namespace}/{job.meta.name}"].resumes if count]
    assert executions == sorted(set(executions))
    return executions


@contextmanager
def standing_still(cluster: Cluster, part: str) -> Iterator[None]:
    """Have a part of the control plane stand still."""
    cluster.pause(part)
    try:
        yield
    finally:
        cluster.resume(part)


def stop_policy(world: World, policy: str) -> None:
    """Set the ClusterQueue's stop policy."""
    world.change(
        names.CLUSTER_QUEUES, world.namespace, lambda body: body["spec"].update(stopPolicy=policy), cluster_scoped=True
    )


def checks_of_queue(world: World, *checks: str) -> None:
    """Set which checks the ClusterQueue names."""
    listed = [{"name": check} for check in checks]

    def edit(body: dict[str, Any]) -> None:
        body["spec"].pop("admissionChecksStrategy", None)
        if listed:
            body["spec"]["admissionChecksStrategy"] = {"admissionChecks": listed}

    world.change(names.CLUSTER_QUEUES, world.namespace, edit, cluster_scoped=True)


def set_other(world: World, job: TrainJob, state: str) -> None:
    """Play the controller of the other check."""
    workload = world.workload(job)
    assert workload is not None

    def edit(body: dict[str, Any]) -> None:
        for entry in body["status"]["admissionChecks"]:
            if entry["name"] == OTHER:
                entry.update(state=state, message="played by a test", lastTransitionTime="2026-01-01T00:00:00Z")

    until(f"the check {OTHER} to be listed", lambda: world.check(job, OTHER))
    world.change(names.WORKLOADS, workload["metadata"]["name"], edit, status=True)


def evicted_and_reserved_again(world: World, job: TrainJob) -> None:
    """Deactivate and activate."""
    world.set_active(job, False)
    until("the quota to be given back", lambda: world.condition(job, "QuotaReserved") == "False")
    world.set_active(job, True)


def waits(world: World, job: TrainJob, reason: str) -> Callable[[], bool]:
    """Say whether the check waits for this reason."""
    return lambda: str(world.check(job).get("message", "")).startswith(f"{reason}: ")


def test_queue_held_and_drained(world: World, tmp_path: Path) -> None:
    with ControllerProcess(world, tmp_path):
        job = world.started_and_opened()
        world.running(job, 1)
        stop_policy(world, "HoldAndDrain")
        until("the queue to be drained", lambda: world.condition(job, "QuotaReserved") == "False")
        stop_policy(world, "None")
        world.running(job, 2)
    assert len(judged(world, job)) == 2


def test_retry_by_another_check(cluster: Cluster, tmp_path: Path) -> None:
    world = World(cluster, checks=(names.ADMISSION_CHECK, OTHER)).make()
    with ControllerProcess(world, tmp_path):
        job = world.started_and_opened()
        set_other(world, job, "Ready")
        world.running(job, 1)
        set_other(world, job, "Retry")
        until("the check to be reset", lambda: world.check(job, OTHER).get("state") == "Pending")
        until("our check to be Ready again", lambda: world.check(job).get("state") == "Ready")
        set_other(world, job, "Ready")
        world.running(job, 2)
    assert len(judged(world, job)) == 2


def test_check_taken_out_and_put_back_over_a_running_job(world: World, tmp_path: Path) -> None:
    with ControllerProcess(world, tmp_path):
        job = world.started_and_opened()
        old = world.running(job, 1)
        checks_of_queue(world)
        until("the check to be taken out", lambda: world.check(job) == {})
        checks_of_queue(world, names.ADMISSION_CHECK)
        until("the check to be put back", lambda: world.check(job).get("state") == "Pending")
        # Workloads are watched in one stream: once this foreign job runs, the entry that was put back was seen.
        world.change(names.CLUSTER_QUEUES, world.namespace, _two_pods, cluster_scoped=True)
        other = world.started_and_opened()
        world.running(other, 1)
        assert world.check(job)["state"] == "Pending"
        assert world.condition(job, "Admitted") == "True"
        assert world.count(job) == count_of(old)
        assert [each["metadata"]["uid"] for each in world.pods_of(job)] == [old["metadata"]["uid"]]
        evicted_and_reserved_again(world, job)
        world.running(job, 2)
    assert len(judged(world, job)) == 2


def _two_pods(body: dict[str, Any]) -> None:
    for resource in body["spec"]["resourceGroups"][0]["flavors"][0]["resources"]:
        if resource["name"] == "pods":
            resource["nominalQuota"] = "2"


@pytest.mark.parametrize("part", ["kube-controller-manager", "jobset"])
def test_part_stands_still_in_the_middle_of_an_eviction(world: World, tmp_path: Path, part: str) -> None:
    with ControllerProcess(world, tmp_path):
        job = world.started_and_opened()
        old = world.running(job, 1)
        until("the TrainJob to say that a pod is active", lambda: _active(world, job))
        with standing_still(world.cluster, part):
            world.set_active(job, False)
            until("the TrainJob to be suspended", lambda: world.job(job.meta.name).suspended)
            world.set_active(job, True)
            # Quota comes back only where Kueue believes that no pod is active; either way A must stay.
            assert world.count(job) == count_of(old)
        world.running(job, 2)
    assert len(judged(world, job)) == 2


def _active(world: World, job: TrainJob) -> bool:
    raw = world.get(names.TRAINJOBS, job.meta.name) or {}
    return any(entry.get("active") for entry in (raw.get("status") or {}).get("jobsStatus") or [])


def test_trainer_sleeps_through_an_execution_and_wakes_in_the_next_reservation(world: World, tmp_path: Path) -> None:
    with ControllerProcess(world, tmp_path):
        job = world.start()
        until("the JobSet to carry A=0", lambda: world.get(names.JOBSETS, job.meta.name))
        # Not by SIGSTOP, which would also stop the webhooks that every write to a TrainJob needs.
        with world.only(names.JOBSETS, 'request.userInfo.username.indexOf("kubeflow") < 0'):
            world.open(job)
            # A is raised, but it does not arrive: the wait is named, and A is not raised again and again.
            until("the check to name the wait", waits(world, job, "TrainerBehind"))
            raised = world.count(job)
            evicted_and_reserved_again(world, job)
            until("the check to name the wait again", waits(world, job, "TrainerBehind"))
            assert world.count(job) == raised
        world.running(job, 1)
    assert len(judged(world, job)) == 1


def test_kueue_starts_again_in_the_middle_of_an_eviction(world: World, tmp_path: Path) -> None:
    with ControllerProcess(world, tmp_path):
        job = world.started_and_opened()
        old = world.running(job, 1)
        world.linger(old)
        world.set_active(job, False)
        until("the eviction to begin", lambda: world.condition(job, "Evicted") == "True")
        world.cluster.restart("kueue")
        until("the quota to be given back", lambda: world.condition(job, "QuotaReserved") == "False")
        world.set_active(job, True)
        until("the check to name the old pod", waits(world, job, "StillRunning"))
        assert world.count(job) == count_of(old)
        world.let_go(old)
        world.running(job, 2)
    assert len(judged(world, job)) == 2


def test_api_server_starts_again_while_a_job_waits(world: World, tmp_path: Path) -> None:
    with ExitStack() as processes:
        processes.enter_context(ControllerProcess(world, tmp_path))
        job = world.started_and_opened()
        old = world.running(job, 1)
        world.linger(old)
        evicted_and_reserved_again(world, job)
        until("the check to name the old pod", waits(world, job, "StillRunning"))
        world.cluster.restart("kube-apiserver")
        world.let_go(old)
        # Without its Lease a replica ends; the Deployment starts it again, here the test does.
        processes.enter_context(ControllerProcess(world, tmp_path))
        world.running(job, 2)
    assert len(judged(world, job)) == 2


def test_killed_controller_loses_nothing(world: World, tmp_path: Path) -> None:
    with ControllerProcess(world, tmp_path) as first:
        job = world.started_and_opened()
        old = world.running(job, 1)
        world.linger(old)
        evicted_and_reserved_again(world, job)
        until("the check to name the old pod", waits(world, job, "StillRunning"))
        first.kill()
    world.let_go(old)
    until("the old pod to be gone", lambda: not world.pods_of(job))
    assert world.check(job)["state"] == "Pending"
    assert world.condition(job, "QuotaReserved") == "True"
    with ControllerProcess(world, tmp_path):
        world.running(job, 2)
    assert len(judged(world, job)) == 2


def test_two_replicas_that_both_lead_are_as_safe_as_one(world: World, tmp_path: Path) -> None:
    with ControllerProcess(world, tmp_path, lease="one"), ControllerProcess(world, tmp_path, lease="two"):
        job = world.started_and_opened()
        for execution in (1, 2, 3):
            world.running(job, execution)
            world.set_active(job, False)
            until("the old pod to be gone", lambda: not world.pods_of(job))
            world.set_active(job, True)
        world.running(job, 4)
    assert len(judged(world, job)) == 4
