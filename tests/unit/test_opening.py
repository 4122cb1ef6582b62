"""Open, against the model API server.

Aspects: the comma list on the real operation (BL-13); success without a write past the gate; a fence for jobs that
ended or are being deleted; conflicts, which keep what others changed; lost replies and crashes at every request; plain
mode: one update, after JobSet and Jobs are there; holds.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from dispatch_gates.contract.names import ADMISSION_GATED_BY, GATE, JOBSETS, OPENED, TRAINJOBS
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.operations.errors import RefusedError, RejectedError, TimedOutError
from dispatch_gates.operations.opening import Opened, open_job
from dispatch_gates.operations.tries import CONFLICTS
from dispatch_gates.requests import (
    ApiError,
    ConflictError,
    DeniedError,
    Pause,
    Replace,
    Request,
    UnreachableError,
)
from model import objects
from model.apiserver import ApiServer, Crash
from model.objects import NAME, TEAM
from model.promises import count

UID = "uid-trainjob"


def gated(gates: str | None = GATE, **more: Any) -> ApiServer:
    """A job in Kueue mode, with this value of the gate."""
    return ApiServer(objects.trainjob(0, gates=gates, **more))


def plain(*, jobset: bool = True, **more: Any) -> ApiServer:
    """A job in plain mode, gated."""
    job = objects.trainjob(0, gates=GATE, queue=None, **more)
    return ApiServer(job, *([objects.jobset(0), objects.job(0, status={})] if jobset else []))


def opened(server: ApiServer) -> Opened:
    return server.run(open_job(TEAM, NAME, UID, seconds=5))


def value(server: ApiServer) -> object:
    """Return the annotation, or the word `absent`."""
    return server.read(TRAINJOBS, NAME)["metadata"].get("annotations", {}).get(ADMISSION_GATED_BY, "absent")


@pytest.mark.parametrize(
    ("gates", "left", "held_by"),
    [
        (GATE, "absent", ()),
        (f"a.io/x,{GATE}", "a.io/x", ("a.io/x",)),
        (f" a.io/x , {GATE} ", "a.io/x", ("a.io/x",)),
        (f"{GATE},a.io/x", "a.io/x", ("a.io/x",)),
        (f"{GATE},b.io/y,a.io/x", "b.io/y,a.io/x", ("b.io/y", "a.io/x")),
        (f"{GATE},", "absent", ()),
    ],
    ids=repr,
)
def test_opens(gates: str, left: str, held_by: tuple[str, ...]) -> None:
    server = gated(gates)
    before = server.read(TRAINJOBS, NAME)
    result = opened(server)
    assert (result.already, result.held_by) == (False, held_by)
    assert value(server) == left
    after = server.read(TRAINJOBS, NAME)
    for body in (before, after):
        body["metadata"].pop("resourceVersion")
        body["metadata"]["annotations"].pop(ADMISSION_GATED_BY, None)
    assert after == before, "nothing else is touched: suspend is Kueue's"
    assert [type(entry.request) for entry in server.writes] == [Replace]


@pytest.mark.parametrize(
    ("gates", "held_by"),
    [
        ("a.io/x", ("a.io/x",)),
        (f"a.io/x,x{GATE}", ("a.io/x", f"x{GATE}")),
        (f"a.io/x,{GATE}/extra", ("a.io/x", f"{GATE}/extra")),
        ("", ()),
        (None, ()),
    ],
    ids=repr,
)
def test_past_its_gate_already(gates: str | None, held_by: tuple[str, ...]) -> None:
    server = gated(gates)
    before = server.read(TRAINJOBS, NAME)
    result = opened(server)
    assert (result.already, result.held_by) == (True, held_by)
    assert (server.writes, server.read(TRAINJOBS, NAME)) == ([], before)


@pytest.mark.parametrize(
    "more",
    [{"status": {"Complete": True}}, {"status": {"Failed": True}}, {"deleting": True}, {"suspend": False}],
    ids=["complete", "failed", "being deleted", "running"],
)
def test_past_its_gate_whatever_became_of_it(more: dict[str, Any]) -> None:
    server = gated(None, **more)
    assert opened(server).already
    assert server.writes == []


@pytest.mark.parametrize("make", [gated, plain], ids=["Kueue mode", "plain mode"])
@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"status": {"Complete": True}}, r"ended \(Complete\)"),
        ({"status": {"Failed": True}}, r"ended \(Failed\)"),
        ({"deleting": True}, "is being deleted"),
    ],
    ids=["complete", "failed", "being deleted"],
)
def test_too_late(make: Callable[..., ApiServer], more: dict[str, Any], says: str) -> None:
    server = make(**more)
    with pytest.raises(RejectedError, match=f"{says} without ever having been opened"):
        opened(server)
    assert server.writes == []


@pytest.mark.parametrize("uid", ["uid-before", "uid-trainjob"], ids=["another uid", "gone"])
def test_no_such_job(uid: str) -> None:
    server = gated() if uid != UID else ApiServer()
    with pytest.raises(RefusedError, match="is gone; it was not opened"):
        server.run(open_job(TEAM, NAME, uid))
    assert server.writes == []


# Others write, too.


def _before_writes(server: ApiServer, *changes: Callable[[JsonObject], object]) -> None:
    """Have somebody make these changes, one before each of our writes."""
    left = list(changes)

    def before(request: Request) -> None:
        if isinstance(request, Replace) and left:
            server.edit(TRAINJOBS, NAME, left.pop(0))

    server.before = before


def _annotate(**marks: str) -> Callable[[JsonObject], object]:
    return lambda body: body["metadata"].setdefault("annotations", {}).update(marks)


def _gates(gates: str) -> Callable[[JsonObject], object]:
    return _annotate(**{ADMISSION_GATED_BY: gates})


@pytest.mark.parametrize(
    ("first", "then", "left"),
    [
        (GATE, f"{GATE},b.io/y", "b.io/y"),
        (f"a.io/x,{GATE}", GATE, "absent"),
        (f"a.io/x,{GATE}", f"{GATE},b.io/y", "b.io/y"),
    ],
    ids=["added", "removed", "swapped"],
)
def test_a_conflict_keeps_what_another_did_to_its_gate(first: str, then: str, left: str) -> None:
    server = gated(first)
    _before_writes(server, _gates(then))
    assert not opened(server).already
    assert value(server) == left
    assert len(server.writes) == 1


def test_a_conflict_that_removes_our_entry() -> None:
    """Another replica of the adapter was faster."""
    server = gated()
    _before_writes(server, lambda body: body["metadata"].pop("annotations"))
    assert opened(server).already
    assert server.writes == []


def test_a_conflict_in_which_the_job_ended() -> None:
    server = gated()
    _before_writes(server, lambda body: body["status"].update(conditions=objects.conditions({"Failed": True})))
    with pytest.raises(RejectedError, match="Failed"):
        opened(server)
    assert server.writes == []


def test_a_conflict_in_which_the_job_was_made_anew() -> None:
    server = gated()
    _before_writes(server, lambda body: body["metadata"].update(uid="uid-later"))
    with pytest.raises(RefusedError, match="is gone"):
        opened(server)
    assert server.writes == []


def test_a_storm_of_conflicts_is_given_up() -> None:
    server = gated()
    _before_writes(server, *(_annotate(touched=str(number)) for number in range(20)))
    with pytest.raises(TimedOutError, match="8 times in a row"):
        opened(server)
    assert len([request for request in server.requests if isinstance(request, Replace)]) == CONFLICTS
    assert value(server) == GATE


def test_silence_is_given_up_soon_and_quoted() -> None:
    server = gated()

    def before(request: Request) -> None:
        if isinstance(request, Replace):
            raise UnreachableError("500 failed calling webhook", status=500)

    server.before = before
    with pytest.raises(TimedOutError, match=r"was not opened, as far as can be seen: .*failed calling webhook"):
        opened(server)
    assert len([request for request in server.requests if isinstance(request, Replace)]) == 2
    assert value(server) == GATE


def test_a_denied_write_is_raised() -> None:
    server = gated()

    def before(request: Request) -> None:
        if isinstance(request, Replace):
            raise DeniedError("policy says no", status=403)

    server.before = before
    with pytest.raises(DeniedError, match="policy says no"):
        opened(server)


# Faults.


@pytest.mark.parametrize("make", [gated, plain], ids=["Kueue mode", "plain mode"])
@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("before", Crash()),
        ("before", UnreachableError("lost")),
        ("before", ConflictError("busy")),
        ("before", DeniedError("401")),
        ("after", Crash()),
        ("after", UnreachableError("lost")),
    ],
    ids=["crash before", "lost before", "conflict", "denied", "crash after", "lost after"],
)
def test_a_second_try_after_anything(make: Callable[..., ApiServer], where: str, error: BaseException) -> None:
    """At whichever request it goes wrong: opened once, with A as after one Open."""
    for number in itertools.count():
        server = make()
        counter = itertools.count()
        reached: list[int] = []

        def hook(_: Request, __: object = None, n: int = number, counter: Any = counter, seen: Any = reached) -> None:
            if next(counter) == n:
                seen.append(n)
                raise error

        setattr(server, where, hook)
        with contextlib.suppress(Crash, ApiError):
            opened(server)
        server.before, server.after = lambda _: None, lambda _, __: None
        assert opened(server).already or reached
        assert value(server) == "absent"
        assert len(server.writes) == 1
        assert count(server, NAME) == (1 if make is plain else 0)
        if not reached:
            break
    assert number >= 2


# Plain mode.


def test_plain_mode_opens_in_one_update() -> None:
    server = plain()
    result = opened(server)
    job = server.read(TRAINJOBS, NAME)
    assert not result.already
    assert (job["spec"]["suspend"], count(server, NAME), value(server)) == (False, 1, "absent")
    assert job["metadata"]["annotations"] == {OPENED: "true"}
    assert len(server.writes) == 1
    assert opened(server).already
    assert len(server.writes) == 1


def test_plain_mode_waits_for_the_jobset() -> None:
    """Trainer makes it after the TrainJob; a raise before that could be overtaken by Trainer's first apply."""
    server = plain(jobset=False)

    def before(request: Request) -> None:
        if isinstance(request, Pause) and not server.has(JOBSETS, NAME):
            server.put(objects.jobset(0))
            server.put(objects.job(0, status={}))

    server.before = before
    opened(server)
    assert count(server, NAME) == 1


