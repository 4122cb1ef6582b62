"""What one pass over one Workload does, as named checks: see `test_pass` and `test_preconditions`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from dispatch_admission.act import Outcome, Result, readmit
from dispatch_gates.contract.names import JOBSET_NAME, TRAINJOBS, WORKLOADS
from dispatch_gates.contract.next_execution import Reason
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.requests import Replace, ReplaceStatus
from model import objects
from model.apiserver import ApiServer
from model.objects import CHECK, NAME, TEAM, WORKLOAD, check_state
from model.players import carry_count
from model.promises import broken, count, our_entry
from unit.checks import Checks

CHECKS = Checks()
OURS = frozenset({CHECK})
ABSENT: JsonObject = {}


def scene(
    *,
    workload: JsonObject | None = None,
    trainjob: JsonObject | None = None,
    jobset: JsonObject | None = None,
    jobs: Iterable[JsonObject] | None = None,
    pods: Iterable[JsonObject] = (),
    more: Iterable[JsonObject] = (),
) -> ApiServer:
    """A job of dispatch's with A=1 that is ready for its next execution, but for what is given; Trainer is at work."""
    found = [
        workload or objects.workload(),
        trainjob if trainjob is not None else objects.trainjob(),
        jobset if jobset is not None else objects.jobset(),
        *(jobs if jobs is not None else [objects.job()]),
        *pods,
        *more,
    ]
    server = ApiServer(*(body for body in found if body))
    server.idle = lambda _: carry_count(server)
    return server


def run_pass(server: ApiServer) -> Outcome:
    """Run one pass to its end; whatever it did, no promise may be broken."""
    outcome = server.run(readmit(TEAM, WORKLOAD, OURS))
    assert broken(server) == []
    return outcome


def waits(server: ApiServer, reason: Reason, *says: str) -> None:
    """Expect a wait: A as it was, one message, and nothing more at the second look."""
    before = server.read(TRAINJOBS, NAME) if server.has(TRAINJOBS, NAME) else None
    outcome = run_pass(server)
    assert (outcome.result, outcome.reason) == (Result.WAITING, reason), outcome
    assert (outcome.job, outcome.uid) in ((NAME, "uid-trainjob"), (None, None))
    assert [type(entry.request) for entry in server.writes] == [ReplaceStatus]
    entry = our_entry(server.read(WORKLOADS, WORKLOAD))
    assert entry["state"] == "Pending"
    for text in (reason, *says):
        assert text in entry["message"]
    assert (server.read(TRAINJOBS, NAME) if server.has(TRAINJOBS, NAME) else None) == before
    again = run_pass(server)
    assert (again.result, again.reason, len(server.writes)) == (Result.WAITING, reason, 1)


def does_nothing(server: ApiServer) -> None:
    """Expect a pass without any write."""
    assert run_pass(server).result is Result.NOTHING
    assert server.writes == []


def admits(server: ApiServer, at: int = 2) -> None:
    """Expect exactly two writes: A, and then Ready."""
    outcome = run_pass(server)
    assert (outcome.result, outcome.count) == (Result.ADMITTED, at), outcome
    assert [(type(entry.request), entry.reply["kind"]) for entry in server.writes] == [
        (Replace, "TrainJob"),
        (ReplaceStatus, "Workload"),
    ]
    assert count(server, NAME) == at
    assert our_entry(server.read(WORKLOADS, WORKLOAD))["state"] == "Ready"
    assert run_pass(server).result is Result.NOTHING
    assert len(server.writes) == 2


def _table(
    prefix: str, expect: Callable[..., None], rows: Mapping[str, tuple[Mapping[str, Any], tuple[Any, ...]]]
) -> None:
    def check(parts: Mapping[str, Any], more: tuple[Any, ...]) -> None:
        expect(scene(**parts), *more)

    for name, (parts, more) in rows.items():
        CHECKS.add(f"{prefix}: {name}", partial(check, parts, more))


