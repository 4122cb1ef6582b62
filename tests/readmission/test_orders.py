"""The pass, cut off and held up between any two of its requests, on a real control plane.

What is tested: a crash at each request, and a stall at each request across an eviction and the next reservation,
never lead to a second execution with the same A, nor to one beside the other. Each pass is the shipped generator,
sent request by request; the judge is the API server's audit log.
"""

from __future__ import annotations

from itertools import count, takewhile

import pytest

from dispatch_admission.act import Result
from dispatch_gates.requests import Replace, ReplaceStatus
from dispatch_local.cluster import Cluster
from readmission.passes import Pass, killed_after, reserved_and_quiet, stalled_after, world_by_request
from world import World


@pytest.fixture(scope="module")
def world(cluster: Cluster) -> World:
    return world_by_request(cluster)


def test_pass_is_two_writes_and_a_few_reads(world: World) -> None:
    job = world.started_and_opened()
    reserved_and_quiet(world, job)
    longest = Pass(world, job)
    assert longest.finish().result is Result.ADMITTED
    assert [type(request) for request in longest.writes] == [Replace, ReplaceStatus]
    assert len(longest.sent) <= 12, longest.sent
    world.running(job, 1)
    world.stop(job)


def test_crash_at_each_request(world: World) -> None:
    job = world.started_and_opened()
    counts = (killed_after(world, job, requests) for requests in count(1))
    executions = list(takewhile(lambda found: found is not None, counts))
    assert len(executions) >= 10
    # The last pass was whole, and an execution like the others.
    assert world.judged(job)[:-1] == tuple(executions)
    world.stop(job)


def test_stall_at_each_request_across_an_eviction_and_a_new_reservation(world: World) -> None:
    job = world.started_and_opened()
    found = (stalled_after(world, job, requests) for requests in count(1))
    outcomes = [outcome for outcome in takewhile(lambda outcome: outcome is not None, found) if outcome]
    assert len(outcomes) >= 8
    assert {outcome.result for outcome in outcomes} == {Result.CONFLICT}, outcomes
    assert len(world.judged(job)) == 2 * len(outcomes) + 1
    world.stop(job)
