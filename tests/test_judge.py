"""The judge itself: a good story passes, and each kind of broken promise is found, by hand-written logs.

Aspects: order by version, not by line; what is no write is left out; closed creation; Open; A grows; no pod
before Open, with another A, or beside an older one; each execution has a higher A; Ready only on an
unadmitted, unevicted reservation that saw a raise.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import judge

NAME = "dj-01jdqm3zk0tb6q8e8m2a9v4c5d-s1"
KEY = f"team/{NAME}"
OTHER = "kueue.x-k8s.io/other"


class Log:
    """Writes audit lines; every call is one write, one version later than the last."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.version = 100

    def write(self, verb: str, resource: str, body: dict[str, Any], **event: Any) -> None:
        self.version += 1
        body = json.loads(json.dumps(body))
        body["metadata"]["resourceVersion"] = str(self.version)
        self.events.append(
            {
                "stage": "ResponseComplete",
                "verb": verb,
                "requestURI": f"/apis/x/{resource}",
                "user": {"username": "someone"},
                "objectRef": {"resource": resource, "namespace": "team", "name": body["metadata"]["name"]},
                "responseStatus": {"code": 200},
                "stageTimestamp": f"2026-01-01T00:00:{self.version % 60:02d}.000000Z",
                "responseObject": body,
                **event,
            }
        )

    def job(self, verb: str = "update", a: int | None = 0, gate: str | None = None, suspend: bool = True) -> None:
        patch = {"metadata": {"annotations": {judge.COUNT: str(a)} if a is not None else {}}}
        replicated = [{"name": "node", "template": {"spec": {"template": patch}}}]
        runtime = {"template": {"spec": {"replicatedJobs": replicated}}}
        annotations = {judge.GATED_BY: gate} if gate else {}
        self.write(
            verb,
            "trainjobs",
            {
                "metadata": {"name": NAME, "namespace": "team", "uid": "job", "annotations": annotations},
                "spec": {
                    "suspend": suspend,
                    "runtimePatches": [{"manager": judge.MANAGER, "trainingRuntimeSpec": runtime}],
                },
            },
        )

    def workload(self, *true: str, check: str = "Pending") -> None:
        owner = {"kind": "TrainJob", "name": NAME, "uid": "job", "controller": True}
        status = {
            "conditions": [{"type": each, "status": "True"} for each in true],
            "admissionChecks": [{"name": "dispatch", "state": check}],
        }
        meta = {"name": "w", "namespace": "team", "uid": "w", "ownerReferences": [owner]}
        self.write("patch", "workloads", {"metadata": meta, "status": status})

    def pod(self, verb: str, name: str, a: int, phase: str = "Pending", live: bool = False, **meta: Any) -> None:
        about = {
            "name": name,
            "namespace": "team",
            "uid": name,
            "labels": {judge.JOBSET: NAME},
            "annotations": {judge.COUNT: str(a)},
            **meta,
        }
        state: dict[str, Any] = {"running": {}} if live else {"terminated": {}}
        self.write(
            verb,
            "pods",
            {"metadata": about, "status": {"phase": phase, "containerStatuses": [{"state": state}]}},
        )

    def started(self) -> None:
        self.job("create", gate=judge.GATE)

    def opened(self) -> None:
        self.started()
        self.job()

    def first_execution(self) -> None:
        self.opened()
        self.workload("QuotaReserved")
        self.job(a=1)
        self.workload("QuotaReserved", check="Ready")
        self.workload("QuotaReserved", "Admitted", check="Ready")
        self.job(a=1, suspend=False)
        self.pod("create", "p1", 1)
        self.pod("patch", "p1", 1, "Running", live=True)

    def evicted(self) -> None:
        self.first_execution()
        self.workload("QuotaReserved", "Admitted", "Evicted")
        self.job(a=1, suspend=True)
        self.workload("Evicted")

    def old_pod_ends(self) -> None:
        self.pod("patch", "p1", 1, "Failed")
        self.pod("delete", "p1", 1, "Failed")

    def read(self, folder: Path) -> judge.Timeline:
        path = folder / "audit.log"
        path.write_text("".join(json.dumps(event) + "\n" for event in self.events))
        return judge.read(path)


