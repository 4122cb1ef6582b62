"""How long `pulumi up` takes for many gated jobs, beside pulumi-kubernetes creating as many plain TrainJobs.

    python -m resources.size 200

starts a local cluster without a real node, measures all in one run, and prints the figures. The one preflight of a run
is measured alone, and left out of the ratio. Two more say what no gate could do without: as many dynamic resources as
the jobs take, which do nothing at all (JobIdentity), and how long it is until Kueue has made the Workloads of the plain
jobs, which Start waits for.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pulumi_kubernetes.apiextensions import CustomResource

from dispatch_gates.cluster.preflight import require
from dispatch_gates.contract import names
from dispatch_gates.operations.preflight import Asked
from dispatch_gates.resources import GatedTrainJob, JobIdentity, JobOpening
from dispatch_local.cluster import Cluster
from resources.heartbeat import heartbeat
from resources.programs import inputs
from resources.stacks import CONFIG, LEASE, Program, Stack
from world import Deployment, World, until


@dataclass(frozen=True)
class Figures:
    """Seconds, for a number of jobs: the first `up` and the one after it, of gated jobs, plain TrainJobs, nothing."""

    jobs: int
    gated: float
    gated_again: float
    plain: float
    plain_again: float
    workloads: float
    empty: float
    empty_again: float
    preflight: float

    def __str__(self) -> str:
        return (
            f"{self.jobs} jobs: up {self.gated:.1f} s gated, of which {self.preflight:.1f} s preflight, "
            f"{self.plain:.1f} s plain ({(self.gated - self.preflight) / self.plain:.2f}); "
            f"again {self.gated_again:.1f} s gated, {self.plain_again:.1f} s plain "
            f"({self.gated_again / self.plain_again:.2f}); {self.workloads:.1f} s until Kueue has the plain ones; "
            f"{2 * self.jobs} dynamic resources that do nothing: up {self.empty:.1f} s, again {self.empty_again:.1f} s"
        )


def measure(world: World, new_stack: Callable[[str], Stack], jobs: int) -> Figures:
    """Run all, one after the other, and destroy them."""

    def workloads() -> bool:
        made = [str(raw["metadata"]["name"]) for raw in world.list(names.WORKLOADS)]
        return sum(name.startswith("trainjob-plain-") for name in made) == jobs

    plain, known, plain_again = _timed(new_stack("plain"), lambda: _plain(world, jobs), jobs, workloads)
    gated, _, gated_again = _timed(new_stack("gated"), lambda: _gated(world, jobs), 2 * jobs)
    empty, _, empty_again = _timed(new_stack("empty"), lambda: _empty(2 * jobs), 2 * jobs)
    return Figures(jobs, gated, gated_again, plain, plain_again, known, empty, empty_again, _preflight(world))


def _preflight(world: World) -> float:
    """Return how long the preflight of a run takes, with the settings of these stacks."""
    given, seconds = inputs(world), float(CONFIG["dispatch:preflightSeconds"])
    runtime = given["runtime_kind"], given["runtime"]
    begin = time.monotonic()
    require(world.target, Asked(world.namespace, given["queue"], runtime, lease=LEASE, watch_seconds=seconds))
    return time.monotonic() - begin


def _timed(
    stack: Stack, program: Program, least: int, settled: Callable[[], bool] = lambda: True
) -> tuple[float, float, float]:
    """Return how long the first `up` took, how long it was until the cluster had settled, and the second `up`."""
    stack.preview(program)  # so that the stack exists, and what is read once has been read
    begin = time.monotonic()
    assert stack.up(program)["create"] >= least
    done = time.monotonic()
    until("the Workloads", settled)
    known = time.monotonic()
    assert stack.up(program).unchanged
    again = time.monotonic()
    stack.destroy()
    return done - begin, known - begin, again - known


def _gated(world: World, jobs: int) -> None:
    identity = JobIdentity("many")
    for number in range(jobs):
        job = GatedTrainJob(f"job-{number}", ulid=identity.of(str(number)), **inputs(world))
        JobOpening(f"job-{number}", job=job)


def _empty(resources: int) -> None:
    for number in range(resources):
        JobIdentity(f"nothing-{number}")


def _plain(world: World, jobs: int) -> None:
    given = inputs(world)
    trainer: Mapping[str, Any] = {
        "numNodes": given["nodes"],
        "numProcPerNode": 1,
        "resourcesPerNode": {"requests": given["resources_per_node"], "limits": given["resources_per_node"]},
        "env": [{"name": key, "value": value} for key, value in given["env"].items()],
    }
    # The provider's own way, in the foreground, has Trainer make the JobSet anew for as long as it is being deleted.
    annotations = {"pulumi.com/deletionPropagationPolicy": "background"}
    for number in range(jobs):
        CustomResource(
            f"job-{number}",
            api_version=names.TRAINJOBS.api_version,
            kind=names.TRAINJOBS.kind,
            metadata={
                "name": f"plain-{number}",
                "namespace": world.namespace,
                "labels": {names.QUEUE_NAME: "queue"},
                "annotations": annotations,
            },
            spec={"runtimeRef": {"kind": given["runtime_kind"], "name": given["runtime"]}, "trainer": trainer},
        )


def main(jobs: int) -> None:
    """Measure on a cluster of its own."""
    cluster = Cluster("size")
    cluster.up(node=False)
    try:
        with tempfile.TemporaryDirectory() as folder:
            served = World(cluster, pods=0).make()
            env = cluster.pulumi_env(Path(folder))
            os.environ["PATH"] = env["PATH"]  # the SDK asks for the engine's version with it
            with Deployment(served, Path(folder), "size"), heartbeat(served, 1.0):
                print(measure(served, lambda name: Stack(name, Path(folder), env), jobs), flush=True)
    finally:
        cluster.down()


if __name__ == "__main__":
    main(int(sys.argv[1]))
