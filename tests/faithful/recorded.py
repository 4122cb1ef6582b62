"""What the API server's audit log says that became of each object of a job, in the words of the explorer's model.

Needed of the audit policy: level RequestResponse and stage ResponseComplete for writes. The order is that of the
versions, which one etcd gives; what has none (the end of an object) stands where it was sent.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NamedTuple

from explorer.values import NONE, Job, JobSet, Pod, TrainJob, Workload

Value = TrainJob | Workload | JobSet | Job | Pod | None

# Spelled out here, not imported: what is read is what the API server recorded, not what the product would make of it.
_OURS: Final = re.compile(r"dj-[0-7][0-9a-hjkmnp-tv-z]{25}-s(0|[1-9][0-9]*)")
_GATED_BY, _GATE = "kueue.x-k8s.io/admission-gated-by", "dispatch.phpboyscout.uk/gate"
_HOLD, _OPENED = "dispatch.phpboyscout.uk/hold", "dispatch.phpboyscout.uk/opened"
_MANAGER, _COUNT = "dispatch.phpboyscout.uk/adapter", "dispatch.phpboyscout.uk/admission-count"
_JOBSET = "jobset.sigs.k8s.io/jobset-name"
_CHECK = "dispatch"
_KINDS: Final = {
    "trainjobs": "TrainJob",
    "workloads": "Workload",
    "jobsets": "JobSet",
    "jobs": "Job",
    "pods": "Pod",
    "namespaces": "Namespace",
}
_READ: Final = re.compile('"verb":"(get|list|watch)"')
_BEGINNING: Final = 2000
"""In so many characters of a line its verb is found: what it does not show is looked at whole."""
_ACTORS: Final = {
    "system:serviceaccount:kueue-system:": "Kueue",
    "system:serviceaccount:kubeflow-system:": "Trainer",
    "system:serviceaccount:jobset-system:": "JobSet",
    "system:serviceaccount:kube-system:job-controller": "Job controller",
    "system:serviceaccount:kube-system:kwok": "kubelet",
    "system:serviceaccount:kube-system:generic-garbage-collector": "garbage collector",
    "system:serviceaccount:kube-system:node-controller": "kubelet",
    "system:node:": "kubelet",
    "system:kube-scheduler": "scheduler",
    "system:serviceaccount:dispatch-system:": "controller",
    "dispatch-local-admin": "people",
}


WRONG: Final = "somebody who may be wrong on purpose"
ON_PURPOSE: Final = "dispatch.local/wrong-on-purpose"
"""An annotation on a TrainJob: what is done to it from now on is wrong on purpose, and nothing for the model."""
_UNGUARDED: Final = "-unguarded"
"""How the account of a controller ends that the guard rails do not hold back: most of these are wrong on purpose."""


class Transition(NamedTuple):
    """One write that changed an object in the model's terms. A is a rank within the transition: 0, or 0 and 1."""

    actor: str
    kind: str
    before: Value
    after: Value

    def __str__(self) -> str:
        return f"{self.actor}: {self.kind} {_short(self.before)} -> {_short(self.after)}"


class Recorded(NamedTuple):
    """A transition, of which object of which job, in which version; and why it cannot be compared, if it cannot."""

    what: Transition
    left_out: str
    job: str
    name: str
    at: str


class _Write(NamedTuple):
    actor: str
    kind: str
    body: dict[str, Any]
    ends: bool
    """Whether the object is gone by it."""
    created: bool = False
    unsure: bool = False
    """Whether the log may lack another write of this object."""


class _Placed(NamedTuple):
    """A write with its version, when it was sent and answered, and its line in the log."""

    version: int
    sent: str
    answered: str
    number: int
    write: _Write

    @property
    def uid(self) -> str:
        return str(self.write.body["metadata"].get("uid"))


