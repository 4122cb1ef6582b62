"""What people are told while an operation runs, and after it: one line each, on the provider's standard error.

Covered: each state that lasts until somebody does something, with what to do; a runtime's warnings, once in a
process; the lines that say what a long wait is for; operations whose requests fail or that end early.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dispatch_gates.contract import names
from dispatch_gates.contract.trainjob import parse_trainjob
from dispatch_gates.operations.start import Started
from dispatch_gates.operations.status import JobState
from dispatch_gates.requests import Changes, NotFoundError, Operation, Pause, Watch, find
from dispatch_gates.resources import _telling
from dispatch_gates.resources._telling import told, warn, warn_of_runtime


def seen(state: JobState, **more: Any) -> dict[str, Any]:
    return {"namespace": "team-a", "name": "dj-x-s1", "state": str(state), "reason": "so it is", "held_by": [], **more}


@pytest.mark.parametrize(
    ("outs", "said"),
    [
        (
            seen(JobState.HELD_BY_ADMINISTRATOR, held_by=["example.org/budget"]),
            "admission-gated-by: example.org/budget",
        ),
        (seen(JobState.HELD), "`hold=False` releases it"),
        (seen(JobState.WAITING_AT_CHECK), "so it is. It waits at the admission check"),
        (seen(JobState.UNMANAGED), "so it is. See to Kueue"),
        (seen(JobState.DEACTIVATED), "Activate its Workload"),
        (seen(JobState.SUSPENDED), "that raises A"),
    ],
)
def test_what_keeps_a_job_from_running_is_a_warning(
    outs: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    warn(outs)
    printed = capsys.readouterr().err
    assert printed.startswith("warning: TrainJob team-a/dj-x-s1 ")
    assert said in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize(
    "outs",
    [
        seen(JobState.HELD, hold=True),
        *(
            seen(state)
            for state in JobState
            if state
            not in (
                JobState.HELD,
                JobState.WAITING_AT_CHECK,
                JobState.UNMANAGED,
                JobState.DEACTIVATED,
                JobState.SUSPENDED,
            )
        ),
    ],
    ids=lambda outs: outs["state"],
)
def test_what_passes_by_itself_is_none(outs: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    warn(outs)
    assert capsys.readouterr().err == ""


def test_a_job_that_was_just_released_may_wait_for_a_moment(capsys: pytest.CaptureFixture[str]) -> None:
    warn(seen(JobState.WAITING_AT_CHECK), moving=True)
    assert capsys.readouterr().err == ""
    warn(seen(JobState.DEACTIVATED), moving=True)
    assert "Activate" in capsys.readouterr().err


def test_several_lines_of_a_reason_become_one(capsys: pytest.CaptureFixture[str]) -> None:
    warn(seen(JobState.WAITING_AT_CHECK, reason="so: one\ntwo\x1b[31m"))
    assert "so: one two\\x1b[31m." in capsys.readouterr().err


def test_a_runtime_is_warned_of_once(capsys: pytest.CaptureFixture[str]) -> None:
    def started(runtime: str, *warnings: str) -> Started:
        spec = {"runtimeRef": {"kind": "TrainingRuntime", "name": runtime}}
        job = parse_trainjob({"metadata": {"name": "a", "uid": "u", "resourceVersion": "1"}, "spec": spec})
        return Started(job, adopted=False, warnings=warnings)

    for _ in range(3):
        warn_of_runtime(started("once", "backoffLimit unset"))
    warn_of_runtime(started("other", "backoffLimit unset"))
    warn_of_runtime(started("good"))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[2] for line in lines] == ["once", "other"]
    assert all("DISPATCH_RESTART_ATTEMPT" in line for line in lines)


def test_replicated_jobs_that_are_not_given_a_are_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    job = parse_trainjob(
        {
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "1"},
            "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": "mpi"}},
        }
    )
    for _ in range(2):
        warn_of_runtime(Started(job, adopted=False, annotation_only=("launcher", "cache")))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: TrainingRuntime mpi: the containers of launcher, cache are not given DISPATCH_")
    assert names.ADMISSION_COUNT in line


@pytest.mark.parametrize(
    ("resource", "said"),
    [(names.PODS, "its pods to end"), (names.WORKLOADS, "Kueue to make its Workload"), (names.EVENTS, "API server")],
    ids=str,
)
def test_a_long_wait_says_what_it_is_for(
    resource: names.Resource, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_telling, "_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(_telling, "_AGAIN_SECONDS", 0.0)
    printed = ""

    def waiting() -> Operation[str]:
        changes = yield Watch(resource, "team-a", "1", 600.0)
        assert isinstance(changes, Changes)
        return "done"

    async def run() -> str:
        nonlocal printed
        operation = told(waiting(), "TrainJob team-a/x")
        next(operation)
        while printed.count("\n") < 2:  # the first line, and one more
            await asyncio.sleep(0)
            printed += capsys.readouterr().err
        with pytest.raises(StopIteration) as end:
            operation.send(Changes((), 0.0))
        await asyncio.sleep(0.01)
        return str(end.value.value)

    assert asyncio.run(run()) == "done"
    assert printed.startswith("info: TrainJob team-a/x: waiting for ")
    assert said in printed
    assert capsys.readouterr().err == "", "it ended"


def test_a_pause_between_watches_waits_for_what_they_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_telling, "_FIRST_SECONDS", 0.0)

    def stopping() -> Operation[None]:
        yield Watch(names.TRAINJOBS, "team-a", "1", 600.0)
        yield Pause(0.5)

    async def run() -> str:
        operation = told(stopping(), "x")
        next(operation)
        operation.send(Changes((), 600.0))
        printed = ""
        while not printed:
            await asyncio.sleep(0)
            printed += capsys.readouterr().err
        operation.close()
        return printed

    assert "the TrainJob to be gone" in asyncio.run(run())


def test_errors_pass_both_ways() -> None:
    def operation() -> Operation[str]:
        assert (yield from find(names.PODS, "team-a", "x")) is None
        raise ValueError("no")

    async def run() -> None:
        running = told(operation(), "x")
        next(running)
        with pytest.raises(ValueError, match="no"):
            running.throw(NotFoundError("404"))

    asyncio.run(run())
