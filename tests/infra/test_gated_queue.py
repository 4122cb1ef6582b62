"""Queues behind our check, with the real engine on a real cluster: somebody else's, and our own under other names.

Of somebody else's: our entry is added beside theirs, and no other field is ours; their next apply leaves both; a write
of theirs that drops ours is drift, and mended by the next update; a queue in which jobs could skip the check is
refused, with the reason, and not written; destroy takes our entry alone, and not while a job could start for that. The
rules, without a cluster: another name of the check, lost races, which jobs are in the way.

Of our own: another name of the component changes nothing, by an alias; another ClusterQueue is there, with the check in
it, before the LocalQueue leads to it, and a job that waits goes along.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi_kubernetes as k8s
import pytest
import yaml
from pulumi import Alias, ResourceOptions

from dispatch_gates.cluster.connection import FIELD_MANAGER
from dispatch_gates.contract import names
from dispatch_gates.contract.objects import JsonObject, text
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_gates.requests import ConflictError, Listing, NotFoundError, Operation, Pause, Replace
from dispatch_infra import Flavor, GatedQueue, LocalQueue, QueueArgs
from dispatch_infra.foreign_queue import TRIES, problem, unwire, wire, with_check, without_check
from dispatch_local.api import Api
from dispatch_local.cluster import Cluster
from resources.stacks import Stack
from world import FLAVORS, World, until

THEIRS, OURS = "theirs", "foreign-queue"
ENTRY: JsonObject = {f'k:{{"name":"{OURS}"}}': {".": {}, "f:name": {}}}


@pytest.fixture
def world(cluster: Cluster) -> World:
    world = World(cluster, checks=(THEIRS, OURS), ours=OURS)
    world.make_namespace()
    world.create(FLAVORS, world.namespace, cluster_scoped=True, spec={})
    for check in world.checks:
        if world.get(names.ADMISSION_CHECKS, check, cluster_scoped=True) is None:
            controller = names.CONTROLLER_NAME if check == OURS else "example.com/theirs"
            world.create(names.ADMISSION_CHECKS, check, cluster_scoped=True, spec={"controllerName": controller})
            world.activate(check)
    return world


def manifest(world: World, *covered: str) -> JsonObject:
    """Their ClusterQueue, as they apply it."""
    resources = [{"name": name, "nominalQuota": "10"} for name in covered]
    group = {"coveredResources": list(covered), "flavors": [{"name": world.namespace, "resources": resources}]}
    return {
        "apiVersion": names.CLUSTER_QUEUES.api_version,
        "kind": names.CLUSTER_QUEUES.kind,
        "metadata": {"name": world.namespace},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [group],
            "admissionChecksStrategy": {"admissionChecks": [{"name": THEIRS}]},
        },
    }


def apply(world: World, body: JsonObject) -> None:
    """Apply as they do, on the server's side."""
    config = yaml.safe_load(world.cluster.kubeconfig.read_text())
    endpoint = config["clusters"][0]["cluster"]
    path = f"/apis/{names.CLUSTER_QUEUES.api_version}/{names.CLUSTER_QUEUES.plural}/{world.namespace}"
    with Api(endpoint["server"], Path(endpoint["certificate-authority"]), config["users"][0]["user"]["token"]) as api:
        status, reply = api.request("PATCH", f"{path}?fieldManager=them", body, "application/apply-patch+yaml")
    assert status in (200, 201), reply


def queue(world: World) -> Any:
    found = world.get(names.CLUSTER_QUEUES, world.namespace, cluster_scoped=True)
    assert found is not None
    return found


def checks(world: World) -> list[JsonObject]:
    found = queue(world)["spec"]["admissionChecksStrategy"]["admissionChecks"]
    return sorted(found, key=lambda entry: str(entry["name"]))


def program(world: World) -> None:
    kubeconfig, context = str(world.cluster.kubeconfig), world.cluster.context
    provider = k8s.Provider("cluster", kubeconfig=kubeconfig, context=context)
    args = QueueArgs(
        cluster_queue=world.namespace,
        existing=True,
        admission_check=OURS,
        local_queues=[LocalQueue(name="queue", namespace=world.namespace)],
        kubeconfig=kubeconfig,
        context=context,
    )
    GatedQueue("queue", args, opts=ResourceOptions(provider=provider))