def _short(value: Value) -> str:
    if value is None:
        return "nothing"
    said = [f"A{value.rank}" if isinstance(value, TrainJob | JobSet | Job | Pod) else "", getattr(value, "phase", "")]
    said += [key for key, found in zip(value._fields, value, strict=True) if found is True]
    said += [f"check {value.check}"] if isinstance(value, Workload) else []
    return f"({' '.join(filter(None, said))})"


def reduced(actor: str, kind: str, before: Value, after: Value) -> Transition | None:
    """Return the transition with what is not compared left out; None where nothing else has changed.

    Left out: whether our entry's time is later than Admitted's, and whether a label of JobSet's was taken off a pod. A
    is a rank: whether it has changed, and in which direction, is left of it.
    """
    found = [value.rank for value in (before, after) if isinstance(value, TrainJob | JobSet | Job | Pod)]
    ranks = sorted(set(found) - {NONE})
    one, other = _reduced(before, ranks), _reduced(after, ranks)
    return None if one == other else Transition(actor, kind, one, other)


def _reduced(value: Value, ranks: list[int]) -> Value:
    match value:
        case Workload():
            return value._replace(ahead=False)
        case TrainJob() | JobSet() | Job() if value.rank != NONE:
            return value._replace(rank=ranks.index(value.rank))
        case Pod():
            return value._replace(rank=ranks.index(value.rank) if value.rank != NONE else NONE, hidden=False)
    return value


# Reading the log.


def recorded(path: Path) -> Iterator[Recorded]:
    """Yield the transitions of each job of dispatch's, object by object in the order of versions."""
    known: dict[str, tuple[Value, dict[str, Any]]] = {}
    unknown: set[str] = set()
    several: set[str] = set()
    discarded: set[str] = set()
    for actor, kind, body, ends, created, unsure in _writes(path):
        about = body["metadata"]
        if kind == "Namespace":
            discarded.add(about["name"])
            continue
        job = _job(kind, body)
        uid = str(about.get("uid"))
        if job is None or (uid not in known and ends):
            continue
        if uid not in known and not created:
            unknown.add(uid)
        before, whole = known.get(uid, (None, {}))
        if body.get("kind") == "PartialObjectMetadata":
            body = {**whole, "metadata": about}
        after = None if ends or _is_gone(about) else value(kind, body)
        known[uid] = (after, body)
        where = f"{about.get('namespace')}/{job}"
        if kind == "JobSet" and len((body.get("spec") or {}).get("replicatedJobs") or []) > 1:
            several.add(where)
        if kind == "TrainJob" and ON_PURPOSE in (about.get("annotations") or {}):
            actor = WRONG
        if (what := reduced(actor, kind, before, after)) is not None:
            reasons = {
                "of objects of which a write is not in the log with its outcome": unsure or uid in unknown,
                "in namespaces that are deleted": about.get("namespace") in discarded,
                "of Jobs and pods where there are several replicated jobs": where in several and kind in ("Job", "Pod"),
            }
            left_out = next((why for why, applies in reasons.items() if applies), "")
            name = f"{about.get('namespace')}/{about.get('name')}"
            yield Recorded(what, left_out, where, name, str(about["resourceVersion"]))


