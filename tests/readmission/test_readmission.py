"""The readmission gate on a real control plane: real Kueue, JobSet, Trainer; KWOK runs the pods.

What is tested: A is raised before every execution and reaches its pods; never while an old pod may still run; not
while an eviction is going on; foreign Workloads are waved through; nothing is written twice. The judge of every
test is the API server's audit log. Two mutants of the rule show that the judge notices what the rule is good for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import judge
from dispatch_gates.contract import names
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_local.cluster import Cluster
from world import ControllerProcess, World, count_of, until

WITHOUT_EVICTED = (
    ("dispatch_admission.decide", '("Finished", "DeactivationTarget", "Evicted", "Admitted")', '("Finished",)'),
)
WITHOUT_PODS = (
    ("dispatch_gates.contract.execution", "for pod in self.pods if pod.may_run", "for pod in () if pod.may_run"),
    (
        "dispatch_gates.contract.execution",
        "return stopped and self.active == 0 and self.terminating == 0",
        "return stopped",
    ),
)


@pytest.fixture
def world(cluster: Cluster) -> World:
    return World(cluster).make()


@contextlib.contextmanager
def controller(world: World, folder: Path, *mutations: tuple[str, str, str]) -> Iterator[ControllerProcess]:
    with ControllerProcess(world, folder, mutations=mutations) as process:
        yield process


def violations(world: World) -> list[str]:
    """What the audit log says about this world's jobs."""
    return [line for line in judge.read(world.cluster.audit_log).violations() if world.namespace in line]


def executions(world: World, job: TrainJob) -> list[int | None]:
    """The A of each execution, as the audit log says."""
    return [
        count for count, _ in judge.read(world.cluster.audit_log).jobs[f"{world.namespace}/{job.meta.name}"].resumes
    ]


def test_closed_job_has_no_pod_and_opened_one_runs_with_1(world: World, tmp_path: Path) -> None:
    with controller(world, tmp_path):
        job = world.start()
        assert world.condition(job, "QuotaReserved") in ("", "False")
        assert world.job(job.meta.name).count == 0
        assert world.pods_of(job) == ()
        world.open(job)
        world.running(job, 1)
    assert len(executions(world, job)) == 1
    assert violations(world) == []


def test_preempted_job_waits_for_its_old_pod_and_runs_with_2(world: World, tmp_path: Path) -> None:
    with controller(world, tmp_path):
        job = world.started_and_opened(priority="low")
        old = world.running(job, 1)
        world.linger(old)
        rival = world.started_and_opened(priority="high")
        world.running(rival, 1)
        # The quota is given back although the old pod is still there; then the rival ends and gives it back too.
        world.set_active(rival, False)
        message = until("the check to name the old pod", lambda: _names(world, job, old))
        assert world.count(job) == count_of(old)
        assert message.startswith("StillRunning: ")
        assert world.count(job) == count_of(old)
        world.let_go(old)
        world.running(job, 2)
    assert len(executions(world, job)) == 2
    assert violations(world) == []


def _names(world: World, job: TrainJob, pod: dict[str, object]) -> str | None:
    message = str(world.check(job).get("message", ""))
    metadata = pod["metadata"]
    assert isinstance(metadata, dict)
    return message if str(metadata["name"]) in message else None


def test_foreign_workload_is_waved_through(world: World, tmp_path: Path) -> None:
    with controller(world, tmp_path):
        world.create(
            names.TRAINJOBS,
            "foreign",
            metadata={"labels": {names.QUEUE_NAME: "queue"}},
            spec={
                "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "kwok"},
                "trainer": {"resourcesPerNode": {"requests": {"cpu": "1"}}},
            },
        )
        job = world.job("foreign")
        until("the foreign job to run", lambda: world.pods_of(job))
        assert world.check(job)["message"].startswith("Not a job of dispatch's")
    assert world.job("foreign").count is None


def evictions_half_done(world: World) -> contextlib.AbstractContextManager[None]:
    """Keep Kueue from giving quota back after an eviction: its second write of two, usually half a second later."""
    keeps = """!(oldObject.status.conditions.exists(c, c.type == "Evicted" && c.status == "True") &&
        oldObject.status.conditions.exists(c, c.type == "QuotaReserved" && c.status == "True") &&
        object.status.conditions.exists(c, c.type == "QuotaReserved" && c.status == "False"))"""
    return world.only(names.WORKLOADS, keeps, subresource="status")


@pytest.mark.parametrize(
    ("mutations", "expected"), [((), False), (WITHOUT_EVICTED, True)], ids=["shipped", "without-evicted"]
)
def test_an_eviction_that_still_holds_its_quota_is_not_a_reservation(
    cluster: Cluster, tmp_path: Path, mutations: tuple[tuple[str, str, str], ...], expected: bool
) -> None:
    world = World(cluster, checks=(names.ADMISSION_CHECK, "other")).make()
    elsewhere = World(cluster).make()
    with controller(world, tmp_path, *mutations):
        with evictions_half_done(world):
            # Never admitted: no pod, Job or JobSet gives the eviction away, the condition alone does.
            job = world.started_and_opened(priority="low")
            until("our check to be Ready", lambda: world.check(job).get("state") == "Ready")
            before = world.count(job)
            world.started_and_opened(priority="high")
            until("the eviction to begin", lambda: world.condition(job, "Evicted") == "True")
            assert world.condition(job, "QuotaReserved") == "True"
            # Workloads are watched in one stream: once this one runs, the eviction was seen.
            elsewhere.running(elsewhere.started_and_opened(), 1)
            if expected:
                until("the mutant to take it for a reservation", lambda: world.check(job).get("state") == "Ready")
            else:
                assert world.check(job)["state"] == "Pending"
                assert world.count(job) == before
        until("the eviction to be over", lambda: world.condition(job, "QuotaReserved") == "False")
    found = [line for line in violations(world) if "Evicted" in line]
    assert bool(found) is expected, violations(world)


@pytest.mark.parametrize(
    ("mutations", "expected"), [((), False), (WITHOUT_PODS, True)], ids=["shipped", "without-pods"]
)
def test_quota_that_is_reserved_again_does_not_mean_that_the_pods_are_gone(
    world: World, tmp_path: Path, mutations: tuple[tuple[str, str, str], ...], expected: bool
) -> None:
    with controller(world, tmp_path, *mutations):
        job = world.started_and_opened()
        old = world.running(job, 1)
        world.linger(old)
        world.set_active(job, False)
        until("the quota to be given back", lambda: world.condition(job, "QuotaReserved") == "False")
        world.set_active(job, True)
        if expected:
            until("A to be raised beside the old pod", lambda: world.count(job) > count_of(old))
        else:
            until("the check to name the old pod", lambda: _names(world, job, old))
        world.let_go(old)
        world.running(job, 2)
    assert bool(violations(world)) is expected, violations(world)
