"""Preflight against the model API server: what it concludes, and that its probe is gone, or named, on every way out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dispatch_gates.contract import names
from dispatch_gates.contract.capability import Answer, Name, Verdict
from dispatch_gates.contract.guard_rails import Level
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.operations.preflight import Asked, Report, Stands, preflight, remove_probe
from dispatch_gates.operations.preflight.rights import needed
from dispatch_gates.operations.preflight.values import Probe
from dispatch_gates.requests import (
    ApiError,
    BadReplyError,
    ConflictError,
    Create,
    Delete,
    DeniedError,
    ExpiredError,
    Get,
    InvalidError,
    List,
    NotFoundError,
    NotServedError,
    Request,
    ThrottledError,
    UnreachableError,
    Watch,
)
from model import objects
from model.apiserver import Crash, Process
from preflight.model import (
    ALL_VERBS,
    KUEUE,
    PLAIN,
    PROBE,
    Stage,
    active_check,
    answers,
    cluster_queue,
    crd,
    guard,
    lease,
    line,
    local_queue,
    manage,
    pod_appears,
    said,
    sound_runtime,
    suspend,
    workload_of,
)


def test_healthy_kueue_mode() -> None:
    stage = Stage()
    report = stage.preflight()
    assert (report.verdict, report.why, report.left_behind) == (Verdict.READY, (), ""), report
    assert {name for name, answer in answers(report).items() if answer is not Answer.YES} == {Name.GUARD_RAILS}
    assert not stage.probe_is_there
    assert stage.last_news is Stands.GONE
    assert 10 <= stage.now < 11


def test_healthy_plain_mode() -> None:
    stage = Stage()
    report = stage.preflight(PLAIN)
    assert report.verdict is Verdict.READY, report
    gate = line(report, Name.READMISSION_GATE)
    assert (gate.answer, gate.needed) == (Answer.NO, False)
    assert gate.reason.startswith("not needed")
    assert Name.QUEUE not in answers(report)
    assert not stage.probe_is_there


def test_plain_mode_asks_nothing_of_kueue() -> None:
    stage = Stage()
    stage.absent = (names.WORKLOADS, names.LOCAL_QUEUES, names.CLUSTER_QUEUES, names.ADMISSION_CHECKS)
    assert stage.preflight(PLAIN).verdict is Verdict.READY


@pytest.mark.parametrize("asked", [KUEUE, replace(KUEUE, runtime=None), PLAIN], ids=["one runtime", "all", "plain"])
def test_at_most_twenty_calls(asked: Asked) -> None:
    stage = Stage()
    stage.put(objects.trainjob(suspend=False))
    guard(stage, Level.EXECUTIONS)
    assert stage.preflight(asked).verdict is Verdict.READY
    assert len(stage.sent) <= 20 + (asked.runtime is None), stage.sent


def test_a_queue_that_kueue_has_only_just_been_told_of() -> None:
    stage = Stage()
    stage.put(cluster_queue(active=False))
    stage.at[5] = lambda: stage.put(cluster_queue())
    assert stage.preflight().verdict is Verdict.READY


# What makes it observe-only: the change, the line that says so, and a part of its reason.


def _queue(**spec: Any) -> Callable[[Stage], None]:
    return lambda stage: stage.put(cluster_queue(**spec))


def _workload(edit: Callable[[JsonObject], JsonObject]) -> Callable[[Stage], None]:
    def change(stage: Stage) -> None:
        stage.kueue = lambda server, job: server.put(edit(job))

    return change


def _strategy(*entries: JsonObject) -> dict[str, Any]:
    return {"admissionChecksStrategy": {"admissionChecks": list(entries)}}


def _gone(resource: names.Resource, name: str, namespace: str = "team") -> Callable[[Stage], None]:
    return lambda stage: stage.remove(resource, name, namespace)


def _after(seconds: float, act: Callable[[Stage], None]) -> Callable[[Stage], None]:
    return lambda stage: stage.at.update({seconds: lambda: act(stage)})


def _edit_probe(edit: Callable[[JsonObject], object]) -> Callable[[Stage], None]:
    """Have a webhook change the probe as it is created."""
    return lambda stage: setattr(stage, "webhook", edit)


def _edited(edit: Callable[[JsonObject], object]) -> Callable[[Stage], None]:
    """Have somebody change the probe later."""
    return lambda stage: stage.edit(names.TRAINJOBS, PROBE.name, edit)


def _resume(body: JsonObject) -> None:
    body["spec"]["suspend"] = False


def _open(body: JsonObject) -> None:
    del body["metadata"]["annotations"][names.ADMISSION_GATED_BY]


def _no_kueue(stage: Stage) -> None:
    stage.absent = (names.WORKLOADS,)
    stage.remove(names.CRDS, str(names.WORKLOADS), "")


def _quota(body: JsonObject, **status: bool) -> JsonObject:
    body["status"]["conditions"] = [objects.condition(kind, value) for kind, value in status.items()]
    return body


def _later_quota(stage: Stage) -> None:
    """Kueue reserves quota at 5 s, and takes it back at once."""
    name = f"trainjob-{PROBE.name}"
    before = stage.read(names.WORKLOADS, name)
    stage.put(_quota(stage.read(names.WORKLOADS, name), QuotaReserved=True))
    stage.put(before)


OBSERVE_ONLY: dict[str, tuple[Callable[[Stage], object], Name, str]] = {
    "no LocalQueue": (_gone(names.LOCAL_QUEUES, "training"), Name.QUEUE, "team/training does not exist"),
    "LocalQueue to nowhere": (
        lambda stage: stage.put(local_queue(clusterQueue="other")),
        Name.QUEUE,
        "ClusterQueue other, which does not exist",
    ),
    "LocalQueue stopped": (
        lambda stage: stage.put(local_queue(stopPolicy="Hold")),
        Name.QUEUE,
        "localqueue training is stopped (Hold)",
    ),
    "ClusterQueue stopped": (_queue(stopPolicy="HoldAndDrain"), Name.QUEUE, "clusterqueue dispatch is stopped"),
    "ClusterQueue not active": (_queue(active=False), Name.QUEUE, "not active: Seen"),
    "ClusterQueue not looked at": (_queue(active=None), Name.QUEUE, "Kueue has not looked at it"),
    "check not listed": (_queue(**_strategy({"name": "other"})), Name.QUEUE, "(it lists: other)"),
    "check in the old field": (
        _queue(admissionChecksStrategy={}, admissionChecks=[names.ADMISSION_CHECK]),
        Name.QUEUE,
        "(it lists: none)",
    ),
    "check narrowed": (
        _queue(**_strategy({"name": names.ADMISSION_CHECK, "onFlavors": ["a"]})),
        Name.QUEUE,
        "to flavors a; not covered: b",
    ),
    "check narrowed to all flavors there are": (
        _queue(**_strategy({"name": names.ADMISSION_CHECK, "onFlavors": ["a", "b"]})),
        Name.QUEUE,
        "not covered: any that is added later",
    ),
    "pods not covered": (
        _queue(resourceGroups=[{"coveredResources": ["cpu"], "flavors": [{"name": "a"}]}]),
        Name.QUEUE,
        "does not cover pods",
    ),
    "no check": (_gone(names.ADMISSION_CHECKS, "dispatch", ""), Name.ADMISSION_CHECK, "does not exist"),
    "check of another controller": (
        lambda stage: stage.put(active_check(controller="example.org/other")),
        Name.ADMISSION_CHECK,
        "belongs to controller 'example.org/other'",
    ),
    "check not Active": (
        lambda stage: stage.put(objects.admission_check(conditions=[objects.condition("Active", False)])),
        Name.ADMISSION_CHECK,
        "not Active: Seen",
    ),
    "check never looked at": (
        lambda stage: stage.put(objects.admission_check()),
        Name.ADMISSION_CHECK,
        "no controller",
    ),
    "no Lease": (
        _gone(names.LEASES, names.CONTROLLER, names.CONTROLLER_NAMESPACE),
        Name.CONTROLLER,
        "no controller has ever led",
    ),
    "Lease of nobody": (lambda stage: stage.put(lease(holderIdentity="")), Name.CONTROLLER, "held by nobody"),
    "Lease not renewed": (lambda stage: setattr(stage, "renews", False), Name.CONTROLLER, "was not renewed for"),
    "no runtime": (
        _gone(names.CLUSTER_TRAINING_RUNTIMES, objects.RUNTIME, ""),
        Name.RUNTIMES,
        "ClusterTrainingRuntime torch does not exist",
    ),
    "runtime with a time-to-live": (
        lambda stage: stage.put(sound_runtime(ttlSecondsAfterFinished=60)),
        Name.RUNTIMES,
        "ttlSecondsAfterFinished",
    ),
    "no Workload": (
        lambda stage: setattr(stage, "kueue", lambda *_: None),
        Name.START_GATE,
        "no Workload seen in 10 s",
    ),
    "Workload without the gate": (
        _workload(lambda job: said(workload_of(job, status={}, gates=None), names.ADMISSION_GATED)),
        Name.START_GATE,
        "does not carry the gate",
    ),
    "Workload without the check": (
        _workload(lambda job: said(workload_of(job, status={}, checks=()), names.ADMISSION_GATED)),
        Name.START_GATE,
        "does not list AdmissionCheck dispatch",
    ),
    "held for another reason": (
        _workload(lambda job: said(workload_of(job, status={}), "Pending", "insufficient unused quota")),
        Name.START_GATE,
        "(Pending: insufficient unused quota)",
    ),
    "Workload that Kueue says nothing about": (
        _workload(lambda job: workload_of(job, status={})),
        Name.START_GATE,
        "(nothing yet)",
    ),
    "quota reserved": (
        _workload(lambda job: workload_of(job, status={"QuotaReserved": True})),
        Name.START_GATE,
        "leaks: Kueue reserved quota",
    ),
    "admitted without quota": (
        _workload(lambda job: _quota(workload_of(job, status={}), Admitted=True, QuotaReserved=False)),
        Name.START_GATE,
        "leaks: Kueue reserved quota",
    ),
    "admission without conditions": (
        _workload(lambda job: said(workload_of(job, status={}, admission=True), names.ADMISSION_GATED)),
        Name.START_GATE,
        "leaks: Kueue reserved quota",
    ),
    "quota for a moment": (_after(5, _later_quota), Name.START_GATE, "leaks: Kueue reserved quota"),
    "a pod at 9.9 s": (_after(9.9, lambda stage: pod_appears(stage, gone=False)), Name.START_GATE, "leaks: a pod"),
    "a pod for a moment": (_after(5, lambda stage: pod_appears(stage, gone=True)), Name.START_GATE, "leaks: a pod"),
    "a pod before the watch began": (
        _after(0.06, lambda stage: pod_appears(stage, gone=True)),
        Name.START_GATE,
        "leaks: a pod",
    ),
    "annotation stripped": (
        _edit_probe(_open),
        Name.START_GATE,
        "somebody changed the probe on its way in: metadata.annotations",
    ),
    "opened meanwhile": (_after(5, _edited(_open)), Name.START_GATE, "did not stay closed"),
    "resumed meanwhile": (_after(5, _edited(_resume)), Name.START_GATE, "did not stay closed"),
    "deleted meanwhile": (_after(5, _gone(names.TRAINJOBS, PROBE.name)), Name.START_GATE, "did not stay closed"),
    "no Kueue": (_no_kueue, Name.KINDS, "workloads.kueue.x-k8s.io is not installed"),
}


@pytest.mark.parametrize("case", OBSERVE_ONLY.values(), ids=OBSERVE_ONLY)
def test_observe_only(case: tuple[Callable[[Stage], object], Name, str]) -> None:
    change, name, reason = case
    stage = Stage()
    change(stage)
    report = stage.preflight()
    assert report.verdict is Verdict.OBSERVE_ONLY
    assert (line(report, name).answer, reason in line(report, name).reason) == (Answer.NO, True), report
    assert line(report, name).remedy, "what mends it is missing"
    assert not report.cannot_tell
    assert not stage.probe_is_there


def _both_manage(stage: Stage, job: JsonObject) -> None:
    manage(stage, job)
    suspend(stage, job)


PLAIN_CASES: dict[str, tuple[Callable[[Stage], object], str]] = {
    "Kueue manages it after all": (
        lambda stage: setattr(stage, "trainer", _both_manage),
        "Kueue manages jobs without a queue here",
    ),
    "Trainer is down": (lambda stage: setattr(stage, "trainer", lambda *_: None), "Trainer has not looked"),
    "suspend cleared": (_edit_probe(_resume), "spec.suspend"),
    "queue label added": (
        _edit_probe(lambda body: body["metadata"]["labels"].update({names.QUEUE_NAME: "default"})),
        "metadata.labels",
    ),
    "a pod for a moment": (_after(5, lambda stage: pod_appears(stage, gone=True)), "leaks: a pod"),
}


@pytest.mark.parametrize("case", PLAIN_CASES.values(), ids=PLAIN_CASES)
def test_observe_only_in_plain_mode(case: tuple[Callable[[Stage], object], str]) -> None:
    change, reason = case
    stage = Stage()
    change(stage)
    report = stage.preflight(PLAIN)
    assert report.verdict is Verdict.OBSERVE_ONLY
    assert reason in line(report, Name.START_GATE).reason, report
    assert not stage.probe_is_there


# Guard rails.


@pytest.mark.parametrize("level", [Level.NO, Level.AUDIT, Level.ADMISSIONS, Level.EXECUTIONS])
def test_guard_rails(level: Level) -> None:
    """Their level is told; it is no part of the verdict, but where they are in force they ask for one more right."""
    stage = Stage()
    guard(stage, level)
    stage.rules = [{"verbs": ALL_VERBS, "apiGroups": ["*"], "resources": ["*"]}]
    in_force = level in (Level.ADMISSIONS, Level.EXECUTIONS)
    report = stage.preflight()
    rails = line(report, Name.GUARD_RAILS)
    assert (rails.answer, rails.needed) == (Answer.YES if in_force else Answer.NO, False)
    assert rails.reason.startswith("not in force" if level is Level.NO else level)
    assert in_force == ("you may not: dispatch trainjobs" in line(report, Name.RIGHTS).reason)
    stage.rules = [{"verbs": [*ALL_VERBS, names.ADAPTER_VERB], "apiGroups": ["*"], "resources": ["*"]}]
    assert stage.preflight().verdict is Verdict.READY


# The controller's Lease.


def test_a_lease_whose_times_are_long_past() -> None:
    """Clocks are not compared: that it changes is what counts."""
    stage = Stage()
    stage.put(lease(renewTime="1999-01-01T00:00:00.000000Z", leaseDurationSeconds=1))
    assert stage.preflight().verdict is Verdict.READY


def test_a_short_watch_waits_for_the_next_renewal() -> None:
    stage = Stage()
    report = stage.preflight(replace(KUEUE, watch_seconds=1.0))
    assert report.verdict is Verdict.READY, report
    assert stage.now < 6.5


def test_a_lease_that_changes_hands() -> None:
    stage = Stage()
    stage.renews = False
    stage.at[4] = lambda: stage.put(lease(holderIdentity="b"))
    assert stage.preflight().verdict is Verdict.READY


# What cannot be told.


def _denied(*denied: tuple[str, names.Resource]) -> Callable[[Request], None]:
    def before(request: Request) -> None:
        if (type(request).__name__, getattr(request, "resource", None)) in denied:
            raise DeniedError(f"you cannot {type(request).__name__} {request.resource}", status=403)  # type: ignore[union-attr]  # only those that have one are named

    return before


@pytest.mark.parametrize(
    ("denied", "name"),
    [
        (("Get", names.LOCAL_QUEUES), Name.QUEUE),
        (("Get", names.CLUSTER_QUEUES), Name.QUEUE),
        (("Get", names.ADMISSION_CHECKS), Name.ADMISSION_CHECK),
        (("Get", names.LEASES), Name.CONTROLLER),
        (("Get", names.CLUSTER_TRAINING_RUNTIMES), Name.RUNTIMES),
        (("List", names.PODS), Name.START_GATE),
        (("List", names.WORKLOADS), Name.START_GATE),
        (("Create", names.TRAINJOBS), Name.START_GATE),
        (("Watch", names.PODS), Name.START_GATE),
        (("Watch", names.WORKLOADS), Name.START_GATE),
        (("Create", names.RULES_REVIEWS), Name.RIGHTS),
    ],
    ids=str,
)
def test_a_right_that_is_missing(denied: tuple[str, names.Resource], name: Name) -> None:
    """It is named, the rest is told all the same, and the verdict is observe-only for want of an answer."""
    stage = Stage()
    stage.before = _denied(denied)
    report = stage.preflight()
    assert (report.verdict, report.cannot_tell) == (Verdict.OBSERVE_ONLY, True), report
    assert line(report, name).answer is Answer.UNKNOWN
    assert f"you cannot {denied[0]} {denied[1]}" in line(report, name).reason
    assert not stage.probe_is_there


def test_what_cannot_be_told_says_which_line_to_see() -> None:
    stage = Stage()
    stage.remove(names.CLUSTER_TRAINING_RUNTIMES, objects.RUNTIME, "")
    assert line(stage.preflight(), Name.START_GATE).remedy == "see Runtimes"
    stage = Stage()
    stage.absent = (names.LOCAL_QUEUES,)
    assert line(stage.preflight(), Name.QUEUE).remedy == "", "the message asks whether it is installed"
    stage = Stage()
    stage.before = _denied(("Get", names.LOCAL_QUEUES))
    assert line(stage.preflight(), Name.QUEUE).remedy == "see Rights"


def test_an_end_state_that_was_not_seen() -> None:
    """Also where the kind is not served for a moment: then nobody can say that there is no Workload."""
    stage = Stage()

    def before(request: Request) -> None:
        if isinstance(request, List) and request.resource == names.WORKLOADS and stage.now > 9:
            raise NotServedError("the server could not find the requested resource", status=404)

    stage.before = before
    report = stage.preflight()
    assert (report.verdict, report.cannot_tell) == (Verdict.OBSERVE_ONLY, True), report
    found = line(report, Name.START_GATE)
    assert (found.answer, found.remedy) == (Answer.UNKNOWN, "run preflight again")
    assert not stage.probe_is_there


def test_without_the_right_to_list_jobs_the_probe_is_read_by_name() -> None:
    stage = Stage()
    stage.before = _denied(("List", names.TRAINJOBS))
    report = stage.preflight()
    assert line(report, Name.START_GATE).answer is Answer.YES
    assert not stage.probe_is_there


def test_rights_that_are_missing_are_named_verb_by_verb() -> None:
    """The review shows some; each of the others is asked for on its own."""
    stage = Stage()
    stage.rules = [{"verbs": ["get", "list", "watch"], "apiGroups": ["*"], "resources": ["*"]}]
    asked: list[JsonObject] = []

    def allowed(attributes: JsonObject) -> bool:
        asked.append(attributes)
        return bool(attributes["verb"] == "create")

    stage.allowed = allowed
    report = stage.preflight()
    rights = line(report, Name.RIGHTS)
    assert rights.answer is Answer.NO
    for missing in ("update trainjobs.trainer.kubeflow.org in namespace team", "delete trainjobs", "update workloads"):
        assert missing in rights.reason
    assert "create" not in rights.reason
    assert {"verb": "update", "group": "trainer.kubeflow.org", "resource": "trainjobs", "namespace": "team"} in asked
    assert (report.verdict, report.cannot_tell) == (Verdict.OBSERVE_ONLY, True)


def test_a_rule_for_some_names_alone_is_asked_about() -> None:
    stage = Stage()
    stage.rules = [{**stage.rules[0], "resourceNames": ["one"]}]
    assert line(stage.preflight(), Name.RIGHTS).answer is Answer.NO


@pytest.mark.parametrize(("name", "answer"), [("kube-system", Answer.YES), ("other", Answer.NO)])
def test_a_rule_for_the_one_name_that_is_needed_shows_the_right(name: str, answer: Answer) -> None:
    stage = Stage()
    groups = sorted({right.resource.group for right in needed(KUEUE, guarded=False)} - {""})
    stage.rules = [
        {"verbs": ["*"], "apiGroups": groups, "resources": ["*"]},
        {"verbs": ["*"], "apiGroups": [""], "resources": ["pods"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["namespaces"], "resourceNames": [name]},
    ]
    rights = line(stage.preflight(), Name.RIGHTS)
    assert rights.answer is answer
    assert (rights.reason == "you may not: get namespaces kube-system") is (answer is Answer.NO)


def test_where_no_runtime_is_named_they_are_listed() -> None:
    listed = {
        asked.runtime: {right.resource for right in needed(asked, guarded=False) if right.verb == "list"}
        for asked in (KUEUE, replace(KUEUE, runtime=None))
    }
    runtimes = {names.TRAINING_RUNTIMES, names.CLUSTER_TRAINING_RUNTIMES}
    assert not listed[KUEUE.runtime] & runtimes
    assert listed[None] >= runtimes


@pytest.mark.parametrize("resource", [names.PODS, names.WORKLOADS], ids=str)
@pytest.mark.parametrize("error", [ExpiredError, UnreachableError, BadReplyError])
def test_a_watch_that_breaks_proves_nothing(resource: names.Resource, error: type[ApiError]) -> None:
    stage = Stage()

    def before(request: Request) -> None:
        if isinstance(request, Watch) and request.resource == resource:
            raise error("broken off")

    stage.before = before
    report = stage.preflight()
    assert (line(report, Name.START_GATE).answer, report.cannot_tell) == (Answer.UNKNOWN, True), report
    assert not stage.probe_is_there


# Kinds.


def test_a_trainjob_without_runtime_patches() -> None:
    stage = Stage()
    stage.put(crd(names.TRAINJOBS, {"v1alpha1": {"podTemplateOverrides": {}}}))

    def before(request: Request) -> None:
        if isinstance(request, Create) and request.resource == names.TRAINJOBS:
            raise InvalidError('strict decoding error: unknown field "spec.runtimePatches"', status=400)

    stage.before = before
    report = stage.preflight()
    assert "lacks spec.runtimePatches" in line(report, Name.KINDS).reason
    assert not report.cannot_tell


def test_a_kueue_of_an_older_version_alone() -> None:
    stage = Stage()
    stage.absent = (names.WORKLOADS,)
    stage.put(crd(names.WORKLOADS, {"v1beta1": {}}))
    assert "serves v1beta1; v1beta2 is needed" in line(stage.preflight(), Name.KINDS).reason


def test_no_trainer() -> None:
    stage = Stage()
    stage.absent = (names.TRAINJOBS, names.CLUSTER_TRAINING_RUNTIMES, names.TRAINING_RUNTIMES)
    stage.remove(names.CRDS, str(names.TRAINJOBS), "")
    report = stage.preflight()
    assert "CRD trainjobs.trainer.kubeflow.org is not installed" in line(report, Name.KINDS).reason
    assert (report.verdict, report.cannot_tell) == (Verdict.OBSERVE_ONLY, False)


# Probes.


def _probe_of(ulid: str, created: str) -> JsonObject:
    body = objects.trainjob(name=f"dj-{ulid}-s0", uid=f"uid-{ulid}", gates=names.GATE)
    body["metadata"]["creationTimestamp"] = created
    return body


def test_old_probes_are_removed_and_younger_ones_are_not() -> None:
    """The model's server says 00:00:00 for what is created now."""
    stage = Stage()
    old, young = "01jdqm3zk0tb6q8e8m2a9v4c51", "01jdqm3zk0tb6q8e8m2a9v4c52"
    stage.put(_probe_of(old, "2025-12-31T23:49:59Z"))
    stage.put(_probe_of(young, "2025-12-31T23:50:00Z"))
    job = objects.trainjob(gates=names.GATE)  # a job, however old
    job["metadata"]["creationTimestamp"] = "2025-01-01T00:00:00Z"
    stage.put(job)
    report = stage.preflight()
    assert report.removed == (f"dj-{old}-s0",)
    assert [stage.has(names.TRAINJOBS, name) for name in (f"dj-{old}-s0", f"dj-{young}-s0", objects.NAME)] == [
        False,
        True,
        True,
    ]


