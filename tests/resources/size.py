"""How long `pulumi up` takes for many gated jobs, beside pulumi-kubernetes creating as many plain TrainJobs.

    python -m resources.size 200

starts a local cluster without a real node, measures all in one run, and prints the figures. The jobs wait for quota:
what is measured is how they are made. The one preflight of a run is measured alone, and left out. Beside
gated jobs with one opening for all there are such with an opening each, and as many dynamic resources that do nothing
at all (JobIdentity), which no gate could do without.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pulumi_kubernetes.apiextensions import CustomResource

from dispatch_gates.cluster.preflight import require
from dispatch_gates.contract import names
from dispatch_gates.contract.workload import parse_workload
from dispatch_gates.operations.preflight import Asked
from dispatch_gates.resources import GatedTrainJob, JobIdentity, JobOpening, SweepOpening
from dispatch_local.cluster import Cluster
from resources.heartbeat import heartbeat
from resources.programs import inputs
from resources.stacks import CONFIG, LEASE, Program, Stack
from world import Deployment, World, until

REST_SECONDS: Final = 5.0
"""How long nothing changes in a cluster that has come to rest: no controller of these pauses for so long."""


@dataclass(frozen=True)
class Ups:
    """Seconds: the first `up`, until Kueue had seen all jobs as they are after it, and the `up` after that."""

    first: float
    settled: float
    again: float

    def less(self, seconds: float) -> Ups:
        """Return the same without the seconds that something else took of the first `up`."""
        return replace(self, first=self.first - seconds, settled=self.settled - seconds)

    def beside(self, other: Ups) -> str:
        """Return what people want to know, with how many times as long as `other` it takes."""
        return (
            f"up {self.first:6.1f} s, {self.first / other.first:4.2f} times; "
            f"Kueue done after {self.settled:6.1f} s; again {self.again:5.1f} s, {self.again / other.again:4.2f} times"
        )


@dataclass(frozen=True)
class Figures:
    """The figures for a number of jobs. The one preflight of a run is no part of those of the gated jobs."""

    jobs: int
    preflight: float
    plain: Ups
    gated: Ups
    one_by_one: Ups
    empty: Ups

    def __str__(self) -> str:
        rows = {
            "plain TrainJobs": self.plain.beside(self.plain),
            "gated jobs, one opening": self.gated.beside(self.plain),
            "gated jobs, an opening each": self.one_by_one.beside(self.plain),
            "as many identities": self.empty.beside(self.plain),
        }
        lines = [f"  {name:28} {what}" for name, what in rows.items()]
        return "\n".join([f"{self.jobs} jobs; preflight, left out here: {self.preflight:.1f} s", *lines])


def measure(world: World, new_stack: Callable[[str], Stack], jobs: int, rest: float = REST_SECONDS) -> Figures:
    """Run all, one after the other, and destroy them; the cluster rests in between."""
    plain = _timed(world, new_stack("plain"), lambda: _plain(world, jobs), jobs, rest)
    gated = _timed(world, new_stack("gated"), lambda: _gated(world, jobs), jobs, rest)
    one_by_one = _timed(world, new_stack("one-by-one"), lambda: _one_by_one(world, jobs), jobs, rest)
    empty = _timed(world, new_stack("empty"), lambda: _empty(jobs + 2), 0, rest)
    preflight = _preflight(world)
    return Figures(jobs, preflight, plain, gated.less(preflight), one_by_one.less(preflight), empty)


def _preflight(world: World) -> float:
    """Return how long the preflight of a run takes, with the settings of these stacks."""
    given, seconds = inputs(world), float(CONFIG["dispatch:preflightSeconds"])
    runtime = given["runtime_kind"], given["runtime"]
    begin = time.monotonic()
    require(world.target, Asked(world.namespace, given["queue"], runtime, lease=LEASE, watch_seconds=seconds))
    return time.monotonic() - begin


def _timed(world: World, stack: Stack, program: Program, jobs: int, rest: float) -> Ups:
    """Run `up` twice and destroy. Each begins when the cluster does nothing more: it would pay for what was before."""
    stack.preview(program)  # so that the stack exists, and what is read once has been read
    begin = time.monotonic()
    assert stack.up(program)["create"] >= jobs
    done = time.monotonic()
    until("Kueue to be done with all jobs", lambda: _past_gate(world) == jobs)
    settled = time.monotonic()
    _await_rest(world, rest)
    rested = time.monotonic()
    assert stack.up(program).unchanged
    again = time.monotonic()
    stack.destroy()
    until("all of them to be gone", lambda: not _versions(world))
    _await_rest(world, rest)
    return Ups(done - begin, settled - begin, again - rested)


def _past_gate(world: World) -> int:
    return sum(not parse_workload(raw).gates.ours for raw in world.list(names.WORKLOADS))


def _versions(world: World) -> dict[str, str]:
    """Return the versions of all that is made for jobs, by UID."""
    found = [raw["metadata"] for kind in (names.TRAINJOBS, names.JOBSETS, names.WORKLOADS) for raw in world.list(kind)]
    return {metadata["uid"]: metadata["resourceVersion"] for metadata in found}


def _await_rest(world: World, seconds: float) -> None:
    """Wait until nothing that is made for jobs has changed for some seconds."""
    last, since = _versions(world), time.monotonic()

    def rests() -> bool:
        nonlocal last, since
        now = _versions(world)
        if now != last:
            last, since = now, time.monotonic()
        return time.monotonic() - since >= seconds

    until("the cluster to come to rest", rests, pause=0.5)


def _gated(world: World, jobs: int) -> None:
    SweepOpening("many", jobs=_started(world, jobs))


def _one_by_one(world: World, jobs: int) -> None:
    for number, job in enumerate(_started(world, jobs)):
        JobOpening(f"job-{number}", job=job)


def _started(world: World, jobs: int) -> list[GatedTrainJob]:
    identity = JobIdentity("many")
    return [GatedTrainJob(f"job-{number}", ulid=identity.of(str(number)), **inputs(world)) for number in range(jobs)]


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