def test_our_entry_and_nothing_else(world: World, stack: Stack) -> None:
    apply(world, manifest(world, "cpu", "pods"))
    before = queue(world)["spec"]
    stack.up(lambda: program(world))
    both = [{"name": OURS}, {"name": THEIRS}]
    assert checks(world) == both
    assert others(queue(world)["spec"]) == others(before)
    assert owned(world) == {"f:spec": {"f:admissionChecksStrategy": {"f:admissionChecks": ENTRY}}}
    again = stack.up(lambda: program(world))
    assert again.unchanged, again.printed

    # Their next apply leaves ours alone, and what was theirs is theirs still: no conflict.
    apply(world, manifest(world, "cpu", "memory", "pods"))
    assert checks(world) == both
    assert stack.refresh().unchanged

    # A write of all of it, without ours.
    def dropped(body: JsonObject) -> None:
        body["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": THEIRS}]}

    world.change(names.CLUSTER_QUEUES, world.namespace, dropped, cluster_scoped=True)
    refreshed = stack.refresh()
    assert not refreshed.unchanged
    assert f"does not list AdmissionCheck {OURS}" in refreshed.printed
    assert stack.up(lambda: program(world))["update"] == 1
    assert checks(world) == both
    assert stack.refresh().unchanged

    job = waits_for_our_check_alone(world)
    printed = stack.destroy_fails()
    assert f"ClusterQueue {world.namespace} still has jobs of dispatch's: {world.namespace}/{job.meta.name}." in printed
    assert checks(world) == both
    assert world.condition(job, "Admitted") != "True"
    world.stop(job)

    stack.destroy()
    assert checks(world) == [{"name": THEIRS}]
    assert queue(world)["spec"]["resourceGroups"] == manifest(world, "cpu", "memory", "pods")["spec"]["resourceGroups"]


def others(spec: JsonObject) -> JsonObject:
    return {key: value for key, value in spec.items() if key != "admissionChecksStrategy"}


def owned(world: World) -> JsonObject:
    """Return the fields of their queue that the API server counts as ours."""
    fields = [entry for entry in queue(world)["metadata"]["managedFields"] if entry["manager"] == FIELD_MANAGER]
    (found,) = fields
    owned: JsonObject = found["fieldsV1"]
    return owned


def waits_for_our_check_alone(world: World) -> TrainJob:
    """Start a job in another LocalQueue of theirs, which Kueue would admit as soon as our check were gone."""
    world.create(names.LOCAL_QUEUES, "another", spec={"clusterQueue": world.namespace})
    world.runtime("kwok", lambda _: None)
    asked = replace(world.spec(), queue="another", priority_class=None)
    job = world.started_and_opened(asked)
    until("a reservation", lambda: world.condition(job, "QuotaReserved") == "True", 60)
    world.set_check(job, THEIRS, "Ready")
    return job


def our_own(world: World, cluster_queue: str, name: str, *aliases: str) -> None:
    kubeconfig, context = str(world.cluster.kubeconfig), world.cluster.context
    provider = k8s.Provider("cluster", kubeconfig=kubeconfig, context=context)
    args = QueueArgs(
        cluster_queue=f"{world.namespace}-{cluster_queue}",
        admission_check=OURS,
        local_queues=[LocalQueue(name="queue", namespace=world.namespace)],
        flavors=[Flavor(name=f"{world.namespace}-flavor")],
    )
    opts = ResourceOptions(provider=provider, aliases=[Alias(name=alias) for alias in aliases])
    GatedQueue(name, args, opts=opts)


def test_other_names(world: World, stack: Stack) -> None:
    stack.up(lambda: our_own(world, "old", "queue"))
    world.runtime("kwok", lambda _: None)
    job = world.started_and_opened(replace(world.spec(), priority_class=None))
    until("a reservation", lambda: reserved_in(world, job) == f"{world.namespace}-old", 60)

    renamed = stack.preview(lambda: our_own(world, "old", "gpus", "queue"))
    assert set(renamed) <= {"same", "read", "discard"}, renamed

    stack.up(lambda: our_own(world, "new", "queue"))
    until("another reservation", lambda: reserved_in(world, job) == f"{world.namespace}-new", 60)
    for name, there in (("old", False), ("new", True)):
        queue = world.get(names.CLUSTER_QUEUES, f"{world.namespace}-{name}", cluster_scoped=True)
        assert (queue is not None) is there
    assert world.check(job)["state"] == "Pending"
    assert world.condition(job, "Admitted") != "True"
    world.stop(job)
    stack.destroy()


def reserved_in(world: World, job: TrainJob) -> str | None:
    return text(world.workload(job), "status", "admission", "clusterQueue")


def test_a_queue_in_which_jobs_skip_the_check_is_refused_and_left_alone(world: World, stack: Stack) -> None:
    apply(world, manifest(world, "cpu"))
    before = queue(world)["spec"]
    printed = stack.up_fails(lambda: program(world))
    assert f"ClusterQueue {world.namespace} does not cover pods" in printed
    assert queue(world)["spec"] == before
    assert world.get(names.LOCAL_QUEUES, "queue") is None
    stack.destroy()