def test_the_probe_is_kept_off_every_node() -> None:
    stage = Stage()
    stage.preflight()
    [body] = [
        request.body for request in stage.sent if isinstance(request, Create) and request.resource == names.TRAINJOBS
    ]
    patches = {
        patch["manager"]: patch["trainingRuntimeSpec"]["template"]["spec"] for patch in body["spec"]["runtimePatches"]
    }
    [job] = patches["dispatch.phpboyscout.uk/preflight"]["replicatedJobs"]
    assert job["template"]["spec"]["template"]["spec"]["nodeSelector"] == {"dispatch.phpboyscout.uk/nowhere": "true"}
    assert (body["spec"]["suspend"], body["metadata"]["annotations"][names.ADMISSION_GATED_BY]) == (True, names.GATE)
    assert body["metadata"]["name"].endswith("-s0")


def test_a_conflict_when_the_probe_is_deleted() -> None:
    stage = Stage()
    lost = iter([True])

    def before(request: Request) -> None:
        if isinstance(request, Delete) and next(lost, False):
            stage.edit(names.TRAINJOBS, PROBE.name, lambda body: body["metadata"]["labels"].update(touched="x"))

    stage.before = before
    assert stage.preflight().verdict is Verdict.READY
    assert not stage.probe_is_there


def test_a_deletion_that_fails_is_named() -> None:
    stage = Stage()

    def before(request: Request) -> None:
        if isinstance(request, Delete):
            raise DeniedError("not you", status=403)

    stage.before = before
    report = stage.preflight()
    assert report.verdict is Verdict.OBSERVE_ONLY
    assert report.left_behind == f"kubectl -n team delete trainjob {PROBE.name} --ignore-not-found"
    assert f"trainjob {PROBE.name}" in report.why[-1]
    assert stage.last_news is Stands.THERE


