"""Status, against the model API server: one value that says where a job stands, and why.

Aspects: each state with its words; the order of the rules; A where it can be read; jobs that are not there; no write.
"""

from __future__ import annotations

from typing import Any

import pytest

from dispatch_gates.contract.names import GATE, WORKLOADS
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.operations.status import JobState, status
from dispatch_gates.requests import List, NotServedError, Request
from model import objects
from model.apiserver import ApiServer
from model.objects import NAME, TEAM, check_state

J = JobState
PENDING = objects.workload(checks=[check_state(message="StillRunning: pod x")])


CASES: dict[str, tuple[JobState, str, dict[str, Any], list[JsonObject]]] = {
    "being deleted, before all else": (J.DELETING, "being deleted", {"deleting": True, "gates": GATE}, []),
    "being deleted, pods left": (J.DELETING, "left: pod ", {"deleting": True}, [objects.pod()]),
    "complete": (J.COMPLETE, "Seen", {"status": {"Complete": True}}, []),
    "failed, pods left": (J.FAILED, "left: pod ", {"status": {"Failed": True}}, [objects.pod()]),
    "ended, though still gated": (J.FAILED, "Seen", {"status": {"Failed": True}, "gates": GATE}, []),
    "gated": (J.GATED, "not opened yet", {"gates": f"{GATE},a.io/x"}, []),
    "gated and held": (J.GATED, "held too", {"gates": GATE, "held": True}, []),
    "gated in plain mode": (J.GATED, "not opened yet", {"queue": None}, []),
    "held by administrators": (J.HELD_BY_ADMINISTRATOR, "a.io/x, b.io/y", {"gates": "a.io/x,b.io/y"}, [PENDING]),
    "held by nobody by name": (J.HELD_BY_ADMINISTRATOR, "without a name", {"gates": " "}, []),
    "held": (J.HELD, "hold mark set", {"held": True}, [PENDING]),
    "held, pods left": (J.HELD, "left: pod ", {"held": True}, [objects.pod()]),
    "running": (J.RUNNING, "1 pod, A=1", {"suspend": False}, [objects.pod(), objects.jobset(suspend=False)]),
    "running under two counts": (
        J.RUNNING,
        "2 pods, A=1, 2",
        {"suspend": False},
        [objects.pod(), objects.pod(name="b", count=2)],
    ),
    "resumed, no pod runs yet": (
        J.STARTING,
        "no pod runs yet: pod ",
        {"suspend": False},
        [objects.pod(phase="Pending"), objects.jobset(suspend=False)],
    ),
    "resumed, no JobSet": (J.STARTING, "Trainer has not made its JobSet", {"suspend": False}, []),
    "resumed, JobSet is not": (J.STARTING, "Trainer is behind", {"suspend": False}, [objects.jobset()]),
    "resumed, Jobs are not": (
        J.STARTING,
        f"Jobs still suspended: {NAME}-node-0; if it lasts, JobSet's log says why",
        {"suspend": False},
        [objects.jobset(suspend=False, count=2), objects.job()],
    ),
    "resumed, Jobs are refused": (
        J.STARTING,
        f"A was not raised for it: {NAME}-node-0 (A=1)",
        {"suspend": False},
        [objects.jobset(suspend=False), objects.job()],
    ),
    "resumed, no Job": (
        J.STARTING,
        "no Job yet; if it lasts",
        {"suspend": False},
        [objects.jobset(suspend=False)],
    ),
    "resumed, no pod": (
        J.STARTING,
        "no pod yet",
        {"suspend": False},
        [objects.jobset(suspend=False), objects.job(suspend=False, status={})],
    ),
    "check is Ready": (J.STARTING, "check is Ready", {}, [objects.workload(checks=[check_state(state="Ready")])]),
    "at the check": (J.WAITING_AT_CHECK, "StillRunning: pod x", {}, [PENDING]),
    "at the check, unseen": (J.WAITING_AT_CHECK, "not looked at it yet", {}, [objects.workload()]),
    "at a queue without the check": (
        J.WAITING_AT_CHECK,
        "does not name AdmissionCheck dispatch",
        {},
        [objects.workload(checks=[])],
    ),
    "no quota": (J.WAITING_FOR_QUOTA, "not looked at", {}, [objects.workload({"QuotaReserved": False})]),
    "evicted, pods left": (
        J.STOPPING,
        "evicted (Seen); left: pod ",
        {},
        [objects.workload({"QuotaReserved": False, "Evicted": True}), objects.pod(deleting=True)],
    ),
    "evicted, quota still reserved": (
        J.STOPPING,
        "evicted (Seen)",
        {},
        [objects.workload({"QuotaReserved": True, "Evicted": True})],
    ),
    "evicted, and waiting again": (
        J.WAITING_FOR_QUOTA,
        "not looked at",
        {},
        [objects.workload({"QuotaReserved": False, "Evicted": True})],
    ),
    "held, its Workload not yet": (J.HELD, "was cut off half-way, repeat it", {"held": True}, [objects.workload()]),
    "deactivated": (J.DEACTIVATED, "not by a hold", {}, [objects.workload(active=False)]),
    "without a Workload": (J.UNMANAGED, "is Kueue running?", {}, []),
    "suspended in plain mode": (
        J.SUSPENDED,
        "by somebody else",
        {"queue": None, "annotations": {"dispatch.phpboyscout.uk/opened": "true"}},
        [],
    ),
}


