"""The adapter's operations one after another, in both modes, with Kueue there and without.

What is tested: what each leaves behind, on the API server and in what Status says; what each answers when it is
repeated, comes too late, or is asked about another job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from dispatch_gates.contract import names
from dispatch_gates.contract.count import patched_jobs
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_gates.operations.errors import RefusedError, RejectedError, TimedOutError
from dispatch_gates.operations.status import JobState
from start_gate.site import Site
from world import count_of, until


@dataclass
class Place:
    """Where a job is started: a site, and the queue or None."""

    site: Site
    queue: str | None


@pytest.fixture(params=["Kueue mode", "plain mode", "plain mode without Kueue"])
def place(request: pytest.FixtureRequest) -> Place:
    fixture = "without_kueue" if request.param == "plain mode without Kueue" else "site"
    return Place(request.getfixturevalue(fixture), "queue" if request.param == "Kueue mode" else None)


def _written(site: Site, job: TrainJob) -> tuple[object, ...]:
    """Return what a write of the adapter's would change; Trainer writes the status as it likes."""
    raw = site.job(job.meta.name).raw
    return raw["metadata"]["generation"], raw["metadata"]["annotations"], raw["metadata"]["labels"]


def test_from_start_to_stop(place: Place) -> None:
    site, queue = place.site, place.queue
    asked = site.asked(queue)
    started = site.begin(asked)
    job = started.job
    assert (started.adopted, started.warnings, started.annotation_only) == (False, (), ())
    assert (job.gates.value, job.suspended, job.count) == (names.GATE, True, 0)
    assert site.stands(job, JobState.GATED, "not opened yet").admission_count == 0

    opened = site.opened(job)
    assert (opened.already, opened.held_by) == (False, ())
    first = site.running(job, 1)
    seen = site.stands(job, JobState.RUNNING, f"A={count_of(first)}")
    assert seen.verdict.since
    assert (seen.workload is not None) is (queue is not None)
    assert names.ADMISSION_GATED_BY not in seen.job.meta.annotations

    site.linger(first)
    site.hold(job)
    site.stands(job, JobState.HELD, f"hold mark set; left: pod {first['metadata']['name']}")
    site.let_go(first)
    until("the pods of the held job to be gone", lambda: not site.pods_of(job))
    until("the job to be suspended", lambda: site.job(job.meta.name).suspended)
    site.stands(job, JobState.HELD, "hold mark set")

    assert not site.release(job).held
    second = site.running(job, 2)
    assert count_of(second) > count_of(first)
    site.stands(job, JobState.RUNNING, f"A={count_of(second)}")

    site.end(job)
    for resource in (names.TRAINJOBS, names.JOBSETS):
        assert site.get(resource, job.meta.name) is None
    assert site.pods_of(job) == ()
    assert site.status(job) is None
    site.expect_executions(job, 2)


def test_repeated_operations_change_nothing(place: Place) -> None:
    site = place.site
    asked = site.asked(place.queue)
    job = site.begin(asked).job
    again = site.begin(asked)
    assert (again.adopted, again.job.meta.uid) == (True, job.meta.uid)
    site.opened(job)
    site.running(job, 1)
    before = _written(site, job)
    assert site.opened(job).already
    taken = site.begin(asked)
    assert (taken.adopted, taken.job.past_gate, taken.job.meta.uid) == (True, True, job.meta.uid)
    site.release(job)  # there is no hold
    assert _written(site, job) == before
    site.hold(job)
    until("the held job to be without pods", lambda: not site.pods_of(job))
    until("Kueue to have taken back what it gave", lambda: site.job(job.meta.name).suspended and _untouched(site, job))
    before = _written(site, job)
    site.hold(job)
    assert _written(site, job) == before
    site.end(job)
    site.end(job)


def _untouched(site: Site, job: TrainJob) -> bool:
    """Whether Kueue's own patch says nothing (any more)."""
    patches = site.job(job.meta.name).raw["spec"]["runtimePatches"]
    kueue = [patch for patch in patches if patch["manager"] == names.KUEUE_PATCH_MANAGER]
    return not any(patched_jobs(patch) for patch in kueue)