def test_a_create_without_an_answer_that_cannot_be_looked_up_at_once() -> None:
    """It is looked for again at the end, and deleted."""
    stage = Stage()
    lost = iter([True])

    def after(request: Request, _: Any) -> None:
        if isinstance(request, Create) and request.resource == names.TRAINJOBS:
            raise UnreachableError("no answer")

    def before(request: Request) -> None:
        if isinstance(request, Get) and request.resource == names.TRAINJOBS and next(lost, False):
            raise UnreachableError("no answer")

    stage.after, stage.before = after, before
    report = stage.preflight()
    assert (report.cannot_tell, report.left_behind, stage.probe_is_there) == (True, "", False)


# Faults at every request: the probe is deleted, or named.


def _count() -> int:
    stage = Stage()
    stage.preflight()
    return len(stage.sent)


CALLS = _count()
ERRORS = (
    BadReplyError,
    ConflictError,
    DeniedError,
    ExpiredError,
    InvalidError,
    NotFoundError,
    NotServedError,
    ThrottledError,
    UnreachableError,
)


def _at(number: int, act: Callable[[], None]) -> Callable[..., None]:
    left = iter(range(number + 1))

    def hook(*_: object) -> None:
        if next(left, None) == number:
            act()

    return hook


def _fails(error: ApiError) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def _silent_from(number: int) -> Callable[[Request], None]:
    asked = iter(range(number))

    def hook(_: Request) -> None:
        if next(asked, None) is None:
            raise UnreachableError("no answer")

    return hook


