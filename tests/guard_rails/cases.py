"""For each rule: a change that it refuses to some and grants to others, or a change beside it that it lets be.

`before` is there when the change is asked for; None means that the change creates. Whatever else an object holds is
in order, so that a refusal by any other rule than the one named is a failure.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dispatch_gates.contract import names
from dispatch_gates.contract.count import runtime_patch
from dispatch_gates.contract.names import Resource
from dispatch_infra.policies import Accounts
from guard_rails.bare import GUARDED, OPEN, Body

JOB = "dj-01arz3ndektsv4rrffq69g5fav-s1"
"""Stands for the name that each case has for itself."""
CHECK, OTHER = "dispatch", "another-check"
TIME = "2026-01-01T00:00:00Z"
EVERYBODY = (*vars(Accounts()), "tenant", "adapter", "otherCheck", "admin")
Edit = Callable[[Body], None]


@dataclass(frozen=True)
class Case:
    """One change, whom the rule refuses it, and whom nothing refuses it."""

    rule: str
    """POLICY/RULE."""
    what: str
    before: Body | None
    after: Body | None
    refused: tuple[str, ...]
    allowed: tuple[str, ...] = ()
    resource: Resource = names.TRAINJOBS
    subresource: str = ""
    other_rules: frozenset[str] = field(default_factory=frozenset)

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"


def but(*who: str) -> tuple[str, ...]:
    """Everybody but these."""
    return tuple(each for each in EVERYBODY if each not in who)


def edited(body: Body, *edits: Edit) -> Body:
    """Return a copy with changes."""
    result = copy.deepcopy(body)
    for edit in edits:
        edit(result)
    return result


def put(*path: str | int, to: Any) -> Edit:
    """Set a field; None takes it away."""

    def edit(body: Body) -> None:
        at: Any = body
        for key in path[:-1]:
            at = at[key] if isinstance(key, int) else at.setdefault(key, {})
        if to is None:
            at.pop(path[-1], None)
        else:
            at[path[-1]] = to

    return edit


def annotated(key: str, value: str | None) -> Edit:
    return put("metadata", "annotations", key, to=value)


def labelled(key: str, value: str | None) -> Edit:
    return put("metadata", "labels", key, to=value)


# TrainJobs

PATCHES = ("spec", "runtimePatches")


def patch(count: str) -> Body:
    made = runtime_patch(0, ["node"])
    made["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"] = {
        "annotations": {names.ADMISSION_COUNT: count}
    }
    return made


def other_patch(**annotations: str) -> Body:
    made = patch("0") | {"manager": "example.com/other"}
    job = made["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]
    job["template"]["spec"]["template"]["metadata"]["annotations"] = annotations or {"example.com/note": "kept"}
    return made


def trainjob(count: str = "0", *, queue: str | None = "queue", namespace: str = GUARDED) -> Body:
    return {
        "apiVersion": names.TRAINJOBS.api_version,
        "kind": names.TRAINJOBS.kind,
        "metadata": {
            "name": JOB,
            "namespace": namespace,
            "labels": {names.ULID_LABEL: "01ARZ3NDEKTSV4RRFFQ69G5FAV"} | ({names.QUEUE_NAME: queue} if queue else {}),
            "annotations": {
                names.ADMISSION_GATED_BY: f"example.com/admin, {names.GATE}",
                names.OWNER: "project/stack",
                names.SPEC_HASH: "0123",
            },
        },
        "spec": {"runtimeRef": {"name": "runtime"}, "suspend": True, "runtimePatches": [other_patch(), patch(count)]},
    }


def counted(count: str) -> Edit:
    return put(*PATCHES, to=[other_patch(), patch(count)])


def _trainjobs() -> list[Case]:
    def rule(name: str, what: str, before: Body | None, after: Body, *more: Any, **who: Any) -> Case:
        return Case(f"dispatch-trainjobs/{name}", what, before, after, *more, **who)

    new, queued, plain = trainjob(), trainjob("3"), trainjob("3", queue=None)
    foreign = edited(new, put("metadata", "name", to="a-job"), put(*PATCHES, to=[]))
    generated = edited(new, put("metadata", "name", to=None), put("metadata", "generateName", to=f"{JOB[:-1]}"))
    suspend = put("spec", "suspend", to=False)
    opened = annotated(names.ADMISSION_GATED_BY, "example.com/admin")
    may = ("adapter", "admin")
    return [
        rule("created-by-the-adapter", "create", None, new, refused=but(*may), allowed=may),
        rule("created-by-the-adapter", "a name that is still to be made up", None, generated, refused=but(*may)),
        rule("created-by-the-adapter", "a foreign name", None, foreign, refused=(), allowed=EVERYBODY),
        rule(
            "patch-under-our-name",
            "our patch in a foreign job",
            None,
            edited(foreign, put(*PATCHES, to=[patch("0")])),
            refused=may,
        ),
        rule(
            "patch-under-our-name",
            "our patch put into a foreign job",
            foreign,
            edited(foreign, put(*PATCHES, to=[patch("0")])),
            refused=("adapter", "admin"),
        ),
        rule("created-closed", "not suspended", None, edited(new, suspend), refused=may),
        rule("created-closed", "without the gate", None, edited(new, opened), refused=may),
        rule("created-closed", "with a count", None, trainjob("1"), refused=may),
        rule("created-closed", "without our patch", None, edited(new, put(*PATCHES, to=[])), refused=may),
        rule(
            "patch-under-our-name",
            "a name like ours",
            None,
            edited(new, put("metadata", "name", to=f"{JOB}x")),
            refused=may,
        ),
        rule(
            "count-in-our-patch-alone",
            "a count in another patch",
            queued,
            edited(queued, put(*PATCHES, to=[other_patch(**{names.ADMISSION_COUNT: "9"}), patch("3")])),
            refused=but("controller"),
        ),
        rule(
            "patch-holds-the-count-alone",
            "a label beside it",
            queued,
            edited(
                queued,
                lambda body: body["spec"]["runtimePatches"][1]["trainingRuntimeSpec"]["template"]["spec"][
                    "replicatedJobs"
                ][0]["template"]["spec"]["template"]["metadata"].update(labels={"a": "b"}),
            ),
            refused=but("controller"),
        ),
        rule(
            "patch-holds-the-count-alone", "no number", queued, edited(queued, counted("04")), refused=but("controller")
        ),
        rule("count-only-grows", "lower", queued, edited(queued, counted("2")), refused=but("controller")),
        rule("count-only-grows", "as text it is higher", trainjob("10"), trainjob("9"), refused=but("controller")),
        rule(
            "count-only-grows",
            "taken away",
            queued,
            edited(queued, put(*PATCHES, to=[other_patch()])),
            refused=but("controller"),
        ),
        rule(
            "count-by-who-owns-it",
            "raised in Kueue mode",
            queued,
            edited(queued, counted("10")),
            refused=but("controller"),
            allowed=("controller",),
        ),
        rule(
            "count-by-who-owns-it",
            "raised in plain mode",
            plain,
            edited(plain, counted("10")),
            refused=but(*may),
            allowed=may,
        ),
        rule(
            "count-by-who-owns-it",
            "written again where it was stripped",
            edited(queued, put(*PATCHES, to=[other_patch()])),
            queued,
            refused=but("controller"),
            allowed=("controller",),
        ),
        rule(
            "suspend-by-who-owns-it",
            "lifted in Kueue mode",
            queued,
            edited(queued, suspend),
            refused=but("kueue", "controller"),
            allowed=("kueue",),
        ),
        rule(
            "suspend-by-who-owns-it",
            "lifted in plain mode",
            plain,
            edited(plain, suspend),
            refused=but(*may, "controller"),
            allowed=may,
        ),
        rule(
            "suspend-by-who-owns-it",
            "set in Kueue mode",
            edited(queued, suspend),
            queued,
            refused=but("kueue", "controller"),
            allowed=("kueue",),
        ),
        rule(
            "queue-stays",
            "moved",
            queued,
            edited(queued, labelled(names.QUEUE_NAME, "other")),
            refused=but("controller"),
        ),
        rule(
            "queue-stays",
            "taken out",
            queued,
            edited(queued, labelled(names.QUEUE_NAME, None)),
            refused=but("controller"),
        ),
        rule(
            "queue-stays",
            "put into one",
            plain,
            edited(plain, labelled(names.QUEUE_NAME, "queue")),
            refused=but("controller"),
        ),
        rule(
            "queue-stays",
            "another Workload",
            queued,
            edited(queued, labelled(names.PREBUILT_WORKLOAD, "w")),
            refused=but("controller"),
        ),
        rule(
            "gate-by-the-adapter",
            "opened",
            queued,
            edited(queued, opened),
            refused=but(*may, "controller"),
            allowed=may,
        ),
        rule(
            "gate-by-the-adapter",
            "opened for all",
            queued,
            edited(queued, annotated(names.ADMISSION_GATED_BY, None)),
            refused=but(*may, "controller"),
            allowed=may,
        ),
        rule(
            "gate-by-the-adapter",
            "another gate taken away",
            queued,
            edited(queued, annotated(names.ADMISSION_GATED_BY, names.GATE)),
            refused=(),
            allowed=but("controller"),
        ),
        *(
            rule(
                "marks-by-the-adapter",
                f"{key} changed",
                queued,
                edited(queued, annotated(key, "x")),
                refused=but(*may, "controller"),
                allowed=may,
            )
            for key in (names.OPENED, names.HOLD, names.OWNER, names.SPEC_HASH)
        ),
        rule(
            "marks-by-the-adapter",
            "the label stripped",
            queued,
            edited(queued, labelled(names.ULID_LABEL, None)),
            refused=but(*may, "controller"),
            allowed=may,
        ),
    ]


def _controller() -> list[Case]:
    def rule(name: str, what: str, before: Body, after: Body, **more: Any) -> Case:
        return Case(f"dispatch-controller-trainjobs/{name}", what, before, after, **more)

    # Where the other policies do not hold, so that it is these that refuse.
    job = trainjob("3", namespace=OPEN)
    foreign = edited(job, put("metadata", "name", to="a-job"), put(*PATCHES, to=[other_patch()]))
    other = edited(job, put(*PATCHES, to=[other_patch(**{"example.com/note": "changed"}), patch("4")]))
    trainer = put("spec", "trainer", to={"numNodes": 1})
    him, others = ("controller",), but("controller")
    alone = "the-count-and-nothing-else"
    return [
        rule(
            "a-job-of-dispatch",
            "a foreign job",
            foreign,
            edited(foreign, labelled("a", "b")),
            refused=him,
            allowed=others,
        ),
        rule(alone, "the count", job, edited(job, counted("4")), refused=(), allowed=EVERYBODY),
        rule(alone, "suspend", job, edited(job, put("spec", "suspend", to=False)), refused=him, allowed=others),
        rule(alone, "a label", job, edited(job, labelled("a", "b")), refused=him, allowed=others),
        rule(
            alone, "the gate", job, edited(job, annotated(names.ADMISSION_GATED_BY, None)), refused=him, allowed=others
        ),
        rule(
            alone,
            "an owner",
            job,
            edited(job, put("metadata", "ownerReferences", to=[owner("v1", "Pod", "x")])),
            refused=him,
            allowed=others,
        ),
        rule(
            alone,
            "a finalizer",
            job,
            edited(job, put("metadata", "finalizers", to=["example.com/x"])),
            refused=him,
            allowed=others,
        ),
        rule(alone, "another patch", job, other, refused=him, allowed=others),
        rule(alone, "a field that was not there", job, edited(job, trainer), refused=him, allowed=others),
        rule(alone, "a field taken away", edited(job, trainer), job, refused=him, allowed=others),
        rule("patch-holds-the-count-alone", "no number", job, edited(job, counted("x")), refused=him, allowed=others),
        rule("count-only-grows", "lower", job, edited(job, counted("2")), refused=him, allowed=others),
    ]


# Workloads


def owner(version: str, kind: str, name: str) -> Body:
    return {"apiVersion": version, "kind": kind, "name": name, "uid": "00000000-0000-0000-0000-000000000001"}


def workload(*, ours: bool = True, namespace: str = GUARDED, entries: list[Body] | None = None, **true: bool) -> Body:
    """A Workload with both checks; conditions by keyword."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "resources": {}}]}}
    trainjob = owner(names.TRAINJOBS.api_version, names.TRAINJOBS.kind, JOB if ours else "a-job")
    conditions = [
        {"type": kind, "status": str(status), "reason": "Tests", "message": "", "lastTransitionTime": TIME}
        for kind, status in true.items()
    ]
    return {
        "apiVersion": names.WORKLOADS.api_version,
        "kind": names.WORKLOADS.kind,
        "metadata": {
            "name": f"trainjob-{JOB}-0a1b2",
            "namespace": namespace,
            "ownerReferences": [trainjob],
            "annotations": {names.ADMISSION_GATED_BY: names.GATE},
        },
        "spec": {"queueName": "queue", "active": True, "podSets": [{"name": "node", "count": 1, "template": template}]},
        "status": {
            "conditions": conditions,
            "admissionChecks": [entry(CHECK), entry(OTHER)] if entries is None else entries,
            "admission": {"clusterQueue": "queue", "podSetAssignments": [{"name": "node", "count": 1}]},
        },
    }


