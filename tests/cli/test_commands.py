"""The commands on a real cluster: the life of a job from the command line, refusals, what is printed, and for whom.

Aspects: each command in both modes; asking first; refusals and their exit codes; documents for programs; narrow and
wide terminals; watching; missing rights.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.screens import lines, screen
from cli.test_program import documented
from dispatch_gates.cli.exits import Exit
from dispatch_gates.contract import names
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_gates.operations.status import JobState
from preflight.place import LEASE, Command, Place
from world import until

ESCAPE = "\x1b"


def done(place: Place, command: str, job: TrainJob, *more: str, code: Exit = Exit.DONE) -> str:
    """Run a command about a job, without asking; return what it wrote, errors too."""
    words = [command, job.meta.name, "-n", place.namespace, "--yes", *more]
    if command in ("open", "release"):
        words += ["--watch-seconds", "3", *([] if "--lease" in more else ["--lease", LEASE])]
    ended, out, err = Command(place.adapter, *words).ended()
    assert ended == code, (out, err)
    assert ESCAPE not in out + err
    return out + err


def document(place: Place, *words: str) -> Any:
    """Return what status says, for programs."""
    ended, out, err = Command(
        place.adapter, "status", *words, "-n", place.namespace, "-o", "json", "--lease", LEASE
    ).ended()
    assert (ended, err) == (Exit.DONE, "")
    found = json.loads(out)
    assert found["version"] == 1
    return found


@pytest.mark.parametrize("queue", ["queue", None], ids=["kueue", "plain"])
def test_a_job_from_open_to_stop(place: Place, queue: str | None) -> None:
    job = place.started(queue)
    if queue is None:
        place.jobs_exist(job)
    assert document(place, job.meta.name)["jobs"][0]["state"] == JobState.GATED
    assert f"{job.meta.name} is open." in done(place, "open", job)
    pod = place.running(job, 1)
    assert "was open already" in done(place, "open", job)
    [found] = document(place, job.meta.name)["jobs"]
    assert found["state"] == JobState.RUNNING
    assert found["pods"] == [
        {"name": pod["metadata"]["name"], "phase": "Running", "node": pod["spec"]["nodeName"], "deleting": False}
    ]
    assert "is held" in done(place, "hold", job)
    place.stands(job, JobState.HELD)
    assert "is released" in done(place, "release", job)
    place.running(job, 2)
    assert "was not held" in done(place, "release", job)
    assert "and its pods are gone" in done(place, "stop", job)
    assert place.pods_of(job) == ()
    for command in ("open", "hold", "release", "stop"):
        assert "there is no TrainJob" in done(place, command, job, code=Exit.NO)
    ended, _, err = Command(place.adapter, "status", job.meta.name, "-n", place.namespace).ended()
    assert (ended, "there is no TrainJob" in err) == (Exit.NO, True)


def test_what_a_command_did_as_a_document(place: Place) -> None:
    job = place.started("queue")
    words = ["-n", place.namespace, "--yes", "-o", "json"]
    for command, marks in (("hold", {"held": True, "opened": False}), ("stop", {})):
        ended, out, _ = Command(place.adapter, command, job.meta.name, *words).ended()
        assert ended == Exit.DONE
        found = json.loads(out[out.index("{") :])
        assert found | marks == found
        assert (found["version"], found["action"], found["uid"]) == (1, command, job.meta.uid)
        assert set(found) == documented("all") | documented(command)


def test_nobody_to_ask(place: Place) -> None:
    job = place.started("queue")
    for command in ("open", "hold", "stop"):
        ended, _, err = Command(place.adapter, command, job.meta.name, "-n", place.namespace).ended()
        assert (ended, "say --yes" in err) == (Exit.USAGE, True)
    place.stands(job, JobState.GATED)
    place.end(job)


def test_it_asks_first(place: Place) -> None:
    job = place.started("queue")
    where = [
        "--kubeconfig",
        str(place.adapter.kubeconfig),
        "--context",
        str(place.adapter.context),
        "-n",
        place.namespace,
    ]
    code, written = screen(["stop", job.meta.name, *where], 80, answers=b"n\n")
    assert (code, "nothing was done" in written) == (Exit.NO, True)
    place.stands(job, JobState.GATED)
    code, written = screen(["stop", job.meta.name, *where], 80, answers=b"y\n")
    assert (code, "that cannot be undone" in written) == (Exit.DONE, True)
    assert place.get(names.TRAINJOBS, job.meta.name) is None


@pytest.mark.parametrize("command", ["open", "release"])
def test_refused_where_the_gate_is_not_proven(place: Place, command: str) -> None:
    """There is no controller of that Lease: observe-only."""
    job = place.started("queue")
    if command == "release":
        place.hold(job)
    said = done(place, command, job, "--lease", "nobody", code=Exit.OBSERVE_ONLY)
    assert "observe-only, nothing was done" in said
    assert "no controller has ever led there" in said
    now = place.job(job.meta.name)
    assert (now.past_gate, now.held) == (False, command == "release")
    assert place.probes() == []
    place.end(job)


def test_status_of_all_jobs(place: Place) -> None:
    """Of the namespace and of a queue; an administrator's gate by name; the queue and the controller."""
    other = place.add_queue("other")
    gated = place.by_hand(
        place.asked("queue"),
        lambda body: body["metadata"]["annotations"].update(
            {names.ADMISSION_GATED_BY: f"{names.GATE},example.org/quarter-end"}
        ),
    )
    place.opened(gated)
    running, _ = place.ran("queue")
    elsewhere = place.started(other)
    plain = place.started(None)
    found = document(place)
    states = {job["name"]: job["state"] for job in found["jobs"]}
    expected = {
        gated.meta.name: JobState.HELD_BY_ADMINISTRATOR,
        running.meta.name: JobState.RUNNING,
        elsewhere.meta.name: JobState.GATED,
        plain.meta.name: JobState.GATED,
    }
    assert states == states | expected
    one = next(job for job in found["jobs"] if job["name"] == gated.meta.name)
    assert (one["heldBy"], set(one)) == (["example.org/quarter-end"], documented("a job"))
    assert found["controller"]["holder"]
    queued = document(place, "-q", other)
    assert [job["name"] for job in queued["jobs"]] == [elsewhere.meta.name]
    assert queued["queue"]["clusterQueue"] == f"{place.namespace}-other"
    assert set(queued) == documented("status") | documented("all")
    assert (
        yaml.safe_load(Command(place.adapter, "status", "-n", place.namespace, "-o", "yaml").ended()[1])["version"] == 1
    )
    _fits(place, expected)
    for job in (gated, running, elsewhere, plain):
        place.end(job)


