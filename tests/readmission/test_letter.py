"""The ways in which the contract's letter goes wrong on the real system: each fails with it and passes with ours.

`LETTER` is the shipped controller with its rule cut down to what the contract's numbered list says: check Pending and
quota reserved; no pod of the previous execution may run; raise A, set Ready. For each way the test shows that the
judge, which reads the audit log alone, finds what goes wrong under the letter, and nothing under ours. Two ways need
less than the letter to go wrong, or something else: a rule that does not look at pods, and one that waits for every
Job to be suspended.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

import webhook
from dispatch_gates.contract import names
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_local.cluster import Cluster
from readmission.kinds import OTHER
from world import Deployment, World, count_of, initializer, until

Mutations = tuple[tuple[str, str, str], ...]

LETTER: Mutations = (
    ("dispatch_admission.decide", '("Finished", "DeactivationTarget", "Evicted", "Admitted")', "()"),
    ("dispatch_admission.decide", "if check.state == State.READY and _spent(workload, check):", "if False:"),
    ("dispatch_admission.decide", "if not job.suspended:", "if False:"),
    (
        "dispatch_gates.contract.execution",
        """            *self._unsuspended(),
            *sorted(_why_not_over(job) for job in self.jobs if not job.over),
            *self._missing(),
""",
        "",
    ),
    ("dispatch_gates.contract.next_execution", "if jobset.count != job.count and not stripped:", "if False:"),
    (
        "dispatch_admission.act",
        "    yield from await_count(evidence.jobset, action.count, acknowledge_seconds)\n",
        "",
    ),
)
WITHOUT_PODS: Mutations = (
    ("dispatch_gates.contract.execution", "*alive(self.pods)", "*alive(())"),
    (
        "dispatch_gates.contract.execution",
        "return stopped and self.active == 0 and self.terminating == 0",
        "return stopped",
    ),
)
SUSPENDED_JOBS_ONLY: Mutations = (
    ("dispatch_gates.contract.execution", "stopped = self.finished or (self.suspended", "stopped = (self.suspended"),
)


@pytest.mark.parametrize(
    "mutation", [*LETTER, *WITHOUT_PODS, *SUSPENDED_JOBS_ONLY], ids=lambda each: each[1].strip()[:40]
)
def test_what_a_mutation_takes_away_is_there_once(mutation: tuple[str, str, str]) -> None:
    """Said here, where it takes a moment, rather than by a controller that does not start."""
    module, text, _ = mutation
    found = importlib.util.find_spec(module)
    assert found is not None
    assert found.origin is not None
    assert Path(found.origin).read_text().count(text) == 1


Unguarded = partial(World, guarded=False)
"""Here the rule alone keeps the promises; tests/guard_rails/test_naive.py has the letter under the guard rails."""
both = pytest.mark.parametrize("mutations", [LETTER, ()], ids=["letter", "ours"])


@pytest.fixture
def world(cluster: Cluster) -> World:
    return Unguarded(cluster).make()


def kept(world: World, mutations: Mutations, *wrong: str) -> None:
    """Assert that the judge finds nothing wrong with our rule, and each of these with the other."""
    found = world.violations()
    if mutations:
        for what in wrong:
            assert any(what in violation for violation in found), found
    else:
        assert found == ()


def seen(cluster: Cluster) -> None:
    """Wait until the controller has seen all that happened to Workloads: they are watched in one stream."""
    elsewhere = Unguarded(cluster).make()
    elsewhere.running(elsewhere.started_and_opened(), 1)


def ready(world: World, job: TrainJob) -> None:
    """Wait until our check is Ready."""
    until("our check to be Ready", lambda: world.check(job).get("state") == "Ready")


def ready_or_left_alone(world: World, cluster: Cluster, job: TrainJob, before: int, mutations: Mutations) -> None:
    """Wait for what the other rule does wrong; under ours, assert that the check waits and A is what it was."""
    if mutations:
        ready(world, job)
    else:
        seen(cluster)
        assert world.check(job)["state"] == "Pending"
        assert world.count(job) == before


def evictions_half_done(world: World) -> AbstractContextManager[None]:
    """Keep Kueue from giving quota back after an eviction: its second write of two, usually half a second later."""
    keeps = """!(oldObject.status.conditions.exists(c, c.type == "Evicted" && c.status == "True") &&
        oldObject.status.conditions.exists(c, c.type == "QuotaReserved" && c.status == "True") &&
        object.status.conditions.exists(c, c.type == "QuotaReserved" && c.status == "False"))"""
    return world.only(names.WORKLOADS, keeps, subresource="status")


@both
def test_eviction_in_progress(cluster: Cluster, tmp_path: Path, mutations: Mutations) -> None:
    """Kueue resets the check in its first write, and gives the quota back in its second."""
    world = Unguarded(cluster, checks=(names.ADMISSION_CHECK, OTHER)).make()
    with Deployment(world, tmp_path, mutations=mutations):
        with evictions_half_done(world):
            # Never admitted: no pod, Job or JobSet gives the eviction away, the condition alone does.
            job = world.started_and_opened(priority="low")
            ready(world, job)
            before = world.count(job)
            world.started_and_opened(priority="high")
            until("the eviction to begin", lambda: world.condition(job, "Evicted") == "True")
            assert world.condition(job, "QuotaReserved") == "True"
            ready_or_left_alone(world, cluster, job, before, mutations)
        until("the eviction to be over", lambda: world.condition(job, "QuotaReserved") == "False")
    kept(world, mutations, "check set Ready while Evicted")


@both
def test_check_put_back_over_an_admitted_job(
    world: World, cluster: Cluster, tmp_path: Path, mutations: Mutations
) -> None:
    """The entry comes back Pending, with quota reserved, over an execution that has begun: here before its pods."""
    not_started = "!(oldObject.spec.suspend && !object.spec.suspend)"
    with Deployment(world, tmp_path, mutations=mutations):
        with world.only(names.TRAINJOBS, not_started):
            job = world.started_and_opened()
            until("the job to be admitted", lambda: world.condition(job, "Admitted") == "True")
            before = world.count(job)
            world.list_checks()
            until("the check to be taken out", lambda: world.check(job) == {})
            world.list_checks(names.ADMISSION_CHECK)
            until("the check to be put back", lambda: world.check(job))
            ready_or_left_alone(world, cluster, job, before, mutations)
        pod = world.running(job, 1)
        assert (count_of(pod) > before) is bool(mutations)
    kept(world, mutations, "check set Ready while Admitted")


@both
def test_suspend_and_resume_swallowed_by_trainer(world: World, tmp_path: Path, mutations: Mutations) -> None:
    """Trainer sees the TrainJob let run before and after, and never suspends the JobSet: the old one starts late."""
    with Deployment(world, tmp_path, mutations=mutations):
        job = world.start()
        until("the JobSet to carry A=0", lambda: world.get(names.JOBSETS, job.meta.name))
        with stopped(world, "kube-controller-manager"):  # no pods yet
            world.open(job)
            until(
                "the Job to be let run", lambda: any(not batch["spec"]["suspend"] for batch in batch_jobs(world, job))
            )
            before = world.count(job)
            # Not by SIGSTOP, which would also stop the webhooks that every write to a TrainJob needs.
            with world.only(names.JOBSETS, 'request.userInfo.username.indexOf("kubeflow") < 0'):
                world.evict(job)
                if mutations:
                    until("the next execution to be let run", lambda: _runs_with_more_than(world, job, before))
                else:
                    assert "JobSet" in world.waits(job, "StillRunning")
                    assert world.count(job) == before
            if not mutations:
                until("Trainer to suspend the JobSet", lambda: _suspended(world, job))
        if mutations:
            assert count_of(world.running(job, 1)) == before
        else:
            assert count_of(world.running(job, 1)) > before
    kept(world, mutations, f"created with A={before} while the TrainJob was last let run with A={before + 1}")


def _runs_with_more_than(world: World, job: TrainJob, count: int) -> bool:
    now = world.job(job.meta.name)
    return not now.suspended and isinstance(now.count, int) and now.count > count


def _suspended(world: World, job: TrainJob) -> bool:
    raw = world.get(names.JOBSETS, job.meta.name)
    return (
        raw is not None
        and bool(raw["spec"].get("suspend"))
        and all(b["spec"]["suspend"] for b in batch_jobs(world, job))
    )


def batch_jobs(world: World, job: TrainJob) -> tuple[JsonObject, ...]:
    """Return the Jobs of a job."""
    return world.list(names.JOBS, f"{names.JOBSET_NAME}={job.meta.name}")


@contextmanager
def stopped(world: World, part: str) -> Iterator[None]:
    """Have a part stand still."""
    world.cluster.pause(part)
    try:
        yield
    finally:
        world.cluster.resume(part)


class LateTrainer(webhook.Webhook):
    """Holds Trainer's next apply that lets a JobSet run, decided and on its way, until it is let go."""

    configurations = webhook.VALIDATING
    rules: ClassVar[tuple[dict[str, Any], ...]] = (
        {"operations": ["UPDATE"], "apiVersions": ["*"], "apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"]},
    )

    def __init__(self, world: World, folder: Path) -> None:
        super().__init__(world, folder)
        self.held = threading.Event()
        self.go = threading.Event()

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Let it wait, if it is the one."""
        lets_run = asked["oldObject"]["spec"].get("suspend") and not asked["object"]["spec"].get("suspend")
        if lets_run and "kubeflow" in asked["userInfo"]["username"] and not self.held.is_set():
            self.held.set()
            self.go.wait(webhook.SECONDS)
        return {}


@both
def test_trainer_stalls_before_an_apply_and_wakes_after_the_next_reservation(
    world: World, tmp_path: Path, mutations: Mutations
) -> None:
    """What it had decided in the first admission arrives in the second."""
    with Deployment(world, tmp_path, mutations=mutations), LateTrainer(world, tmp_path) as trainer:
        job = world.started_and_opened()
        until("Trainer's apply to be on its way", trainer.held.is_set)
        before = world.count(job)
        world.evict(job)
        if mutations:
            until("the next execution to be let run", lambda: _runs_with_more_than(world, job, before))
        else:
            until("A to be raised", lambda: world.count(job) > before)
            assert world.check(job)["state"] == "Pending"
        trainer.go.set()
        if mutations:
            assert count_of(world.running(job, 1)) == before
        else:
            until("the next execution to be let run", lambda: _runs_with_more_than(world, job, before))
            world.running_as(job, world.count(job))
    kept(world, mutations, f"created with A={before} while the TrainJob was last let run with A={before + 1}")


@pytest.mark.parametrize("mutations", [WITHOUT_PODS, ()], ids=["without-pods", "ours"])
def test_quota_reserved_while_pods_still_terminate(world: World, tmp_path: Path, mutations: Mutations) -> None:
    with Deployment(world, tmp_path, mutations=mutations):
        job = world.started_and_opened()
        old = world.running(job, 1)
        world.linger(old)
        world.evict(job)
        if mutations:
            until("A to be raised beside the old pod", lambda: world.count(job) > count_of(old))
        else:
            assert old["metadata"]["name"] in world.waits(job, "StillRunning")
            assert world.count(job) == count_of(old)
        world.let_go(old)
        world.running(job, 2)
    kept(world, mutations, "may still run")


@both
def test_ready_outlives_its_reservation(cluster: Cluster, tmp_path: Path, mutations: Mutations) -> None:
    """While another check is Pending the queue is held: the quota goes, and no eviction resets our Ready."""
    world = Unguarded(cluster, checks=(names.ADMISSION_CHECK, OTHER)).make()
    with Deployment(world, tmp_path, mutations=mutations):
        job = world.started_and_opened()
        ready(world, job)
        before = world.count(job)
        world.queue(lambda spec: spec.update(stopPolicy="Hold"))
        until("the quota to be given back", lambda: world.condition(job, "QuotaReserved") == "False")
        if not mutations:
            until("our check to be taken back", lambda: world.check(job).get("state") == "Pending")
        world.queue(lambda spec: spec.update(stopPolicy="None"))
        until("quota to be reserved again", lambda: world.condition(job, "QuotaReserved") == "True")
        ready(world, job)
        world.set_check(job, OTHER, "Ready")
        assert (count_of(world.running(job, 1)) > before) is not bool(mutations)
    kept(world, mutations, "admitted, but the check was not set Ready in this reservation")


@both
def test_ready_outlives_its_admission(world: World, tmp_path: Path, mutations: Mutations) -> None:
    """Kueue takes an admission back without an eviction: so its second pass for topologies does beside a new check.

    The one write of that pass is played here: topologies would need nodes that fail.
    """
    world.make_check(OTHER)
    with Deployment(world, tmp_path, mutations=mutations):
        job = world.started_and_opened()
        first = world.running(job, 1)
        world.list_checks(names.ADMISSION_CHECK, OTHER)
        until("the other check to be listed", lambda: world.check(job, OTHER).get("state") == "Pending")
        workload = world.workload(job)
        assert workload is not None
        world.change(names.WORKLOADS, workload["metadata"]["name"], _not_admitted, status=True)
        until("Kueue to stop the job", lambda: world.job(job.meta.name).suspended)
        until("its pod to be gone", lambda: not world.pods_of(job))
        if not mutations:
            until("A to be raised", lambda: world.count(job) > count_of(first))
        ready(world, job)
        world.set_check(job, OTHER, "Ready")
        if mutations:
            world.running_as(job, count_of(first))
        else:
            world.running(job, 2)
    kept(world, mutations, "A must be higher")


def _not_admitted(body: JsonObject) -> None:
    for condition in body["status"]["conditions"]:
        if condition["type"] == "Admitted":
            condition.update(status="False", reason="NoChecks", message="played by a test")
            condition["lastTransitionTime"] = body["status"]["conditions"][0]["lastTransitionTime"]


@pytest.mark.parametrize("mutations", [SUSPENDED_JOBS_ONLY, ()], ids=["suspended-jobs-only", "ours"])
def test_finished_initializer_is_not_waited_for(world: World, tmp_path: Path, mutations: Mutations) -> None:
    """Its Job is never suspended, and its pod stays, Completed, through evictions and admissions."""
    world.give_room(2)
    world.runtime("initialized", initializer)
    asked = world.spec(runtime="initialized")
    with Deployment(world, tmp_path, mutations=mutations):
        job = world.started_and_opened(asked)
        world.pod_ends(world.running(job, 1), "Succeeded")
        node = until("its node to run", lambda: _pod_of(world, job, "node"))
        world.evict(job)
        if mutations:
            until("the node to be gone", lambda: _pod_of(world, job, "node") is None)
            alone = f"may still run: Job {job.meta.name}-dataset-initializer-0 is not"
            until("the mutant to wait for the initializer alone", lambda: alone in world.check(job).get("message", ""))
            assert world.count(job) == count_of(node)
        else:
            until("its node to run again", lambda: _pod_of(world, job, "node", count_of(node) + 1))
    kept(world, ())


def _pod_of(world: World, job: TrainJob, replicated: str, least: int = 1) -> JsonObject | None:
    for pod in world.pods_of(job):
        of = pod["metadata"]["labels"][names.REPLICATED_JOB]
        if of == replicated and pod["status"].get("phase") == "Running" and count_of(pod) >= least:
            return pod
    return None
