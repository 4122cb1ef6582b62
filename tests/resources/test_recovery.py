"""What goes wrong on the way: after each, the plain next run ends with one TrainJob, or says the one step to take.

Covered: a job deleted by hand, its pods gone or not; another cluster, or none, behind the kubeconfig; checkpoints
switched off; a gate that is not proven. Runs that are cut off: test_crashes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dispatch_gates.cluster import run
from dispatch_gates.operations.jobs import cluster_identity
from dispatch_gates.operations.stop import delete_job
from resources.programs import component, inputs, job_of, jobs_of, parts, remains_of
from resources.requests_log import RequestsLog
from resources.stacks import LEASE, Stack
from world import World, until

# The SDK leaves behind the event loop of a program that failed; `stack` collects it while these filters hold.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <coroutine object run_in_stack:pytest.PytestUnraisableExceptionWarning"
    ),
]

NOWHERE = "/nowhere/kubeconfig"


def test_job_deleted_by_hand(world: World, stack: Stack) -> None:
    program = component(inputs(world))
    stack.up(program)
    job = job_of(world, stack)
    run(world.target, delete_job(world.namespace, job.meta.name, job.meta.uid))
    until("the end of all of it", lambda: not remains_of(job, world))

    stack.refresh()
    assert stack.resources("GatedTrainJob") == []
    # That submission may have run: it is not run again under the same number.
    assert "submission 1 was opened already" in stack.up_fails(program)
    assert job_of(world, stack).gates.ours
    stack.up(component(inputs(world), submission=2))
    assert job_of(world, stack).meta.name == f"{job.meta.name[:-1]}2"
    assert not job_of(world, stack).gates.closed
    stack.destroy()


def test_job_deleted_by_hand_whose_pod_runs_on(served: World, stack: Stack) -> None:
    """Dropped from the state it would be started anew beside that pod."""
    stack.up(component(inputs(served)))
    job = job_of(served, stack)
    pod = served.running(job, 1)
    served.linger(pod)
    run(served.target, delete_job(served.namespace, job.meta.name, job.meta.uid))
    until("the end of the TrainJob", lambda: not jobs_of(served, stack))

    stack.refresh()
    kept = stack.outputs("GatedTrainJob")
    assert (kept["state"], kept["uid"]) == ("Deleting", job.meta.uid)
    assert pod["metadata"]["name"] in kept["reason"]
    served.let_go(pod)
    until("the end of all of it", lambda: not remains_of(job, served))
    stack.refresh()
    assert stack.resources("GatedTrainJob") == []
    stack.destroy()


def test_another_cluster_and_no_cluster(world: World, stack: Stack, tmp_path: Path) -> None:
    program = parts(inputs(world))
    stack.up(program)

    # Out of reach is not gone.
    config = yaml.safe_load(Path(stack.env["KUBECONFIG"]).read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    silent = tmp_path / "silent"
    silent.write_text(yaml.safe_dump(config))
    assert "no answer from https://127.0.0.1:1" in stack.refresh_fails(KUBECONFIG=str(silent))
    assert "cannot be used" in stack.destroy_fails(KUBECONFIG=NOWHERE)
    assert stack.resources("GatedTrainJob")

    here = run(world.target, cluster_identity())
    elsewhere = "00000000-0000-4000-8000-000000000000"
    stack.edit(lambda outputs: _moved(outputs, elsewhere))
    for printed in (
        stack.refresh_fails(),
        stack.destroy_fails(),
        stack.up_fails(parts(inputs(world), opened=True)),
    ):
        assert here in printed
        assert elsewhere in printed
    assert job_of(world, stack).gates.ours
    stack.edit(lambda outputs: _moved(outputs, here))
    assert stack.up(program).unchanged
    stack.destroy()


def _moved(outputs: dict[str, Any], cluster: str) -> None:
    if "cluster" in outputs:
        outputs["cluster"] = cluster


def test_nothing_is_started_where_the_engine_does_not_record(world: World, stack: Stack) -> None:
    printed = stack.up_fails(component(inputs(world)), PULUMI_SKIP_CHECKPOINTS="true")
    assert "PULUMI_SKIP_CHECKPOINTS is set" in printed
    assert jobs_of(world, stack) == []


def test_observe_only(world: World, stack: Stack) -> None:
    """The gate is not proven: here because nobody renews the Lease that the stack names."""
    stack.configure(lease="nobody")
    log = RequestsLog(world)
    printed = stack.up_fails(component(inputs(world)))
    assert f"observe-only: the gate of queue {world.namespace}/queue is not proven" in printed
    assert "nobody" in printed
    assert f"dispatch-gates preflight -n {world.namespace} -q queue" in printed
    assert jobs_of(world, stack) == stack.resources("GatedTrainJob") == []
    assert {line.rpartition("-")[2] for line in log.writes()} == {"s0"}, "of the probe alone"

    stack.configure(lease=LEASE)
    stack.up(component(inputs(world)))
    stack.configure(lease="nobody")
    # What takes away is never refused, what lets run is.
    stack.up(component(inputs(world), hold=True))
    assert "observe-only" in stack.up_fails(component(inputs(world), hold=False))
    assert job_of(world, stack).held
    stack.refresh()
    stack.destroy()
    assert jobs_of(world, stack) == []
