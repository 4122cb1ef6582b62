"""What a call of the engine asks of the API server, on the model of one: no engine, no cluster.

Covered: an update writes what is asked for and not so already, and nothing else, whatever became of the job; what
takes a proven gate; another cluster; a job that is gone, or is another one by now.
"""

from __future__ import annotations

from typing import Any

import pytest

from dispatch_gates.contract.names import GATE, HOLD, NAMESPACES, TRAINJOBS, WORKLOADS
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.operations.errors import RefusedError
from dispatch_gates.requests import NotServedError, Request
from dispatch_gates.resources import _life, _running
from dispatch_gates.resources._running import GatesError
from dispatch_gates.resources.gated_train_job import DELETION
from model import objects
from model.apiserver import ApiServer
from model.objects import NAME, TEAM, ULID, WORKLOAD

UID = "uid-trainjob"
CLUSTER = "uid-of-kube-system"
KUBE_SYSTEM: JsonObject = {
    "apiVersion": NAMESPACES.api_version,
    "kind": NAMESPACES.kind,
    "metadata": {"name": "kube-system", "namespace": "", "uid": CLUSTER},
}


def cluster(**job: Any) -> ApiServer:
    """Return a cluster with one opened job in Kueue mode."""
    return ApiServer(KUBE_SYSTEM, objects.trainjob(1, **job), objects.workload(active=not job.get("held")))


def outputs(**more: Any) -> dict[str, Any]:
    seen = {"cluster": CLUSTER, "uid": UID, "name": NAME, "owner": "p/s/r", "is_open": True, "state": "Running"}
    return {**inputs(), **seen, **more}


def inputs(**more: Any) -> dict[str, Any]:
    return {"namespace": TEAM, "ulid": ULID, "submission": 1.0, "queue": "queue", **more}


def held(server: ApiServer) -> bool:
    return HOLD in (server.read(TRAINJOBS, NAME)["metadata"].get("annotations") or {})


@pytest.mark.parametrize(
    ("job", "asked", "writes"),
    [
        ({}, {}, 0),
        ({}, {"opened": True}, 0),
        ({}, {"hold": False}, 0),
        ({}, {"hold": True}, 2),
        ({"held": True}, {"hold": True}, 0),
        ({"held": True}, {"hold": False}, 2),
        ({"held": True}, {}, 0),
        ({"gates": GATE}, {}, 0),
        ({"gates": GATE}, {"opened": True}, 1),
        ({"gates": GATE}, {"opened": True, "hold": True}, 3),
        ({"status": {"Complete": True}}, {"hold": True}, 0),
        ({"status": {"Complete": True}}, {"hold": False, "opened": True}, 0),
        ({"status": {"Failed": True}, "held": True}, {"hold": False}, 0),
    ],
    ids=str,
)
def test_an_update_writes_what_is_not_so(job: dict[str, Any], asked: dict[str, Any], writes: int) -> None:
    server = cluster(**job)
    outs = server.run(_life.updated(outputs(), inputs(**asked)))
    assert len(server.writes) == writes
    assert (outs["held"], outs["is_open"]) == (held(server), "gates" not in job or asked.get("opened") is True)
    assert {key: outs[key] for key in ("uid", "name", "cluster", "owner")} == {
        "uid": UID,
        "name": NAME,
        "cluster": CLUSTER,
        "owner": "p/s/r",
    }
    server.run(_life.updated(outs, inputs(**asked)))
    assert len(server.writes) == writes, "the second time there is nothing to do"


@pytest.mark.parametrize(
    ("job", "asked", "proof"),
    [
        ({}, {"opened": True, "hold": True}, False),
        ({"gates": GATE}, {}, False),
        ({"gates": GATE}, {"hold": True}, False),
        ({"gates": GATE}, {"opened": True}, True),
        ({"held": True}, {"hold": False}, True),
        ({"held": True}, {"hold": True}, False),
        ({"held": True}, {}, False),
    ],
    ids=str,
)
def test_what_takes_a_proven_gate(job: dict[str, Any], asked: dict[str, Any], proof: bool) -> None:
    found = cluster(**job).run(_life.to_prove(outputs(), inputs(**asked)))
    assert (found is not None) is proof


