"""Stop, against the model API server.

Aspects: deletion with its preconditions; another TrainJob of the name is never touched; waiting for the TrainJob and
then for what it owns, bounded, saying what is left; conflicts; watches that end without a change.
"""

from __future__ import annotations

import pytest

from dispatch_gates.contract.names import JOBS, JOBSETS, PODS, TRAINJOBS
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.operations.errors import RefusedError, TimedOutError
from dispatch_gates.operations.stop import delete_job, stop
from dispatch_gates.requests import ApiError, Delete, DeniedError, ExpiredError, Pause, Request, UnreachableError, Watch
from model import objects
from model.apiserver import ApiServer
from model.objects import NAME, TEAM

UID = "uid-trainjob"


def stopped(server: ApiServer, seconds: float = 60) -> None:
    server.run(stop(TEAM, NAME, UID, seconds=seconds))


def finalized(*more: JsonObject) -> ApiServer:
    """A TrainJob that stays, being deleted, until its finalizer is taken away."""
    job = objects.trainjob()
    job["metadata"]["finalizers"] = ["example.org/slow"]
    return ApiServer(job, *more)


def test_stops() -> None:
    server = ApiServer(objects.trainjob())
    stopped(server)
    assert not server.has(TRAINJOBS, NAME)
    (deletion,) = [request for request in server.requests if isinstance(request, Delete)]
    assert (deletion.uid, deletion.resource_version) == (UID, "101")


def test_stopped_already() -> None:
    server = ApiServer()
    stopped(server)
    assert server.writes == []


def test_waits_for_the_trainjob_and_then_for_what_it_owns_owners_first() -> None:
    """A Job that the garbage collector has not reached yet may still create a pod."""
    server = finalized(objects.jobset(), objects.job(), objects.pod(), objects.pod(of="dj-other", name="other"))
    leaving = {
        TRAINJOBS: NAME,
        JOBSETS: objects.jobset()["metadata"]["name"],
        JOBS: objects.job()["metadata"]["name"],
        PODS: objects.pod()["metadata"]["name"],
    }
    waited: list[str] = []

    def idle(request: Watch) -> bool:
        waited.append(request.resource.plural)
        server.remove(request.resource, leaving[request.resource])
        return True

    server.idle = idle
    stopped(server)
    assert waited == ["trainjobs", "jobsets", "jobs", "pods"]
    assert server.has(PODS, "other")


def test_an_ended_pod_is_still_waited_for() -> None:
    """Its node may not have reported yet; the record goes when the kubelet is done with it."""
    server = ApiServer(objects.trainjob(), objects.pod("Succeeded", containers=("terminated",)))
    with pytest.raises(TimedOutError, match=r"is gone, its pods are not yet: .*x7k2p") as caught:
        stopped(server)
    assert f"`kubectl -n {TEAM} get pods -l jobset.sigs.k8s.io/jobset-name={NAME} -o wide`" in str(caught.value)


def test_another_trainjob_of_the_name_is_not_touched() -> None:
    server = ApiServer(objects.trainjob(uid="uid-later"))
    with pytest.raises(RefusedError, match=r"is another one \(uid uid-later, uid-trainjob was expected\)") as caught:
        stopped(server)
    assert "not deleted. The one that was meant is gone: look whose this one is" in str(caught.value)
    assert server.writes == []


def test_made_anew_while_it_is_waited_for() -> None:
    """The one that was to go is gone."""
    server = finalized()

    def idle(_: Watch) -> bool:
        server.remove(TRAINJOBS, NAME)
        server.put(objects.trainjob(uid="uid-later"))
        return True

    server.idle = idle
    stopped(server)
    assert server.read(TRAINJOBS, NAME)["metadata"]["uid"] == "uid-later"


def test_being_deleted_already() -> None:
    server = ApiServer(objects.trainjob(deleting=True))
    with pytest.raises(
        TimedOutError, match=r"still there, being deleted; finalizers: \['example.org/keep'\]"
    ) as caught:
        stopped(server, 5)
    assert "has to take it away" in str(caught.value)
    assert "repeat this, or give it more time" in str(caught.value)
    assert server.writes == []


def test_conflicts_are_decided_anew() -> None:
    server = ApiServer(objects.trainjob())
    left = iter(range(3))

    def before(request: Request) -> None:
        if isinstance(request, Delete) and next(left, None) is not None:
            labels = {"touched": str(server.state.version)}
            server.edit(TRAINJOBS, NAME, lambda body: body["metadata"].update(labels=labels))

    server.before = before
    stopped(server)
    assert not server.has(TRAINJOBS, NAME)
    assert len([request for request in server.requests if isinstance(request, Delete)]) == 4


def test_a_storm_of_conflicts_is_given_up() -> None:
    server = ApiServer(objects.trainjob())

    def before(request: Request) -> None:
        if isinstance(request, Delete):
            labels = {"touched": str(server.state.version)}
            server.edit(TRAINJOBS, NAME, lambda body: body["metadata"].update(labels=labels))

    server.before = before
    with pytest.raises(TimedOutError, match="was not deleted: it changed 8 times in a row"):
        stopped(server)
    assert server.has(TRAINJOBS, NAME)


def test_deleted_by_somebody_between_read_and_deletion() -> None:
    server = ApiServer(objects.trainjob())

    def before(request: Request) -> None:
        if isinstance(request, Delete) and server.has(TRAINJOBS, NAME):
            server.remove(TRAINJOBS, NAME)

    server.before = before
    server.run(delete_job(TEAM, NAME, UID))


def test_a_watch_that_expired_is_begun_anew() -> None:
    server = finalized()
    expired = iter([True])

    def before(request: Request) -> None:
        if isinstance(request, Watch) and next(expired, False):
            raise ExpiredError("410")

    server.before = before

    def idle(_: Watch) -> bool:
        server.remove(TRAINJOBS, NAME)
        return True

    server.idle = idle
    stopped(server)


def test_watches_that_always_expire_come_to_an_end() -> None:
    """Of a job that has not changed since before the API server was started again, each does."""
    server = finalized()

    def before(request: Request) -> None:
        if isinstance(request, Watch):
            raise ExpiredError("410")

    server.before = before
    with pytest.raises(TimedOutError, match="is still there"):
        server.run(stop(TEAM, NAME, UID, seconds=5.0))
    assert sum(request.seconds for request in server.requests if isinstance(request, Pause)) == 5.0


@pytest.mark.parametrize("error", [DeniedError("403"), UnreachableError("lost")], ids=["denied", "lost"])
def test_an_error_is_raised_and_can_be_repeated(error: ApiError) -> None:
    server = ApiServer(objects.trainjob())

    def before(request: Request) -> None:
        if isinstance(request, Delete):
            raise error

    server.before = before
    with pytest.raises(type(error)):
        stopped(server)
    server.before = lambda _: None
    stopped(server)
    assert not server.has(TRAINJOBS, NAME)