@pytest.mark.parametrize(("state", "says", "job", "more"), CASES.values(), ids=CASES.keys())
def test_state(state: JobState, says: str, job: dict[str, Any], more: list[JsonObject]) -> None:
    server = ApiServer(objects.trainjob(**job), *more)
    found = server.run(status(TEAM, NAME))
    assert found is not None
    assert (found.state, found.admission_count) == (state, 1)
    assert says in found.why
    assert server.writes == []


def test_every_state_has_a_case() -> None:
    assert {case[0] for case in CASES.values()} == set(JobState)


def test_an_ended_job_says_why_it_ended() -> None:
    job = objects.trainjob(status={})
    job["status"]["conditions"] = [objects.condition("Failed", True, message="out of memory")]
    found = ApiServer(job).run(status(TEAM, NAME))
    assert found is not None
    assert (found.state, found.why) == (J.FAILED, "out of memory")


def test_many_pods_in_few_words() -> None:
    pods = [objects.pod(name=f"pod-{number:03d}") for number in range(200)]
    found = ApiServer(objects.trainjob(held=True), *pods).run(status(TEAM, NAME))
    assert found is not None
    assert found.why == (
        "hold mark set; left: pod pod-000 (Running on node-a), pod pod-001 (Running on node-a), "
        "pod pod-002 (Running on node-a) and 197 more"
    )


@pytest.mark.parametrize("uid", [None, "uid-trainjob", "uid-other"])
def test_which_job(uid: str | None) -> None:
    found = ApiServer(objects.trainjob()).run(status(TEAM, NAME, uid))
    assert (found is None) is (uid == "uid-other")


def test_no_job() -> None:
    assert ApiServer().run(status(TEAM, NAME)) is None


def test_a_count_that_cannot_be_read() -> None:
    found = ApiServer(objects.trainjob("x")).run(status(TEAM, NAME))
    assert found is not None
    assert found.admission_count is None


def test_plain_mode_asks_for_no_workload() -> None:
    """People in plain mode may have no right to look at Workloads; there may be no such kind."""
    server = ApiServer(objects.trainjob(queue=None, suspend=False))
    server.run(status(TEAM, NAME))
    assert not [request for request in server.requests if isinstance(request, List) and request.resource == WORKLOADS]


def test_kueue_is_not_installed() -> None:
    server = ApiServer(objects.trainjob())

    def before(request: Request) -> None:
        if isinstance(request, List) and request.resource == WORKLOADS:
            raise NotServedError("the server could not find the requested resource", status=404)

    server.before = before
    found = server.run(status(TEAM, NAME))
    assert found is not None
    assert found.state is J.UNMANAGED


def test_a_workload_of_another_job_does_not_count() -> None:
    """The label alone proves nothing."""
    stray = objects.workload(owned_by=objects.owner("TrainJob", NAME, "uid-other"))
    found = ApiServer(objects.trainjob(), stray).run(status(TEAM, NAME))
    assert found is not None
    assert (found.state, found.why) == (J.UNMANAGED, "Kueue has no Workload for it: is Kueue running?")