def entry(check: str, state: str = "Pending", **more: Any) -> Body:
    return {"name": check, "state": state, "message": "", "lastTransitionTime": TIME} | more


def entries(*found: Body) -> Edit:
    return put("status", "admissionChecks", to=list(found))


def condition(kind: str) -> Edit:
    def edit(body: Body) -> None:
        conditions = body["status"]["conditions"]
        conditions[:] = [known for known in conditions if known["type"] != kind]
        conditions.append(
            {"type": kind, "status": "True", "reason": "Tests", "message": "", "lastTransitionTime": TIME}
        )

    return edit


def _workloads() -> list[Case]:
    def rule(name: str, what: str, before: Body | None, after: Body, **more: Any) -> Case:
        return Case(f"dispatch-workloads/{name}", what, before, after, resource=names.WORKLOADS, **more)

    held = workload()
    kueue, others = ("kueue",), but("kueue")
    gc = "garbage_collector"
    stay = "owner-and-queue-stay"
    return [
        rule("created-by-kueue", "create", None, held, refused=others, allowed=kueue),
        rule("created-by-kueue", "a foreign one", None, workload(ours=False), refused=(), allowed=EVERYBODY),
        rule(
            "gate-by-kueue",
            "opened",
            held,
            edited(held, annotated(names.ADMISSION_GATED_BY, None)),
            refused=others,
            allowed=kueue,
        ),
        rule(
            stay,
            "the owner",
            held,
            edited(held, put("metadata", "ownerReferences", to=[])),
            refused=but("kueue", gc),
            allowed=("kueue", gc),
        ),
        rule(
            stay,
            "the queue",
            held,
            edited(held, put("spec", "queueName", to="other")),
            refused=but("kueue", gc),
            allowed=("kueue",),
        ),
        rule(stay, "active", held, edited(held, put("spec", "active", to=False)), refused=(), allowed=EVERYBODY),
    ]


