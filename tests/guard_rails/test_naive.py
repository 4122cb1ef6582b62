"""The contract's letter, without what the real system taught, as far as the API server can see: it refuses it.

Aspects: a check that is Pending with quota reserved in the middle of an eviction; one that was put back over an
admitted job. What policies cannot see, such as old pods, is the controller's to prove: tests/readmission.
"""

from __future__ import annotations

import json
from pathlib import Path

from dispatch_gates.contract import names
from dispatch_local.cluster import Cluster
from readmission.kinds import OTHER
from readmission.test_letter import LETTER, evictions_half_done, ready
from world import Deployment, World, count_of, until

RULE = "denied request: ready-for-an-open-reservation: "


def refused(world: World) -> bool:
    """Whether the API server refused a Ready in this namespace, as its audit log says."""
    with world.cluster.audit_log.open() as log:
        events = [json.loads(line) for line in log if RULE in line and world.namespace in line]
    return any(event["objectRef"].get("namespace") == world.namespace for event in events)


def test_eviction_in_progress(cluster: Cluster, tmp_path: Path) -> None:
    world = World(cluster, checks=(names.ADMISSION_CHECK, OTHER)).make()
    with Deployment(world, tmp_path, mutations=LETTER):
        with evictions_half_done(world):
            job = world.started_and_opened(priority="low")
            ready(world, job)
            world.started_and_opened(priority="high")
            until("the eviction to begin", lambda: world.condition(job, "Evicted") == "True")
            until("the API server to refuse Ready", lambda: refused(world))
            assert world.check(job)["state"] == "Pending"
        until("the eviction to be over", lambda: world.condition(job, "QuotaReserved") == "False")
    assert [line for line in world.violations() if "Ready while" in line] == []


def test_check_put_back_over_an_admitted_job(cluster: Cluster, tmp_path: Path) -> None:
    world = World(cluster).make()
    not_started = "!(oldObject.spec.suspend && !object.spec.suspend)"
    with Deployment(world, tmp_path, mutations=LETTER):
        with world.only(names.TRAINJOBS, not_started):
            job = world.started_and_opened()
            until("the job to be admitted", lambda: world.condition(job, "Admitted") == "True")
            world.list_checks()
            until("the check to be taken out", lambda: world.check(job) == {})
            world.list_checks(names.ADMISSION_CHECK)
            until("the API server to refuse Ready", lambda: refused(world))
            assert world.check(job)["state"] == "Pending"
        assert count_of(world.running(job, 1)) > 0
    assert [line for line in world.violations() if "Ready while" in line] == []