RESERVED = {"QuotaReserved": True}
READY = [check_state(state="Ready", time="2026-01-01T00:00:30Z")]

# Not our turn: rules 1, 3 and 4. Everything else is ready for the next execution.
_NOT_OUR_TURN: dict[str, JsonObject] = {
    "no quota reserved": objects.workload({"QuotaReserved": False}),
    "no condition at all": objects.workload({}),
    "quota reserved, but no admission to back it": objects.workload(RESERVED, admission=False),
    "quota reserved reads Unknown": objects.workload({"QuotaReserved": "Unknown"}, admission=True),
    "evicted, quota still reserved": objects.workload(RESERVED | {"Evicted": True}),
    "evicted and admitted, quota still reserved": objects.workload(RESERVED | {"Evicted": True, "Admitted": True}),
    "evicted reads Unknown": objects.workload(RESERVED | {"Evicted": "Unknown"}),
    "admitted: the check was put back beside a running job": objects.workload(RESERVED | {"Admitted": True}),
    "finished": objects.workload(RESERVED | {"Finished": True}),
    "deactivation is under way": objects.workload(RESERVED | {"DeactivationTarget": True}),
    "inactive": objects.workload(RESERVED, active=False),
    "being deleted": objects.workload(RESERVED, deleting=True),
    "our check is not listed": objects.workload(checks=[check_state("prov-test")]),
    "no check is listed": objects.workload(checks=[]),
    "our check is Ready already": objects.workload(checks=READY),
    "our check says Retry": objects.workload(checks=[check_state(state="Retry")]),
    "our check says Rejected": objects.workload(checks=[check_state(state="Rejected")]),
    "our check says something unknown": objects.workload(checks=[check_state(state="Perhaps")]),
    "our check has no state": objects.workload(checks=[{"name": CHECK}]),
}
_table("nothing", does_nothing, {name: ({"workload": body}, ()) for name, body in _NOT_OUR_TURN.items()})

# Rule 7.
_table(
    "waits for the TrainJob",
    waits,
    {
        "being deleted": ({"trainjob": objects.trainjob(deleting=True)}, (Reason.DELETING,)),
        "complete": ({"trainjob": objects.trainjob(status={"Complete": True})}, (Reason.ENDED, "Complete")),
        "failed": ({"trainjob": objects.trainjob(status={"Failed": True})}, (Reason.ENDED, "Failed")),
        "our gate is closed": ({"trainjob": objects.trainjob(gates="dispatch.phpboyscout.uk/gate")}, (Reason.GATED,)),
        "somebody's gate is closed": ({"trainjob": objects.trainjob(gates="a.io/x")}, (Reason.GATED, "a.io/x")),
        "a blank gate is closed": ({"trainjob": objects.trainjob(gates=" ")}, (Reason.GATED, "blank")),
        "held": ({"trainjob": objects.trainjob(held=True)}, (Reason.HELD, "release")),
        "not suspended": ({"trainjob": objects.trainjob(suspend=False)}, (Reason.NOT_SUSPENDED,)),
        "suspend is unset": ({"trainjob": objects.trainjob(suspend=None)}, (Reason.NOT_SUSPENDED,)),
    },
)

_FINISHED = objects.job(replicated_job="dataset-initializer", suspend=False, started=True, status={"Complete": True})
_UNLABELLED = {**_FINISHED, "metadata": {**_FINISHED["metadata"], "labels": {JOBSET_NAME: NAME}}}
_ORPHAN = objects.job()
_ORPHAN["metadata"].pop("ownerReferences")
_STARTING = objects.job(0, suspend=False, status={})
_DEPENDENT = objects.jobset(
    jobs=[
        objects.replicated("dataset-initializer"),
        objects.replicated("node", depends_on={"dataset-initializer": "Complete"}),
    ]
)
_AFTER_READY = objects.jobset(
    jobs=[objects.replicated("first"), objects.replicated("node", depends_on={"first": "Ready"})]
)
_BOTH = objects.trainjob(jobs=("dataset-initializer", "node"))
_FIRST_AND_NODE = objects.trainjob(jobs=("first", "node"))
_SUSPENDED_FIRST = objects.job(replicated_job="first", started=True)
_UNSUSPENDED_JOB = objects.job(suspend=False, status={"Suspended": False})

