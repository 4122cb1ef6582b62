"""`infra/` on a real cluster, with the real engine and the controller's own image.

Aspects: after `up` all of it serves, and jobs are readmitted as they should be; the order, from the versions of the
objects; a second `up` changes nothing and `refresh` finds nothing; what somebody changed or took away; another image,
another level and another name of the check, and back; the controller's account can do what its table says and nothing
else; a setting that is not valid; destroy with a job that runs, and with one that waits at the check and nobody to
serve it: no job is admitted, nothing hangs, nothing is left.

The order of these tests is that of the installation's life. From the first change on a job runs and another one waits
at the check, and the audit log says of both that no execution began without it.
"""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dispatch_gates.cluster import Target, run
from dispatch_gates.contract import names
from dispatch_gates.contract.guard_rails import POLICIES, Level
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_gates.operations.guard_rails import guard_rails
from dispatch_gates.operations.stop import stop
from dispatch_infra import rights
from dispatch_local import images, paths
from dispatch_local.cluster import Cluster
from dispatch_local.node import REAL_NODE
from infra.installation import ON_THE_NODE, Installation, InstalledController, Server, Version, condition
from logged import refused, requests
from readmission.kinds import KINDS, begin
from readmission.surroundings import Surroundings
from world import ADAPTER_ACCOUNT, WAIT_SECONDS, Deployment, World

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
SYSTEM, TEAM, NAME = "infra-test-system", "infra-test", "infra-test"
CONTROLLER = "dispatch-admission"
ACCOUNT = f"system:serviceaccount:{SYSTEM}:{CONTROLLER}"
CONFIG = ON_THE_NODE | {
    "namespace": SYSTEM,
    "admissionCheck": NAME,
    "clusterQueue": NAME,
    "localQueues": [{"name": NAME, "namespace": TEAM}],
    "flavors": [{"name": NAME, "quotas": {"cpu": 2}}],
    "priorityClasses": [{"name": NAME, "value": 1000}],
}

CHECK = f"{KUEUE}/admissionchecks/{NAME}"
CLUSTER_QUEUE = f"{KUEUE}/clusterqueues/{NAME}"
LOCAL_QUEUE = f"{KUEUE}/namespaces/{TEAM}/localqueues/{NAME}"
WORKLOADS = f"{KUEUE}/namespaces/{TEAM}/workloads"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{CONTROLLER}"
BINDING = f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{SYSTEM}:{CONTROLLER}"
ROLE = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{SYSTEM}:{CONTROLLER}"
NAMESPACE = f"/api/v1/namespaces/{SYSTEM}"
PODS = f"/api/v1/namespaces/{SYSTEM}/pods"
POLICY = f"/apis/{names.POLICIES.api_version}/{names.POLICIES.plural}"
POLICY_BINDING = f"/apis/{names.POLICIES.api_version}/{names.POLICY_BINDINGS.plural}"
TEAM_NAMESPACE = f"/api/v1/namespaces/{TEAM}"


@dataclass(frozen=True)
class Live:
    """The installation after its first `up`, with what the tests look at."""

    installation: Installation
    outputs: dict[str, Any]
    server: Server
    start: int
    """The cluster's version before the first `up`."""