QUEUE: JsonObject = {
    "metadata": {"name": "q", "uid": "u", "resourceVersion": "7"},
    "spec": {
        "resourceGroups": [{"coveredResources": ["cpu", "pods"]}],
        "admissionChecksStrategy": {"admissionChecks": [{"name": "old"}, {"name": THEIRS, "onFlavors": ["spot"]}]},
    },
}


def answered(operation: Operation[str], *replies: Any) -> tuple[str, list[JsonObject]]:
    """Run an operation on the replies of a cluster; return its result, and what it wrote."""
    written = []
    left = iter(replies)
    reply = None
    try:
        while True:
            request = operation.throw(reply) if isinstance(reply, Exception) else operation.send(reply)
            if isinstance(request, Replace):
                written.append(request.body)
            reply = None if isinstance(request, Pause) else next(left)
    except StopIteration as done:
        return done.value, written


def test_another_check_takes_the_place_of_an_earlier_one_in_one_write() -> None:
    wanted = with_check(without_check(QUEUE, "old"), "new")
    found, written = answered(wire("q", "new", instead_of="old"), QUEUE, wanted)
    assert (found, written) == ("", [wanted])
    listed = wanted["spec"]["admissionChecksStrategy"]["admissionChecks"]
    assert listed == [{"name": THEIRS, "onFlavors": ["spot"]}, {"name": "new"}]
    assert wanted["metadata"]["resourceVersion"] == "7"


def test_what_is_there_is_not_written_and_a_lost_race_is_tried_again() -> None:
    assert answered(wire("q", "old"), QUEUE) == ("", [])
    wanted = with_check(QUEUE, "new")
    lost = ConflictError("lost")
    assert answered(wire("q", "new"), QUEUE, lost, QUEUE, wanted) == ("", [wanted, wanted])


def test_a_check_that_its_owner_narrowed_is_told_and_not_widened() -> None:
    found, written = answered(wire("q", THEIRS), QUEUE)
    assert "ClusterQueue q narrows AdmissionCheck theirs to flavors spot" in found
    assert written == []


def workload(owner: str, *, queue: str = "local", **conditions: str) -> JsonObject:
    reference = {"apiVersion": "v", "kind": "TrainJob", "name": owner, "uid": "u", "controller": True}
    return {
        "metadata": {"name": "w", "uid": "u", "resourceVersion": "1", "namespace": "n", "ownerReferences": [reference]},
        "spec": {"queueName": queue},
        "status": {
            "admission": {"clusterQueue": "q"},
            "conditions": [{"type": kind, "status": status} for kind, status in conditions.items()],
        },
    }


JOB = "dj-01arz3ndektsv4rrffq69g5fav-s1"
LOCAL = Listing(({"metadata": {"namespace": "n", "name": "local"}, "spec": {"clusterQueue": "q"}},), "1")
STOPPED = QUEUE | {"spec": QUEUE["spec"] | {"stopPolicy": "Hold"}}
BARE = without_check(QUEUE, "old")


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(workload("somebody-elses"), id="not dispatch's"),
        pytest.param(workload(JOB, Finished="True"), id="it ended"),
        pytest.param(workload(JOB, queue="another", Admitted="True"), id="it runs, and its queue is gone"),
    ],
)
def test_the_check_leaves_a_queue_where_nothing_can_start_for_that(found: JsonObject) -> None:
    assert answered(unwire("q", "old"), QUEUE, Listing((found,), "1"), LOCAL, BARE) == ("", [BARE])


def test_the_check_stays_while_a_job_is_queued_or_running_there() -> None:
    for conditions in ({}, {"Admitted": "True"}):
        found, written = answered(unwire("q", "old"), QUEUE, Listing((workload(JOB, **conditions),), "1"), LOCAL)
        assert f"still has jobs of dispatch's: n/{JOB}." in found
        assert written == []


def test_in_a_stopped_queue_the_reservations_are_waited_for() -> None:
    waits, runs = (Listing((workload(JOB, **found),), "1") for found in ({}, {"Admitted": "True"}))
    done = answered(unwire("q", "old"), STOPPED, waits, STOPPED, runs, without_check(STOPPED, "old"))
    assert done == ("", [without_check(STOPPED, "old")])
    found, written = answered(unwire("q", "old"), *[STOPPED, waits] * TRIES)
    assert (f"n/{JOB}" in found, written) == (True, [])


def test_a_queue_that_is_gone_needs_no_check_taken_out() -> None:
    gone = NotFoundError("gone")
    assert answered(unwire("q", "old"), gone) == ("", [])
    assert answered(problem("q", "old"), gone)[0].startswith("ClusterQueue q does not exist")
