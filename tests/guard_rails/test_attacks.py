"""Whoever has a token of the controller's, or edits the namespace, tries what the gates are to keep from happening.

Aspects: the controller's own token, with the rights that infra/ gives it; a tenant with the built-in role `edit` and,
more than any chart gives, every right on TrainJobs, JobSets and Workloads of the namespace, status included. Each try
is a real request with a real token on a cluster where everybody works, and is refused, by the API server's rights or
by the rule that is named here. What is not refused is in infra/README.md; the last tests show some of it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from dispatch_gates.contract import names
from dispatch_gates.contract.count import runtime_patch
from dispatch_gates.contract.names import Resource
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_local.api import Api
from dispatch_local.cluster import Cluster
from world import (
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    ControllerProcess,
    World,
    controller_kubeconfig,
    count_of,
    token_of,
    until,
)

RIGHTS = "by its rights"
SECRETS = Resource("", "v1", "secrets", "Secret")
RBAC = "rbac.authorization.k8s.io"
EVERYTHING = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]


class Attacker:
    """One token, and the requests that it is tried with."""

    def __init__(self, cluster: Cluster, token: str) -> None:
        endpoint = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
        self._api = Api(endpoint["server"], Path(endpoint["certificate-authority"]), token)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> str:
        """Return what was said, empty where it was done."""
        status, reply = self._api.request(method, path, body, more_headers=headers)
        return "" if 200 <= status < 300 else str(json.loads(reply)["message"])

    def merge(self, path: str, body: Any) -> str:
        status, reply = self._api.request("PATCH", path, body, "application/merge-patch+json")
        return "" if 200 <= status < 300 else str(json.loads(reply)["message"])

    def close(self) -> None:
        self._api.__exit__()


@dataclass
class Stage:
    """A job that runs, one that is gated, and who attacks them."""

    world: World
    elsewhere: World
    running: TrainJob
    pod: JsonObject
    gated: TrainJob
    foreign: JsonObject
    tenant: Attacker
    controller: Attacker

    def path(self, resource: Resource, name: str = "", sub: str = "", namespace: str | None = None) -> str:
        group = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
        space = namespace if namespace is not None else self.world.namespace
        parts = [group, *(["namespaces", space] if space else []), resource.plural, name, sub]
        return "/".join(part for part in parts if part)

    def changed(
        self, who: Attacker, resource: Resource, name: str, edit: Callable[[JsonObject], object], sub: str = ""
    ) -> str:
        """Read as the administrator, edit, and have `who` put it back."""
        for _ in range(50):
            raw = self.world.get(resource, name)
            assert raw is not None, name
            body = copy.deepcopy(raw)
            edit(body)
            said = who.ask("PUT", self.path(resource, name, sub), body)
            if "object has been modified" not in said:
                return said
        raise AssertionError(f"{name} never stood still")

    def workload(self, job: TrainJob) -> str:
        found = self.world.workload(job)
        assert found is not None
        return str(found["metadata"]["name"])

    def batch(self, job: TrainJob) -> str:
        return f"{job.meta.name}-node-0"


@pytest.fixture(scope="module")
def stage(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    world, elsewhere = World(cluster, pods=10).make(), World(cluster, guarded=False).make()
    folder = tmp_path_factory.mktemp("attacks")
    with ControllerProcess(world, folder, lease="attacks"):
        running, gated = world.started_and_opened(), world.start()
        pod = world.running(running, 1)
        foreign = elsewhere.create(names.TRAINJOBS, "foreign", spec={**world.spec().spec, "suspend": True})
        config = json.loads(controller_kubeconfig(world, folder / "controller").read_text())
        stage = Stage(
            world,
            elsewhere,
            running,
            pod,
            gated,
            foreign,
            tenant=Attacker(cluster, tenant_token(world)),
            controller=Attacker(cluster, config["users"][0]["user"]["token"]),
        )
        yield stage
        stage.tenant.close()
        stage.controller.close()


def tenant_token(world: World) -> str:
    """Make a ServiceAccount that edits the namespace, and more."""
    world.create(SERVICE_ACCOUNTS, "tenant")
    groups = [names.TRAINJOBS.group, names.JOBSETS.group, names.WORKLOADS.group]
    world.create(ROLES, "more", rules=[{"apiGroups": groups, "resources": ["*"], "verbs": EVERYTHING}])
    subject = {"kind": "ServiceAccount", "name": "tenant", "namespace": world.namespace}
    for name, kind in (("edit", "ClusterRole"), ("more", "Role")):
        role = {"apiGroup": RBAC, "kind": kind, "name": name}
        world.create(ROLE_BINDINGS, f"tenant-{name}", roleRef=role, subjects=[subject])
    return token_of(world, "tenant")


def patch_of(job: JsonObject) -> JsonObject:
    """Return our runtime patch."""
    found: JsonObject = next(each for each in job["spec"]["runtimePatches"] if each["manager"] == names.PATCH_MANAGER)
    return found


def count(to: str) -> Callable[[JsonObject], None]:
    def edit(body: JsonObject) -> None:
        (job,) = patch_of(body)["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        job["template"]["spec"]["template"]["metadata"]["annotations"][names.ADMISSION_COUNT] = to

    return edit


def without_patch(body: JsonObject) -> None:
    body["spec"]["runtimePatches"].remove(patch_of(body))


def state(check: str, to: str) -> Callable[[JsonObject], None]:
    def edit(body: JsonObject) -> None:
        next(each for each in body["status"]["admissionChecks"] if each["name"] == check)["state"] = to

    return edit


def admitted(body: JsonObject) -> None:
    time = "2026-01-01T00:00:00Z"
    conditions = body.setdefault("status", {}).setdefault("conditions", [])
    conditions[:] = [each for each in conditions if each["type"] != "Admitted"]
    conditions.append(
        {"type": "Admitted", "status": "True", "reason": "Attack", "message": "", "lastTransitionTime": time}
    )


def drop(*path: str) -> Callable[[JsonObject], object]:
    def edit(body: JsonObject) -> None:
        at = body
        for key in path[:-1]:
            at = at[key]
        del at[path[-1]]

    return edit


def put(*path: str, to: Any) -> Callable[[JsonObject], object]:
    def edit(body: JsonObject) -> None:
        at = body
        for key in path[:-1]:
            at = at.setdefault(key, {})
        at[path[-1]] = to

    return edit


GATE = ("metadata", "annotations", names.ADMISSION_GATED_BY)
Attack = Callable[[Stage], str]


def on_trainjob(job: str, edit: Callable[[JsonObject], object]) -> Attack:
    return lambda stage: stage.changed(stage.tenant, names.TRAINJOBS, getattr(stage, job).meta.name, edit)


def on_workload(job: str, edit: Callable[[JsonObject], object], sub: str = "") -> Attack:
    def attack(stage: Stage) -> str:
        return stage.changed(stage.tenant, names.WORKLOADS, stage.workload(getattr(stage, job)), edit, sub)

    return attack


def on_pod(edit: Callable[[JsonObject], object]) -> Attack:
    def attack(stage: Stage) -> str:
        pod = stage.world.pods_of(stage.running)[0]
        return stage.changed(stage.tenant, names.PODS, pod["metadata"]["name"], edit)

    return attack


def new_job(stage: Stage) -> str:
    body = stage.world.get(names.TRAINJOBS, stage.gated.meta.name)
    assert body is not None
    name = stage.gated.meta.name[:-1] + "2"
    metadata = {"name": name, "labels": body["metadata"]["labels"], "annotations": body["metadata"]["annotations"]}
    spec = body["spec"] | {"runtimePatches": [runtime_patch(0, ["node"])]}
    return stage.tenant.ask("POST", stage.path(names.TRAINJOBS), body | {"metadata": metadata, "spec": spec})


def pod_by_hand(stage: Stage) -> str:
    pod = stage.world.pods_of(stage.running)[0]
    metadata = {key: pod["metadata"][key] for key in ("labels", "annotations")} | {"name": "by-hand"}
    spec = {"containers": [{"name": "c", "image": "dispatch.local/pause:1"}]}
    return stage.tenant.ask("POST", stage.path(names.PODS), pod | {"metadata": metadata, "spec": spec, "status": {}})


def job_by_hand(stage: Stage) -> str:
    batch = stage.world.get(names.JOBS, stage.batch(stage.running))
    assert batch is not None
    metadata = {"name": "by-hand", "labels": batch["metadata"]["labels"]}
    template = copy.deepcopy(batch["spec"]["template"])
    template["metadata"]["labels"] = {}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
    return stage.tenant.ask("POST", stage.path(names.JOBS), body)


def jobset_by_hand(stage: Stage) -> str:
    found = stage.world.get(names.JOBSETS, stage.running.meta.name)
    assert found is not None
    body = {key: found[key] for key in ("apiVersion", "kind", "spec")}
    name = stage.running.meta.name[:-1] + "3"
    return stage.tenant.ask("POST", stage.path(names.JOBSETS), body | {"metadata": {"name": name}})


def token_of_the_controller(stage: Stage) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = stage.path(SERVICE_ACCOUNTS, names.CONTROLLER, "token", names.CONTROLLER_NAMESPACE)
    return stage.tenant.ask("POST", path, body)


def as_user(user: str) -> Attack:
    def attack(stage: Stage) -> str:
        headers = {"Impersonate-User": user}
        return stage.tenant.ask("GET", stage.path(names.TRAINJOBS), None, **headers)

    return attack


def deleted(resource: Resource, name: Callable[[Stage], str]) -> Attack:
    return lambda stage: stage.tenant.ask("DELETE", stage.path(resource, name(stage)))


def of_cluster(method: str, resource: Resource, name: str) -> Attack:
    return lambda stage: stage.tenant.ask(method, stage.path(resource, name, namespace=""))


TENANT: dict[str, tuple[Attack, str]] = {
    "open a gate": (on_trainjob("gated", drop(*GATE)), "gate-by-the-adapter"),
    "open a gate in the Workload": (on_workload("gated", drop(*GATE)), "gate-by-kueue"),
    "raise A": (on_trainjob("gated", count("5")), "count-by-who-owns-it"),
    "lower A": (on_trainjob("running", count("0")), "count-only-grows"),
    "strip the runtime patch": (on_trainjob("gated", without_patch), "count-only-grows"),
    "resume a job": (on_trainjob("gated", put("spec", "suspend", to=False)), "suspend-by-who-owns-it"),
    "suspend a job": (on_trainjob("running", put("spec", "suspend", to=True)), "suspend-by-who-owns-it"),
    "take a job out of its queue": (on_trainjob("gated", drop("metadata", "labels", names.QUEUE_NAME)), "queue-stays"),
    "strip the label": (on_trainjob("gated", drop("metadata", "labels", names.ULID_LABEL)), "marks-by-the-adapter"),
    "forge the opened mark": (
        on_trainjob("gated", put("metadata", "annotations", names.OPENED, to="true")),
        "marks-by-the-adapter",
    ),
    "start a job": (new_job, "created-by-the-adapter"),
    "set the check Ready": (
        on_workload("gated", state(names.ADMISSION_CHECK, "Ready"), "status"),
        "ready-by-the-controller",
    ),
    "admit a Workload": (on_workload("gated", admitted, "status"), "admission-by-kueue"),
    "move a Workload": (on_workload("gated", put("spec", "queueName", to="other")), "owner-and-queue-stay"),
    "disown a Workload": (on_workload("gated", drop("metadata", "ownerReferences")), "owner-and-queue-stay"),
    "delete a JobSet": (deleted(names.JOBSETS, lambda stage: stage.running.meta.name), "deleted-with-its-job"),
    "resume a JobSet": (
        lambda stage: stage.changed(
            stage.tenant, names.JOBSETS, stage.gated.meta.name, put("spec", "suspend", to=False)
        ),
        "changed-by-its-managers",
    ),
    "make a JobSet": (jobset_by_hand, "created-by-trainer"),
    "resume a Job": (
        lambda stage: stage.changed(
            stage.tenant, names.JOBS, stage.batch(stage.gated), put("spec", "suspend", to=False)
        ),
        "resumed-with-a-higher-count",
    ),
    "delete a Job": (deleted(names.JOBS, lambda stage: stage.batch(stage.running)), "deleted-with-its-jobset"),
    "make a Job": (job_by_hand, "created-by-jobset"),
    "run a pod of a job": (pod_by_hand, "created-by-the-job-controller"),
    "hide a pod": (on_pod(drop("metadata", "labels", names.JOBSET_NAME)), "identity-stays"),
    "change a pod's A": (on_pod(put("metadata", "annotations", names.ADMISSION_COUNT, to="9")), "identity-stays"),
    "be the controller": (
        as_user(f"system:serviceaccount:{names.CONTROLLER_NAMESPACE}:{names.CONTROLLER}"),
        RIGHTS,
    ),
    "be Kueue": (as_user("system:serviceaccount:kueue-system:kueue-controller-manager"), RIGHTS),
    "be an administrator": (as_user("dispatch-local-admin"), RIGHTS),
    "get the controller's token": (token_of_the_controller, RIGHTS),
    "delete a policy": (of_cluster("DELETE", names.POLICIES, "dispatch-jobs"), RIGHTS),
    "delete a binding": (of_cluster("DELETE", names.POLICY_BINDINGS, "dispatch-jobs"), RIGHTS),
    "take the label off the namespace": (
        lambda stage: stage.tenant.merge(
            stage.path(names.NAMESPACES, stage.world.namespace, namespace=""),
            {"metadata": {"labels": {names.GUARDED: None}}},
        ),
        RIGHTS,
    ),
}


def by_controller(resource: Resource, name: str, edit: Callable[[JsonObject], object], sub: str = "") -> Attack:
    def attack(stage: Stage) -> str:
        job = getattr(stage, name)
        called = stage.workload(job) if resource is names.WORKLOADS else job.meta.name
        return stage.changed(stage.controller, resource, called, edit, sub)

    return attack


def foreign_job(stage: Stage) -> str:
    name, namespace = stage.foreign["metadata"]["name"], stage.elsewhere.namespace
    body = stage.elsewhere.get(names.TRAINJOBS, name)
    assert body is not None
    body["metadata"].setdefault("labels", {})["a"] = "b"
    return stage.controller.ask("PUT", stage.path(names.TRAINJOBS, name, namespace=namespace), body)


def other_check_of_the_cluster(stage: Stage) -> str:
    body = stage.world.create(
        names.ADMISSION_CHECKS,
        f"other-{stage.world.namespace}",
        cluster_scoped=True,
        spec={"controllerName": "example.com/other"},
    )
    return stage.controller.ask(
        "PUT", stage.path(names.ADMISSION_CHECKS, body["metadata"]["name"], "status", namespace=""), body
    )


def asked(method: str, resource: Resource, name: Callable[[Stage], str], namespace: str | None = None) -> Attack:
    return lambda stage: stage.controller.ask(
        method, stage.path(resource, name(stage), namespace=namespace), {} if method == "POST" else None
    )


ALONE = "our-entry-and-nothing-else"
CONTROLLER: dict[str, tuple[Attack, str]] = {
    "admit a Workload": (by_controller(names.WORKLOADS, "gated", admitted, "status"), ALONE),
    "clear a reservation": (by_controller(names.WORKLOADS, "running", drop("status", "admission"), "status"), ALONE),
    "take a check out": (by_controller(names.WORKLOADS, "running", drop("status", "admissionChecks"), "status"), ALONE),
    "set Ready without a reservation": (
        by_controller(names.WORKLOADS, "gated", state(names.ADMISSION_CHECK, "Ready"), "status"),
        "ready-for-an-open-reservation",
    ),
    "reject a Workload": (
        by_controller(names.WORKLOADS, "running", state(names.ADMISSION_CHECK, "Rejected"), "status"),
        "state-and-message-alone",
    ),
    "change a Workload": (by_controller(names.WORKLOADS, "running", put("spec", "active", to=False)), RIGHTS),
    # Two policies refuse these two, and either may be the one that is quoted.
    "open a gate": (
        by_controller(names.TRAINJOBS, "gated", drop(*GATE)),
        "gate-by-the-adapter or the-count-and-nothing-else",
    ),
    "resume a job": (
        by_controller(names.TRAINJOBS, "gated", put("spec", "suspend", to=False)),
        "suspend-by-who-owns-it or the-count-and-nothing-else",
    ),
    "change another's job": (foreign_job, "a-job-of-dispatch"),
    "answer for another check": (other_check_of_the_cluster, RIGHTS),
    "read a secret": (asked("GET", SECRETS, lambda _: "any"), RIGHTS),
    "list secrets": (asked("GET", SECRETS, lambda _: "", names.CONTROLLER_NAMESPACE), RIGHTS),
    "delete a TrainJob": (asked("DELETE", names.TRAINJOBS, lambda stage: stage.gated.meta.name), RIGHTS),
    "delete a Workload": (asked("DELETE", names.WORKLOADS, lambda stage: stage.workload(stage.gated)), RIGHTS),
    "delete a pod": (asked("DELETE", names.PODS, lambda _: "any"), RIGHTS),
    "run a pod": (asked("POST", names.PODS, lambda _: ""), RIGHTS),
    "take another Lease": (asked("GET", names.LEASES, lambda _: "other", names.CONTROLLER_NAMESPACE), RIGHTS),
}


def refused(said: str, why: str) -> bool:
    if why == RIGHTS:
        return "cannot" in said and "ValidatingAdmissionPolicy" not in said
    return any(f"denied request: {rule}: " in said for rule in why.split(" or "))


@pytest.mark.parametrize("attack", TENANT)
def test_a_tenant_cannot(stage: Stage, attack: str) -> None:
    tried, why = TENANT[attack]
    said = tried(stage)
    assert refused(said, why), said or "it was done"


@pytest.mark.parametrize("attack", CONTROLLER)
def test_the_controllers_token_cannot(stage: Stage, attack: str) -> None:
    tried, why = CONTROLLER[attack]
    said = tried(stage)
    assert refused(said, why), said or "it was done"


def test_after_all_that_the_job_runs_on_and_the_gated_one_is_gated(stage: Stage) -> None:
    world = stage.world
    assert [pod["metadata"]["uid"] for pod in world.pods_of(stage.running)] == [stage.pod["metadata"]["uid"]]
    assert world.job(stage.gated.meta.name).gates.ours
    assert world.pods_of(stage.gated) == ()


def test_a_tenant_may_delete_a_workload_and_the_job_passes_the_check_again(stage: Stage) -> None:
    world = stage.world
    before = count_of(world.running(stage.running, 1))
    assert stage.tenant.ask("DELETE", stage.path(names.WORKLOADS, stage.workload(stage.running))) == ""
    pod = world.running(stage.running, 2)
    assert count_of(pod) > before


def test_a_tenant_may_deactivate_a_job_and_activate_it(stage: Stage) -> None:
    world = stage.world
    pod = world.running(stage.running, 2)
    for active in (False, True):
        said = stage.changed(
            stage.tenant, names.WORKLOADS, stage.workload(stage.running), put("spec", "active", to=active)
        )
        assert said == ""
        if not active:
            until("the pod to be gone", lambda: not world.pods_of(stage.running))
    assert count_of(world.running(stage.running, 3)) > count_of(pod)