def _status() -> list[Case]:
    def rule(name: str, what: str, before: Body, after: Body, **more: Any) -> Case:
        return Case(
            f"dispatch-workload-status/{name}",
            what,
            before,
            after,
            resource=names.WORKLOADS,
            subresource="status",
            **more,
        )

    reserved = workload(QuotaReserved=True)
    ready = workload(QuotaReserved=True, entries=[entry(CHECK, "Ready"), entry(OTHER)])
    kueue, others = ("kueue",), but("kueue", "controller")
    return [
        rule(
            "ready-by-the-controller",
            "set Ready",
            reserved,
            edited(reserved, entries(entry(CHECK, "Ready"), entry(OTHER))),
            refused=but("controller"),
            allowed=("controller",),
        ),
        rule(
            "ready-by-the-controller",
            "of a foreign job",
            workload(ours=False, QuotaReserved=True),
            edited(workload(ours=False, QuotaReserved=True), entries(entry(CHECK, "Ready"), entry(OTHER))),
            refused=but("controller"),
            allowed=("controller",),
        ),
        rule(
            "ready-by-the-controller",
            "added Ready",
            workload(entries=[entry(OTHER)]),
            workload(entries=[entry(OTHER), entry(CHECK, "Ready")]),
            refused=but("controller"),
        ),
        rule("admission-by-kueue", "reset to Pending", ready, reserved, refused=others, allowed=kueue),
        rule(
            "admission-by-kueue",
            "taken out",
            reserved,
            edited(reserved, entries(entry(OTHER))),
            refused=others,
            allowed=kueue,
        ),
        rule(
            "admission-by-kueue",
            "admitted",
            reserved,
            edited(reserved, condition("Admitted")),
            refused=others,
            allowed=kueue,
        ),
        rule(
            "admission-by-kueue",
            "quota given back",
            reserved,
            edited(reserved, put("status", "admission", to=None)),
            refused=others,
            allowed=kueue,
        ),
        rule(
            "admission-by-kueue",
            "another check",
            reserved,
            edited(reserved, entries(entry(CHECK), entry(OTHER, "Ready"))),
            refused=(),
            allowed=but("controller"),
        ),
    ]


