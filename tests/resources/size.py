"""How long `pulumi up` takes for many gated jobs, beside pulumi-kubernetes creating as many plain TrainJobs.

    python -m resources.size 200

starts a local cluster without a real node, measures both in one run, and prints the figures.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pulumi_kubernetes.apiextensions import CustomResource

from dispatch_gates.contract import names
from dispatch_gates.resources import GatedJob
from dispatch_local.cluster import Cluster
from resources.heartbeat import heartbeat
from resources.programs import inputs
from resources.stacks import Program, Stack
from world import ControllerProcess, World


@dataclass(frozen=True)
class Figures:
    """Seconds, for a number of jobs: the first `up` and the one after it, of gated jobs and of plain TrainJobs."""

    jobs: int
    gated: float
    gated_again: float
    plain: float
    plain_again: float

    def __str__(self) -> str:
        return (
            f"{self.jobs} jobs: up {self.gated:.1f} s gated, {self.plain:.1f} s plain ({self.gated / self.plain:.2f}); "
            f"again {self.gated_again:.1f} s gated, {self.plain_again:.1f} s plain "
            f"({self.gated_again / self.plain_again:.2f})"
        )


def measure(world: World, new_stack: Callable[[str], Stack], jobs: int) -> Figures:
    """Run both, one after the other, and destroy both."""
    plain, plain_again = _timed(new_stack("plain"), lambda: _plain(world, jobs), jobs)
    gated, gated_again = _timed(new_stack("gated"), lambda: _gated(world, jobs), jobs)
    return Figures(jobs, gated, gated_again, plain, plain_again)


def _timed(stack: Stack, program: Program, jobs: int) -> tuple[float, float]:
    stack.preview(program)  # so that the stack exists, and what is read once has been read
    begin = time.monotonic()
    assert stack.up(program)["create"] >= jobs
    middle = time.monotonic()
    assert stack.up(program).unchanged
    end = time.monotonic()
    stack.destroy()
    return middle - begin, end - middle


def _gated(world: World, jobs: int) -> None:
    for number in range(jobs):
        GatedJob(f"job-{number}", **inputs(world))


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
            with ControllerProcess(served, Path(folder), lease="size"), heartbeat(served):
                print(measure(served, lambda name: Stack(name, Path(folder), env), jobs), flush=True)
    finally:
        cluster.down()


if __name__ == "__main__":
    main(int(sys.argv[1]))
