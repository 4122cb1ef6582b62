"""An independent reader of an API server's audit log: says whether the promised order was kept.

It shares no code with the product, on purpose, so that a mistake in the product's rules cannot excuse
itself here. It knows nothing of what the product says about itself: only what the API server recorded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from audit_log import Moment, Object, Write, at, meta, ordered, writes

# Spelled out here, not imported: see above.
OURS = re.compile(r"dj-[0-7][0-9a-hjkmnp-tv-z]{25}-s(0|[1-9][0-9]*)")
GATED_BY, GATE = "kueue.x-k8s.io/admission-gated-by", "dispatch.phpboyscout.uk/gate"
MANAGER, COUNT = "dispatch.phpboyscout.uk/adapter", "dispatch.phpboyscout.uk/admission-count"
JOBSET = "jobset.sigs.k8s.io/jobset-name"
CHECK = "dispatch"


@dataclass
class Pod:
    """The life of one pod; None is: not seen in the log."""

    name: str
    a: int | None
    created: Moment
    running: Moment | None = None
    terminal: Moment | None = None
    gone: Moment | None = None

    @property
    def over(self) -> Moment | None:
        """Since when nothing of it runs."""
        return min((moment for moment in (self.terminal, self.gone) if moment), default=None)


@dataclass
class Reservation:
    """One stay of a Workload in its queue's quota."""

    reserved: Moment
    ready: Moment | None = None
    admitted: Moment | None = None


@dataclass
class Job:
    """What the log says about one TrainJob of dispatch's."""

    key: str
    created: Moment | None = None
    uid: str = ""
    created_closed: bool = False
    opened: Moment | None = None
    suspended: bool | None = None
    a: int | None = None
    raises: list[tuple[int, Moment]] = field(default_factory=list)
    resumes: list[tuple[int | None, Moment]] = field(default_factory=list)
    pods: dict[str, Pod] = field(default_factory=dict)
    reservations: list[Reservation] = field(default_factory=list)

    def raised_to(self, a: int) -> Moment | None:
        """When A first became `a`."""
        return next((moment for value, moment in self.raises if value == a), None)

    def pods_of(self, a: int) -> list[Pod]:
        """Return the pods that were made with this A, in the order of their creation."""
        return sorted((pod for pod in self.pods.values() if pod.a == a), key=lambda pod: pod.created)