def _accounted_for(stage: Stage, report: Report) -> None:
    assert not stage.probe_is_there or PROBE.name in report.left_behind, report
    assert bool(report.left_behind) == (stage.last_news not in (None, Stands.GONE))


@pytest.mark.parametrize(
    ("where", "error"),
    [
        *(("before", error) for error in ERRORS),
        # Only an answer that is lost leaves it open whether the request was carried out.
        ("after", UnreachableError),
        ("after", BadReplyError),
    ],
)
def test_an_error_at_each_request(where: str, error: type[ApiError]) -> None:
    for number in range(CALLS):
        stage = Stage()
        setattr(stage, where, _at(number, _fails(error(f"{error.__name__} at {number}"))))
        _accounted_for(stage, stage.preflight())


def test_an_api_server_that_stops_answering_at_each_request() -> None:
    for number in range(CALLS):
        stage = Stage()
        stage.before = _silent_from(number)
        report = stage.preflight()
        _accounted_for(stage, report)
        assert report.verdict is Verdict.OBSERVE_ONLY or number == CALLS


@pytest.mark.parametrize("where", ["before", "after"])
def test_cut_off_at_each_request(where: str) -> None:
    """The generator is closed: whoever closed it knows from what it was told whether a probe may exist."""
    for number in range(CALLS):
        stage = Stage()
        setattr(stage, where, _at(number, lambda: (_ for _ in ()).throw(Crash())))
        with pytest.raises(Crash):
            stage.preflight()
        assert not stage.probe_is_there or stage.last_news in (Stands.SENT, Stands.THERE), number
        stage.before, stage.after = (lambda _: None), (lambda *_: None)
        if stage.last_news in (Stands.SENT, Stands.THERE):
            gone = stage.run(remove_probe(Probe("team", PROBE.name, stage.last_news)))
            assert gone or stage.last_news is Stands.SENT
        assert not stage.probe_is_there