def good(log: Log) -> None:
    log.evicted()
    log.workload("QuotaReserved")
    log.old_pod_ends()
    log.job(a=2)
    log.workload("QuotaReserved", check="Ready")
    log.workload("QuotaReserved", "Admitted", check="Ready")
    log.job(a=2, suspend=False)
    log.pod("create", "p2", 2)


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
    assert judge.read(path).violations() == []


def test_a_job_that_is_not_of_dispatch_is_not_judged(tmp_path: Path) -> None:
    log = Log()
    log.write("create", "trainjobs", {"metadata": {"name": "mine", "uid": "1"}, "spec": {"suspend": False}})
    log.write("create", "pods", {"metadata": {"name": "p", "uid": "2", "labels": {judge.JOBSET: "mine"}}})
    assert log.read(tmp_path).violations() == []


def test_a_write_answered_with_metadata_alone_says_nothing_of_the_rest(tmp_path: Path) -> None:
    log = Log()
    log.job("create", gate=judge.GATE)
    metadata = {"name": NAME, "namespace": "team", "uid": "job", "annotations": {judge.GATED_BY: judge.GATE}}
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


def created_open(log: Log) -> None:
    log.job("create", suspend=False)


def created_with_a_count(log: Log) -> None:
    log.job("create", a=1, gate=judge.GATE)


def creation_missing(log: Log) -> None:
    log.job(gate=judge.GATE)


def count_unreadable(log: Log) -> None:
    log.started()
    log.job(a=None, gate=judge.GATE)


def pod_before_open(log: Log) -> None:
    log.started()
    log.job(a=1, gate=f"{judge.GATE},{OTHER}")
    log.pod("create", "p1", 1)


def resumed_before_open(log: Log) -> None:
    log.started()
    log.job(a=1, gate=judge.GATE, suspend=False)


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


def pod_of_an_unknown_job(log: Log) -> None:
    log.pod("create", "p1", 1)


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


def audit_level_too_low(log: Log) -> None:
    log.started()
    del log.events[-1]["responseObject"]


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        (created_open, "created open"),
        (created_with_a_count, "created open"),
        (creation_missing, "its creation is not in the log"),
        (count_unreadable, "A cannot be read"),
        (pod_before_open, "created before the job was opened"),
        (resumed_before_open, "resumed before it was opened"),
        (same_count_twice, "A must be higher"),
        (count_goes_down, "A went down from 1 to 0"),
        (raised_over_a_live_pod, "A raised to 2 while pod p1 (A=1) may still run"),
        (raised_over_a_failed_pod_with_a_live_container, "A raised to 2 while pod p1 (A=1) may still run"),
        (raised_over_a_terminating_pod, "A raised to 2 while pod p1 (A=1) may still run"),
        (pod_with_another_count, "created with A=2 while the TrainJob says 1"),
        (pod_beside_an_older_one, "created while pod p1 (A=1) may still run"),
        (pod_of_an_unknown_job, "a pod of a job whose creation is not in the log"),
        (ready_while_evicted, "check set Ready while Evicted"),
        (ready_while_admitted, "check set Ready while Admitted"),
        (ready_without_quota, "check set Ready while no quota is reserved"),
        (ready_without_a_raise, "A was not raised since the reservation"),
        (admitted_with_a_stale_ready, "admitted, but the check was not set Ready in this reservation"),
        (audit_level_too_low, "the audit level is too low"),
    ],
)
def test_finds(story: Callable[[Log], None], expected: str, tmp_path: Path) -> None:
    log = Log()
    story(log)
    found = log.read(tmp_path).violations()
    assert any(expected in line for line in found), found