def _controller_status() -> list[Case]:
    def rule(name: str, what: str, before: Body, after: Body, **more: Any) -> Case:
        more.setdefault("refused", ("controller",))
        return Case(
            f"dispatch-controller-status/{name}",
            what,
            before,
            after,
            resource=names.WORKLOADS,
            subresource="status",
            **more,
        )

    def there(**more: Any) -> Body:
        return workload(namespace=OPEN, **more)

    reserved = there(QuotaReserved=True, Admitted=False)
    opened = entries(entry(CHECK, "Ready", message="A=1"), entry(OTHER))
    alone, time = "our-entry-and-nothing-else", "ready-for-an-open-reservation"
    inactive = edited(reserved, put("spec", "active", to=False))
    updates = [{"name": "node", "labels": {"a": "b"}}]
    return [
        rule(alone, "another check", reserved, edited(reserved, entries(entry(CHECK), entry(OTHER, "Ready")))),
        rule(alone, "an entry taken out", reserved, edited(reserved, entries(entry(CHECK)))),
        rule(alone, "our entry taken out", reserved, edited(reserved, entries(entry(OTHER)))),
        rule(alone, "our entry added", there(entries=[entry(OTHER)]), there(entries=[entry(OTHER), entry(CHECK)])),
        rule(alone, "admit", reserved, edited(reserved, opened, condition("Admitted"))),
        rule(alone, "a field taken away", reserved, edited(reserved, put("status", "admission", to=None))),
        rule(
            "state-and-message-alone", "Retry", reserved, edited(reserved, entries(entry(CHECK, "Retry"), entry(OTHER)))
        ),
        rule(
            "state-and-message-alone",
            "pod set updates",
            reserved,
            edited(reserved, entries(entry(CHECK, podSetUpdates=updates), entry(OTHER))),
        ),
        rule(time, "open", reserved, edited(reserved, opened), refused=(), allowed=("controller",)),
        rule(
            time,
            "a message",
            there(),
            edited(there(), entries(entry(CHECK, message="waits"), entry(OTHER))),
            refused=(),
            allowed=("controller",),
        ),
        rule(time, "taken back", edited(there(), opened), there(), refused=(), allowed=("controller",)),
        rule(time, "no reservation", there(), edited(there(), opened)),
        rule(
            time,
            "a reservation without an admission",
            edited(reserved, put("status", "admission", to=None)),
            edited(reserved, put("status", "admission", to=None), opened),
        ),
        rule(
            time,
            "not Pending",
            edited(reserved, entries(entry(CHECK, "Retry"), entry(OTHER))),
            edited(reserved, opened),
        ),
        rule(time, "inactive", inactive, edited(inactive, opened)),
        *(
            rule(
                time,
                kind,
                there(QuotaReserved=True, **{kind: True}),
                edited(there(QuotaReserved=True, **{kind: True}), opened),
            )
            for kind in ("Evicted", "Admitted", "Finished", "DeactivationTarget")
        ),
    ]


