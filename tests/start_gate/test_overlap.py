"""Release, in both modes, where the previous execution ends late: two executions never overlap.

What is tested: pods that are slow to end; the Job controller stopped (SIGSTOP), so that nothing is told to end at all.
The audit log is the judge; a mutant of the rule shows that it notices.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from dispatch_gates.contract import names
from dispatch_gates.contract.execution import Evidence
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_gates.operations.errors import TimedOutError
from dispatch_gates.operations.status import JobState
from faithful.recorded import ON_PURPOSE
from start_gate.site import Site
from world import count_of, until


def _ending(site: Site, job: TrainJob) -> bool:
    return any("deletionTimestamp" in pod["metadata"] for pod in site.pods_of(job))


def test_plain_mode_and_a_pod_that_is_slow_to_end(site: Site) -> None:
    job, pod = site.ran(None)
    site.linger(pod)
    site.hold(job)
    until("the pod to be told to end", lambda: _ending(site, job))
    with pytest.raises(TimedOutError, match=f"pod {pod['metadata']['name']} \\(Running on .*, being deleted\\)"):
        site.release(job, 1)
    assert site.job(job.meta.name).held
    with ThreadPoolExecutor(1) as pool:
        released = pool.submit(site.release, job)
        with pytest.raises(TimeoutError):
            released.result(2)
        assert site.job(job.meta.name).count == 1
        site.let_go(pod)
        assert released.result().count == 2
    site.running(job, 2)
    site.expect_executions(job, 2)


def test_kueue_mode_and_a_pod_that_is_slow_to_end(site: Site) -> None:
    job, pod = site.ran("queue")
    site.linger(pod)
    site.hold(job)
    until("the pod to be told to end", lambda: _ending(site, job))
    site.release(job)
    site.stands(job, JobState.WAITING_AT_CHECK, pod["metadata"]["name"])
    assert site.job(job.meta.name).count == count_of(pod)
    site.let_go(pod)
    site.running(job, 2)
    site.expect_executions(job, 2)


def test_plain_mode_and_the_job_controller_stopped(site: Site) -> None:
    job, _ = site.ran(None)
    with ThreadPoolExecutor(1) as pool:
        with site.stopped("kube-controller-manager"):
            site.hold(job)
            until("JobSet to have suspended the Job", lambda: _jobs_suspended(site, job))
            with pytest.raises(TimedOutError, match="may still run: pod "):
                site.release(job, 1)
            released = pool.submit(site.release, job)
            with pytest.raises(TimeoutError):
                released.result(2)
            assert site.job(job.meta.name).count == 1
        assert released.result().count == 2
    site.running(job, 2)
    site.expect_executions(job, 2)


def test_kueue_mode_and_the_job_controller_stopped(site: Site) -> None:
    job, pod = site.ran("queue")
    with site.stopped("kube-controller-manager"):
        site.hold(job)
        until("JobSet to have suspended the Job", lambda: _jobs_suspended(site, job))
        site.release(job)
        # Nobody tells its pod to end, and Kueue waits for that before it gives the quota back.
        site.stands(job, JobState.STOPPING, "left: pod ")
        assert site.job(job.meta.name).count == count_of(pod)
    site.running(job, 2)
    site.expect_executions(job, 2)


def _jobs_suspended(site: Site, job: TrainJob) -> bool:
    jobs: tuple[JsonObject, ...] = site.list(names.JOBS, f"{names.JOBSET_NAME}={job.meta.name}")
    return bool(jobs) and all(each["spec"].get("suspend") for each in jobs)


def test_the_judge_notices_a_release_that_does_not_look(apart: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    job, pod = apart.ran(None)
    apart.linger(pod)
    apart.hold(job)
    until("the pod to be told to end", lambda: _ending(apart, job))
    mark = {ON_PURPOSE: "true"}
    apart.change(names.TRAINJOBS, job.meta.name, lambda body: body["metadata"]["annotations"].update(mark))
    monkeypatch.setattr(Evidence, "remains", lambda _: ())
    assert apart.release(job).count == 2
    monkeypatch.undo()
    apart.let_go(pod)
    assert any("may still run" in line for line in apart.violations())
