"""The life of gated jobs under the real Pulumi engine, on a real cluster.

The engine's state file and the API server are the evidence. Covered: previews touch nothing; the identity is on
disk before there is a TrainJob, and the job before it is opened; a second run changes nothing; what the state must
not hold; opening in one run and in two; what is refused, and how it reads; new submissions; forced replacement;
outputs are what was seen last; destroy.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pulumi
import pytest

from dispatch_gates.cluster import run
from dispatch_gates.contract import names
from dispatch_gates.operations.holding import release
from dispatch_gates.resources import GatedJob, JobIdentity
from resources.programs import component, inputs, job_of, jobs_of, parts
from resources.records import Records, begins, has
from resources.requests_log import RequestsLog
from resources.stacks import Stack
from world import World, count_of, until

# The SDK leaves behind the event loop of a program that failed; `stack` collects it while these filters hold.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <coroutine object run_in_stack:pytest.PytestUnraisableExceptionWarning"
    ),
]

NOWHERE = "/nowhere/kubeconfig"


def test_preview_touches_nothing(world: World, stack: Stack) -> None:
    def unknowns() -> None:
        text = JobIdentity("other").ulid.apply(lambda ulid: f"example/{ulid.lower()}:1")
        spec = {"trainer": {"args": [text]}}
        GatedJob("train", **inputs(world, image=text, env={"IMAGE": text}, labels={"a": text}, spec=spec))

    # It works without a cluster: stack, component, identities, job and opening would be created.
    assert stack.preview(unknowns, KUBECONFIG=NOWHERE) == {"create": 6}
    assert stack.preview(component(inputs(world))) == {"create": 5}
    assert jobs_of(world, stack) == []
    assert stack.resources() == []


def test_one_run_starts_records_and_opens(world: World, stack: Stack) -> None:
    program = component(inputs(world))

    # Without a cluster there is no TrainJob: what is on disk then is what was there before any.
    printed = stack.up_fails(program, KUBECONFIG=NOWHERE)
    assert re.search(r"^ *dispatch_gates\.GatesError: the default kubeconfig cannot be used", printed, re.MULTILINE)
    ulid = stack.outputs("JobIdentity")["ulid"]
    assert stack.resources("GatedTrainJob") == stack.resources("JobOpening") == []

    assert stack.up(program)["create"] == 2
    job = job_of(world, stack)
    assert job.meta.name == f"dj-{ulid.lower()}-s1"
    assert not job.gates.closed
    recorded, opening = stack.outputs("GatedTrainJob"), stack.outputs("JobOpening")
    assert (recorded["name"], recorded["uid"], recorded["ulid"]) == (job.meta.name, job.meta.uid, ulid)
    assert (recorded["mode"], recorded["state"], recorded["admission_count"]) == ("kueue", "Gated", 0)
    assert (opening["uid"], opening["already"], opening["held_by"]) == (job.meta.uid, False, [])
    assert stack.resources("GatedTrainJob")[0]["urn"] in stack.resources("JobOpening")[0]["dependencies"]

    assert stack.up(program).unchanged
    assert_unchanged_elsewhere(stack, world)
    until("Kueue to have looked at the job", lambda: world.condition(job, "QuotaReserved") == "False")
    stack.refresh()
    assert (stack.outputs("GatedTrainJob")["state"], stack.outputs("GatedTrainJob")["is_open"]) == (
        "WaitingForQuota",
        True,
    )
    assert stack.up(program).unchanged
    assert job_of(world, stack).raw["spec"] == job.raw["spec"]

    assert stack.destroy()["delete"] == 5
    assert jobs_of(world, stack) == []
    assert stack.resources() == []


def test_the_record_is_on_disk_before_anything_can_run(world: World, stack: Stack) -> None:
    """By the engine's own state file, and the times at which the API server received the requests."""
    program, log = component(inputs(world)), RequestsLog(world)
    stack.preview(program)  # so that there is a stack to look at
    with Records(stack) as records:
        stack.up(program)
        stack.up(component(inputs(world), hold=True))
        job = job_of(world, stack)
        stack.destroy()
    ulid = job.meta.labels[names.ULID_LABEL]
    created, changed, deleted = (log.received(verb, job.meta.name) for verb in ("create", "update", "delete"))
    identity = records.first(has("JobIdentity", ulid=ulid))
    begun = records.first(begins("creating", "GatedTrainJob"))
    recorded = records.first(has("GatedTrainJob", ulid=ulid, uid=job.meta.uid))
    opening = records.first(begins("creating", "JobOpening"))
    opened = records.first(has("JobOpening", uid=job.meta.uid))
    holding = records.first(begins("updating", "GatedTrainJob"))
    deleting = records.first(begins("deleting", "GatedTrainJob"))
    moments = [identity, begun, created, recorded, opening, changed, opened, holding, deleting, deleted]
    assert moments == sorted(moments)
    assert identity < created < recorded < changed < opened < deleted