def test_plain_mode_without_a_jobset_in_time() -> None:
    server = plain(jobset=False)
    with pytest.raises(TimedOutError, match=r"cannot run yet, after 5 s: StillRunning: .*JobSet does not exist yet"):
        opened(server)
    assert server.writes == []
    assert sum(request.seconds for request in server.requests if isinstance(request, Pause)) == 5


def test_plain_mode_with_an_unreadable_count_is_not_waited_for() -> None:
    server = ApiServer(objects.trainjob("x", gates=GATE, queue=None), objects.jobset("x"), objects.job("x", status={}))
    with pytest.raises(TimedOutError, match="CountUnreadable"):
        opened(server)
    assert not [request for request in server.requests if isinstance(request, Pause)]


@pytest.mark.parametrize("make", [gated, plain], ids=["Kueue mode", "plain mode"])
def test_under_a_hold_the_gate_opens_and_the_hold_stays(make: Callable[..., ApiServer]) -> None:
    server = make(held=True)
    assert not opened(server).already
    job = server.read(TRAINJOBS, NAME)
    assert (job["spec"]["suspend"], count(server, NAME), value(server)) == (True, 0, "absent")
    assert "dispatch.phpboyscout.uk/hold" in job["metadata"]["annotations"]
    assert (OPENED in job["metadata"]["annotations"]) is (make is plain)
    assert opened(server).already


def test_plain_mode_with_an_administrators_gate() -> None:
    server = plain()
    """Nobody would keep it: to say that it holds the job would be wrong, and to run the job too."""
    server.edit(TRAINJOBS, NAME, _gates(f"{GATE},a.io/x"))
    with pytest.raises(RefusedError, match=r"gates of others \(a.io/x\), which nobody keeps in plain mode"):
        opened(server)
    assert server.writes == []
