"""What people do to stacks, with gated jobs in them, under the real engine and on a real cluster.

Covered: plans; protected and retained jobs; renamed ones, with aliases and without; targets; a state exported and
imported; another context of a kubeconfig; one identity in two resources; previews in which every input is unknown;
the package absent, or a newer one; what a deletion waits for.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from ulid import ULID

import dispatch_gates
from dispatch_gates.resources import GatedJob, GatedTrainJob, JobIdentity
from dispatch_gates.resources.job_inputs import JobInputs
from resources.programs import component, inputs, job_of, jobs_of, parts
from resources.requests_log import RequestsLog
from resources.stacks import Stack
from world import World

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <coroutine object run_in_stack:pytest.PytestUnraisableExceptionWarning"
    ),
]

NOWHERE = "/nowhere/kubeconfig"


def test_plan(world: World, stack: Stack, tmp_path: Path) -> None:
    """A plan holds the identity as unknown, and is kept all the same."""
    plan = tmp_path / "plan"
    program = component(inputs(world))
    assert stack.preview(program, plan=plan) == {"create": 5}
    assert stack.up(program, plan=plan)["create"] == 5
    assert not job_of(world, stack).gates.closed
    held = component(inputs(world), hold=True)
    assert stack.preview(held, plan=plan) == {"update": 2, "same": 3}, "of the opening nothing is known meanwhile"
    assert stack.up(held, plan=plan)["update"] == 1
    assert job_of(world, stack).held
    stack.preview(held, plan=plan)
    assert stack.up(held, plan=plan).unchanged
    stack.destroy()


def test_protected_and_retained(world: World, stack: Stack) -> None:
    given = inputs(world)
    stack.up(component(given, opts=pulumi.ResourceOptions(protect=True)))
    version = job_of(world, stack).meta.resource_version
    assert "protect" in stack.destroy_fails()
    assert "protect" in stack.up_fails(component(given, submission=2, opts=pulumi.ResourceOptions(protect=True)))
    assert job_of(world, stack).meta.resource_version == version
    assert len(stack.resources("GatedTrainJob")) == 1

    stack.up(component(given, opts=pulumi.ResourceOptions(retain_on_delete=True)))
    stack.destroy()
    assert stack.resources() == []
    job = job_of(world, stack)
    assert job.meta.resource_version == version

    # What was retained is taken over by the same resource with the same identity, in one piece.
    ulid = next(label for key, label in job.meta.labels.items() if key.endswith("/ulid"))
    stack.up(component(given, ulid=ulid))
    assert job_of(world, stack).meta.uid == job.meta.uid == stack.outputs("GatedTrainJob")["uid"]
    stack.destroy()
    assert jobs_of(world, stack) == []


def test_renamed(world: World, stack: Stack) -> None:
    given = inputs(world)
    stack.up(component(given))
    log = RequestsLog(world)
    renamed = component(given, "fit", opts=pulumi.ResourceOptions(aliases=[pulumi.Alias(name="train")]))
    assert stack.up(renamed).unchanged
    assert log.writes() == []
    assert {resource["urn"].rpartition("::")[2] for resource in stack.resources("GatedTrainJob")} == {"fit-job"}
    stack.destroy()

    # Without an alias it is another resource: it must not take over a job that is deleted a moment later.
    ulid = str(ULID())
    stack.up(parts(given, "job", ulid=ulid))
    job = job_of(world, stack)
    assert "a resource that was only renamed takes `aliases`" in stack.up_fails(parts(given, "other", ulid=ulid))
    assert job_of(world, stack).meta.resource_version == job.meta.resource_version
    assert stack.outputs("GatedTrainJob")["uid"] == job.meta.uid
    stack.destroy()


def test_one_identity_in_two_resources(world: World, stack: Stack) -> None:
    given, ulid = inputs(world), str(ULID())
    for _ in range(2):
        printed = stack.up_fails(parts(given, "one", "two", ulid=ulid))
        assert "Take another identity" in printed
        assert len(jobs_of(world, stack)) == len(stack.resources("GatedTrainJob")) == 1
        assert stack.outputs("GatedTrainJob")["uid"] == job_of(world, stack).meta.uid
    # Nor with another specification. Either of the two may have been the first.
    (first,) = stack.resources("GatedTrainJob")
    images = {name: None if first["urn"].endswith(f"::{name}") else "example/other:1" for name in ("one", "two")}
    assert "exists already" in stack.up_fails(lambda: _with_images(given, ulid, images))
    assert len(jobs_of(world, stack)) == 1
    stack.destroy()


def _with_images(given: dict[str, Any], ulid: str, images: Mapping[str, str | None]) -> None:
    for name, image in images.items():
        GatedTrainJob(name, ulid=ulid, **{**given, "image": image})


def test_targets(world: World, stack: Stack) -> None:
    def program() -> None:
        for name in ("first", "second"):
            GatedJob(name, **inputs(world))

    stack.up(program, target=["**first**"])
    (job,) = jobs_of(world, stack)
    assert {resource["urn"].rpartition("::")[2] for resource in stack.resources("GatedTrainJob")} == {"first-job"}
    stack.up(program)
    assert len(jobs_of(world, stack)) == 2
    assert job["metadata"]["uid"] in {found["metadata"]["uid"] for found in jobs_of(world, stack)}
    stack.destroy()


def test_state_that_moves(world: World, stack: Stack, engine: Mapping[str, str], tmp_path: Path) -> None:
    """Exported, and imported by somebody else who works in another folder."""
    program = component(inputs(world))
    stack.up(program)
    job = job_of(world, stack)
    backend, folder = tmp_path / "backend", tmp_path / "folder"
    for path in (backend, folder):
        path.mkdir()
    other = Stack(stack.name, folder, {**engine, "PULUMI_BACKEND_URL": f"file://{backend}"})
    other.imported(stack.exported())
    log = RequestsLog(world)
    assert other.up(program).unchanged
    other.refresh()
    assert other.up(program).unchanged
    assert log.writes() == []
    assert other.outputs("GatedTrainJob")["uid"] == job.meta.uid
    other.destroy()
    assert jobs_of(world, stack) == []
    # The first owner is told what has become of it.
    assert "is gone: run `pulumi refresh`" in stack.up_fails(component(inputs(world), hold=True))
    stack.refresh()
    stack.destroy()


def test_another_context_of_the_same_cluster(world: World, stack: Stack, tmp_path: Path) -> None:
    config = yaml.safe_load(Path(stack.env["KUBECONFIG"]).read_text())
    (only,) = config["contexts"]
    config["contexts"].append({**only, "name": "renamed"})
    path = tmp_path / "two-contexts"
    path.write_text(yaml.safe_dump(config))
    stack.up(component(inputs(world), kubeconfig=str(path), context=only["name"]))
    log = RequestsLog(world)
    moved = component(inputs(world), kubeconfig=str(path), context="renamed")
    assert stack.up(moved)["update"] == 2
    assert stack.up(moved).unchanged
    assert log.writes() == []
    printed = stack.up_fails(component(inputs(world), kubeconfig=str(path), context="nowhere"))
    assert "context nowhere cannot be used" in printed
    assert stack.resources("GatedTrainJob")
    stack.destroy()


def test_preview_of_inputs_that_are_all_unknown(world: World, stack: Stack) -> None:
    """Of each type: texts, whole numbers, booleans, lists, mappings, and parts of them."""

    def program() -> None:
        known: dict[str, Any] = {
            **inputs(world),
            "submission": 1,
            "image": "a:1",
            "command": ["python"],
            "args": ["-v"],
            "priority_class": "low",
            "deadline_seconds": 60,
            "labels": {"a": "b"},
            "annotations": {"a": "b"},
            "hold": False,
            "strict_executions": False,
            "check": "dispatch",
            "kubeconfig": None,
            "context": None,
            "workload_timeout_seconds": 30.0,
            "release_timeout_seconds": 300.0,
            "delete_timeout_seconds": 600.0,
        }
        assert set(known) == set(JobInputs.__annotations__)

        unknown = JobIdentity("unknown").ulid
        given: dict[str, Any] = {key: _unknown(unknown, value) for key, value in known.items()}
        GatedTrainJob("whole", ulid=unknown, opened=_unknown(unknown, False), **given)
        parts_of = {"args": [unknown], "env": {"A": unknown}, "labels": {"a": unknown}}
        GatedJob("parts", **{**inputs(world), **parts_of, "spec": {"trainer": {"x": unknown}}})

    assert stack.preview(program, KUBECONFIG=NOWHERE)["create"] == 7
    assert jobs_of(world, stack) == []


def _unknown(unknown: pulumi.Output[str], value: Any) -> pulumi.Output[Any]:
    return unknown.apply(lambda _: value)


def test_package_that_is_absent_or_another(world: World, stack: Stack, tmp_path: Path) -> None:
    """Where it is not installed, nothing is dropped from the state and nothing deleted. An upgrade changes nothing."""
    program = component(inputs(world))
    stack.up(program)
    job = job_of(world, stack)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    # What lies in the folder is found; what is only linked from it, as the package under test is, is not.
    bare = {
        "PULUMI_PYTHON_CMD": str(tmp_path / "bare" / "bin" / "python"),
        "PYTHONPATH": sysconfig.get_path("purelib"),
    }
    for printed in (stack.refresh_fails(**bare), stack.destroy_fails(**bare)):
        assert "No module named 'dispatch_gates'" in printed
    assert stack.outputs("GatedTrainJob")["uid"] == job.meta.uid
    assert job_of(world, stack).meta.resource_version == job.meta.resource_version

    newer = tmp_path / "newer"
    shutil.copytree(Path(dispatch_gates.__file__).parent, newer / "dispatch_gates")
    for path in newer.rglob("*.py"):
        path.write_text(f"{path.read_text()}\n_ADDED_BY_AN_UPGRADE = True\n")
    used = newer / "used"
    with (newer / "dispatch_gates" / "resources" / "_rules.py").open("a") as rules:
        rules.write(f"open({str(used)!r}, 'w').close()\n")
    log = RequestsLog(world)
    assert stack.up(program, PYTHONPATH=str(newer)).unchanged
    assert used.exists(), "the provider was the upgraded one"
    assert log.writes() == []
    stack.destroy()


def test_deletion_says_what_it_waits_for(served: World, stack: Stack) -> None:
    stack.up(component(inputs(served)))
    job = job_of(served, stack)
    pod = served.running(job, 1)
    served.linger(pod)
    told: list[str] = []

    def tell(line: str) -> None:
        if "waiting for" in line and not told:
            told.append(line)
            served.let_go(pod)

    assert stack.destroy(tell=tell)["delete"] == 5
    assert f"TrainJob {served.namespace}/{job.meta.name}: waiting for its pods to end" in told[0]
    assert served.pods_of(job) == ()
