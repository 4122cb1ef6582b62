"""Status in the states that a real cluster can show; those of the usual way are in test_life.py.

What is tested: the state, why, and since when; what ends the state, for those out of which a person must help a job.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dispatch_gates.contract import names
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_gates.operations.errors import TimedOutError
from dispatch_gates.operations.status import JobState
from dispatch_gates.requests import DeniedError
from dispatch_local.cluster import Cluster
from start_gate.site import Site
from start_gate.webhook import Webhook
from world import count_of, until


@pytest.fixture(scope="module")
def small(cluster: Cluster, site: Site) -> Iterator[Site]:  # noqa: ARG001 (the site's controller serves this one, too)
    """Return a site in whose queue one pod runs at a time."""
    small = Site(cluster, pods=1)
    small.make()
    yield small
    small.assert_kept()
    small.discard()


def test_held_by_an_administrator(site: Site, tmp_path: Path) -> None:
    asked = site.asked("queue")
    with Webhook(site, tmp_path) as webhook:
        webhook.changes[asked.identity.name] = lambda body: body["metadata"]["annotations"].update(
            {names.ADMISSION_GATED_BY: f"a.io/budget,{names.GATE},b.io/night"}
        )
        job = site.begin(asked).job
    site.stands(job, JobState.GATED)
    opened = site.opened(job)
    assert (opened.already, opened.held_by) == (False, ("a.io/budget", "b.io/night"))
    site.stands(job, JobState.HELD_BY_ADMINISTRATOR, "gates left: a.io/budget, b.io/night")
    again = site.opened(job)
    assert (again.already, again.held_by) == (True, ("a.io/budget", "b.io/night"))
    _gate(site, job, "b.io/night")
    site.stands(job, JobState.HELD_BY_ADMINISTRATOR, "gates left: b.io/night")
    assert site.pods_of(job) == ()
    _gate(site, job, None)
    site.running(job, 1)
    site.expect_executions(job, 1)


def _gate(site: Site, job: TrainJob, value: str | None) -> None:
    """Set what is left of the gates, as the administrator does."""

    def edit(body: JsonObject) -> None:
        annotations = body["metadata"]["annotations"]
        del annotations[names.ADMISSION_GATED_BY]
        if value is not None:
            annotations[names.ADMISSION_GATED_BY] = value

    site.edit(job, edit)


def test_quota_preemption_and_deactivation(small: Site) -> None:
    job, pod = small.ran("queue")
    waiting = small.started("queue")
    small.opened(waiting)
    quota = small.stands(waiting, JobState.WAITING_FOR_QUOTA, "insufficient unused quota")
    assert quota.verdict.since
    small.end(waiting)

    small.linger(pod)
    rival = small.begin(small.urgent(small.asked("queue"))).job
    small.opened(rival)
    evicted = small.stands(job, JobState.STOPPING, f"evicted (Preempted); left: pod {pod['metadata']['name']}")
    assert evicted.verdict.since
    small.running(rival, 1)
    small.let_go(pod)
    small.stands(job, JobState.WAITING_FOR_QUOTA)

    small.set_active(rival, False)
    small.stands(rival, JobState.DEACTIVATED, "not by a hold of dispatch's")
    second = small.running(job, 2)

    # Deactivated and activated: the old pod is still there when quota is reserved again.
    small.linger(second)
    small.set_active(job, False)
    small.stands(job, JobState.DEACTIVATED, f"left: pod {second['metadata']['name']}")
    until("the quota to be given back", lambda: small.condition(job, "QuotaReserved") == "False")
    small.set_active(job, True)
    at_check = small.stands(
        job,
        JobState.WAITING_AT_CHECK,
        f"StillRunning: the previous execution may still run: pod {second['metadata']['name']}",
    )
    assert at_check.verdict.since
    small.let_go(second)
    small.running(job, 3)
    small.expect_executions(job, 3)
    small.expect_executions(rival, 1)


def test_another_check_has_the_next_step(cluster: Cluster, site: Site) -> None:  # noqa: ARG001 (its controller)
    double = Site(cluster, checks=(names.ADMISSION_CHECK, "other"))
    double.make()
    job = double.started("queue")
    double.opened(job)
    double.stands(job, JobState.STARTING, "the check is Ready; Kueue or another check has the next step")
    assert double.pods_of(job) == ()
    double.discard()


def test_no_pod_runs_yet(site: Site) -> None:
    def nowhere(jobset: JsonObject) -> None:
        pod = jobset["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        pod["nodeSelector"] = {"tests.dispatch.local/nobody": "has-it"}

    site.runtime("nowhere", nowhere)
    job = site.begin(site.asked(None, runtime="nowhere")).job
    site.opened(job)
    site.stands(job, JobState.STARTING, "no pod runs yet: pod ")
    site.end(job)


def test_the_job_controller_is_stopped(site: Site) -> None:
    job = site.started(None)
    site.jobs_exist(job)
    with site.stopped("kube-controller-manager"):
        site.opened(job)
        site.stands(job, JobState.STARTING, "no pod yet")
    site.running(job, 1)
    site.expect_executions(job, 1)


def test_suspended_by_hand_in_plain_mode(site: Site) -> None:
    """The way out: Hold, which makes it dispatch's, and Release, which raises A."""
    job, _ = site.ran(None)
    site.edit(job, lambda body: body["spec"].update(suspend=True))
    assert site.stands(job, JobState.SUSPENDED, "suspended by somebody else").verdict.since
    site.release(job)
    site.stands(job, JobState.SUSPENDED)
    site.hold(job)
    site.stands(job, JobState.HELD)
    site.release(job)
    site.running(job, 2)
    site.expect_executions(job, 2)