def test_held_before_it_is_opened(place: Place) -> None:
    site = place.site
    job = site.started(place.queue)
    site.hold(job)
    site.stands(job, JobState.GATED, "held too")
    opened = site.opened(job).job
    assert (opened.past_gate, opened.suspended, opened.count) == (True, True, 0)
    site.stands(job, JobState.HELD)
    assert site.pods_of(job) == ()
    site.release(job)
    site.running(job, 1)


def test_released_before_it_is_opened(place: Place) -> None:
    site = place.site
    job = site.started(place.queue)
    site.hold(job)
    site.release(job)
    assert (site.job(job.meta.name).suspended, site.job(job.meta.name).count) == (True, 0)
    site.stands(job, JobState.GATED, "not opened yet")
    site.opened(job)
    site.running(job, 1)


def test_what_is_not_taken_over(place: Place) -> None:
    """BL-29: the same identity, asked for by another, or as something else."""
    site = place.site
    asked = site.asked(place.queue)
    job = site.begin(asked).job
    before = _written(site, job)
    for other, says in (
        (replace(asked, owner="another/stack"), "belongs to 'tests/start-gate', not to 'another/stack'"),
        (replace(asked, labels={"team": "a"}), "with another specification"),
    ):
        with pytest.raises(RefusedError, match=says):
            site.begin(other)
    assert _written(site, job) == before


def test_about_another_job_of_that_name(place: Place) -> None:
    site = place.site
    asked = site.asked(place.queue)
    first = site.begin(asked).job
    site.end(first)
    second = site.begin(asked).job
    assert second.meta.uid != first.meta.uid
    for operation in (site.opened, site.hold, site.release):
        with pytest.raises(RefusedError, match="is gone"):
            operation(first)
    with pytest.raises(RefusedError, match="is another one"):
        site.end(first)
    assert site.status(first) is None
    site.stands(second, JobState.GATED)
    site.end(second)
    with pytest.raises(RefusedError, match="is gone; it was not opened"):
        site.opened(second)


def test_too_late(place: Place) -> None:
    """Ended while still gated: a fence. Ended after it was opened: Open has nothing to do."""
    site = place.site
    gated = site.started(place.queue)
    over = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}

    def fail(body: JsonObject) -> None:
        conditions = body.setdefault("status", {}).setdefault("conditions", [])
        conditions.append({**over, "lastTransitionTime": "2026-01-01T00:00:00Z"})

    with site.stopped("trainer"):  # or it would write the status that it decided on before
        site.change(names.TRAINJOBS, gated.meta.name, fail, status=True)
        site.stands(gated, JobState.FAILED, "too long")
        _rejected(lambda: site.opened(gated), r"ended \(Failed\) without ever having been opened")
        _rejected(lambda: site.hold(gated), r"has ended \(Failed\)")
        _rejected(lambda: site.release(gated), r"has ended \(Failed\)")

    ran, pod = site.ran(place.queue)
    site.pod_ends(pod, "Succeeded")
    site.stands(ran, JobState.COMPLETE)
    assert site.opened(ran).already
    _rejected(lambda: site.hold(ran), r"has ended \(Complete\)")

    going = site.started(place.queue)
    site.edit(going, lambda body: body["metadata"].update(finalizers=["tests.dispatch.local/keep"]))
    with pytest.raises(TimedOutError, match="still there, being deleted"):
        site.end(going, 0)
    _rejected(lambda: site.opened(going), "is being deleted without ever having been opened")
    with pytest.raises(RefusedError, match="is being deleted; wait until it is gone"):
        site.begin(replace(site.asked(place.queue), identity=_identity(going)))
    site.stands(going, JobState.DELETING)
    site.edit(going, lambda body: body["metadata"].update(finalizers=[]))
    site.end(going)


def _identity(job: TrainJob) -> Identity:
    found = Identity.parse(job.meta.name)
    assert found is not None
    return found


def _rejected(operation: Callable[[], object], says: str) -> None:
    with pytest.raises(RejectedError, match=says):
        operation()