def _writes(path: Path) -> Iterator[_Write]:
    """Yield each write that was carried out, in the order of versions.

    A write may have been carried out without the log's saying so: its client went away, or etcd's answer was lost, and
    it stands there as an error of the server's. What comes next then seems to have done that as well.
    """
    found: list[_Placed] = []
    latest: dict[tuple[str, str, str], dict[str, Any]] = {}
    unsure: set[tuple[str, str, str]] = set()
    for number, line in enumerate(_lines(path)):
        event = json.loads(line)
        ref = event.get("objectRef") or {}
        if not _is_write(event, ref):
            continue
        if not _is_done(event):
            if _may_be_done(event):
                unsure.add((_KINDS[ref["resource"]], ref.get("namespace", ""), _named(event, ref)))
            continue
        actor = _actor(event["user"]["username"])
        kind, sent = _KINDS[ref["resource"]], event.get("requestReceivedTimestamp", "")
        if kind == "Namespace":  # in the log without its object
            found.append(
                _Placed(0, sent, "", number, _Write(actor, kind, {"metadata": {"name": ref["name"]}}, ends=True))
            )
            continue
        answer = event.get("responseObject") or {}
        bodies = list(answer["items"]) if "items" in answer else [answer]
        for body in bodies:
            key = (kind, ref.get("namespace", ""), (body.get("metadata") or {}).get("name") or ref.get("name", ""))
            deleting = event["verb"] in ("delete", "deletecollection")
            ends = deleting and (body.get("kind") == "Status" or not _lingers(body))
            if body.get("kind") == "Status":
                body = latest.get(key, {})
            if "metadata" not in body:
                continue
            latest[key] = body
            version = int(body["metadata"].get("resourceVersion") or 0)
            write = _Write(actor, kind, body, ends, created=_code(event) == HTTPStatus.CREATED)
            found.append(_Placed(version, sent, event.get("stageTimestamp", ""), number, write))
    for write in _in_order(found):
        about = write.body["metadata"]
        yield write._replace(unsure=(write.kind, about.get("namespace", ""), about.get("name", "")) in unsure)


def _in_order(found: list[_Placed]) -> Iterator[_Write]:
    """Yield the writes in the order of versions.

    The end of an object has no version of its own. It stands after all other writes of the object and after what was
    answered before it was sent, and so before what came of it: the garbage collector may be done with what is below
    before the log has the answer.
    """
    last: dict[str, int] = {}
    for each in found:
        last[each.uid] = max(each.version, last.get(each.uid, 0))
    answered = sorted((each.answered, each.version) for each in found)
    times, highest = [time for time, _ in answered], [0, *accumulate((version for _, version in answered), max)]

    def order(each: _Placed) -> tuple[int, bool, str, int]:
        ends = each.write.ends
        at = max(last[each.uid], highest[bisect_left(times, each.sent)]) if ends else each.version
        return at, ends, each.sent, each.number

    for each in sorted(found, key=order):
        yield each.write


def _lines(path: Path) -> Iterator[str]:
    """Yield the whole lines that may be about a write. Most of a log is about reads, and its lines are long."""
    with path.open() as log:
        for line in log:
            if line.endswith("\n") and not _READ.search(line, 0, _BEGINNING):
                yield line


def _actor(user: str) -> str:
    if user.endswith(_UNGUARDED):
        return WRONG
    return next((who for begin, who in _ACTORS.items() if user.startswith(begin)), "people")


def _is_write(event: Mapping[str, Any], ref: Mapping[str, Any]) -> bool:
    return (
        event.get("stage") == "ResponseComplete"
        and event.get("verb") in ("create", "update", "patch", "delete", "deletecollection")
        and ref.get("resource") in _KINDS
        and (ref["resource"] != "namespaces" or event["verb"] == "delete")
        and ref.get("subresource") in (None, "status")
        and "dryRun=" not in event.get("requestURI", "")
    )


def _is_done(event: Mapping[str, Any]) -> bool:
    return 200 <= _code(event) < 300


def _may_be_done(event: Mapping[str, Any]) -> bool:
    """Whether a write that failed may have been carried out: not where the failure is a webhook's that comes before."""
    failed = _code(event) == 0 or _code(event) >= HTTPStatus.INTERNAL_SERVER_ERROR
    return failed and "failed calling webhook" not in ((event.get("responseStatus") or {}).get("message") or "")


def _code(event: Mapping[str, Any]) -> int:
    return (event.get("responseStatus") or {}).get("code") or 0


def _named(event: Mapping[str, Any], ref: Mapping[str, Any]) -> str:
    sent = (event.get("requestObject") or {}).get("metadata") or {}
    return str(ref.get("name") or sent.get("name") or "")


