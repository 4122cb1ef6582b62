"""The judge itself: a good story passes, and each kind of broken promise is found, by hand-written logs.

Aspects: order by version, not by line; what is no write is left out; closed creation; Open; A grows; no pod
before Open, with another A, or beside an older one; each execution has a higher A, of a TrainJob and of each of its
Jobs; Ready only on an unadmitted, unevicted reservation that saw a raise. What a log cannot tell is said, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from audit.story import GATE, GATED_BY, JOBSET, KEY, NAME, OTHER, Log, good
from dispatch_gates.audit import read


def test_a_preempted_job_that_runs_twice_is_good(tmp_path: Path) -> None:
    log = Log()
    good(log)
    timeline = log.read(tmp_path)
    assert timeline.violations() == []
    job = timeline.jobs[KEY]
    assert job.created is not None
    assert job.opened is not None
    first, second = job.pods_of(1)[0], job.pods_of(2)[0]
    raised = job.raised_to(2)
    assert raised is not None
    assert first.over is not None
    assert first.running is not None
    assert first.created < first.running < first.over
    assert second.running is None
    assert job.created < job.opened < first.created < first.over < raised < second.created
    assert [a for a, _ in job.resumes] == [1, 2]
    assert all(stay.ready and stay.admitted for stay in job.reservations)


def test_versions_give_the_order_whatever_the_order_of_lines(tmp_path: Path) -> None:
    log = Log()
    good(log)
    log.events.reverse()
    assert log.read(tmp_path).violations() == []


def test_dry_runs_errors_reads_and_a_half_written_line_are_left_out(tmp_path: Path) -> None:
    log = Log()
    good(log)
    bad = {"metadata": {"name": NAME, "namespace": "team", "uid": "job"}, "spec": {"suspend": False}}
    log.write("update", "trainjobs", bad, requestURI="/x?dryRun=All")
    log.write("update", "trainjobs", bad, responseStatus={"code": 409})
    log.write("get", "trainjobs", bad)
    log.write("update", "trainjobs", bad, stage="RequestReceived")
    path = tmp_path / "audit.log"
    path.write_text("".join(json.dumps(event) + "\n" for event in log.events) + '{"stage": "Resp')
    assert read([path]).violations() == []


def test_a_job_that_is_not_of_dispatch_is_not_judged(tmp_path: Path) -> None:
    log = Log()
    log.write("create", "trainjobs", {"metadata": {"name": "mine", "uid": "1"}, "spec": {"suspend": False}})
    log.write("create", "pods", {"metadata": {"name": "p", "uid": "2", "labels": {JOBSET: "mine"}}})
    log.write("create", "jobs", {"metadata": {"name": "mine-node-0", "uid": "3", "labels": {JOBSET: "mine"}}})
    log.write("create", "jobs", {"metadata": {"name": "alone", "uid": "4"}})
    owner = {"kind": "TrainJob", "name": "mine", "controller": True}
    ready = {"admissionChecks": [{"name": "dispatch", "state": "Ready"}]}
    log.write(
        "update", "workloads", {"metadata": {"name": "w", "uid": "5", "ownerReferences": [owner]}, "status": ready}
    )
    assert log.read(tmp_path).violations() == []


def test_a_write_answered_with_metadata_alone_says_nothing_of_the_rest(tmp_path: Path) -> None:
    log = Log()
    log.job("create", gate=GATE)
    metadata = {"name": NAME, "namespace": "team", "uid": "job", "annotations": {GATED_BY: GATE}}
    log.write("patch", "trainjobs", {"kind": "PartialObjectMetadata", "metadata": metadata})
    assert log.read(tmp_path).violations() == []
    log.write("patch", "trainjobs", {"kind": "PartialObjectMetadata", "metadata": metadata | {"annotations": {}}})
    assert log.read(tmp_path).jobs[KEY].opened is not None


def test_a_force_deleted_pod_is_gone_only_when_its_finalizer_is(tmp_path: Path) -> None:
    log = Log()
    log.evicted()
    stamps = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
    log.pod("delete", "p1", 1, "Running", live=True, finalizers=["f"], **stamps)
    log.events[-1]["requestObject"] = {"gracePeriodSeconds": 0}
    assert log.read(tmp_path).jobs[KEY].pods["p1"].gone is None
    log.pod("delete", "p1", 1, "Running", live=True, **stamps)
    log.events[-1]["requestObject"] = {"gracePeriodSeconds": 0}
    assert log.read(tmp_path).jobs[KEY].pods["p1"].gone is not None


def test_a_pod_that_has_ended_is_over_though_it_stays(tmp_path: Path) -> None:
    log = Log()
    log.evicted()
    log.pod("patch", "p1", 1, "Succeeded")
    log.job(a=2)
    assert log.read(tmp_path).violations() == []


def test_a_job_that_was_deleted_does_not_run(tmp_path: Path) -> None:
    log = Log()
    log.evicted()
    log.batch("create", 1, suspend=False)
    log.batch("delete", 1, suspend=False)
    log.old_pod_ends()
    log.job(a=2)
    timeline = log.read(tmp_path)
    assert timeline.violations() == []
    assert timeline.jobs[KEY].batch == {}


def test_a_raise_and_a_resume_in_one_write_are_blamed_once(tmp_path: Path) -> None:
    """As in plain mode."""
    log = Log()
    log.evicted()
    log.job(a=2, suspend=False)
    assert [violation.what for violation in log.read(tmp_path).violations()] == [
        "A raised to 2 while pod p1 (A=1) may still run"
    ]


def test_what_the_garbage_collector_takes_is_gone(tmp_path: Path) -> None:
    log = Log()
    log.evicted()
    log.batch("create", 1, suspend=False)
    log.collected("pods", "p1", "p1", finalizers=["f"])
    log.collected("jobs", f"{NAME}-node-0", "b1", finalizers=["f"])
    job = log.read(tmp_path).jobs[KEY]
    assert job.pods["p1"].gone is None
    assert set(job.batch) == {f"{NAME}-node-0"}
    log.collected("pods", "p1", "p1")
    log.collected("pods", "elsewhere", "other")
    log.collected("jobs", f"{NAME}-node-0", "b1")
    log.collected("jobs", "elsewhere", "other")
    log.collected("trainjobs", "mine", "mine")
    job = log.read(tmp_path).jobs[KEY]
    assert job.pods["p1"].gone is not None
    assert job.pods["p1"].gone.order == log.version - 4
    assert job.batch == {}


def test_deletions_that_are_answered_without_a_body_hide_nothing(tmp_path: Path) -> None:
    log = Log()
    log.evicted()
    log.batch("create", 1, suspend=False)
    log.bodiless("jobs", f"{NAME}-node-0")
    log.bodiless("jobs", "elsewhere")
    log.bodiless("pods", "elsewhere")
    log.bodiless("trainjobs", "mine", verb="patch")
    # A deletion raises the generation, too.
    log.bodiless("trainjobs", NAME)
    log.generation += 1
    log.old_pod_ends()
    log.job(a=2)
    timeline = log.read(tmp_path)
    assert timeline.gaps() == []
    assert timeline.violations() == []


def test_open_is_when_the_gate_was_first_away(tmp_path: Path) -> None:
    log = Log()
    log.started()
    gated = {"annotations": {GATED_BY: GATE}}
    metadata = {"name": NAME, "namespace": "team", "uid": "job", "generation": 1}
    log.write("patch", "trainjobs", {"kind": "PartialObjectMetadata", "metadata": metadata | gated})
    log.write("patch", "trainjobs", {"kind": "PartialObjectMetadata", "metadata": metadata})
    opened = log.version
    log.write("patch", "trainjobs", {"kind": "PartialObjectMetadata", "metadata": metadata})
    log.job()
    found = log.read(tmp_path).jobs[KEY].opened
    assert found is not None
    assert found.order == opened


def created_open(log: Log) -> None:
    log.job("create", suspend=False)


def created_with_a_count(log: Log) -> None:
    log.job("create", a=1, gate=GATE)


def count_unreadable(log: Log) -> None:
    log.started()
    log.job(a=None, gate=GATE)


def pod_before_open(log: Log) -> None:
    log.started()
    log.job(a=1, gate=f"{GATE},{OTHER}")
    log.pod("create", "p1", 1)


def resumed_before_open(log: Log) -> None:
    log.started()
    log.job(a=1, gate=GATE, suspend=False)


def same_count_twice(log: Log) -> None:
    log.evicted()
    log.old_pod_ends()
    log.job(a=1, suspend=False)


def count_goes_down(log: Log) -> None:
    log.first_execution()
    log.job(a=0, suspend=False)


def raised_over_a_live_pod(log: Log) -> None:
    log.evicted()
    log.workload("QuotaReserved")
    log.job(a=2)


def raised_over_a_failed_pod_with_a_live_container(log: Log) -> None:
    log.evicted()
    log.pod("patch", "p1", 1, "Failed", live=True)
    log.workload("QuotaReserved")
    log.job(a=2)


def raised_over_a_terminating_pod(log: Log) -> None:
    log.evicted()
    stamps = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
    log.pod("delete", "p1", 1, "Running", live=True, **stamps)
    log.job(a=2)


def pod_with_another_count(log: Log) -> None:
    log.first_execution()
    log.pod("create", "p2", 2)


def pod_beside_an_older_one(log: Log) -> None:
    log.evicted()
    log.job(a=2)
    log.job(a=2, suspend=False)
    log.pod("create", "p2", 2)


def ready_while_evicted(log: Log) -> None:
    log.evicted()
    log.old_pod_ends()
    log.workload("QuotaReserved", "Evicted")
    log.job(a=2)
    log.workload("QuotaReserved", "Evicted", check="Ready")


def ready_while_admitted(log: Log) -> None:
    log.first_execution()
    log.workload("QuotaReserved", "Admitted")
    log.workload("QuotaReserved", "Admitted", check="Ready")


def ready_without_quota(log: Log) -> None:
    log.opened()
    log.job(a=1)
    log.workload(check="Ready")


def ready_without_a_raise(log: Log) -> None:
    log.opened()
    log.job(a=1)
    log.workload("QuotaReserved")
    log.workload("QuotaReserved", check="Ready")


def admitted_with_a_stale_ready(log: Log) -> None:
    log.evicted()
    log.workload(check="Ready")
    log.workload("QuotaReserved", "Admitted", check="Ready")


def ready_while_inactive(log: Log) -> None:
    log.opened()
    log.workload("QuotaReserved")
    log.job(a=1)
    log.workload("QuotaReserved", check="Ready", active=False)


def ready_while_deleted(log: Log) -> None:
    log.opened()
    log.workload("QuotaReserved")
    log.job(a=1)
    log.workload("QuotaReserved", check="Ready", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["f"])


def ready_when_finished(log: Log) -> None:
    log.opened()
    log.workload("QuotaReserved")
    log.job(a=1)
    log.workload("QuotaReserved", "Finished", check="Ready")


def raised_over_a_job_that_runs(log: Log) -> None:
    log.opened()
    log.batch("create", 0, suspend=True)
    log.job(a=1)
    log.batch("update", 1, suspend=False)
    log.job(a=2)


def one_job_let_run_twice(log: Log) -> None:
    log.first_execution()
    log.batch("create", 1, suspend=False)
    log.batch("update", 1, suspend=True)
    log.batch("update", 1, suspend=False)


def a_job_let_run_with_an_old_count(log: Log) -> None:
    log.opened()
    log.batch("create", 0, suspend=True)
    log.job(a=2)
    log.job(a=2, suspend=False)
    log.batch("update", 1, suspend=False)


def resumed_over_a_pod_that_came_late(log: Log) -> None:
    late(log)
    log.job(a=2, suspend=False)


def a_pod_while_suspended_from_the_start(log: Log) -> None:
    log.opened()
    log.job(a=1)
    log.pod("create", "p1", 1)


def a_job_created_running_with_an_old_count(log: Log) -> None:
    log.first_execution()
    log.batch("create", 0, suspend=False)


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        (created_open, "created open"),
        (created_with_a_count, "created open"),
        (count_unreadable, "A cannot be read"),
        (pod_before_open, "created before the job was opened"),
        (resumed_before_open, "resumed before it was opened"),
        (same_count_twice, "A must be higher"),
        (count_goes_down, "A went down from 1 to 0"),
        (raised_over_a_live_pod, "A raised to 2 while pod p1 (A=1) may still run"),
        (raised_over_a_failed_pod_with_a_live_container, "A raised to 2 while pod p1 (A=1) may still run"),
        (raised_over_a_terminating_pod, "A raised to 2 while pod p1 (A=1) may still run"),
        (pod_with_another_count, "created with A=2 while the TrainJob was last let run with A=1"),
        (pod_beside_an_older_one, "created while pod p1 (A=1) may still run"),
        (ready_while_evicted, "check set Ready while Evicted"),
        (ready_while_admitted, "check set Ready while Admitted"),
        (ready_without_quota, "check set Ready while no quota is reserved"),
        (ready_without_a_raise, "A was not raised since the reservation"),
        (admitted_with_a_stale_ready, "admitted, but the check was not set Ready in this reservation"),
        (ready_while_inactive, "check set Ready while the Workload is not active"),
        (ready_while_deleted, "check set Ready while the Workload is being deleted"),
        (ready_when_finished, "check set Ready while Finished"),
        (raised_over_a_job_that_runs, f"A raised to 2 while Job {NAME}-node-0 is not suspended"),
        (one_job_let_run_twice, "let run with A=1; before it had [1]"),
        (a_job_let_run_with_an_old_count, "let run with A=1 while the TrainJob was last let run with A=2"),
        (resumed_over_a_pod_that_came_late, "resumed with A=2 while pod p1 (A=1) may still run"),
        (a_pod_while_suspended_from_the_start, "while the TrainJob was last let run with A=None"),
        (a_job_created_running_with_an_old_count, "let run with A=0"),
    ],
)
def test_finds(story: Callable[[Log], None], expected: str, tmp_path: Path) -> None:
    log = Log()
    story(log)
    found = log.read(tmp_path).violations()
    assert any(expected in str(violation) for violation in found), found


def test_jobs_of_a_good_story_are_good(tmp_path: Path) -> None:
    """An initializer that has finished, a Job that is made anew in a restart, and one that is resumed."""
    log = Log()
    log.first_execution()
    log.batch("create", 1, suspend=False)
    log.batch("update", 1, False, "Complete")
    log.batch("delete", 1, suspend=True, uid="b1")
    log.batch("create", 1, suspend=False, uid="b2")
    log.workload("QuotaReserved", "Admitted", "Evicted")
    log.job(a=1, suspend=True)
    log.batch("update", 1, suspend=True, uid="b2")
    log.old_pod_ends()
    log.workload("Evicted")
    log.workload("QuotaReserved")
    log.job(a=2)
    log.workload("QuotaReserved", check="Ready")
    log.workload("QuotaReserved", "Admitted", check="Ready")
    log.job(a=2, suspend=False)
    log.batch("update", 2, suspend=False, uid="b2")
    log.pod("create", "p2", 2)
    timeline = log.read(tmp_path)
    assert timeline.violations() == []
    assert timeline.gaps() == []


def late(log: Log) -> None:
    """Trainer starts the first execution late: it is suspended again, and A raised, before its pod comes."""
    log.opened()
    log.batch("create", 0, suspend=True)
    log.workload("QuotaReserved")
    log.job(a=1)
    log.workload("QuotaReserved", check="Ready")
    log.workload("QuotaReserved", "Admitted", check="Ready")
    log.job(a=1, suspend=False)
    log.workload("Evicted")
    log.job(a=1)
    log.workload("QuotaReserved")
    log.job(a=2)
    log.batch("update", 1, suspend=False)
    log.pod("create", "p1", 1)


def test_what_trainer_starts_late_before_ready_is_good(tmp_path: Path) -> None:
    log = Log()
    late(log)
    log.batch("update", 1, suspend=True)
    log.old_pod_ends()
    log.job(a=3)
    log.workload("QuotaReserved", check="Ready")
    log.workload("QuotaReserved", "Admitted", check="Ready")
    log.job(a=3, suspend=False)
    log.batch("update", 3, suspend=False)
    log.pod("create", "p3", 3)
    timeline = log.read(tmp_path)
    assert timeline.violations() == []
    assert timeline.gaps() == []


def begins_late(log: Log) -> None:
    log.evicted()
    del log.events[0]


def a_pod_from_before_the_log(log: Log) -> None:
    log.opened()
    log.job(a=1, suspend=False)
    log.pod("patch", "p1", 1, "Running", live=True)


def a_pod_before_its_job(log: Log) -> None:
    log.pod("create", "p1", 1)


def a_change_is_missing(log: Log) -> None:
    log.evicted()
    log.old_pod_ends()
    log.job(a=2)
    log.events.pop()
    log.job(a=2)


def level_too_low(log: Log) -> None:
    log.started()
    log.job()
    del log.events[-1]["responseObject"]
    log.events[-1]["level"] = "Metadata"


def no_pods(log: Log) -> None:
    log.first_execution()
    log.events = [event for event in log.events if event["objectRef"]["resource"] != "pods"]


def no_workloads(log: Log) -> None:
    log.first_execution()
    log.events = [event for event in log.events if event["objectRef"]["resource"] != "workloads"]


def nothing(log: Log) -> None:
    log.write("create", "trainjobs", {"metadata": {"name": "mine", "uid": "1"}, "spec": {"suspend": False}})


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        (begins_late, "the log begins after its creation"),
        (a_pod_from_before_the_log, "pods team/p1: the log begins after its creation"),
        (a_pod_before_its_job, "a pod of a TrainJob of which nothing is in the log"),
        (a_change_is_missing, "1 changes of its specification before this one are not in the log"),
        (level_too_low, "1 writes to trainjobs are in the log without their bodies (level Metadata)"),
        (no_pods, "no write to pods is in the log"),
        (no_workloads, "no write to workloads is in the log"),
        (nothing, "there is no TrainJob of dispatch's in the log"),
    ],
)
def test_cannot_tell(story: Callable[[Log], None], expected: str, tmp_path: Path) -> None:
    log = Log()
    story(log)
    timeline = log.read(tmp_path)
    assert any(expected in gap for gap in timeline.gaps()), timeline.gaps()
    assert timeline.violations() == []