# Rule 8: the JobSet and its Jobs.
_table(
    "waits for what remains",
    lambda server, *says: waits(server, Reason.STILL_RUNNING, *says),
    {
        "no JobSet": ({"jobset": ABSENT}, ("JobSet does not exist",)),
        "JobSet not suspended": ({"jobset": objects.jobset(suspend=False)}, (f"JobSet {NAME} is not suspended",)),
        "JobSet without suspend": ({"jobset": objects.jobset(suspend=None)}, ("is not suspended",)),
        "JobSet being deleted": ({"jobset": objects.jobset(deleting=True)}, ("is being deleted",)),
        "JobSet unreadable": ({"jobset": objects.jobset(uid="")}, ("lacks name, uid",)),
        "Job missing": ({"jobs": []}, (f"Job {NAME}-node-0 does not exist",)),
        "second Job missing": (
            {"jobset": objects.jobset(jobs=[objects.replicated("node", replicas=2)])},
            (f"Job {NAME}-node-1 does not exist",),
        ),
        "the Job is an earlier JobSet's": ({"jobs": [objects.job(jobset_uid="uid-before")]}, ("does not exist",)),
        "the Job has no owner": ({"jobs": [_ORPHAN]}, (f"Job {NAME}-node-0 does not exist",)),
        "the Job lost its labels": ({"jobs": [objects.job(labelled=False)]}, ("does not exist",)),
        "Job not suspended": ({"jobs": [_UNSUSPENDED_JOB]}, ("is not suspended",)),
        "Job about to start": ({"jobs": [_STARTING]}, ("is not suspended",)),
        "Job told to suspend, not seen to be": ({"jobs": [objects.job(started=True, status={})]}, ("not yet seen",)),
        "Job suspended, the condition is of an earlier resume": (
            {"jobs": [objects.job(started=True, status={"Suspended": False})]},
            ("not yet seen",),
        ),
        "Job with an active pod": ({"jobs": [objects.job(active=1)]}, ("1 active",)),
        "Job with a terminating pod": ({"jobs": [objects.job(terminating=1)]}, ("1 terminating",)),
        "finished Job with an active pod": (
            {"jobs": [objects.job(suspend=False, started=True, active=1, status={"Complete": True})]},
            ("1 active",),
        ),
        "failed Job with a terminating pod": (
            {"jobs": [objects.job(suspend=False, started=True, terminating=1, status={"Failed": True})]},
            ("1 terminating",),
        ),
        "the initializer is over, its dependent Job is missing": (
            {"jobset": _DEPENDENT, "trainjob": _BOTH, "jobs": [_FINISHED]},
            (f"Job {NAME}-node-0 does not exist",),
        ),
        "the initializer is over, but has lost a label": (
            {"jobset": _DEPENDENT, "trainjob": _BOTH, "jobs": [_UNLABELLED]},
            (f"Job {NAME}-node-0 does not exist",),
        ),
        "a ready dependency's dependent Job is missing": (
            {
                "jobset": _AFTER_READY,
                "trainjob": _FIRST_AND_NODE,
                "jobs": [objects.job(replicated_job="first", ready=1)],
            },
            (f"Job {NAME}-node-0 does not exist",),
        ),
        "a dependency of an unknown status does not excuse a missing Job": (
            {
                "jobset": objects.jobset(
                    jobs=[objects.replicated("first"), objects.replicated("node", depends_on={"first": "Perhaps"})]
                ),
                "trainjob": _FIRST_AND_NODE,
                "jobs": [_SUSPENDED_FIRST],
            },
            (f"Job {NAME}-node-0 does not exist",),
        ),
    },
)