def test_outputs_are_what_was_seen_last(world: World, stack: Stack) -> None:
    def program() -> None:
        job = GatedJob("train", **inputs(world))
        pulumi.export("seen", {"held_by": job.held_by, "state": job.state})

    def gated(outputs: dict[str, Any]) -> None:
        if "held_by" in outputs:
            outputs["held_by"] = ["example.org/budget"]

    stack.up(program)
    assert stack.outputs("Stack")["seen"] == {"held_by": [], "state": "Gated"}
    # As if an administrator's gate had been there when the job was started and opened: it is gone by the refresh.
    stack.edit(gated)
    job = job_of(world, stack)
    until("Kueue to have looked at the job", lambda: world.condition(job, "QuotaReserved") == "False")
    stack.refresh()
    assert stack.up(program).unchanged
    assert stack.outputs("Stack")["seen"] == {"held_by": [], "state": "WaitingForQuota"}
    assert stack.outputs("JobOpening")["held_by"] == ["example.org/budget"], "what was seen when it was opened"
    stack.destroy()


def assert_unchanged_elsewhere(stack: Stack, world: World) -> None:
    """Run the same program in another process, with another hash seed; it must find nothing to do."""
    text = (
        "import sys, json; from pathlib import Path; from resources.programs import component\n"
        "from resources.stacks import Stack\n"
        "name, folder, env, inputs = (json.loads(argument) for argument in sys.argv[1:])\n"
        "done = Stack(name, Path(folder), env).up(component(inputs))\n"
        "assert done.unchanged, done.printed\n"
    )
    arguments = [json.dumps(value) for value in (stack.name, str(stack.directory), stack.env, inputs(world))]
    env = {**os.environ, "PYTHONHASHSEED": "7" if os.environ.get("PYTHONHASHSEED") != "7" else "8"}
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_opening_in_a_second_run(world: World, stack: Stack, new_stack: Callable[[], Stack]) -> None:
    given = inputs(world)

    printed = stack.up_fails(parts(given, opened=True))
    assert "opened" in printed
    assert "use a JobOpening" in printed
    assert "Traceback" not in printed
    assert jobs_of(world, stack) == []

    stack.up(parts(given))
    job = job_of(world, stack)
    assert job.gates.ours
    assert stack.outputs("GatedTrainJob")["is_open"] is False
    assert stack.up(parts(given, opened=True))["update"] == 1
    assert not job_of(world, stack).gates.closed
    assert stack.outputs("GatedTrainJob")["is_open"] is True

    # What was opened stays open, whoever asks otherwise.
    assert "cannot be closed again" in stack.up_fails(parts(given, opened=False))
    assert stack.up(parts(given))["update"] == 1
    assert "is open, and what was opened cannot be closed again" in stack.up_fails(parts(given, opened=False))
    assert not job_of(world, stack).gates.closed

    # The same identity in another stack is not taken over, and not touched.
    other = new_stack()
    version = job_of(world, stack).meta.resource_version
    ulid = stack.outputs("JobIdentity")["ulid"]
    assert f"belongs to 'tests/{stack.name}/job'" in other.up_fails(parts(given, ulid=ulid))
    assert job_of(world, stack).meta.resource_version == version
    assert other.resources("GatedTrainJob") == jobs_of(world, other) == []
    stack.destroy()