@pytest.fixture(scope="module")
def live(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    installation = Installation(cluster, tmp_path_factory.mktemp("infra"), CONFIG)
    server = Server(cluster)
    hold_image(cluster, server)
    start = server.now()
    server.post("/api/v1/namespaces", {"metadata": {"name": TEAM}})
    try:
        outputs = installation.up()
        yield Live(installation, outputs, server, start)
    finally:
        # A job that a failed test left would keep the queue.
        server.delete(f"/apis/{names.TRAINJOBS.api_version}/namespaces/{TEAM}/{names.TRAINJOBS.plural}")
        installation.destroy()
        server.delete(f"/api/v1/namespaces/{TEAM}")


def hold_image(cluster: Cluster, server: Server) -> None:
    """Put the controller's image on the node, if a cluster that was kept holds only an older one."""
    node = server.get(f"/api/v1/nodes/{REAL_NODE}")
    if CONFIG["image"] not in {name for image in node["status"]["images"] for name in image["names"]}:
        cluster.load_image(images.build(paths.cache() / "images", ["controller"], print)["controller"])


@dataclass(frozen=True)
class Jobs:
    """Two jobs in the installation's queue."""

    world: World
    running: TrainJob
    waiting: TrainJob
    """Evicted and admitted again as far as the check, where it waits for `old`."""
    old: JsonObject

    def assert_as_they_were(self) -> None:
        """Fail unless the one runs on and the other one waits on."""
        assert condition(self.world.workload(self.running), "Admitted") == "True"
        assert [pod["status"]["phase"] for pod in self.world.pods_of(self.running)] == ["Running"]
        self.world.waits(self.waiting, "StillRunning")
        assert condition(self.world.workload(self.waiting), "Admitted") != "True"


@pytest.fixture(scope="module")
def jobs(live: Live) -> Jobs:
    world = World(live.installation.cluster, TEAM, ours=NAME)
    world.runtime("kwok", lambda _: None)
    running, waiting = (
        world.started_and_opened(replace(world.spec(), queue=NAME, priority_class=None)) for _ in range(2)
    )
    world.running(running, 1)
    old = world.running(waiting, 1)
    world.linger(old)
    world.evict(waiting)
    assert old["metadata"]["name"] in world.waits(waiting, "StillRunning")
    return Jobs(world, running, waiting, old)


def another(archive: Path, folder: Path) -> tuple[str, Path]:
    """Return an image under another name, and the archive that has it."""
    name = "dispatch.local/controller:another"
    copy = folder / "another.tar"
    with tarfile.open(archive) as source, tarfile.open(copy, "w") as target:
        for entry in source:
            content = source.extractfile(entry)
            if entry.name == "index.json":
                assert content is not None
                text = content.read().replace(str(CONFIG["image"]).encode(), name.encode())
                entry.size, content = len(text), io.BytesIO(text)
            target.addfile(entry, content)
    return name, copy


def eventually(what: str, holds: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)


def test_the_controller_is_available(live: Live) -> None:
    assert live.server.get(DEPLOYMENT)["status"]["availableReplicas"] == 2
    pods = live.server.get(PODS)["items"]
    assert [status["restartCount"] for pod in pods for status in pod["status"]["containerStatuses"]] == [0, 0]


def test_the_check_and_its_queues_are_active(live: Live) -> None:
    queue = live.server.get(CLUSTER_QUEUE)
    assert condition(live.server.get(CHECK), "Active") == "True"
    assert condition(queue, "Active") == "True"
    assert condition(live.server.get(LOCAL_QUEUE), "Active") == "True"
    assert queue["spec"]["admissionChecksStrategy"]["admissionChecks"] == [{"name": NAME}]
    assert queue["spec"]["resourceGroups"][0]["coveredResources"] == ["cpu", "pods"]
    assert live.outputs["ready"] is True
    assert live.outputs["localQueues"] == [{"name": NAME, "namespace": TEAM}]


def test_nothing_was_ever_half_wired(live: Live) -> None:
    def available(version: Version) -> bool:
        return bool(version.body["status"].get("availableReplicas") == 2)

    one_by_one = (BINDING, DEPLOYMENT, CHECK, CLUSTER_QUEUE, LOCAL_QUEUE, TEAM_NAMESPACE)
    pairs = [path for name in POLICIES[Level.ADMISSIONS] for path in (f"{POLICY}/{name}", f"{POLICY_BINDING}/{name}")]
    found = live.server.histories(live.start, *one_by_one, *pairs)
    binding, deployment, check, queue, local_queue, namespace = found[: len(one_by_one)]
    policies = found[len(one_by_one) :]
    order = [
        binding[0].order,
        deployment[0].order,
        next(version.order for version in deployment if available(version)),
        check[0].order,
        next(version.order for version in check if version.condition("Active") == "True"),
        queue[0].order,
        next(version.order for version in queue if version.condition("Active") == "True"),
        local_queue[0].order,
    ]
    assert order == sorted(order)
    labelled = next(version.order for version in namespace if names.GUARDED in version.body["metadata"]["labels"])
    for policy, bound in zip(policies[::2], policies[1::2], strict=True):
        assert policy[0].order < bound[0].order < local_queue[0].order
    assert labelled < local_queue[0].order
    # From the queue's first version on, our check stands in it, before every flavor.
    for version in queue:
        assert version.body["spec"]["admissionChecksStrategy"] == {"admissionChecks": [{"name": NAME}]}


def test_the_guard_rails_are_in_force_where_the_queue_is(live: Live) -> None:
    assert live.outputs["guardRails"] == "admissions"
    assert level(live, TEAM) is Level.ADMISSIONS
    assert level(live, SYSTEM) is Level.NO


def level(live: Live, namespace: str) -> Level:
    cluster = live.installation.cluster
    return run(Target(str(cluster.kubeconfig), cluster.context), guard_rails(namespace)).level


@pytest.mark.parametrize("kind", ["preempted", "pod-lingers", "held-and-released", "controller-killed"])
def test_the_readmission_gate_keeps_its_promise(live: Live, kind: str, tmp_path: Path) -> None:
    """Some kinds of runs of tests/readmission; `make test-installed` plays all of them. Nobody is refused anything."""
    cluster = live.installation.cluster
    since = cluster.audit_log.stat().st_size
    controllers, second = InstalledController(cluster, SYSTEM), Deployment(World(cluster), tmp_path)
    played = begin(KINDS[kind], cluster, Surroundings(cluster, controllers, second), Random(kind), check=NAME)
    KINDS[kind].play(played)
    assert len(played.world.judged(played.job)) >= 2
    played.world.stop(played.job)
    played.world.list_checks()  # what names the check would keep it
    played.world.discard()
    for account in (ACCOUNT, ADAPTER_ACCOUNT):
        found = requests(cluster.audit_log, since, account)
        assert found
        assert refused(found) == []


def test_a_second_up_changes_nothing(live: Live) -> None:
    live.installation.expect_no_changes()
    live.installation.refresh_finds_no_drift()


def test_what_the_promises_rest_on_is_drift_where_somebody_changed_it(live: Live, jobs: Jobs) -> None:
    """A binding that is gone, and our check, the policies, the controller and its rights, each changed a little."""
    server = live.server
    strategy = server.get(CLUSTER_QUEUE)["spec"]["admissionChecksStrategy"]
    narrowed = {"admissionChecks": [{"name": NAME, "onFlavors": [NAME]}]}
    server.merge(CLUSTER_QUEUE, {"spec": {"admissionChecksStrategy": narrowed}})
    server.merge(ROLE, {"rules": server.get(ROLE)["rules"][:-1]})
    server.merge(DEPLOYMENT, {"spec": {"replicas": 1}})
    jobs_policy = f"{POLICY}/dispatch-jobs"
    server.merge(jobs_policy, {"spec": {"validations": server.get(jobs_policy)["spec"]["validations"][:-1]}})
    server.delete(f"{POLICY_BINDING}/dispatch-trainjobs")
    printed = drifted(live)
    changed = ("queue-gated", "admission-cluster-role", "admission-deployment", "guard-rails-dispatch-jobs")
    assert [name for name in changed if f"::{name}]" not in printed] == []
    assert f"ClusterQueue {NAME} narrows AdmissionCheck {NAME} to flavors {NAME}" in printed
    # The check is for a person to widen. Who changed another field has it now, and an update takes it back if told to.
    server.merge(CLUSTER_QUEUE, {"spec": {"admissionChecksStrategy": strategy}})
    mended(live, PULUMI_K8S_ENABLE_PATCH_FORCE="true")
    jobs.assert_as_they_were()


def test_a_label_of_the_guard_rails_that_somebody_took_away_is_drift(live: Live, jobs: Jobs) -> None:
    live.server.merge(TEAM_NAMESPACE, {"metadata": {"labels": {names.GUARDED: None}}})
    drifted(live)
    mended(live)
    live.installation.expect_no_changes()
    jobs.assert_as_they_were()


def drifted(live: Live) -> str:
    """See that the guard rails have gone, and that a refresh says so; return what it prints."""
    eventually("the end of the guard rails", lambda: level(live, TEAM) is Level.NO)
    printed = live.installation.refresh_finds_drift()
    assert "guard rails admissions are declared" in printed
    return printed


def mended(live: Live, **env: str) -> None:
    """Have the next update mend it."""
    live.installation.up(**env)
    assert level(live, TEAM) is Level.ADMISSIONS


def test_another_image_level_and_check_and_back_leave_the_queue_at_no_moment_without_a_check(
    live: Live, jobs: Jobs, tmp_path: Path
) -> None:
    cluster = live.installation.cluster
    image, archive = another(images.build(paths.cache() / "images", ["controller"], print)["controller"], tmp_path)
    cluster.load_image(archive)
    changed = CONFIG | {"admissionCheck": f"{NAME}-renamed", "image": image, "guardRails": "executions"}
    try:
        for old, new in ((CONFIG, changed), (changed, CONFIG)):
            start = live.server.now()
            live.installation.configure(new)
            live.installation.up()
            jobs.world.ours = str(new["admissionCheck"])
            jobs.assert_as_they_were()
            collection, _, _ = CHECK.rpartition("/")
            named = (f"{collection}/{config['admissionCheck']}" for config in (new, old))
            made, gone, queue = live.server.histories(start, *named, CLUSTER_QUEUE)
            listed = [version.body["spec"]["admissionChecksStrategy"]["admissionChecks"] for version in queue]
            assert {len(checks) for checks in listed} == {1}
            renamed = next(
                version.order
                for version, [check] in zip(queue, listed, strict=True)
                if check["name"] == new["admissionCheck"]
            )
            active = next(version.order for version in made if version.condition("Active") == "True")
            assert gone[-1].deleted
            assert active < renamed < gone[-1].order
            assert condition(live.server.get(CLUSTER_QUEUE), "Active") == "True"
            assert {pod["spec"]["containers"][0]["image"] for pod in pods(live)} == {new["image"]}
            assert level(live, TEAM) is Level(str(new.get("guardRails", "admissions")))
            live.installation.expect_no_changes()
    finally:
        live.installation.configure(CONFIG)
    jobs.world.let_go(jobs.old)
    jobs.world.running(jobs.waiting, 2)
    assert len(jobs.world.judged(jobs.waiting)) == 2
    assert len(jobs.world.judged(jobs.running)) == 1


def pods(live: Live) -> list[dict[str, Any]]:
    """Return the controller's pods that are not on their way out."""
    return [pod for pod in live.server.get(PODS)["items"] if "deletionTimestamp" not in pod["metadata"]]


Rights = set[tuple[str, str, str, str]]


def flat(rules: list[dict[str, Any]]) -> Rights:
    """Return rules one by one, as (group, resource, verb, name)."""
    return {
        (group, resource, verb, name)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames") or [""]
    }


def granted(server: Server, namespace: str) -> Rights:
    """Return all that an account may do in a namespace, by the API server's word."""
    review = {"kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1"}
    answer = server.post(
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review | {"spec": {"namespace": namespace}}
    )
    assert not answer["status"]["incomplete"], answer
    return flat(answer["status"]["resourceRules"])


def test_the_account_can_do_what_the_table_says_and_nothing_else(live: Live) -> None:
    account = live.server.account(SYSTEM, CONTROLLER)
    everyone = granted(live.server.account(SYSTEM, "default"), TEAM)
    everywhere = flat(rights.cluster_rules(NAME))
    assert granted(account, TEAM) - everyone == everywhere
    assert granted(account, SYSTEM) - everyone == everywhere | flat(rights.namespace_rules(CONTROLLER))


@pytest.mark.parametrize(
    ("resource", "verb", "namespace", "name", "allowed"),
    [
        ("workloads/status.kueue.x-k8s.io", "update", TEAM, "any", True),
        ("workloads.kueue.x-k8s.io", "update", TEAM, "any", False),
        ("admissionchecks/status.kueue.x-k8s.io", "update", "", NAME, True),
        ("admissionchecks/status.kueue.x-k8s.io", "update", "", "another", False),
        ("clusterqueues.kueue.x-k8s.io", "update", "", NAME, False),
        ("trainjobs.trainer.kubeflow.org", "update", TEAM, "any", True),
        ("trainjobs.trainer.kubeflow.org", "delete", TEAM, "any", False),
        ("trainjobs.trainer.kubeflow.org", "dispatch", TEAM, "any", False),
        ("leases.coordination.k8s.io", "update", SYSTEM, CONTROLLER, True),
        ("leases.coordination.k8s.io", "update", SYSTEM, "another", False),
        ("leases.coordination.k8s.io", "create", TEAM, "", False),
        ("pods.", "list", TEAM, "", True),
        ("pods.", "create", TEAM, "", False),
        ("pods/exec.", "create", TEAM, "any", False),
        ("secrets.", "get", SYSTEM, "any", False),
        ("clusterroles.rbac.authorization.k8s.io", "escalate", "", "any", False),
    ],
)
def test_the_server_says(live: Live, resource: str, verb: str, namespace: str, name: str, allowed: bool) -> None:
    path, _, group = resource.partition(".")
    plural, _, subresource = path.partition("/")
    asked = {"group": group, "resource": plural, "subresource": subresource, "verb": verb}
    answer = live.server.post(
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": ACCOUNT,
                "groups": ["system:serviceaccounts", f"system:serviceaccounts:{SYSTEM}", "system:authenticated"],
                "resourceAttributes": asked | {"namespace": namespace, "name": name},
            },
        },
    )
    assert answer["status"]["allowed"] is allowed