# Rule 8: pods (BL-41), and what a tenant may do to them.
_PODS: dict[str, tuple[JsonObject, tuple[str, ...]]] = {
    "1 Pending, no node": (objects.pod("Pending", node=None, containers=None), ("(Pending)",)),
    "2 Pending, on a node": (objects.pod("Pending", containers=("waiting",)), ("(Pending on node-a)",)),
    "3 Running": (objects.pod(), ("(Running on node-a)", "node-0-0-x7k2p")),
    "4 Running, being deleted": (objects.pod(deleting=True), ("(Running on node-a, being deleted)",)),
    "5 Unknown": (objects.pod("Unknown"), ("(Unknown on node-a)",)),
    "5b Unknown, no container reported": (objects.pod("Unknown", containers=None), ("(Unknown on node-a)",)),
    "6 Running on an unreachable node": (objects.pod(node="lost", deleting=True), ("on lost",)),
    "7 Running, its node is gone": (objects.pod(node="gone"), ("on gone",)),
    "10 Failed, a container still runs": (objects.pod("Failed", containers=("terminated", "running")), ("(Failed",)),
    "10b Succeeded, a container's state is not reported": (objects.pod("Succeeded", containers=("",)), ("(Succeeded",)),
    "12 held back by a scheduling gate": (objects.pod("Pending", node=None, gates=["x.io/g"]), ("(Pending)",)),
    "13 of an earlier JobSet of the same name": (objects.pod(jobset_uid="uid-before"), ("(Running",)),
    "no phase": (objects.pod(None), ("no phase",)),
    "a phase nobody knows": (objects.pod("Paused"), ("(Paused",)),
    "without an owner": (objects.pod(owned=False), ("(Running",)),
    "unreadable": (
        objects.pod("Succeeded", containers=())
        | {"metadata": {"name": "odd", "namespace": TEAM, "labels": {"jobset.sigs.k8s.io/jobset-name": NAME}}},
        ("odd", "lacks"),
    ),
}
_table(
    "waits for a pod",
    lambda server, *says: waits(server, Reason.STILL_RUNNING, *says),
    {name: ({"pods": [body]}, says) for name, (body, says) in _PODS.items()},
)

# Rule 9.
_table(
    "waits for A",
    waits,
    {
        "leading zero": (
            {"trainjob": objects.trainjob("01"), "jobset": objects.jobset("01")},
            (Reason.COUNT_UNREADABLE, "'01'"),
        ),
        "negative": ({"trainjob": objects.trainjob(-1)}, (Reason.COUNT_UNREADABLE, "'-1'")),
        "2^63": ({"trainjob": objects.trainjob(2**63)}, (Reason.COUNT_UNREADABLE,)),
        "unequal in our patch": (
            {"trainjob": objects.trainjob(patches=[objects.patch({"node": 1, "other": 2})])},
            (Reason.COUNT_UNREADABLE, "unequal"),
        ),
        "on one replicated job only": (
            {"trainjob": objects.trainjob(patches=[objects.patch({"node": 1, "other": None})])},
            (Reason.COUNT_UNREADABLE, "unequal"),
        ),
        "unreadable in the JobSet": ({"jobset": objects.jobset("x")}, (Reason.COUNT_UNREADABLE, "'x'")),
        "unreadable in a Job": ({"jobs": [objects.job(" 1")]}, (Reason.COUNT_UNREADABLE,)),
        "carried by nothing": (
            {
                "trainjob": objects.trainjob(patches=[]),
                "jobset": objects.jobset(None),
                "jobs": [objects.job(None)],
            },
            (Reason.COUNT_UNREADABLE, "was it started"),
        ),
        "as high as it goes": (
            {"trainjob": objects.trainjob(10**18 - 1), "jobset": objects.jobset(10**18 - 1)},
            (Reason.COUNT_UNREADABLE, "as high as"),
        ),
        "JobSet behind": ({"trainjob": objects.trainjob(2)}, (Reason.TRAINER_BEHIND, "A=1", "A=2")),
        "JobSet ahead": ({"jobset": objects.jobset(2)}, (Reason.TRAINER_BEHIND,)),
        "patch stripped, which no Job shows": (
            {"trainjob": objects.trainjob(patches=[]), "jobs": [objects.job(None)]},
            (Reason.COUNT_UNREADABLE, "was it started"),
        ),
    },
)