def _fits(place: Place, expected: dict[str, JobState]) -> None:
    """Every job is there in full, and no line is longer than the terminal, or wrapped where there is none."""
    where = [
        "--kubeconfig",
        str(place.adapter.kubeconfig),
        "--context",
        str(place.adapter.context),
        "-n",
        place.namespace,
    ]
    for columns in (80, 200):
        code, written = screen(["status", *where, "--lease", LEASE], columns)
        shown = lines(written)
        assert code == Exit.DONE
        assert max(map(len, shown)) <= columns
        for name in expected:
            assert any(name in line for line in shown)
        assert ESCAPE in written
    _, out, _ = Command(place.adapter, "status", "-n", place.namespace).ended()
    assert ESCAPE not in out
    assert any("gates left: example.org/quarter-end" in line for line in out.splitlines())


def test_watching(place: Place) -> None:
    job = place.started("queue")
    command = Command(place.adapter, "status", job.meta.name, "-n", place.namespace, "--watch", "-o", "json")
    assert command.process.stdout is not None
    first = json.loads(command.process.stdout.readline())
    assert first["jobs"][0]["state"] == JobState.GATED
    place.opened(job)
    seen: list[str] = []
    while JobState.RUNNING not in seen:
        seen.append(json.loads(command.process.stdout.readline())["jobs"][0]["state"])
    command.signal(signal.SIGINT)
    code, _, err = command.ended()
    assert (code, "interrupted" in err) == (Exit.INTERRUPTED, True)

    command = Command(place.adapter, "status", job.meta.name, "-n", place.namespace, "--watch")
    assert command.process.stdout is not None
    assert job.meta.name in command.process.stdout.readline()
    place.end(job)
    code, _, err = command.ended()
    assert (code, "is gone" in err) == (Exit.DONE, True)


def test_without_rights(place: Place, tmp_path: Path) -> None:
    target = place.account("bystander", tmp_path, bare=True)
    for words in (["status"], ["hold", "dj-01arz3ndektsv4rrffq69g5fav-s1", "--yes"]):
        ended, _, err = Command(target, *words, "-n", place.namespace).ended()
        assert ended == Exit.CANNOT_TELL
        assert 'cannot list resource "trainjobs"' in err or 'cannot get resource "trainjobs"' in err


def test_quiet(place: Place) -> None:
    words = ["preflight", "-n", place.namespace, "-q", "no-such-queue", "--watch-seconds", "0.5", "--quiet"]
    assert Command(place.adapter, *words).ended() == (Exit.OBSERVE_ONLY, "", "")


@pytest.mark.parametrize("columns", [80, 200])
def test_preflight_fits(place: Place, columns: int) -> None:
    where = [
        "--kubeconfig",
        str(place.adapter.kubeconfig),
        "--context",
        str(place.adapter.context),
        "-n",
        place.namespace,
    ]
    code, written = screen(["preflight", *where, "-q", "queue", "--lease", "nobody", "--watch-seconds", "1"], columns)
    shown = lines(written)
    assert not any("watching" in line for line in shown)
    assert code == Exit.OBSERVE_ONLY
    assert max(map(len, shown)) <= columns
    assert any(line.startswith("no           Controller       ") for line in shown)


def test_deleting_what_is_left_of_a_job_takes_its_time(place: Place) -> None:
    """Stop is bounded, and says what is left."""
    job, pod = place.ran("queue")
    place.linger(pod)
    said = done(place, "stop", job, "--timeout", "2", code=Exit.NO)
    assert pod["metadata"]["name"] in said or "is still there" in said
    place.let_go(pod)
    until("its pods to be gone", lambda: not place.pods_of(job))