# JobSets, Jobs, pods


def job_template(count: str | None, **spec: Any) -> Body:
    annotations = {} if count is None else {names.ADMISSION_COUNT: count}
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    return {"backoffLimit": 0, "template": {"metadata": {"annotations": annotations}, "spec": pod}} | spec


def jobset(*, suspend: bool = True, **spec: Any) -> Body:
    replicated = {"name": "node", "replicas": 1, "template": {"spec": job_template("0")}}
    return {
        "apiVersion": names.JOBSETS.api_version,
        "kind": names.JOBSETS.kind,
        "metadata": {"name": JOB, "namespace": GUARDED},
        "spec": {"suspend": suspend, "replicatedJobs": [replicated]} | spec,
    }


def job(count: str | None = "1", *, suspend: bool = True, **spec: Any) -> Body:
    return {
        "apiVersion": names.JOBS.api_version,
        "kind": names.JOBS.kind,
        "metadata": {"name": f"{JOB}-node-0", "namespace": GUARDED, "labels": {names.JOBSET_NAME: JOB}},
        "spec": job_template(count, suspend=suspend) | spec,
    }


def pod(count: str | None = "1", *, label: str | None = JOB) -> Body:
    return {
        "apiVersion": names.PODS.api_version,
        "kind": names.PODS.kind,
        "metadata": {
            "name": f"{JOB}-node-0-0-abcde",
            "namespace": GUARDED,
            "labels": {names.JOBSET_NAME: label} if label else {},
            "annotations": {names.ADMISSION_COUNT: count} if count else {},
        },
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }


