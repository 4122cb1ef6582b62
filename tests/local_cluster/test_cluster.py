"""What the cluster offers once it is up: a real node, KWOK nodes, everyone's own identity, parts held up.

Tested here: a pod on the real node that asks the API server; pods on KWOK nodes, held and not; a TrainJob
that Kueue admits and Trainer and JobSet run under their released rights; audit log; pause, resume, restart.
"""

from __future__ import annotations

import json
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dispatch_local import control
from dispatch_local.api import Api
from dispatch_local.cluster import Cluster
from dispatch_local.configuration import USERS
from dispatch_local.layout import HOLD_ANNOTATION, KWOK_TAINT, NODE_LABEL, Addresses, Layout
from dispatch_local.parts import ALL
from dispatch_local.waiting import until

Object = dict[str, Any]
TRAINING = "dispatch.local/training:1"
PODS = "/api/v1/namespaces/{}/pods"
ASK_THE_API_SERVER = """
import os, ssl, urllib.request
there = "/var/run/secrets/kubernetes.io/serviceaccount"
url = "https://{KUBERNETES_SERVICE_HOST}:{KUBERNETES_SERVICE_PORT}/version".format(**os.environ)
headers = {"Authorization": "Bearer " + open(there + "/token").read()}
request = urllib.request.Request(url, headers=headers)
context = ssl.create_default_context(cafile=there + "/ca.crt")
print("answered", urllib.request.urlopen(request, context=context, timeout=30).status)
"""


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Iterator[Api]:
    """Return the administrator's access to the session's cluster."""
    with access(cluster, USERS["admin"].name) as api:
        yield api


def access(cluster: Cluster, user: str) -> Api:
    """Return the access that one user of the cluster has."""
    layout = Layout(cluster.name)
    lines = (layout.pki / "tokens.csv").read_text().splitlines()
    tokens = {name: token for token, name, *_ in (line.split(",") for line in lines)}
    index = json.loads(layout.state.read_text())["index"]
    return Api(Addresses(index).server, layout.pki / "ca.crt", tokens[user])


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    """Make a namespace of the test's own, with the ServiceAccount that pods need."""
    name = f"local-{secrets.token_hex(4)}"
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    until("the ServiceAccount", lambda: api.get(account) is not None, timeout=600)
    yield name
    api.request("DELETE", f"/api/v1/namespaces/{name}")


def create(api: Api, path: str, document: Object) -> Object:
    """Create an object; the test fails with what the API server says if it refuses."""
    status, body = api.request("POST", path, document)
    assert status == 201, body
    created: Object = json.loads(body)
    return created


def pod(name: str, node: str, *command: str, **annotations: str) -> Object:
    """Return a pod for the real node or for KWOK's."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "nodeSelector": {NODE_LABEL: node},
            "tolerations": [{"key": KWOK_TAINT, "operator": "Exists"}],
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": TRAINING, "command": list(command)}],
        },
    }


def phase_is(api: Api, path: str, phase: str) -> Callable[[], bool | str]:
    """Return a check that a pod is in a phase; what it says otherwise is the pod's status."""

    def check() -> bool | str:
        found = api.get(path)
        status = (found or {}).get("status", {})
        return True if status.get("phase") == phase else json.dumps(status)[:500]

    return check


def test_a_pod_on_the_real_node_reaches_the_api_server_with_its_own_token(api: Api, namespace: str) -> None:
    create(api, PODS.format(namespace), pod("asks", "real", "python3", "-c", ASK_THE_API_SERVER))
    path = f"{PODS.format(namespace)}/asks"
    until("the pod's end", phase_is(api, path, "Succeeded"), timeout=600)
    status, log = api.request("GET", f"{path}/log")
    assert (status, log.strip()) == (200, b"answered 200")


def test_a_pod_on_a_kwok_node_runs_until_it_is_deleted(api: Api, namespace: str) -> None:
    create(api, PODS.format(namespace), pod("runs", "kwok", "true"))
    path = f"{PODS.format(namespace)}/runs"
    until("the pod running", phase_is(api, path, "Running"), timeout=600)
    api.request("DELETE", path)
    until("the pod gone", lambda: api.get(path) is None, timeout=600)


def test_a_held_pod_stays_as_it_is_and_a_finalizer_keeps_a_deleted_one(api: Api, namespace: str) -> None:
    pods = PODS.format(namespace)
    create(api, pods, pod("held", "kwok", "true", **{HOLD_ANNOTATION: "true"}))
    kept = pod("kept", "kwok", "true")
    kept["metadata"]["finalizers"] = ["dispatch.local/test"]
    create(api, pods, kept)
    # "kept" was made after "held": once it ran and ended, KWOK has left "held" alone.
    until("the other pod running", phase_is(api, f"{pods}/kept", "Running"), timeout=600)
    api.request("DELETE", f"{pods}/kept")
    until("its containers ended", phase_is(api, f"{pods}/kept", "Failed"), timeout=600)
    held = api.get(f"{pods}/held")
    assert held is not None
    assert held["spec"]["nodeName"].startswith("kwok-")
    assert held["status"]["phase"] == "Pending"
    # Nobody else ends it: a held pod is deleted by force.
    api.request("DELETE", f"{pods}/held?gracePeriodSeconds=0")
    merge = "application/merge-patch+json"
    api.request("PATCH", f"{pods}/kept", {"metadata": {"finalizers": None}}, merge)
    until("the pod gone", lambda: api.get(f"{pods}/kept") is None, timeout=600)