def test_new_submission(world: World, stack: Stack) -> None:
    given = inputs(world)
    stack.up(component(given))
    first = job_of(world, stack)

    changed = inputs(world, image="example/trainer:2")
    printed = stack.up_fails(component(changed))
    assert "image" in printed
    assert "raise `submission`" in printed
    assert "Traceback" not in printed
    assert job_of(world, stack).meta.resource_version == first.meta.resource_version

    assert stack.up(component(changed, submission=2))["replace"] == 2
    second = job_of(world, stack)
    assert (second.meta.name, second.meta.uid != first.meta.uid) == (f"{first.meta.name[:-1]}2", True)
    assert not second.gates.closed
    assert second.raw["spec"]["trainer"]["image"] == "example/trainer:2"
    assert "it only goes up" in stack.up_fails(component(given))

    # Forced by the user: deleted first all the same, and not opened a second time under one number.
    printed = stack.replace_fails(component(changed, submission=2), stack.resources("GatedTrainJob")[0]["urn"])
    assert "submission 2 was opened already" in printed
    third = job_of(world, stack)
    assert third.meta.name == second.meta.name
    assert third.meta.uid != second.meta.uid
    assert third.gates.ours
    stack.up(component(changed, submission=3))
    assert not job_of(world, stack).gates.closed
    stack.destroy()
    assert jobs_of(world, stack) == []


def test_hold_and_release_in_plain_mode(world: World, stack: Stack) -> None:
    given = inputs(world, queue=None)
    stack.up(component(given, hold=True))
    job = job_of(world, stack)
    assert (job.kueue_mode, job.opened, job.held, job.suspended, job.count) == (False, True, True, True, 0)
    recorded = stack.outputs("GatedTrainJob")
    assert (recorded["mode"], recorded["held"]) == ("plain", True)

    assert stack.up(component(given, hold=False))["update"] == 1
    world.running(job_of(world, stack), 1)
    assert stack.up(component(given, hold=False)).unchanged
    assert stack.up(component(given, hold=True))["update"] == 1
    until("the end of the pods", lambda: not world.pods_of(job))
    assert stack.up(component(given, hold=False))["update"] == 1
    world.running(job_of(world, stack), 2)
    stack.refresh()
    assert (stack.outputs("GatedTrainJob")["state"], stack.outputs("GatedTrainJob")["admission_count"]) == (
        "Running",
        2,
    )
    stack.destroy()
    assert world.pods_of(job) == ()


def test_hold_and_release_in_kueue_mode(served: World, stack: Stack) -> None:
    given = inputs(served)
    stack.up(component(given, hold=True))
    job = job_of(served, stack)
    assert (job.kueue_mode, job.past_gate, job.held, job.count) == (True, True, True, 0)
    recorded = stack.outputs("GatedTrainJob")
    assert (recorded["mode"], recorded["held"], recorded["state"]) == ("kueue", True, "Gated")
    stack.refresh()
    assert stack.outputs("GatedTrainJob")["state"] == "Held"
    assert stack.up(component(given, hold=True)).unchanged

    assert stack.up(component(given, hold=False))["update"] == 1
    first = count_of(served.running(job, 1))
    held = stack.up(component(given, hold=True))
    assert held["update"] == 1
    until("the end of the pods", lambda: not served.pods_of(job))
    # An operator released it, and a refresh saw that: it is held again.
    run(served.target, release(served.namespace, job.meta.name, job.meta.uid))
    stack.refresh()
    assert stack.up(component(given, hold=True))["update"] == 1
    assert job_of(served, stack).held
    # And where the program does not say, what holds it is told.
    printed = stack.up(component(given, deadline_seconds=None)).printed
    assert "is held by an operator" in printed
    assert stack.up(component(given, hold=False))["update"] == 1
    assert count_of(served.running(job, 2)) > first
    stack.destroy()
    assert served.pods_of(job) == ()