def _lingers(body: Mapping[str, Any]) -> bool:
    about = body.get("metadata") or {}
    return bool(about.get("finalizers")) or bool(about.get("deletionGracePeriodSeconds"))


def _is_gone(about: Mapping[str, Any]) -> bool:
    """Whether a write has taken the last finalizer away from something that was being deleted."""
    deleting = about.get("deletionTimestamp") is not None
    return deleting and not about.get("finalizers") and not about.get("deletionGracePeriodSeconds")


def _job(kind: str, body: Mapping[str, Any]) -> str | None:
    """Return the job of dispatch's that an object belongs to."""
    about = body["metadata"]
    name = about.get("name", "")
    if kind == "Workload":
        owners = about.get("ownerReferences") or []
        name = next((owner["name"] for owner in owners if owner.get("kind") == "TrainJob"), "")
    elif kind in ("Job", "Pod"):
        name = (about.get("labels") or {}).get(_JOBSET, "")
    return str(name) if _OURS.fullmatch(name) else None


# Objects as the model's values.


def value(kind: str, body: Mapping[str, Any]) -> Value:
    """Return an object in the model's terms."""
    about, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    said = {entry.get("type"): entry.get("status") for entry in status.get("conditions") or []}
    ended = "True" in (said.get("Complete"), said.get("Failed"))
    deleting = about.get("deletionTimestamp") is not None
    marks = about.get("annotations") or {}
    suspend = spec.get("suspend") is True
    gate = _GATE in [entry.strip() for entry in (marks.get(_GATED_BY) or "").split(",")]
    if kind == "TrainJob":
        return TrainJob(suspend, _count_of_patch(spec), gate, _HOLD in marks, _OPENED in marks, ended, deleting)
    if kind == "Workload":
        return _workload(spec, status, said, gate, deleting)
    if kind == "JobSet":
        return JobSet(suspend, _count_of_jobs(spec.get("replicatedJobs") or []))
    if kind == "Job":
        template = ((spec.get("template") or {}).get("metadata") or {}).get("annotations") or {}
        return Job(
            suspend,
            _number(template.get(_COUNT)),
            bool(status.get("startTime")),
            said.get("Suspended") == "True",
            bool(status.get("active")),
            bool(status.get("terminating")),
            ended,
        )
    phase = status.get("phase", "Pending")
    return None if phase in ("Succeeded", "Failed") else Pod(_number(marks.get(_COUNT)), phase, deleting)


def _workload(
    spec: Mapping[str, Any], status: Mapping[str, Any], said: Mapping[str, Any], gate: bool, deleting: bool
) -> Workload:
    states = {check.get("name"): check.get("state") for check in status.get("admissionChecks") or []}
    return Workload(
        active=spec.get("active") is not False,
        gate=gate,
        reserved=said.get("QuotaReserved") == "True",
        admitted=said["Admitted"] == "True" if "Admitted" in said else None,
        evicted=said.get("Evicted") == "True",
        check=states.get(_CHECK) or "",
        finished=said.get("Finished") == "True",
        deleting=deleting,
    )


def _count_of_patch(spec: Mapping[str, Any]) -> int:
    for patch in spec.get("runtimePatches") or []:
        if patch.get("manager") == _MANAGER:
            jobs = ((patch.get("trainingRuntimeSpec") or {}).get("template") or {}).get("spec") or {}
            return _count_of_jobs(jobs.get("replicatedJobs") or [])
    return NONE


def _count_of_jobs(jobs: list[Mapping[str, Any]]) -> int:
    for job in jobs:
        metadata = job.get("template", {}).get("spec", {}).get("template", {}).get("metadata") or {}
        if _COUNT in (metadata.get("annotations") or {}):
            return _number(metadata["annotations"][_COUNT])
    return NONE


def _number(text: Any) -> int:
    return int(text) if isinstance(text, str) and text.isdecimal() else NONE
