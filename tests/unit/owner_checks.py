"""Whose a Workload is, as named checks (BL-07): see `test_pass` and `test_preconditions`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from dispatch_admission.act import Result
from dispatch_gates.contract.names import JOBS, JOBSETS, TRAINJOBS, WORKLOADS
from dispatch_gates.contract.next_execution import Reason
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.requests import (
    ApiError,
    BadReplyError,
    DeniedError,
    Get,
    ReplaceStatus,
    Request,
    ThrottledError,
    UnreachableError,
)
from model import objects
from model.objects import NAME, TEAM, WORKLOAD, owner
from model.promises import our_entry
from unit.checks import Checks
from unit.pass_checks import run_pass, scene, waits

CHECKS = Checks()

OURS_UID = "uid-trainjob"
PARENT = "trainjob-parent"
_FOREIGN_TRAINJOB = objects.trainjob(name="plain", uid="uid-plain", patches=[objects.KUEUE_PATCH])
_NAMED = objects.trainjob(patches=[objects.KUEUE_PATCH])
_PATCHED = objects.trainjob(name="plain", uid="uid-plain")


def _owned(reference: JsonObject | None) -> JsonObject:
    return objects.workload(owned_by=reference, owned=reference is not None)


def _foreign(reference: JsonObject | None, more: Iterable[JsonObject], trainjob: JsonObject | None = None) -> None:
    """Ready at once, whatever runs, with one write and none to a TrainJob."""
    server = scene(workload=_owned(reference), trainjob=trainjob, pods=[objects.pod()], more=more)
    assert run_pass(server).result is Result.FOREIGN
    assert [type(entry.request) for entry in server.writes] == [ReplaceStatus]
    assert our_entry(server.read(WORKLOADS, WORKLOAD))["state"] == "Ready"
    assert run_pass(server).result is Result.NOTHING


def _waiting(reason: Reason, reference: JsonObject, more: Iterable[JsonObject], *says: str) -> None:
    waits(scene(workload=_owned(reference), pods=[objects.pod()], more=more), reason, *says)


def _job_of(kind: str, name: str, uid: str, reference: JsonObject | None) -> JsonObject:
    """A JobSet, Job or Workload in the chain of owners."""
    built = {"JobSet": objects.jobset(), "Job": objects.job(), "Workload": objects.workload()}[kind]
    built["metadata"] |= {"name": name, "uid": uid, "ownerReferences": [reference] if reference else []}
    return built


_TRAINJOB = owner("TrainJob", NAME, OURS_UID)
_FOREIGN_ROWS: dict[str, tuple[JsonObject | None, list[JsonObject]]] = {
    "8 no controller owner": (None, []),
    "8b an owner that is no controller": (owner("TrainJob", NAME, OURS_UID, controller=False), []),
    "9 a Job without a TrainJob above": (owner("Job", "alone", "uid-a"), [_job_of("Job", "alone", "uid-a", None)]),
    "9b a JobSet without a TrainJob above": (
        owner("JobSet", "alone", "uid-a"),
        [_job_of("JobSet", "alone", "uid-a", None)],
    ),
    "9c a Job of some other kind's": (
        owner("Job", "step", "uid-a"),
        [_job_of("Job", "step", "uid-a", owner("CronJob", "nightly", "uid-b"))],
    ),
    "10 a TrainJob without our marks": (owner("TrainJob", "plain", "uid-plain"), [_FOREIGN_TRAINJOB]),
    "10b a variant of a TrainJob without our marks": (
        owner("Workload", PARENT, "uid-parent"),
        [_job_of("Workload", PARENT, "uid-parent", owner("TrainJob", "plain", "uid-plain")), _FOREIGN_TRAINJOB],
    ),
    "11 kind TrainJob in another API group": (owner("TrainJob", NAME, OURS_UID, api_version="example.org/v1"), []),
    "11b kind Job in another API group": (owner("Job", NAME, OURS_UID, api_version="ray.io/v1"), []),
    "some other kind": (owner("RayCluster", NAME, OURS_UID), []),
}
for _name, (_reference, _more) in _FOREIGN_ROWS.items():
    CHECKS.add(f"foreign: {_name}", partial(_foreign, _reference, _more))

_WAITING_ROWS: dict[str, tuple[Reason, JsonObject, list[JsonObject], str]] = {
    "1 its TrainJob": (Reason.STILL_RUNNING, _TRAINJOB, [], "x7k2p"),
    "1b an older version of the API group": (
        Reason.STILL_RUNNING,
        owner("TrainJob", NAME, OURS_UID, api_version="trainer.kubeflow.org/v1"),
        [],
        "x7k2p",
    ),
    "2 a Workload of its TrainJob": (
        Reason.CONCURRENT_ADMISSION,
        owner("Workload", PARENT, "uid-parent"),
        [_job_of("Workload", PARENT, "uid-parent", _TRAINJOB)],
        "not supported",
    ),
    "2b a Workload of the JobSet of its TrainJob": (
        Reason.CONCURRENT_ADMISSION,
        owner("Workload", PARENT, "uid-parent"),
        [_job_of("Workload", PARENT, "uid-parent", owner("JobSet", NAME, "uid-jobset"))],
        "not supported",
    ),
    "3 the JobSet of its TrainJob": (Reason.STILL_RUNNING, owner("JobSet", NAME, "uid-jobset"), [], "x7k2p"),
    "3b a Job of the JobSet of its TrainJob": (
        Reason.STILL_RUNNING,
        owner("Job", f"{NAME}-node-0", "uid-job-node-0"),
        [],
        "x7k2p",
    ),
    "4 a TrainJob of the right name and another uid": (
        Reason.OWNER_UNREADABLE,
        owner("TrainJob", NAME, "uid-before"),
        [],
        "another one of that name",
    ),
    "4b a foreign TrainJob's name, another uid": (
        Reason.OWNER_UNREADABLE,
        owner("TrainJob", "plain", "uid-before"),
        [_FOREIGN_TRAINJOB],
        "another one of that name",
    ),
    "5 a TrainJob that is gone": (Reason.OWNER_UNREADABLE, owner("TrainJob", "dj-gone", "uid-x"), [], "is gone"),
    "an owner reference without a uid": (
        Reason.OWNER_UNREADABLE,
        owner("JobSet", "odd", "uid-odd"),
        [_job_of("JobSet", "odd", "uid-odd", owner("TrainJob", NAME, ""))],
        "cannot be read",
    ),
    "two controller owners": (
        Reason.OWNER_UNREADABLE,
        owner("JobSet", "odd", "uid-odd"),
        [
            _job_of("JobSet", "odd", "uid-odd", _TRAINJOB)
            | {"metadata": {"name": "odd", "namespace": TEAM, "uid": "uid-odd", "ownerReferences": [_TRAINJOB] * 2}}
        ],
        "cannot be read",
    ),
    "owners in a circle": (
        Reason.OWNER_UNREADABLE,
        owner("JobSet", "round", "uid-r"),
        [_job_of("JobSet", "round", "uid-r", owner("JobSet", "round", "uid-r"))],
        "one above the other",
    ),
}
for _name, (_reason, _ref, _more, _says) in _WAITING_ROWS.items():
    CHECKS.add(f"owner: {_name}", partial(_waiting, _reason, _ref, _more, _says))


def _unreadable(error: ApiError, resource: object) -> None:
    """The owner cannot be read: never Ready, and the words do not change with each try; a refusal is quoted."""
    reference = {
        str(TRAINJOBS): _TRAINJOB,
        str(JOBSETS): owner("JobSet", NAME, "uid-jobset"),
        str(JOBS): owner("Job", f"{NAME}-node-0", "uid-job-node-0"),
    }[str(resource)]
    server = scene(workload=_owned(reference))

    def refuse(request: Request) -> None:
        if isinstance(request, Get) and request.resource == resource:
            raise error

    server.before = refuse
    why = str(error) if isinstance(error, DeniedError) else type(error).__name__
    waits(server, Reason.OWNER_UNREADABLE, f"cannot be read ({why})")


for _error in (DeniedError("no", status=403), UnreachableError("500"), ThrottledError("429"), BadReplyError("cut")):
    for _resource in (TRAINJOBS, JOBSETS, JOBS):
        CHECKS.add(f"owner: 6, 7 {_resource} answers {type(_error).__name__}", partial(_unreadable, _error, _resource))


@CHECKS
def ours_by_name_alone() -> None:
    """The patch is stripped and no label is left: the name still says whose it is."""
    reference = owner("TrainJob", NAME, OURS_UID)
    server = scene(workload=_owned(reference), trainjob=_NAMED, jobset=objects.jobset(None), jobs=[objects.job(None)])
    waits(server, Reason.COUNT_UNREADABLE)


@CHECKS
def ours_by_patch_alone() -> None:
    """Somebody gave a TrainJob of ours another name: our patch still says whose it is."""
    reference = owner("TrainJob", "plain", "uid-plain")
    server = scene(workload=_owned(reference), more=[_PATCHED])
    outcome = run_pass(server)
    assert (outcome.result, outcome.reason, outcome.job) == (Result.WAITING, Reason.STILL_RUNNING, "plain")


@CHECKS
def ours_without_labels() -> None:
    """Labels are not consulted."""
    job = objects.trainjob(queue=None)
    assert "labels" not in job["metadata"]
    server = scene(trainjob=job, pods=[objects.pod()])
    waits(server, Reason.STILL_RUNNING)
