"""Jobs of every shape, on a real control plane: real Kueue, JobSet, Trainer; KWOK runs the pods.

What is tested: a closed job has no pod; A reaches every pod of every replicated job, on every node; jobs with an
initializer, evicted before, between and after its end; a Workload made anew under the same name in the middle of a
pass; eight checks; a job that has ended; a runtime patch and labels that somebody took away; Trainer that is behind.
The judge is the API server's audit log.
"""

from __future__ import annotations

import copy
from collections import Counter
from itertools import count
from typing import Any

import pytest

from dispatch_admission.act import Result
from dispatch_gates.contract import names
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_local.cluster import Cluster
from readmission.passes import Pass, admit, reserved_and_quiet, world_by_request
from world import World, count_of, initializer, until

pytestmark = pytest.mark.usefixtures("surroundings")


def running(world: World, job: TrainJob, number: int, least: int) -> tuple[JsonObject, ...]:
    """Wait until so many pods run with an A of at least so much; return them."""

    def found() -> tuple[JsonObject, ...] | None:
        pods = tuple(
            pod for pod in world.pods_of(job) if pod["status"].get("phase") == "Running" and count_of(pod) >= least
        )
        return pods if len(pods) == number else None

    return until(f"{number} running pods with A of at least {least}", found)


def of(pod: JsonObject) -> str:
    """Return the replicated job that a pod belongs to."""
    return str(pod["metadata"]["labels"][names.REPLICATED_JOB])


def test_closed_job_has_no_pod_and_opened_one_runs_with_1(world: World) -> None:
    job = world.start()
    assert world.condition(job, "QuotaReserved") in ("", "False")
    assert world.job(job.meta.name).count == 0
    assert world.pods_of(job) == ()
    world.open(job)
    world.running(job, 1)
    assert len(world.judged(job)) == 1


def test_preempted_job_waits_for_its_old_pod(world: World) -> None:
    job = world.started_and_opened(priority="low")
    old = world.running(job, 1)
    world.linger(old)
    rival = world.started_and_opened(priority="high")
    world.running(rival, 1)
    # The quota is given back although the old pod is still there; then the rival ends and gives it back too.
    world.set_active(rival, False)
    assert old["metadata"]["name"] in world.waits(job, "StillRunning")
    assert world.count(job) == count_of(old)
    world.let_go(old)
    world.running(job, 2)
    assert len(world.judged(job)) == 2


def wide(jobset: JsonObject) -> None:
    """Edit a runtime: a second replicated job of two Jobs, and pods spread over the nodes."""
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    select = {"labelSelector": {"matchLabels": {names.REPLICATED_JOB: "node"}}}
    node = jobset["replicatedJobs"][0]
    side: dict[str, Any] = copy.deepcopy(node) | {"name": "side", "replicas": 2}
    del side["template"]["metadata"]
    node["template"]["spec"]["template"]["spec"]["topologySpreadConstraints"] = [spread | select]
    jobset["replicatedJobs"].append(side)


def test_several_replicated_jobs_on_several_nodes(world: World) -> None:
    world.give_room(6)
    world.runtime("wide", wide)
    job = world.started_and_opened(world.spec(runtime="wide", numNodes=4))
    first = running(world, job, 6, 1)
    assert Counter(map(of, first)) == {"node": 4, "side": 2}
    assert len({count_of(pod) for pod in first}) == 1
    assert len({pod["spec"]["nodeName"] for pod in first if of(pod) == "node"}) == 2
    late = [next(pod for pod in first if of(pod) == name) for name in ("node", "side")]
    for pod in late:
        world.linger(pod)
    world.evict(job)
    message = world.waits(job, "StillRunning")
    assert all(pod["metadata"]["name"] in message for pod in late)
    world.let_go(late[0])
    until("one pod to be waited for", lambda: late[0]["metadata"]["name"] not in world.waits(job, "StillRunning"))
    assert world.count(job) == count_of(late[1])
    world.let_go(late[1])
    second = running(world, job, 6, count_of(first[0]) + 1)
    assert len({count_of(pod) for pod in second}) == 1
    assert len(world.judged(job)) == 2


@pytest.mark.depends_on
def test_evicted_before_between_and_after_the_initializers_end(world: World) -> None:
    world.give_room(2)
    world.runtime("initialized", initializer)
    job = world.started_and_opened(world.spec(runtime="initialized"))
    # Before: it runs again, with the next A.
    (first,) = running(world, job, 1, 1)
    world.evict(job)
    (again,) = running(world, job, 1, count_of(first) + 1)
    assert [of(first), of(again)] == ["dataset-initializer"] * 2
    # Between: it is done, and JobSet is slow to create the Job that waits for it. Until that is there, A stays.
    with world.only(names.JOBS, '!object.metadata.name.contains("-node-")', operation="CREATE"):
        world.pod_ends(again, "Succeeded")
        until("the initializer to be done", lambda: _complete(world, job))
        # JobSet counts only in a pass that creates what it wants to, and Kueue waits until nothing is active.
        world.change(names.JOBSETS, job.meta.name, _counted, status=True)
        world.evict(job)
        assert f"Job {job.meta.name}-node-0 does not exist yet" in world.waits(job, "StillRunning")
        assert world.count(job) == count_of(again)
    (node,) = running(world, job, 1, count_of(again) + 1)
    assert of(node) == "node"
    # After: it does not run again.
    world.evict(job)
    (last,) = running(world, job, 1, count_of(node) + 1)
    assert of(last) == "node"
    assert [count_of(pod) for pod in world.pods_of(job) if of(pod) != "node"] == [count_of(again)]
    assert len(world.judged(job)) == 4


