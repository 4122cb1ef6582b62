"""What people see where the guard rails refuse a manager's write, of which nobody but that manager is told.

Aspects: a queue that lost the check, so that Kueue admits a job whose A nobody raised: no pod runs, Status says why
and what to do, and doing it mends it.
"""

from __future__ import annotations

from pathlib import Path

from dispatch_gates.cluster import run
from dispatch_gates.contract import names
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.operations.status import JobState, Status, status
from dispatch_local.cluster import Cluster
from world import ControllerProcess, World, count_of, until


def test_a_queue_without_the_check_starts_nothing_and_status_says_why(cluster: Cluster, tmp_path: Path) -> None:
    world = World(cluster).make()
    with ControllerProcess(world, tmp_path, lease="denials"):
        job = world.start()

        def check_out(body: JsonObject) -> None:
            del body["spec"]["admissionChecksStrategy"]

        def check_in(body: JsonObject) -> None:
            body["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": names.ADMISSION_CHECK}]}

        def look() -> Status:
            found = run(world.target, status(world.namespace, job.meta.name))
            assert found is not None
            return found

        world.change(names.CLUSTER_QUEUES, world.namespace, check_out, cluster_scoped=True)
        until("Kueue to take the check out of the Workload", lambda: not world.check(job))
        world.open(job)
        until("Kueue to start the job", lambda: not world.job(job.meta.name).suspended)
        until("Status to say why", lambda: "A was not raised for it" in look().why)
        seen = look()
        assert seen.state is JobState.STARTING
        assert f"{job.meta.name}-node-0 (A=0)" in seen.why
        assert "Hold and Release the job" in seen.why
        assert world.pods_of(job) == ()

        world.change(names.CLUSTER_QUEUES, world.namespace, check_in, cluster_scoped=True)
        world.hold(job)
        until("the job to be suspended", lambda: world.job(job.meta.name).suspended)
        world.release(job)
        assert count_of(world.running(job, 1)) > 0
