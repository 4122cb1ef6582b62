"""Hold and Release, against the model API server.

Aspects: the mark and what keeps the job from running, in both modes; Release in plain mode only once the previous
execution is over, with a higher A; success without a write; conflicts; crashes between the writes.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from dispatch_gates.contract.names import GATE, HOLD, JOBSETS, OPENED, PODS, TRAINJOBS, WORKLOADS
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.operations.errors import RefusedError, RejectedError, TimedOutError
from dispatch_gates.operations.holding import hold, release
from dispatch_gates.requests import ApiError, List, NotServedError, Operation, Pause, Replace, Request, UnreachableError
from model import objects
from model.apiserver import ApiServer, Crash
from model.objects import NAME, TEAM, WORKLOAD
from model.promises import count

UID = "uid-trainjob"


def kueue_mode(*, held: bool = False, active: bool | None = None, **more: Any) -> ApiServer:
    """An opened job in Kueue mode, running or held."""
    return ApiServer(objects.trainjob(1, suspend=held, held=held, **more), objects.workload(active=active))


def plain_mode(*, held: bool = False, **more: Any) -> ApiServer:
    """An opened job in plain mode, running or held; held, its execution is over."""
    parts: dict[str, Any] = {"suspend": held, "held": held, "queue": None, "annotations": {OPENED: "true"}} | more
    running = objects.job(1, suspend=False, started=True, active=1, status={"Suspended": False})
    return ApiServer(objects.trainjob(1, **parts), objects.jobset(1, suspend=held), objects.job(1) if held else running)


def job(server: ApiServer) -> JsonObject:
    return server.read(TRAINJOBS, NAME)


def held(server: ApiServer) -> bool:
    return HOLD in job(server)["metadata"].get("annotations", {})


def active(server: ApiServer) -> object:
    return server.read(WORKLOADS, WORKLOAD)["spec"].get("active")


def run(server: ApiServer, operation: Callable[..., Operation[Any]], **more: Any) -> None:
    server.run(operation(TEAM, NAME, UID, **more))


def test_hold_in_kueue_mode() -> None:
    server = kueue_mode()
    run(server, hold)
    assert (held(server), active(server)) == (True, False)
    assert job(server)["spec"]["suspend"] is False, "Kueue suspends"
    assert [entry.reply["kind"] for entry in server.writes] == ["TrainJob", "Workload"], "the mark first"
    run(server, hold)
    assert len(server.writes) == 2


def test_hold_in_plain_mode() -> None:
    server = plain_mode()
    run(server, hold)
    assert (held(server), job(server)["spec"]["suspend"], count(server, NAME)) == (True, True, 1)
    assert len(server.writes) == 1
    run(server, hold)
    assert len(server.writes) == 1


def test_hold_before_there_is_a_workload() -> None:
    server = kueue_mode()
    server.remove(WORKLOADS, WORKLOAD)
    run(server, hold)
    assert held(server)
    assert len(server.writes) == 1


def test_hold_does_not_touch_another_jobs_workload() -> None:
    """The label alone proves nothing."""
    server = kueue_mode()
    server.put(objects.workload(owned_by=objects.owner("TrainJob", NAME, "uid-other")))
    run(server, hold)
    assert active(server) is None


def test_release_in_kueue_mode() -> None:
    """The mark goes last: whoever is cut off in between can repeat it. A is the controller's."""
    server = kueue_mode(held=True, active=False)
    run(server, release)
    assert (held(server), active(server), count(server, NAME)) == (False, True, 1)
    assert job(server)["spec"]["suspend"] is True
    assert [entry.reply["kind"] for entry in server.writes] == ["Workload", "TrainJob"]
    run(server, release)
    assert len(server.writes) == 2


def test_release_in_plain_mode() -> None:
    server = plain_mode(held=True)
    run(server, release)
    assert (held(server), job(server)["spec"]["suspend"], count(server, NAME)) == (False, False, 2)
    assert len(server.writes) == 1
    run(server, release)
    assert len(server.writes) == 1


def test_release_in_plain_mode_waits_for_the_previous_execution() -> None:
    server = plain_mode(held=True)
    server.put(objects.pod(deleting=True))
    pauses = itertools.count(1)

    def before(request: Request) -> None:
        if isinstance(request, Pause) and next(pauses) == 3:
            server.remove(PODS, objects.pod()["metadata"]["name"])

    server.before = before
    run(server, release)
    assert count(server, NAME) == 2
    assert next(pauses) == 4


def test_release_in_plain_mode_gives_up() -> None:
    server = plain_mode(held=True)
    server.put(objects.pod())
    with pytest.raises(TimedOutError, match=r"after 3 s: StillRunning: .*x7k2p"):
        run(server, release, seconds=3)
    assert server.writes == []


def test_release_in_plain_mode_while_trainer_is_behind() -> None:
    server = plain_mode(held=True)
    server.put(objects.jobset(0))
    with pytest.raises(TimedOutError, match="TrainerBehind"):
        run(server, release, seconds=1)
    assert server.writes == []