def _counted(jobset: JsonObject) -> None:
    """Count as JobSet would, if the initializer is done."""
    for entry in jobset["status"]["replicatedJobsStatus"]:
        if entry["name"] == "dataset-initializer":
            entry.update(active=0, ready=0, succeeded=1)


def _complete(world: World, job: TrainJob) -> bool:
    jobs = world.list(names.JOBS, f"{names.JOBSET_NAME}={job.meta.name}")
    conditions = [entry for batch in jobs for entry in (batch.get("status") or {}).get("conditions") or []]
    return any(entry["type"] == "Complete" and entry["status"] == "True" for entry in conditions)


def test_workload_made_anew_under_the_same_name_while_a_pass_is_under_way(cluster: Cluster) -> None:
    world = world_by_request(cluster)
    job = world.started_and_opened()
    for requests in count(1):
        reserved_and_quiet(world, job)
        under_way = Pass(world, job)
        under_way.steps(requests)
        if under_way.over:
            break
        _made_anew(world, job)
        until("it to have quota", lambda: world.condition(job, "QuotaReserved") == "True")
        until("Kueue to list the check", lambda: world.check(job))  # in a write of its own
        check, raised = world.check(job), world.count(job)
        outcome = under_way.finish()
        assert outcome.result in (Result.CONFLICT, Result.NOTHING), outcome
        assert world.check(job) == check
        assert world.count(job) - raised in (0, 1)
    assert requests > 5
    world.running_as(job, world.count(job))
    world.evict(job)
    world.running_as(job, admit(world, job))
    assert len(world.judged(job)) == 2


def _made_anew(world: World, job: TrainJob) -> None:
    """Delete the job's Workload, and wait until Kueue has made another one of that name."""
    workload = world.workload(job)
    assert workload is not None
    name, uid = workload["metadata"]["name"], workload["metadata"]["uid"]
    world.delete(names.WORKLOADS, name)

    def another() -> bool:
        found = world.workload(job)
        return found is not None and found["metadata"]["uid"] != uid

    until("another Workload", another)
    assert world.get(names.WORKLOADS, name) is not None


def test_eight_checks(cluster: Cluster) -> None:
    others = tuple(f"other-{number}" for number in range(7))
    world = World(cluster, checks=(*others[:4], names.ADMISSION_CHECK, *others[4:])).make()
    job = world.started_and_opened()
    for execution in (1, 2):
        until("our check to be Ready", lambda: world.check(job).get("state") == "Ready")
        # Ours was set, and nobody else's.
        assert {world.check(job, other)["state"] for other in others} == {"Pending"}
        assert len(((world.workload(job) or {}).get("status") or {})["admissionChecks"]) == 8
        for other in others:
            world.set_check(job, other, "Ready")
        world.running(job, execution)
        if execution == 1:
            world.evict(job)
    assert len(world.judged(job)) == 2


def test_ended_job_is_left_alone(world: World) -> None:
    job = world.started_and_opened()
    pod = world.running(job, 1)
    world.pod_ends(pod, "Succeeded")
    until("the job to be complete", lambda: world.job(job.meta.name).ended)
    until("its Workload to be finished", lambda: world.condition(job, "Finished") == "True")
    before = world.check(job)
    # Its quota is free again; once the next job runs, the controller has seen the end of this one.
    after = world.started_and_opened()
    world.running(after, 1)
    world.set_active(job, False)
    world.evict(after)
    world.running(after, 2)
    assert world.check(job) == before
    assert world.count(job) == count_of(pod)
    assert [each["metadata"]["uid"] for each in world.pods_of(job)] == [pod["metadata"]["uid"]]
    assert len(world.judged(job)) == 1


def test_patch_and_labels_that_were_taken_away(cluster: Cluster) -> None:
    """The job is known by its name: the patch comes back with the next A, and nothing runs without one.

    Where the guard rails hold, nobody can take them away.
    """
    world = World(cluster, guarded=False).make()
    job = world.started_and_opened()
    old = world.running(job, 1)
    world.linger(old)
    world.evict(job)
    world.waits(job, "StillRunning")

    def strip(body: JsonObject) -> None:
        body["metadata"]["labels"].pop(names.ULID_LABEL)
        patches = body["spec"]["runtimePatches"]
        body["spec"]["runtimePatches"] = [patch for patch in patches if patch["manager"] != names.PATCH_MANAGER]

    world.change(names.TRAINJOBS, job.meta.name, strip)
    assert world.job(job.meta.name).count is None
    world.let_go(old)
    assert count_of(world.running(job, 2)) > count_of(old)
    assert world.count(job) > count_of(old)
    # The judge notices what was done, and no broken promise.
    assert [line for line in world.violations() if "A cannot be read: []" not in line] == []
    executions = [a for a, _ in world.timeline().jobs[f"{world.namespace}/{job.meta.name}"].resumes]
    assert len(executions) == 2


def test_trainer_sleeps_through_an_execution_and_wakes_in_the_next_reservation(world: World) -> None:
    job = world.start()
    until("the JobSet to carry A=0", lambda: world.get(names.JOBSETS, job.meta.name))
    # Not by SIGSTOP, which would also stop the webhooks that every write to a TrainJob needs.
    with world.only(names.JOBSETS, 'request.userInfo.username.indexOf("kubeflow") < 0'):
        world.open(job)
        # A is raised, but it does not arrive: the wait is named, and A is not raised again and again.
        world.waits(job, "TrainerBehind")
        raised = world.count(job)
        world.evict(job)
        world.waits(job, "TrainerBehind")
        assert world.count(job) == raised
    world.running(job, 1)
    assert len(world.judged(job)) == 1
