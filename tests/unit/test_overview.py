"""Status of many jobs: the same verdict for each as Status gives it alone, from one list of each kind."""

from __future__ import annotations

import pytest

from dispatch_gates.contract import names
from dispatch_gates.operations.overview import await_change, controller, overview, queue_state
from dispatch_gates.operations.status import JobState, status
from dispatch_gates.requests import DeniedError, ExpiredError, Get, List, NotServedError, Pause, Request, Watch
from model import objects
from model.apiserver import ApiServer

OTHER = "dj-01jdqm3zk0tb6q8e8m2a9v4c5f-s1"
PROBE = "dj-01jdqm3zk0tb6q8e8m2a9v4c5g-s0"


def team() -> ApiServer:
    """A running job, a gated one of plain mode, a probe, and somebody else's TrainJob."""
    server = ApiServer(
        objects.trainjob(suspend=False, name=objects.NAME),
        objects.workload({"QuotaReserved": True, "Admitted": True}),
        objects.jobset(suspend=False),
        objects.job(suspend=False, status={}, active=1),
        objects.pod(),
        objects.trainjob(0, name=OTHER, uid="uid-other", queue=None, gates=names.GATE),
        objects.trainjob(0, name=PROBE, uid="uid-probe", gates=names.GATE),
        objects.trainjob(name="somebody-elses", uid="uid-else", patches=[]),
    )
    server.put({"kind": "Lease", "metadata": {"name": "l", "namespace": "n", "uid": "u"}, "spec": {}})
    return server


def test_each_job_as_status_sees_it_alone() -> None:
    server = team()
    found = server.run(overview("team"))
    assert {each.job.meta.name: each.state for each in found.jobs} == {
        objects.NAME: JobState.RUNNING,
        OTHER: JobState.GATED,
    }
    for each in found.jobs:
        alone = server.run(status("team", each.job.meta.name))
        assert alone is not None
        assert (each.verdict, each.evidence, each.workload) == (alone.verdict, alone.evidence, alone.workload)
    lists = [request for request in server.requests if isinstance(request, List)]
    assert [str(request.resource) for request in lists[:5]] == [
        str(resource) for resource in (names.TRAINJOBS, names.WORKLOADS, names.JOBSETS, names.JOBS, names.PODS)
    ]


def test_of_one_queue() -> None:
    found = team().run(overview("team", objects.QUEUE))
    assert [each.job.meta.name for each in found.jobs] == [objects.NAME]


def test_where_kueue_is_not_installed() -> None:
    server = team()

    def before(request: Request) -> None:
        if isinstance(request, List) and request.resource == names.WORKLOADS:
            raise NotServedError("no such kind", status=404)

    server.before = before
    assert all(each.workload is None for each in server.run(overview("team")).jobs)


def test_without_a_right_to_look_at_pods() -> None:
    server = team()

    def before(request: Request) -> None:
        if isinstance(request, List) and request.resource == names.PODS:
            raise DeniedError("you cannot list pods", status=403)

    server.before = before
    found = server.run(overview("team"))
    assert all(each.evidence.unreadable == ("no right to look: you cannot list pods",) for each in found.jobs)


def test_the_controller() -> None:
    server = team()
    found = server.run(controller("n", "l"))
    assert (found.lease, found.holder, found.problem) == ("n/l", "", "is held by nobody: no controller leads")
    said = {"holderIdentity": "a", "renewTime": "2026-01-01T00:00:00.000000Z"}
    server.edit(names.LEASES, "l", lambda body: body["spec"].update(said), "n")
    found = server.run(controller("n", "l"))
    assert (found.holder, found.renewed, found.problem) == ("a", "2026-01-01T00:00:00.000000Z", "")
    assert "no controller has ever led" in server.run(controller("n", "other")).problem

    def before(request: Request) -> None:
        if isinstance(request, Get):
            raise DeniedError("you cannot get leases", status=403)

    server.before = before
    assert server.run(controller("n", "l")).problem == "you cannot get leases"


@pytest.mark.parametrize(
    ("spec", "conditions", "problem"),
    [
        ({}, {"Active": True}, ""),
        ({}, {"Active": False}, "not active: "),
        ({}, {}, "Kueue has not looked at it"),
        ({"stopPolicy": "Hold"}, {"Active": False}, "stopped (Hold)"),
    ],
    ids=["active", "not active", "new", "stopped"],
)
def test_a_queue(spec: dict[str, str], conditions: dict[str, bool | str], problem: str) -> None:
    server = ApiServer()
    counts = {"pendingWorkloads": 3, "reservingWorkloads": 2, "admittedWorkloads": 1}
    metadata = {"name": "q", "namespace": "team", "uid": "u"}
    body = {"kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": "c", **spec}}
    server.put({**body, "status": {**counts, "conditions": objects.conditions(conditions)}})
    found = server.run(queue_state("team", "q"))
    assert (found.cluster_queue, found.pending, found.reserving, found.admitted) == ("c", 3, 2, 1)
    assert found.problem == problem
    assert server.run(queue_state("team", "r")).problem == "does not exist"


def test_waiting_for_a_change() -> None:
    server = team()
    server.run(await_change("team", str(server.state.version), 2.0))

    def expired(request: Request) -> None:
        if isinstance(request, Watch):
            raise ExpiredError("too old", status=410)

    server.before = expired
    server.run(await_change("team", "1", 2.0))
    assert server.requests[-1] == Pause(2.0), "the version of a job that did not change is as old the next time"


def test_waiting_for_a_change_of_one_job() -> None:
    """What changed in others since then is no change of it."""
    server = team()
    server.put(objects.trainjob(name="another"))
    waited: list[Watch] = []

    def idle(watch: Watch) -> bool:
        waited.append(watch)
        return False

    server.idle = idle
    server.run(await_change("team", str(server.state.version - 1), 2.0, objects.NAME))
    assert [watch.name for watch in waited] == [objects.NAME]