@dataclass
class Timeline:
    """All jobs of dispatch's in one log, by `namespace/name`, and what was wrong."""

    jobs: dict[str, Job] = field(default_factory=dict)
    _wrong: list[str] = field(default_factory=list)
    _workloads: dict[str, _Workload] = field(default_factory=dict)

    def violations(self) -> list[str]:
        """Return one line for each promise that was broken, in the order of events; empty is good."""
        return list(self._wrong)

    def add(self, write: Write) -> None:
        """Take in the next write."""
        if write.body is None:
            if write.verb != "delete":
                self._blame(write, "its body is not in the log: the audit level is too low to judge it")
            return
        if write.body.get("kind") == "PartialObjectMetadata":
            self._metadata(write)
            return
        {"trainjobs": self._trainjob, "workloads": self._workload, "pods": self._pod}[write.resource](write)

    def _metadata(self, write: Write) -> None:
        """Take in a write that was answered with metadata alone, as the garbage collector's: all else is as it was."""
        body = write.body or {}
        if write.resource == "trainjobs":
            job = self.jobs.get(f"{write.namespace}/{write.name}")
            if job is not None and job.opened is None and GATE not in _gates(body):
                job.opened = write.at
        elif write.resource == "pods":
            for job in self.jobs.values():
                pod = job.pods.get(str(meta(body).get("uid")))
                if pod is not None and pod.gone is None and _is_gone(write, meta(body)):
                    pod.gone = write.at

    def _blame(self, write: Write, what: str) -> None:
        self._wrong.append(
            f"{write.resource} {write.namespace}/{write.name}: {what} [{write.verb} by {write.user} at {write.at}]"
        )

    def _trainjob(self, write: Write) -> None:
        body = write.body or {}
        key = f"{write.namespace}/{write.name}"
        counts = _counts(body)
        if key not in self.jobs and not OURS.fullmatch(write.name) and not counts:
            return
        if write.verb == "delete" and not meta(body).get("uid"):
            return
        job = self.jobs.setdefault(key, Job(key))
        suspended, gated = bool(at(body, "spec", "suspend")), GATE in _gates(body)
        a = counts[0] if len(set(counts)) == 1 else None
        if write.verb == "create":
            # A name used twice is two objects, and one job: executions are compared across both.
            job.created, job.uid, job.a = write.at, str(meta(body).get("uid")), a
            job.opened = job.suspended = None
            job.created_closed = suspended and gated and a == 0
            if not job.created_closed:
                self._blame(write, f"created open: suspend {suspended}, gated {gated}, A {a}; expected closed, A 0")
        elif job.created is None:
            self._blame(write, "its creation is not in the log")
            job.created = write.at
        if a is None:
            self._blame(write, f"A cannot be read: {counts}")
        if not gated and job.opened is None:
            job.opened = write.at
        self._count(write, job, a)
        if job.suspended and not suspended:
            self._resume(write, job)
        job.suspended = suspended

    def _count(self, write: Write, job: Job, a: int | None) -> None:
        """Compare A with what it was before this write."""
        if a is None or job.a is None or a == job.a:
            job.a = a if a is not None else job.a
            return
        if a < job.a:
            self._blame(write, f"A went down from {job.a} to {a}")
        else:
            for pod in job.pods.values():
                if pod.over is None:
                    self._blame(write, f"A raised to {a} while pod {pod.name} (A={pod.a}) may still run")
        job.raises.append((a, write.at))
        job.a = a

    def _resume(self, write: Write, job: Job) -> None:
        """Judge a change of suspend from true to false: the start of an execution."""
        if job.opened is None:
            self._blame(write, "resumed before it was opened")
        earlier = [a for a, _ in job.resumes if a is not None]
        if job.a is None or job.a < 1 or job.a <= max(earlier, default=0):
            self._blame(write, f"resumed with A={job.a}; executions before it had {earlier}: A must be higher")
        job.resumes.append((job.a, write.at))

    def _pod(self, write: Write) -> None:
        body = write.body or {}
        about = meta(body)
        name = str(at(about, "labels", JOBSET) or "")
        key = f"{write.namespace}/{name}"
        if key not in self.jobs and not OURS.fullmatch(name):
            return
        if key not in self.jobs:
            self._blame(write, "a pod of a job whose creation is not in the log")
        job = self.jobs.setdefault(key, Job(key))
        pod = job.pods.get(str(about.get("uid")))
        if pod is None:
            pod = job.pods[str(about.get("uid"))] = Pod(str(about.get("name")), _number(about), write.at)
            self._new_pod(write, job, pod)
        phase = at(body, "status", "phase")
        if pod.running is None and phase == "Running":
            pod.running = write.at
        if pod.terminal is None and phase in ("Succeeded", "Failed") and not _has_live_container(body):
            pod.terminal = write.at
        if pod.gone is None and _is_gone(write, about):
            pod.gone = write.at

    def _new_pod(self, write: Write, job: Job, pod: Pod) -> None:
        if job.opened is None:
            self._blame(write, "created before the job was opened")
        if pod.a is None or pod.a < 1 or pod.a != job.a:
            self._blame(write, f"created with A={pod.a} while the TrainJob says {job.a}")
        for other in job.pods.values():
            if other.a != pod.a and other.over is None:
                self._blame(write, f"created while pod {other.name} (A={other.a}) may still run")

    def _workload(self, write: Write) -> None:
        body = write.body or {}
        owner: Object = next((o for o in meta(body).get("ownerReferences") or [] if o.get("controller")), {})
        job = self.jobs.get(f"{write.namespace}/{owner.get('name')}")
        if owner.get("kind") != "TrainJob" or job is None:
            return
        seen = self._workloads.setdefault(str(meta(body).get("uid")), _Workload())
        states = {check.get("name"): check.get("state") for check in at(body, "status", "admissionChecks") or []}
        now = _Workload(
            ready=states.get(CHECK) == "Ready",
            reserved=_is_true(body, "QuotaReserved"),
            admitted=_is_true(body, "Admitted"),
            evicted=_is_true(body, "Evicted"),
        )
        if now.reserved and not seen.reserved:
            job.reservations.append(Reservation(write.at))
        current = job.reservations[-1] if job.reservations and now.reserved else None
        if now.ready and not seen.ready:
            self._ready(write, job, current, now)
        if now.admitted and not seen.admitted:
            self._admitted(write, current)
        self._workloads[str(meta(body).get("uid"))] = now

    def _ready(self, write: Write, job: Job, current: Reservation | None, now: _Workload) -> None:
        if now.evicted:
            self._blame(write, "check set Ready while Evicted")
        if now.admitted:
            self._blame(write, "check set Ready while Admitted")
        if current is None:
            self._blame(write, "check set Ready while no quota is reserved")
            return
        if not any(moment > current.reserved for _, moment in job.raises):
            self._blame(write, f"check set Ready, but A was not raised since the reservation at {current.reserved}")
        current.ready = write.at

    def _admitted(self, write: Write, current: Reservation | None) -> None:
        if current is None or current.ready is None:
            self._blame(write, "admitted, but the check was not set Ready in this reservation")
        if current is not None:
            current.admitted = write.at


@dataclass(frozen=True)
class _Workload:
    """What matters of one version of a Workload."""

    ready: bool = False
    reserved: bool = False
    admitted: bool = False
    evicted: bool = False


def read(path: Path) -> Timeline:
    """Read a whole audit log, JSON lines. A last line that is still being written is left out."""
    timeline = Timeline()
    for write in ordered(writes(path)):
        timeline.add(write)
    return timeline


def _gates(body: Object) -> list[str]:
    """Return the entries of the start gate, trimmed, as Kueue reads them."""
    return [entry.strip() for entry in str(at(meta(body), "annotations", GATED_BY) or "").split(",")]


def _counts(body: Object) -> list[int | None]:
    """Return A of each replicated job in our runtime patch; empty where there is no such patch."""
    for patch in at(body, "spec", "runtimePatches") or []:
        if patch.get("manager") == MANAGER:
            jobs = at(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs") or []
            return [_number(at(job, "template", "spec", "template", "metadata") or {}) for job in jobs]
    return []


def _number(about: Object) -> int | None:
    text = at(about, "annotations", COUNT)
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() else None


def _is_true(body: Object, condition: str) -> bool:
    conditions = at(body, "status", "conditions") or []
    return any(each.get("type") == condition and each.get("status") == "True" for each in conditions)


def _has_live_container(body: Object) -> bool:
    """Tell whether a container of an ended pod still runs; one that waits will not be started any more."""
    kinds = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    states = [status.get("state") or {} for kind in kinds for status in at(body, "status", kind) or []]
    return any("terminated" not in state and "waiting" not in state for state in states)


def _is_gone(write: Write, about: Object) -> bool:
    """Tell whether this write took the object out of the store, which needs no finalizer to be left."""
    if about.get("finalizers"):
        return False
    if write.verb == "delete" and (write.forced or not about.get("deletionTimestamp")):
        return True
    return bool(about.get("deletionTimestamp")) and about.get("deletionGracePeriodSeconds") == 0