@pytest.mark.parametrize("queue", ["queue", None], ids=["Kueue mode", "plain mode"])
@pytest.mark.parametrize(
    ("phase", "state"), [("Succeeded", JobState.COMPLETE), ("Failed", JobState.FAILED)], ids=["complete", "failed"]
)
def test_ended(site: Site, queue: str | None, phase: str, state: JobState) -> None:
    job, pod = site.ran(queue)
    site.pod_ends(pod, phase)
    seen = site.stands(job, state, "jobset")
    assert seen.verdict.since
    assert (seen.admission_count, seen.job.ended) == (count_of(pod), str(state))
    site.end(job)


@pytest.mark.parametrize("queue", ["queue", None], ids=["Kueue mode", "plain mode"])
def test_being_deleted(site: Site, queue: str | None) -> None:
    job, pod = site.ran(queue)
    site.edit(job, lambda body: body["metadata"].update(finalizers=["tests.dispatch.local/keep"]))
    site.linger(pod)
    with pytest.raises(TimedOutError, match=r"still there, being deleted; finalizers: \['tests.dispatch.local/keep'\]"):
        site.end(job, 0)
    seen = site.stands(job, JobState.DELETING, "being deleted; left: pod ")
    assert seen.verdict.since
    site.edit(job, lambda body: body["metadata"].update(finalizers=[]))
    with pytest.raises(TimedOutError, match=r"still there, being deleted|is gone, its "):
        site.end(job, 1)
    assert site.status(job) is None
    site.let_go(pod)
    site.end(job)


def test_without_its_runtime(site: Site) -> None:
    """Its webhook lets nothing be changed any more; what stands is still told, and Stop works."""
    site.runtime("short-lived", lambda _: None)
    job = site.begin(site.asked(None, runtime="short-lived")).job
    site.jobs_exist(job)
    site.remove(names.TRAINING_RUNTIMES, "short-lived")
    site.stands(job, JobState.GATED)
    for operation in (site.opened, site.hold):
        with pytest.raises(DeniedError, match="short-lived"):
            operation(job)
    site.stands(job, JobState.GATED)
    site.end(job)


def test_without_its_jobset(unguarded: Site) -> None:
    """The Trainer is stopped, or it would make it anew, and run the job with the same A: a hazard that is told."""
    job, _ = unguarded.ran(None)
    with unguarded.stopped("trainer"):
        unguarded.remove(names.JOBSETS, job.meta.name)
        unguarded.stands(job, JobState.STARTING, "Trainer has not made its JobSet yet")
        unguarded.end(job)
    assert unguarded.status(job) is None