def test_a_setting_that_is_not_valid_is_one_sentence(live: Live) -> None:
    live.installation.configure(CONFIG | {"admissionChecks": [{"name": NAME, "onFlavors": [NAME]}]})
    printed = live.installation.up_fails()
    live.installation.configure(CONFIG)
    assert f"AdmissionCheck {NAME} would stand before flavor {NAME} only" in printed
    assert "Traceback" not in printed


def test_destroy_with_a_job_that_runs_and_others_at_a_check_that_nobody_serves(live: Live, jobs: Jobs) -> None:
    world = jobs.world

    def end(job: TrainJob) -> None:
        """As an administrator: the adapter's roles go with the rest."""
        run(world.target, stop(TEAM, job.meta.name, job.meta.uid, seconds=WAIT_SECONDS))

    world.linger(old := world.running(jobs.waiting, 2))
    world.evict(jobs.waiting)
    world.waits(jobs.waiting, "StillRunning")
    live.server.merge(DEPLOYMENT, {"spec": {"replicas": 0}})
    eventually("the end of the controller's pods", lambda: not live.server.get(PODS)["items"])
    start = live.server.now()
    live.server.post(WORKLOADS, workload())
    eventually("a reservation", partial(reservation, live, f"{WORKLOADS}/{NAME}", "True"))

    # With a job that runs it stops at the queue, as it says it does; all below is in place.
    assert NAME in live.installation.destroy_fails()
    queue = live.server.get(CLUSTER_QUEUE)
    assert queue["spec"]["admissionChecksStrategy"]["admissionChecks"] == [{"name": NAME}]
    for path in (CHECK, DEPLOYMENT, BINDING):
        assert "deletionTimestamp" not in live.server.get(path)["metadata"], path
    assert [pod["status"]["phase"] for pod in world.pods_of(jobs.running)] == ["Running"]
    end(jobs.running)

    live.installation.destroy()

    found = world.workload(jobs.waiting)
    assert found is not None
    for path in (f"{WORKLOADS}/{NAME}", f"{WORKLOADS}/{found['metadata']['name']}"):
        eventually("its loss", partial(reservation, live, path, "False"))
    (versions,) = live.server.histories(start, f"{WORKLOADS}/{NAME}")
    assert "True" in {version.condition("QuotaReserved") for version in versions}
    assert {version.condition("Admitted") for version in versions} <= {"absent", "False"}
    world.let_go(old)
    end(jobs.waiting)
    assert [len(world.judged(job)) for job in (jobs.running, jobs.waiting)] == [1, 2]

    in_order = (LOCAL_QUEUE, CLUSTER_QUEUE, CHECK, DEPLOYMENT, BINDING, NAMESPACE)
    ends = [found[-1] for found in live.server.histories(start, *in_order)]
    assert all(end.deleted for end in ends)
    assert [end.order for end in ends] == sorted(end.order for end in ends)
    for path in (ROLE, f"{KUEUE}/resourceflavors/{NAME}", f"{KUEUE}/workloadpriorityclasses/{NAME}"):
        assert live.server.get(path) is None, path


def reservation(live: Live, path: str, status: str) -> bool:
    return condition(live.server.get(path), "QuotaReserved") == status


def workload() -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}
    return {
        "apiVersion": KUEUE.removeprefix("/apis/"),
        "kind": "Workload",
        "metadata": {"name": NAME},
        "spec": {"queueName": NAME, "podSets": [{"name": "main", "count": 1, "template": template}]},
    }