def _jobsets() -> list[Case]:
    def rule(
        name: str, what: str, before: Body | None, after: Body | None, policy: str = "dispatch-jobsets", **more: Any
    ) -> Case:
        return Case(f"{policy}/{name}", what, before, after, resource=names.JOBSETS, **more)

    made, trainer = jobset(), ("trainer",)
    foreign = edited(made, put("metadata", "name", to="a-jobset"))
    may = ("trainer", "jobset", "garbage_collector")
    end = ("trainer", "garbage_collector", "namespace_controller")
    strict = "dispatch-executions-jobsets"
    ttl = edited(made, put("spec", "ttlSecondsAfterFinished", to=1))
    return [
        rule("created-by-trainer", "create", None, made, refused=but("trainer"), allowed=trainer),
        rule("created-by-trainer", "a foreign one", None, foreign, refused=(), allowed=EVERYBODY),
        rule(
            "changed-by-its-managers",
            "resumed",
            made,
            edited(made, put("spec", "suspend", to=False)),
            refused=but(*may),
            allowed=may,
        ),
        rule(
            "changed-by-its-managers",
            "an owner",
            made,
            edited(made, put("metadata", "ownerReferences", to=[owner("v1", "Pod", "x")])),
            refused=but(*may),
            allowed=may,
        ),
        rule(
            "changed-by-its-managers", "a label", made, edited(made, labelled("a", "b")), refused=(), allowed=EVERYBODY
        ),
        rule("deleted-with-its-job", "delete", made, None, refused=but(*end), allowed=end),
        rule("created-suspended", "running", None, jobset(suspend=False), strict, refused=trainer),
        rule("without-restarts", "restarts", None, jobset(failurePolicy={"maxRestarts": 1}), strict, refused=trainer),
        rule("without-restarts", "time to live", None, ttl, strict, refused=trainer),
        rule("without-restarts", "time to live, later", made, ttl, strict, refused=trainer),
        rule("created-suspended", "resumed later", made, jobset(suspend=False), strict, refused=(), allowed=may),
    ]


