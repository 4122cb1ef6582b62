"""`infra/` on a real cluster, with the real engine and the controller's own image.

Aspects: after `up` all of it serves; the order, from the versions of the objects; a second `up` changes nothing and
`refresh` finds nothing; guard rails that somebody took away; a check that is renamed; the controller's account can do
what its table says and nothing else; a setting that is not valid; destroy with a job that waits at the check and
nobody to serve it: the job is not admitted, nothing hangs, nothing is left.

The order of these tests is that of the installation's life.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import rails
from dispatch_gates.cluster import Target, run
from dispatch_gates.contract import names
from dispatch_gates.contract.guard_rails import POLICIES, Level
from dispatch_gates.operations.guard_rails import guard_rails
from dispatch_infra import rights
from dispatch_local import images, paths
from dispatch_local.cluster import Cluster
from dispatch_local.node import REAL_NODE
from infra.installation import Installation, Server, Version, condition

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
SYSTEM, TEAM, NAME = "infra-test-system", "infra-test", "infra-test"
CONTROLLER = "dispatch-admission"
ACCOUNT = f"system:serviceaccount:{SYSTEM}:{CONTROLLER}"
CONFIG = {
    "image": images.reference("controller"),
    "allowImageTag": True,
    "imagePullPolicy": "Never",
    "leaseSeconds": 3,
    "nodeSelector": {"kubernetes.io/hostname": REAL_NODE},
    "namespace": SYSTEM,
    "admissionCheck": NAME,
    "clusterQueue": NAME,
    "localQueues": [{"name": NAME, "namespace": TEAM}],
    "flavors": [{"name": NAME, "quotas": {"cpu": 1}}],
    "priorityClasses": [{"name": NAME, "value": 1000}],
    "guardRailAccounts": {"jobset": rails.ACCOUNTS.jobset},
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
        installation.destroy()
        server.delete(f"/api/v1/namespaces/{TEAM}")


def hold_image(cluster: Cluster, server: Server) -> None:
    """Put the controller's image on the node, if a cluster that was kept holds only an older one."""
    node = server.get(f"/api/v1/nodes/{REAL_NODE}")
    if CONFIG["image"] not in {name for image in node["status"]["images"] for name in image["names"]}:
        cluster.load_image(images.build(paths.cache() / "images", ["controller"], print)["controller"])


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
    def versions(path: str) -> list[Version]:
        collection, _, name = path.rpartition("/")
        return live.server.history(collection, name, live.start)

    def available(version: Version) -> bool:
        return bool(version.body["status"].get("availableReplicas") == 2)

    binding, deployment, check = versions(BINDING), versions(DEPLOYMENT), versions(CHECK)
    queue, local_queue = versions(CLUSTER_QUEUE), versions(LOCAL_QUEUE)
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
    labelled = next(
        version.order for version in versions(TEAM_NAMESPACE) if names.GUARDED in version.body["metadata"]["labels"]
    )
    for name in POLICIES[Level.ADMISSIONS]:
        policy, bound = versions(f"{POLICY}/{name}"), versions(f"{POLICY_BINDING}/{name}")
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


def test_a_second_up_changes_nothing(live: Live) -> None:
    live.installation.expect_no_changes()
    live.installation.refresh_finds_no_drift()


@pytest.mark.parametrize("lost", ["binding", "label"])
def test_guard_rails_that_somebody_took_away_are_drift_and_come_back(live: Live, lost: str) -> None:
    if lost == "binding":
        live.server.delete(f"{POLICY_BINDING}/dispatch-trainjobs")
    else:
        live.server.merge(TEAM_NAMESPACE, {"metadata": {"labels": {names.GUARDED: None}}})
    eventually("the end of the guard rails", lambda: level(live, TEAM) is Level.NO)
    printed = live.installation.refresh_finds_drift()
    assert "guard rails admissions are declared" in printed
    live.installation.up()
    assert level(live, TEAM) is Level.ADMISSIONS
    live.installation.expect_no_changes()


def test_a_renamed_check_leaves_the_queue_at_no_moment_without_one(live: Live) -> None:
    renamed = f"{NAME}-renamed"
    try:
        for old, new in ((NAME, renamed), (renamed, NAME)):
            start = live.server.now()
            live.installation.configure(CONFIG | {"admissionCheck": new})
            live.installation.up()
            collection, _, _ = CHECK.rpartition("/")
            made = live.server.history(collection, new, start)
            gone = live.server.history(collection, old, start)[-1]
            queue = live.server.history(CLUSTER_QUEUE.rpartition("/")[0], NAME, start)
            listed = [version.body["spec"]["admissionChecksStrategy"]["admissionChecks"] for version in queue]
            assert {len(checks) for checks in listed} == {1}
            changed = next(
                version.order for version, [check] in zip(queue, listed, strict=True) if check["name"] == new
            )
            active = next(version.order for version in made if version.condition("Active") == "True")
            assert gone.deleted
            assert active < changed < gone.order
            assert condition(live.server.get(CLUSTER_QUEUE), "Active") == "True"
            live.installation.expect_no_changes()
    finally:
        live.installation.configure(CONFIG)


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


def test_destroy_with_a_job_at_a_check_that_nobody_serves(live: Live) -> None:
    live.server.merge(DEPLOYMENT, {"spec": {"replicas": 0}})
    eventually("the end of the controller's pods", lambda: not live.server.get(PODS)["items"])
    start = live.server.now()
    live.server.post(WORKLOADS, workload())
    eventually("a reservation", lambda: condition(live.server.get(f"{WORKLOADS}/{NAME}"), "QuotaReserved") == "True")

    live.installation.destroy()

    eventually("its loss", lambda: condition(live.server.get(f"{WORKLOADS}/{NAME}"), "QuotaReserved") == "False")
    versions = live.server.history(WORKLOADS, NAME, start)
    assert "True" in {version.condition("QuotaReserved") for version in versions}
    assert {version.condition("Admitted") for version in versions} <= {"absent", "False"}

    ended = []
    for path in (LOCAL_QUEUE, CLUSTER_QUEUE, CHECK, DEPLOYMENT, BINDING, NAMESPACE):
        collection, _, name = path.rpartition("/")
        last = live.server.history(collection, name, start)[-1]
        assert last.deleted, path
        ended.append(last.order)
    assert ended == sorted(ended)
    for path in (ROLE, f"{KUEUE}/resourceflavors/{NAME}", f"{KUEUE}/workloadpriorityclasses/{NAME}"):
        assert live.server.get(path) is None, path


def workload() -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}
    return {
        "apiVersion": KUEUE.removeprefix("/apis/"),
        "kind": "Workload",
        "metadata": {"name": NAME},
        "spec": {"queueName": NAME, "podSets": [{"name": "main", "count": 1, "template": template}]},
    }