# The way to Ready.
_table(
    "admits",
    admits,
    {
        "first execution: Job never started": (
            {"trainjob": objects.trainjob(0), "jobset": objects.jobset(0), "jobs": [objects.job(0, status={})]},
            (1,),
        ),
        "next execution": ({}, ()),
        "evicted before, and reserved anew": (
            {"workload": objects.workload(RESERVED | {"Evicted": False, "Admitted": False})},
            (),
        ),
        "pod 8: Succeeded": ({"pods": [objects.pod("Succeeded", containers=("terminated",))]}, ()),
        "pod 9: Succeeded, being deleted, kept by a finalizer": (
            {"pods": [objects.pod("Succeeded", containers=("terminated",), deleting=True)]},
            (),
        ),
        "pod 9b: Failed, being deleted, kept by a finalizer": (
            {"pods": [objects.pod("Failed", containers=("terminated",), deleting=True)]},
            (),
        ),
        "pod 11: Failed, no container was ever reported": ({"pods": [objects.pod("Failed", containers=None)]}, ()),
        "pod 11b: Failed, a container that will not be started any more": (
            {"pods": [objects.pod("Failed", containers=("terminated", "waiting"))]},
            (),
        ),
        "pod 14: the same name in another namespace": ({"pods": [objects.pod(namespace="other")]}, ()),
        "pod 15: none": ({"pods": []}, ()),
        "a pod of another job": ({"pods": [objects.pod(of=f"{NAME}2", name="elsewhere")]}, ()),
        "a finished initializer with its own old A": (
            {
                "jobset": _DEPENDENT,
                "trainjob": _BOTH,
                "jobs": [_FINISHED, objects.job(1)],
                "pods": [objects.pod("Succeeded", name="dataset", containers=("terminated",))],
            },
            (),
        ),
        "an initializer that ran is still needed: its dependent Job is not there yet": (
            {
                "jobset": _DEPENDENT,
                "trainjob": _BOTH,
                "jobs": [objects.job(replicated_job="dataset-initializer", started=True)],
            },
            (),
        ),
        "a dependency that was never ready: its dependent Job is not there yet": (
            {"jobset": _AFTER_READY, "trainjob": _FIRST_AND_NODE, "jobs": [_SUSPENDED_FIRST]},
            (),
        ),
        "a failed Job": ({"jobs": [objects.job(suspend=False, started=True, status={"Failed": True})]}, ()),
        "a Job carries no A": ({"jobs": [objects.job(None)]}, ()),
        "a Job carries a higher A": ({"jobs": [objects.job(6)]}, (7,)),
        "an old pod carries a higher A": (
            {"pods": [objects.pod("Succeeded", containers=("terminated",), count=4)]},
            (5,),
        ),
        "what an old pod carries is unreadable": (
            {"pods": [objects.pod("Succeeded", containers=("terminated",), count="x")]},
            (),
        ),
        "the patch was stripped, a Job still carries A": (
            {"trainjob": objects.trainjob(patches=[objects.KUEUE_PATCH]), "jobset": objects.jobset(None)},
            (),
        ),
        "the patch was stripped, which Trainer cannot carry to the JobSet": (
            {"trainjob": objects.trainjob(patches=[objects.KUEUE_PATCH])},
            (2,),
        ),
        "another gate's annotation is the empty string": ({"trainjob": objects.trainjob(gates="")}, ()),
        "others' checks in any state": (
            {
                "workload": objects.workload(
                    checks=[check_state("a", "Retry"), check_state(), check_state("b", "Ready")]
                )
            },
            (),
        ),
    },
)