def test_a_trainjob_runs_and_each_manager_acts_under_its_own_name(api: Api, namespace: str, cluster: Cluster) -> None:
    kueue, trainer = "/apis/kueue.x-k8s.io/v1beta2", "/apis/trainer.kubeflow.org/v1alpha1"
    _queue(api, kueue, namespace)
    _runtime(api, trainer, namespace)
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "job", "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
        "spec": {"suspend": True, "runtimeRef": {"kind": "TrainingRuntime", "name": "runtime"}},
    }
    create(api, f"{trainer}/namespaces/{namespace}/trainjobs", job)
    pods = PODS.format(namespace)

    def runs() -> bool:
        items = (api.get(pods) or {}).get("items", [])
        return [each["status"]["phase"] for each in items] == ["Running"]

    until("its pod running", runs, timeout=600)
    writers: dict[str, set[str]] = {}
    for line in cluster.audit_log.read_text().splitlines():
        event = json.loads(line)
        reference = event.get("objectRef", {})
        if reference.get("namespace") == namespace and event["verb"] not in {"get", "list", "watch"}:
            writers.setdefault(reference["resource"], set()).add(event["user"]["username"])
    assert USERS["trainer"].name in writers["jobsets"]
    assert USERS["jobset"].name in writers["jobs"]
    assert USERS["kueue"].name in writers["workloads"]
    assert "system:serviceaccount:kube-system:job-controller" in writers["pods"]
    _delete_queue(api, kueue, namespace)


def _queue(api: Api, kueue: str, name: str) -> None:
    flavor = {"nodeLabels": {NODE_LABEL: "kwok"}, "tolerations": [{"key": KWOK_TAINT, "operator": "Exists"}]}
    quota = {"name": name, "resources": [{"name": "cpu", "nominalQuota": 1}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    version = "kueue.x-k8s.io/v1beta2"
    for path, kind, own, spec in (
        ("/resourceflavors", "ResourceFlavor", name, flavor),
        ("/clusterqueues", "ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": groups}),
        (f"/namespaces/{name}/localqueues", "LocalQueue", "queue", {"clusterQueue": name}),
    ):
        document = {"apiVersion": version, "kind": kind, "metadata": {"name": own}, "spec": spec}
        create(api, kueue + path, document)


def _delete_queue(api: Api, kueue: str, name: str) -> None:
    for kind in ("clusterqueues", "resourceflavors"):
        api.request("DELETE", f"{kueue}/{kind}/{name}")


def _runtime(api: Api, trainer: str, namespace: str) -> None:
    container = {"name": "node", "image": TRAINING, "resources": {"requests": {"cpu": "1"}}}
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"metadata": {"labels": step}, "spec": {"template": {"spec": {"containers": [container]}}}}
    document = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "runtime"},
        "spec": {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": job}]}}},
    }
    create(api, f"{trainer}/namespaces/{namespace}/trainingruntimes", document)


def test_the_managers_are_no_administrators(cluster: Cluster) -> None:
    for part in ("kueue", "jobset", "trainer", "kwok", "kube-scheduler"):
        with access(cluster, USERS[part].name) as theirs:
            status, _ = theirs.request("POST", "/api/v1/namespaces?dryRun=All", {"metadata": {"name": "x"}})
        assert status == 403, part


def test_a_held_manager_does_nothing_until_it_goes_on(api: Api, namespace: str, cluster: Cluster) -> None:
    runs = f"{PODS.format(namespace)}/runs"
    cluster.pause("kwok")
    try:
        assert cluster.status()["kwok"]["paused"]
        create(api, PODS.format(namespace), pod("runs", "kwok", "true"))

        def scheduled() -> bool:
            return "nodeName" in (api.get(runs) or {}).get("spec", {})

        until("the pod's node", scheduled, timeout=600)
        time.sleep(1)  # not to wait for something: to give KWOK the time in which it must do nothing
        assert phase_is(api, runs, "Pending")() is True
    finally:
        cluster.resume("kwok")
    until("the pod running", phase_is(api, runs, "Running"), timeout=600)


def test_a_part_that_dies_starts_again_by_itself(cluster: Cluster) -> None:
    before = cluster.status()["jobset"]["starts"]
    control.call(Layout(cluster.name).control, "signal", part="jobset", signal=int(signal.SIGKILL))

    def again() -> bool:
        status = cluster.status()["jobset"]
        return bool(status["starts"] > before and status["pid"])

    until("the next start", again, timeout=600)
    assert cluster.status()["jobset"]["exit"] == "signal 9"


@pytest.mark.parametrize("part", ["etcd", "kube-apiserver", "kueue", "containerd", "kubelet"])
def test_a_part_that_was_started_again_works(api: Api, namespace: str, cluster: Cluster, part: str) -> None:
    assert set(cluster.status()) == set(ALL)
    before = cluster.status()[part]
    cluster.restart(part)
    after = cluster.status()[part]
    assert after["starts"] > before["starts"]
    assert after["pid"] not in (0, before["pid"])
    ready = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"

    def answers() -> bool | str:
        try:
            return api.get(ready) is not None
        except OSError as error:
            return str(error)

    until("the API server", answers, timeout=600)
