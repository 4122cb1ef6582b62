"""Kueue stopped, the Trainer stopped (SIGSTOP: their webhooks hang, too), and a cluster that has no Kueue.

What is tested: each operation that cannot be done ends with a clear error, bounded, that names what hangs; nothing is
half done: no job runs that was not opened, held and opened jobs stay what they were; what needs no webhook works; and
everything succeeds when it is repeated after they go on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from dispatch_gates.contract import names
from dispatch_gates.contract.manifest import JobSpec
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_gates.operations.errors import OperationError, RefusedError, TimedOutError
from dispatch_gates.operations.status import JobState
from dispatch_gates.requests import ApiError, NotServedError
from start_gate.site import Site
from world import count_of

QUEUES = ("queue", None)


@dataclass
class Jobs:
    """For one mode: a request, and jobs that are gated, running and held."""

    asked: JobSpec
    gated: TrainJob
    running: TrainJob
    count: int
    held: TrainJob
    unwanted: TrainJob

    @classmethod
    def make(cls, site: Site, queue: str | None) -> Jobs:
        gated, unwanted = site.started(queue), site.started(queue)
        running, pod = site.ran(queue)
        held, _ = site.ran(queue)
        site.hold(held)
        site.stands(held, JobState.HELD)
        return cls(site.asked(queue), gated, running, count_of(pod), held, unwanted)


def _failed(operation: Callable[[], object]) -> str:
    """Return what an operation says that cannot be done now."""
    with pytest.raises((ApiError, OperationError)) as caught:
        operation()
    return str(caught.value)


def _marks(site: Site, job: TrainJob) -> tuple[object, ...]:
    now = site.job(job.meta.name)
    return now.gates.value, now.opened, now.held, now.suspended, now.count


@pytest.mark.parametrize(
    ("part", "webhook"),
    [("kueue", r"[mv](trainjob|workload)\.kb\.io"), ("trainer", r"(defaulter|validator)\.trainjob\.trainer")],
    ids=["kueue", "trainer"],
)
def test_a_manager_is_stopped(site: Site, part: str, webhook: str) -> None:
    jobs = [Jobs.make(site, queue) for queue in QUEUES]
    before = [[_marks(site, job) for job in (mode.gated, mode.running, mode.held)] for mode in jobs]
    with site.stopped(part), ThreadPoolExecutor(16) as pool:
        writes = [
            pool.submit(_failed, operation)
            for mode in jobs
            for operation in (
                lambda mode=mode: site.begin(mode.asked),
                lambda mode=mode: site.opened(mode.gated),
                lambda mode=mode: site.hold(mode.running),
                lambda mode=mode: site.release(mode.held),
            )
        ]
        # A deletion asks no webhook.
        deletions = [pool.submit(site.end, mode.unwanted) for mode in jobs]
        for mode in jobs:
            site.stands(mode.gated, JobState.GATED)
            site.stands(mode.running, JobState.RUNNING, f"A={mode.count}")
            site.stands(mode.held, JobState.HELD)
        said = [write.result() for write in writes]
        for deletion in deletions:
            deletion.result()
        assert [line for line in said if not re.search(f'failed calling webhook "{webhook}', line)] == []
        assert [[_marks(site, job) for job in (mode.gated, mode.running, mode.held)] for mode in jobs] == before
        assert [site.get(names.TRAINJOBS, mode.asked.identity.name) for mode in jobs] == [None, None]
        assert [site.pods_of(mode.gated) for mode in jobs] == [(), ()]
    for mode in jobs:
        # A create that was cut off may still arrive, closed: it is then taken over.
        started = site.begin(mode.asked).job
        assert (started.gates.ours, started.suspended) == (True, True)
        site.opened(mode.gated)
        site.hold(mode.running)
        site.release(mode.held)
    for mode in jobs:
        site.running(mode.gated, 1)
        site.running(mode.held, 2)
        site.stands(mode.running, JobState.HELD)
        site.expect_executions(mode.gated, 1)
        site.expect_executions(mode.held, 2)
        site.expect_executions(mode.running, 1)


def test_start_waits_for_a_kueue_that_is_slow(site: Site) -> None:
    """It goes on in between: the Workload comes late, within `timeouts.workload`."""
    asked = site.asked("queue")
    with ThreadPoolExecutor(1) as pool:
        with site.stopped("kueue"):
            started = pool.submit(site.begin, asked)
            with pytest.raises(TimeoutError):
                started.result(1)
        assert not started.result(60).job.past_gate


def test_kueue_mode_where_kueue_is_not_installed(without_kueue: Site) -> None:
    site = without_kueue
    asked = site.asked("queue")
    with pytest.raises(RefusedError, match=r"deleted again: the cluster has no kind Workload: is Kueue installed\?"):
        site.begin(asked)
    assert site.get(names.TRAINJOBS, asked.identity.name) is None


def test_a_job_of_kueue_mode_that_nobody_manages(without_kueue: Site) -> None:
    """As where Kueue was taken away after Start: suspend keeps it closed, and Status says why nothing happens.

    Whether there is a Workload to deactivate nobody can say: Hold sets its mark and fails, Release changes nothing.
    """
    site = without_kueue
    job = site.by_hand(site.asked("queue"), lambda _: None)
    site.stands(job, JobState.GATED)
    assert site.opened(job).job.suspended
    site.stands(job, JobState.UNMANAGED, "Kueue has no Workload for it: is Kueue running?")
    for operation in (site.hold, site.release):
        with pytest.raises(NotServedError, match="is not served there; is it installed"):
            operation(job)
        site.stands(job, JobState.HELD)
    assert site.pods_of(job) == ()
    site.end(job)


def test_a_jobset_controller_that_is_stopped(site: Site) -> None:
    """Plain mode: Open waits for JobSet and Jobs, bounded, and says so; after that, Status says what is awaited."""
    with site.stopped("jobset"):
        job = site.started(None)
        with pytest.raises(
            TimedOutError, match=r"cannot run yet, after 1 s: StillRunning: .*JobSet does not exist yet"
        ):
            site.opened(job, 1)
        assert not site.job(job.meta.name).past_gate
    site.opened(job)
    site.running(job, 1)
    site.expect_executions(job, 1)

    other = site.started(None)
    site.jobs_exist(other)
    with site.stopped("jobset"):
        site.opened(other)
        site.stands(other, JobState.STARTING, "its JobSet is still suspended: Trainer is behind")
    site.running(other, 1)
    site.expect_executions(other, 1)
