"""Whether an execution is over, from what was read of it: Jobs, dependencies and pods by themselves (BL-41).

The whole rule is tested in `test_pass`; here are the edges of reading and of the words.
"""

from __future__ import annotations

import itertools

import pytest

from dispatch_gates.contract.execution import Evidence, parse_job, parse_jobset, parse_pod
from dispatch_gates.contract.objects import JsonObject
from model import objects
from model.objects import NAME, replicated


def versioned(body: JsonObject) -> JsonObject:
    return {**body, "metadata": {**body["metadata"], "resourceVersion": "7"}}


def evidence(
    *replicated_jobs: JsonObject, jobs: list[JsonObject], pods: list[JsonObject] | None = None, suspend: bool = True
) -> Evidence:
    """An execution as read."""
    return Evidence(
        parse_jobset(versioned(objects.jobset(jobs=list(replicated_jobs), suspend=suspend))),
        tuple(parse_job(versioned(job)) for job in jobs),
        tuple(parse_pod(versioned(pod)) for pod in pods or ()),
    )


@pytest.mark.parametrize(
    ("suspended", "seen", "started", "finished", "active", "terminating"),
    list(itertools.product((True, False), (True, False, None), (True, False), (True, False), (0, 1), (0, 1))),
)
def test_over_in_every_combination(
    suspended: bool, seen: bool | None, started: bool, finished: bool, active: int, terminating: int
) -> None:
    """Finished, or suspended and seen to be (or never started); and no pod counted either way."""
    status = {"Suspended": seen} if seen is not None else {}
    job = parse_job(
        versioned(
            objects.job(
                suspend=suspended,
                started=started,
                active=active,
                terminating=terminating,
                status=status | ({"Failed": True} if finished else {}),
            )
        )
    )
    stopped = finished or (suspended and (seen is True or not started))
    assert job.over is (stopped and active == 0 and terminating == 0)


@pytest.mark.parametrize("value", ["x", None, 1.5, True, [], -1])
def test_odd_numbers_of_pods(value: object) -> None:
    """What is no number counts as none; a negative one is no way to hide a pod."""
    raw = versioned(objects.job())
    raw["status"]["active"] = value
    assert parse_job(raw).over is (value != -1)


@pytest.mark.parametrize("suspend", ["true", 1, None, {}])
def test_suspend_must_say_so(suspend: object) -> None:
    for parse, body in ((parse_job, objects.job()), (parse_jobset, objects.jobset())):
        raw = versioned(body)
        raw["spec"] = {**raw["spec"], "suspend": suspend}
        assert parse(raw).suspended is False


def test_what_remains_is_named_in_order() -> None:
    found = evidence(
        replicated("node", replicas=3),
        jobs=[objects.job(active=2), objects.job(index=1, suspend=False, status={})],
        pods=[objects.pod(name="b"), objects.pod("Pending", name="a", node=None), objects.pod("Failed", containers=())],
        suspend=False,
    )
    assert found.remains() == (
        "pod a (Pending)",
        "pod b (Running on node-a)",
        f"JobSet {NAME} is not suspended",
        f"Job {NAME}-node-0 counts 2 active and 0 terminating pods",
        f"Job {NAME}-node-1 is not suspended",
        f"Job {NAME}-node-2 does not exist yet",
    )


@pytest.mark.parametrize(
    ("dependency", "missing"),
    [
        (objects.job(replicated_job="first", status={"Complete": True}), {"Complete": True, "Ready": True}),
        (objects.job(replicated_job="first", ready=2, parallelism=2), {"Complete": False, "Ready": True}),
        (objects.job(replicated_job="first", ready=1, parallelism=2), {"Complete": False, "Ready": False}),
        (objects.job(replicated_job="first", status={"Failed": True}), {"Complete": False, "Ready": False}),
        (objects.job(replicated_job="first"), {"Complete": False, "Ready": False}),
        (objects.job(replicated_job="first", parallelism=0), {"Complete": False, "Ready": True}),
    ],
    ids=["complete", "all pods ready", "some pods ready", "failed", "never ran", "no pods wanted"],
)
@pytest.mark.parametrize("status", ["Complete", "Ready"])
def test_a_missing_job_is_waited_for_once_its_dependency_is_reached(
    status: str, dependency: JsonObject, missing: dict[str, bool]
) -> None:
    found = evidence(replicated("first"), replicated("node", depends_on={"first": status}), jobs=[dependency])
    assert (f"Job {NAME}-node-0 does not exist yet" in found.remains()) is missing[status]


def test_every_dependency_and_every_job_of_it_must_be_reached() -> None:
    two = [
        replicated("first", replicas=2),
        replicated("second"),
        replicated("node", depends_on={"first": "Complete", "second": "Complete"}),
    ]
    done = {"Complete": True}
    jobs = [
        objects.job(replicated_job="first", status=done),
        objects.job(replicated_job="first", index=1, status=done),
        objects.job(replicated_job="second", status=done),
    ]
    node = f"Job {NAME}-node-0 does not exist yet"
    assert node in evidence(*two, jobs=jobs).remains()
    for index in range(3):
        half = [job if number != index else objects.job() for number, job in enumerate(jobs)]
        assert node not in evidence(*two, jobs=half[:index] + half[index + 1 :]).remains()


def test_no_replicas_need_no_job() -> None:
    assert evidence(replicated("node", replicas=0), jobs=[]).remains() == ()
    assert evidence(jobs=[]).remains() == ()


def test_replicas_are_one_by_default() -> None:
    bare: JsonObject = {"name": "node", "template": {}}
    assert evidence(bare, jobs=[]).remains() == (f"Job {NAME}-node-0 does not exist yet",)


@pytest.mark.parametrize("kind", ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"])
@pytest.mark.parametrize(
    ("state", "runs"),
    [
        ({"running": {"startedAt": objects.T0}}, True),
        ({}, True),
        ({"terminated": None}, True),
        (None, True),
        ({"terminated": {"exitCode": 0}}, False),
        ({"waiting": {"reason": "PodInitializing"}}, False),
    ],
    ids=["running", "nothing", "null", "no state", "terminated", "waiting"],
)
def test_containers_beside_an_end_phase(kind: str, state: object, runs: bool) -> None:
    raw = versioned(objects.pod("Failed", containers=None))
    raw["status"][kind] = [{"name": "c", "state": state}]
    assert parse_pod(raw).may_run is runs


def test_highest_count() -> None:
    found = evidence(
        replicated("node", 3),
        jobs=[objects.job(5), objects.job("x", index=1)],
        pods=[objects.pod(count=4), objects.pod(count="9" * 30, name="odd"), objects.pod(count=None, name="none")],
    )
    assert found.highest_count() == 5
    assert Evidence(None).highest_count() == 0