def _jobs() -> list[Case]:
    def rule(
        name: str, what: str, before: Body | None, after: Body | None, policy: str = "dispatch-jobs", **more: Any
    ) -> Case:
        more.setdefault("refused", ("jobset",))
        return Case(f"{policy}/{name}", what, before, after, resource=names.JOBS, **more)

    made = job()
    foreign = edited(made, put("metadata", "name", to="a-job"), labelled(names.JOBSET_NAME, "a-jobset"))
    end = ("jobset", "garbage_collector", "namespace_controller")
    gc = "garbage_collector"
    resumed, higher, strict = "resumed-with-a-higher-count", job("2", suspend=False), "dispatch-executions-jobs"
    owners = put("metadata", "ownerReferences", to=[owner("v1", "Pod", "x")])
    ignore = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
    failing = put("spec", "template", "spec", "restartPolicy", to="OnFailure")
    return [
        rule("created-by-jobset", "create", None, made, refused=but("jobset"), allowed=("jobset",)),
        rule("created-by-jobset", "a foreign one", None, foreign, refused=(), allowed=EVERYBODY),
        rule(
            "changed-by-jobset",
            "a foreign Job becomes ours",
            foreign,
            edited(foreign, labelled(names.JOBSET_NAME, JOB)),
            refused=but("jobset"),
        ),
        rule(resumed, "the same count", made, job("1", suspend=False), refused=EVERYBODY),
        rule(resumed, "a lower one", job("10"), job("9", suspend=False), refused=("jobset",)),
        rule(resumed, "none", job(None), job(None, suspend=False), refused=("jobset",)),
        rule(resumed, "a higher one", made, higher, refused=(), allowed=("jobset",)),
        rule(resumed, "the first one", job(None), job("1", suspend=False), refused=(), allowed=("jobset",)),
        rule(resumed, "suspended again", job("1", suspend=False), made, refused=(), allowed=("jobset",)),
        rule("started-with-a-count", "created running at 0", None, job("0", suspend=False)),
        rule("started-with-a-count", "created running without", None, job(None, suspend=False)),
        rule("count-changes-at-a-resume-alone", "while suspended", made, job("2")),
        rule("changed-by-jobset", "resumed", made, higher, refused=but("jobset")),
        rule(
            "changed-by-jobset",
            "an owner",
            made,
            edited(made, owners),
            refused=but("jobset", gc),
            allowed=("jobset", gc),
        ),
        rule(
            "changed-by-jobset",
            "the label",
            made,
            edited(made, labelled(names.JOBSET_NAME, None)),
            refused=but("jobset"),
            allowed=("jobset",),
        ),
        rule(
            "changed-by-jobset", "another label", made, edited(made, labelled("a", "b")), refused=(), allowed=EVERYBODY
        ),
        rule("deleted-with-its-jobset", "delete", made, None, refused=but(*end), allowed=end),
        rule("created-suspended", "running", None, job("1", suspend=False), strict),
        rule("without-restarts", "backoff", None, edited(made, put("spec", "backoffLimit", to=1)), strict),
        rule(
            "without-restarts", "the default backoff", None, edited(made, put("spec", "backoffLimit", to=None)), strict
        ),
        rule(
            "without-restarts",
            "backoff by index",
            None,
            job(backoffLimitPerIndex=1, completionMode="Indexed", completions=1, backoffLimit=0),
            strict,
        ),
        rule("without-restarts", "time to live", None, job(ttlSecondsAfterFinished=1), strict),
        rule("without-restarts", "restarting containers", None, edited(made, failing), strict),
        rule("without-restarts", "failures that do not count", None, job(podFailurePolicy=ignore), strict),
    ]


def _pods() -> list[Case]:
    def rule(name: str, what: str, before: Body | None, after: Body, **more: Any) -> Case:
        return Case(f"dispatch-pods/{name}", what, before, after, resource=names.PODS, **more)

    made, him = pod(), ("job_controller",)
    plain = edited(pod(None, label=None), put("metadata", "name", to="a-pod"))
    created, stays = "created-by-the-job-controller", "identity-stays"
    return [
        rule(created, "create", None, made, refused=but("job_controller"), allowed=him),
        rule(created, "a count without a label", None, pod(label=None), refused=but("job_controller")),
        rule(created, "a foreign one", None, plain, refused=(), allowed=EVERYBODY),
        rule("created-with-a-count", "at 0", None, pod("0"), refused=him),
        rule("created-with-a-count", "without", None, pod(None), refused=him),
        rule(stays, "the count", made, pod("2"), refused=EVERYBODY),
        rule(stays, "no count any more", made, pod(None), refused=EVERYBODY),
        rule(stays, "the label", made, pod(label=None), refused=EVERYBODY),
        rule(
            stays,
            "a foreign pod becomes ours",
            plain,
            edited(plain, labelled(names.JOBSET_NAME, JOB)),
            refused=EVERYBODY,
        ),
        rule(stays, "another label", made, edited(made, labelled("a", "b")), refused=(), allowed=EVERYBODY),
    ]


CASES = [
    *_trainjobs(),
    *_controller(),
    *_workloads(),
    *_status(),
    *_controller_status(),
    *_jobsets(),
    *_jobs(),
    *_pods(),
]