def test_release_of_a_job_that_was_never_opened_leaves_it_closed() -> None:
    server = plain_mode(held=True, annotations={}, gates=GATE)
    run(server, release)
    assert (held(server), job(server)["spec"]["suspend"], count(server, NAME)) == (False, True, 1)


def test_release_without_a_hold() -> None:
    """Suspended by somebody else: that is not ours to lift."""
    for server in (kueue_mode(active=False), plain_mode(suspend=True)):
        run(server, release)
        assert server.writes == []


@pytest.mark.parametrize("operation", [hold, release])
@pytest.mark.parametrize(
    ("more", "kind", "says"),
    [
        ({"status": {"Complete": True}}, RejectedError, r"has ended \(Complete\)"),
        ({"deleting": True}, RejectedError, "is being deleted"),
        ({"uid": "uid-other"}, RefusedError, "is gone"),
    ],
    ids=["ended", "being deleted", "another uid"],
)
def test_too_late(
    operation: Callable[..., Operation[Any]], more: dict[str, Any], kind: type[Exception], says: str
) -> None:
    server = kueue_mode(held=operation is release, **more)
    with pytest.raises(kind, match=says):
        run(server, operation)
    assert server.writes == []


@pytest.mark.parametrize("operation", [hold, release])
@pytest.mark.parametrize("mode", [kueue_mode, plain_mode])
def test_a_conflict_keeps_what_others_wrote(
    operation: Callable[..., Operation[Any]], mode: Callable[..., ApiServer]
) -> None:
    server = mode(held=operation is release)
    touched: set[object] = set()

    def before(request: Request) -> None:
        if isinstance(request, Replace) and request.resource not in touched:
            touched.add(request.resource)
            name = request.body["metadata"]["name"]
            server.edit(request.resource, name, lambda body: body["metadata"].setdefault("labels", {}).update(x="y"))

    server.before = before
    run(server, operation)
    assert held(server) is (operation is hold)
    assert job(server)["metadata"]["labels"]["x"] == "y"


@pytest.mark.parametrize("operation", [hold, release])
def test_a_storm_of_conflicts_is_given_up(operation: Callable[..., Operation[Any]]) -> None:
    server = kueue_mode(held=operation is release, active=operation is hold)

    def before(request: Request) -> None:
        if isinstance(request, Replace):
            name, touched = request.body["metadata"]["name"], {"touched": str(server.state.version)}
            server.edit(request.resource, name, lambda body: body["metadata"].setdefault("labels", {}).update(touched))

    server.before = before
    with pytest.raises(TimedOutError, match="8 times in a row"):
        run(server, operation)
    assert server.writes == []


@pytest.mark.parametrize("operation", [hold, release])
@pytest.mark.parametrize("mode", [kueue_mode, plain_mode])
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("error", [Crash(), UnreachableError("lost")], ids=["crash", "lost"])
def test_a_second_try_after_anything(
    operation: Callable[..., Operation[Any]], mode: Callable[..., ApiServer], where: str, error: BaseException
) -> None:
    """At whichever request it goes wrong, the second try finishes; in plain mode A is raised once."""
    for number in itertools.count():
        server = mode(held=operation is release) if mode is plain_mode else mode(held=operation is release, active=True)
        if mode is kueue_mode and operation is release:
            server.edit(WORKLOADS, WORKLOAD, lambda body: body["spec"].update(active=False))
        counter = itertools.count()
        reached: list[int] = []

        def hook(_: Request, __: object = None, n: int = number, counter: Any = counter, seen: Any = reached) -> None:
            if next(counter) == n:
                seen.append(n)
                raise error

        setattr(server, where, hook)
        with contextlib.suppress(Crash, ApiError):
            run(server, operation)
        server.before, server.after = lambda _: None, lambda _, __: None
        run(server, operation)
        assert held(server) is (operation is hold)
        if mode is kueue_mode:
            assert active(server) is (operation is release)
        else:
            assert count(server, NAME) == (2 if operation is release else 1)
        if not reached:
            break
    assert number >= 2


def test_hold_then_release_runs_once_more_under_a_new_count() -> None:
    server = plain_mode()
    run(server, hold)
    server.edit(JOBSETS, NAME, lambda body: body["spec"].update(suspend=True))
    server.put(objects.job(1))
    run(server, release)
    assert count(server, NAME) == 2


@pytest.mark.parametrize(("operation", "before"), [(hold, False), (release, True)])
def test_a_kind_that_is_not_served_is_no_workload_that_is_not_there(
    operation: Callable[..., Operation[Any]], before: bool
) -> None:
    """The mark is there then, so that repeating it does the rest."""
    server = kueue_mode(held=before, active=not before)

    def not_served(request: Request) -> None:
        if isinstance(request, List) and request.resource == WORKLOADS:
            raise NotServedError("the server could not find the requested resource", status=404)

    server.before = not_served
    with pytest.raises(NotServedError):
        run(server, operation)
    assert (held(server), active(server)) == (True, not before)
    server.before = lambda _: None
    run(server, operation)
    assert (held(server), active(server)) == (not before, before)