def test_another_cluster_is_not_asked_for_the_job() -> None:
    server = cluster()
    olds = outputs(cluster="uid-of-another")
    for operation in (
        _life.to_prove(olds, inputs(opened=True)),
        _life.updated(olds, inputs(hold=True)),
        _life.refreshed(olds),
        _life.deleted(olds),
        _life.opened(olds),
    ):
        with pytest.raises(GatesError, match=rf"{CLUSTER}, uid-of-another was expected. Nothing was done"):
            server.run(operation)
    assert len(server.requests) == 5


def test_the_content_of_a_kubeconfig_is_not_repeated() -> None:
    """A state of before it was refused may hold one."""
    with pytest.raises(GatesError, match="leads to another cluster") as caught:
        cluster().run(_life.deleted(outputs(cluster="uid-of-another", kubeconfig='{"users": ["T0KEN"]}')))
    assert "T0KEN" not in str(caught.value)
    with pytest.raises(GatesError, match="kubeconfig /a/config, context x, leads"):
        cluster().run(_life.deleted(outputs(cluster="uid-of-another", kubeconfig="/a/config", context="x")))


@pytest.mark.parametrize("left", ["JobSet", "Job", "pod"])
def test_a_job_is_not_gone_before_its_pods_are(left: str) -> None:
    """A submission that was dropped from the state would be started anew beside them."""
    made = {"JobSet": objects.jobset(), "Job": objects.job(), "pod": objects.pod()}[left]
    server = ApiServer(KUBE_SYSTEM, made)
    outs = server.run(_life.refreshed(outputs()))
    assert outs is not None
    assert outs["state"] == "Deleting"
    assert f"its TrainJob is gone; left: {left} {NAME}" in outs["reason"]
    assert {key: value for key, value in outs.items() if key not in ("state", "reason")} == {
        key: value for key, value in outputs().items() if key != "state"
    }
    server.state = ApiServer(KUBE_SYSTEM).state
    assert server.run(_life.refreshed(outs)) is None


def test_a_kind_that_is_not_served_is_no_job_that_is_gone() -> None:
    """Trainer is being upgraded, or the API server has only begun to start."""
    server = cluster()

    def before(request: Request) -> None:
        if getattr(request, "resource", None) == TRAINJOBS:
            raise NotServedError("404 page not found", status=404)

    server.before = before
    for operation in (
        _life.refreshed(outputs()),
        _life.deleted(outputs()),
        _life.updated(outputs(), inputs()),
        _life.opened(outputs()),
    ):
        with pytest.raises(NotServedError):
            server.run(operation)


@pytest.mark.parametrize(
    ("job", "says"),
    [
        ({"deleting": True}, "being deleted; .* Run the same again: .*`delete_timeout_seconds`"),
        ({"uid": "uid-of-another"}, "is another one .* `pulumi refresh` takes the one that is gone"),
    ],
    ids=["it stays", "another one"],
)
def test_a_deletion_that_fails_says_what_to_do(job: dict[str, Any], says: str) -> None:
    server = cluster(**job)
    deletion = _life.deleted(outputs(delete_timeout_seconds=1.0))
    with pytest.raises(GatesError, match=says) as caught:
        _running.without_traceback(lambda: server.run(deletion), then=DELETION)
    assert "\n" not in str(caught.value)
    assert not server.writes


def test_a_job_that_is_gone_or_another_one() -> None:
    server = cluster(uid="uid-of-another")
    for _ in range(2):
        assert server.run(_life.refreshed(outputs())) is None
        assert server.run(_life.to_prove(outputs(), inputs(opened=True))) is None
        with pytest.raises(RefusedError, match="is gone; it was not opened"):
            server.run(_life.updated(outputs(), inputs(opened=True)))
        with pytest.raises(RefusedError, match="raise `submission`"):
            server.run(_life.updated(outputs(), inputs()))
        assert not server.writes
        if server.has(TRAINJOBS, NAME):
            server.remove(TRAINJOBS, NAME)
            server.remove(WORKLOADS, WORKLOAD)