def test_a_create_that_arrives_after_the_interrupt() -> None:
    stage = Stage()
    late = objects.trainjob(name=PROBE.name, uid="uid-late", gates=names.GATE)
    stage.at[0.4] = lambda: stage.put(late)
    assert stage.run(remove_probe(Probe("team", PROBE.name, Stands.SENT)))
    assert not stage.probe_is_there


def test_two_preflights_at_once() -> None:
    """Each sees its own probe alone, in whatever order their requests come."""
    stage = Stage()
    other = replace(PROBE, ulid="01JDQM3ZK0TB6Q8E8M2A9V4C5F")
    first, second = (Process(stage, preflight(KUEUE, probe, clock=stage.clock)) for probe in (PROBE, other))
    while first.pending or second.pending:
        for process in (first, second):
            if process.pending:
                process.step()
    assert [process.finish().verdict for process in (first, second)] == [Verdict.READY, Verdict.READY]
    assert not stage.probe_is_there


# Jobs that were started earlier (BL-17).


def test_a_runtime_that_changed_since_start() -> None:
    stage = Stage()
    stage.put(objects.trainjob())
    jobset = objects.jobset()
    jobset["spec"]["replicatedJobs"][0]["template"]["spec"].update(backoffLimit=0, podReplacementPolicy="Failed")
    stage.put(jobset)
    assert line(stage.preflight(), Name.STARTED_JOBS).answer is Answer.YES
    stage.put(sound_runtime(failurePolicy={"maxRestarts": 3}))
    report = stage.preflight()
    started = line(report, Name.STARTED_JOBS)
    assert (started.answer, started.needed) == (Answer.NO, False)
    assert objects.NAME in started.reason
    assert "failurePolicy.maxRestarts" in started.reason
    assert "in-admission restarts: possible" in line(report, Name.RUNTIMES).reason
    assert report.verdict is Verdict.READY
