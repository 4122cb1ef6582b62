"""Start, against the model API server, with Kueue making the Workload.

Aspects: what is sent, in both modes; what is refused before anything is sent; every read-back; the proof by the
Workload; taking over what an earlier try made, and what is not taken over; lost replies, errors and crashes at every
request, and a second try: one TrainJob, closed.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.names import (
    ADMISSION_GATED_BY,
    GATE,
    HOLD,
    OPENED,
    OWNER,
    SPEC_HASH,
    TRAINJOBS,
    ULID_LABEL,
    WORKLOADS,
)
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.contract.trainjob import parse_trainjob
from dispatch_gates.operations.errors import MayExistError, RefusedError
from dispatch_gates.operations.holding import hold
from dispatch_gates.operations.opening import open_job
from dispatch_gates.operations.start import Started, start
from dispatch_gates.requests import (
    AlreadyExistsError,
    ApiError,
    BadReplyError,
    Create,
    Delete,
    DeniedError,
    Get,
    InvalidError,
    List,
    NotServedError,
    Request,
    ThrottledError,
    UnreachableError,
    Watch,
)
from model import objects
from model.apiserver import ApiServer, Crash, Process
from model.objects import NAME, RUNTIME, TEAM, WORKLOAD
from unit.adapter import asked, kueue, team, trainjobs, webhook


def closed(server: ApiServer) -> None:
    """Expect exactly one TrainJob, with both gates set and A at 0."""
    (raw,) = trainjobs(server)
    job = parse_trainjob(raw)
    assert (job.gates.value, job.suspended, job.count, job.meta.deleting) == (GATE, True, 0, False)


def refused(server: ApiServer, *says: str, **more: Any) -> None:
    """Expect a refusal that leaves no TrainJob behind, and says why."""
    with pytest.raises(RefusedError) as caught:
        server.run(start(asked(**more)))
    for text in says:
        assert text in str(caught.value)
    assert trainjobs(server) == []


def begun(server: ApiServer) -> JsonObject:
    """Start, and return the TrainJob."""
    server.run(start(asked()))
    return server.read(TRAINJOBS, NAME)


# Started.


def test_started() -> None:
    server = team()
    started = server.run(start(asked()))
    assert (started.adopted, started.job.meta.name) == (False, NAME)
    closed(server)
    assert [type(entry.request) for entry in server.writes] == [Create]


def test_started_in_plain_mode() -> None:
    """The annotation is sent all the same; no Workload is waited for."""
    server = team()
    server.run(start(asked(queue=None)))
    closed(server)
    assert not [request for request in server.requests if isinstance(request, Watch)]


def test_started_where_kueue_adds_its_own_patch_alone() -> None:
    """BL-09, case 2: it does so to every TrainJob, managed or not."""
    server = team()
    webhook(server, lambda body: body["spec"]["runtimePatches"].append(objects.KUEUE_PATCH))
    server.run(start(asked(queue=None)))
    closed(server)


def test_workload_that_comes_late_and_grows() -> None:
    """At first without our check: it is waited for, not refused at once."""
    server = team()
    steps = iter(["workload", "check"])

    def idle(_: Watch) -> bool:
        step = next(steps, None)
        if step == "workload":
            return kueue(server, checks=())
        if step == "check":
            entries = [objects.check_state()]
            server.edit(WORKLOADS, objects.WORKLOAD, lambda body: body["status"].update(admissionChecks=entries))
        return step is not None

    server.idle = idle
    server.run(start(asked()))
    closed(server)


def test_a_namespaced_runtime() -> None:
    server = team(objects.runtime("node", kind="TrainingRuntime", name="own"))
    server.run(start(asked(spec={"runtimeRef": {"kind": "TrainingRuntime", "name": "own"}})))
    closed(server)


# Refused before anything is sent.


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"spec": {"runtimeRef": {"name": "unheard-of"}}}, "ClusterTrainingRuntime unheard-of does not exist"),
        ({"spec": {}}, "spec.runtimeRef.name"),
        ({"spec": {"runtimeRef": {"name": RUNTIME}, "suspend": False}}, "spec.suspend"),
        ({"annotations": {ADMISSION_GATED_BY: ""}}, "annotations: kueue.x-k8s.io/admission-gated-by"),
    ],
    ids=["no runtime", "no name of one", "suspend", "our annotation"],
)
def test_refused_before_a_write(more: dict[str, Any], says: str) -> None:
    server = team()
    refused(server, says, **more)
    assert server.writes == []


def test_refused_for_a_name_that_is_too_long() -> None:
    server = ApiServer(objects.runtime("x" * 30))
    refused(server, "longer than the 63", "x" * 30)


def test_refused_for_a_runtime_that_runs_ended_jobs_again() -> None:
    """BL-14."""
    runtime = objects.runtime("node")
    runtime["spec"]["template"]["spec"]["ttlSecondsAfterFinished"] = 60
    refused(ApiServer(runtime), "ttlSecondsAfterFinished")


# Refused after the read-back: the TrainJob is deleted again.

_CHANGES: dict[str, tuple[Callable[[JsonObject], object], str]] = {
    "gate dropped": (lambda body: body["metadata"]["annotations"].pop(ADMISSION_GATED_BY), "admission-gated-by"),
    "gate emptied": (lambda body: body["metadata"]["annotations"].update({ADMISSION_GATED_BY: ""}), "gated-by"),
    "queue label moved": (
        lambda body: body["metadata"]["labels"].update({"kueue.x-k8s.io/queue-name": "other"}),
        "queue-name",
    ),
    "owner mark": (lambda body: body["metadata"]["annotations"].update({OWNER: "x"}), "owner"),
    "runtime": (lambda body: body["spec"]["runtimeRef"].update(name="other"), "spec.runtimeRef.name"),
    "image": (lambda body: body["spec"]["trainer"].update(image="other"), "spec.trainer.image"),
    "deadline": (lambda body: body["spec"].update(activeDeadlineSeconds=60), "activeDeadlineSeconds"),
    "managed by another": (lambda body: body["spec"].update(managedBy="kueue.x-k8s.io/multikueue"), "managedBy"),
    "our patch dropped": (lambda body: body["spec"].update(runtimePatches=[]), "runtimePatches"),
    "A raised": (lambda body: body["spec"].update(runtimePatches=[objects.patch({"node": 1})]), "runtimePatches"),
}


@pytest.mark.parametrize(("change", "says"), _CHANGES.values(), ids=_CHANGES.keys())
def test_refused_after_a_change(change: Callable[[JsonObject], object], says: str) -> None:
    server = team()
    webhook(server, change)
    refused(server, "is deleted again", says)


def test_refused_in_plain_mode_where_kueue_labels_the_job() -> None:
    """BL-09, case 1: Kueue would lift suspend; the annotation holds the job until it is deleted."""
    server = team()
    webhook(server, lambda body: body["metadata"]["labels"].update({"kueue.x-k8s.io/queue-name": "default"}))
    refused(server, "queue-name", "default", queue=None)
    assert all(
        change.body["spec"]["suspend"] is True for change in server.state.log if change.key.resource == TRAINJOBS
    )


def test_refused_in_plain_mode_where_suspend_was_lifted() -> None:
    server = team()
    webhook(server, lambda body: body["spec"].update(suspend=False))
    refused(server, "spec.suspend", queue=None)


def test_suspend_is_kueues_in_kueue_mode() -> None:
    server = team()
    webhook(server, lambda body: body["spec"].update(suspend=False))
    server.run(start(asked()))


def test_refused_where_somebody_deletes_it_at_once() -> None:
    server = team()

    def after(request: Request, _: object) -> None:
        if isinstance(request, Create):
            server.remove(TRAINJOBS, NAME)

    server.after = after
    refused(server, "was deleted by somebody")


# Refused without a proof by the Workload.


def test_refused_without_a_workload() -> None:
    server = team()
    server.idle = lambda _: False
    refused(server, "Kueue made no Workload within 30 s", "is deleted again")


def test_refused_where_kueue_is_not_installed() -> None:
    server = team()

    def before(request: Request) -> None:
        if isinstance(request, List) and request.resource == WORKLOADS:
            raise NotServedError("the server could not find the requested resource", status=404)

    server.before = before
    refused(server, "no kind Workload", "is Kueue installed?", "is deleted again")


def test_refused_where_the_workload_is_not_gated() -> None:
    """BL-08 (3): the feature is off, and the annotation is not copied."""
    refused(team(gated=False), "does not carry the gate", "AdmissionGatedBy")


def test_refused_where_the_workload_does_not_list_the_check() -> None:
    refused(team(checks=("prov-test",)), "does not list AdmissionCheck dispatch", objects.QUEUE)


def test_refused_where_the_workload_is_another_jobs() -> None:
    """The label alone proves nothing."""
    server = team()

    def idle(_: Watch) -> bool:
        made = not server.has(WORKLOADS, objects.WORKLOAD)
        if made:
            uid = server.read(TRAINJOBS, NAME)["metadata"]["uid"]
            reference = objects.owner("TrainJob", NAME, "uid-other")
            server.put(objects.workload(job_uid=uid, owned_by=reference, gates=GATE))
        return made

    server.idle = idle
    refused(server, "Kueue made no Workload")


def test_refused_where_the_workload_goes_again() -> None:
    server = team()
    steps = iter(["made", "gone"])

    def idle(_: Watch) -> bool:
        step = next(steps, None)
        if step == "made":
            return kueue(server, checks=())
        if step == "gone":
            server.remove(WORKLOADS, objects.WORKLOAD)
        return step is not None

    server.idle = idle
    refused(server, "Kueue made no Workload")


def test_refused_and_not_deleted() -> None:
    """What is left is named, with the command that removes it; it is closed."""
    server = team()
    server.idle = lambda _: False

    def before(request: Request) -> None:
        if isinstance(request, Delete):
            raise DeniedError("no right to delete", status=403)

    server.before = before
    with pytest.raises(RefusedError, match=r"made no Workload .* could not be deleted .*no right to delete") as caught:
        server.run(start(asked()))
    assert f"kubectl -n {TEAM} delete trainjob {NAME}" in str(caught.value)
    closed(server)


def test_refused_and_changed_with_every_deletion() -> None:
    server = team()
    server.idle = lambda _: False

    def before(request: Request) -> None:
        if isinstance(request, Delete):
            labels = {"touched": str(server.state.version)}
            server.edit(TRAINJOBS, NAME, lambda body: body["metadata"]["labels"].update(labels))

    server.before = before
    with pytest.raises(RefusedError, match=r"made no Workload .* could not be deleted .*changed 8 times"):
        server.run(start(asked()))


# Taken over, and not.


def test_taken_over_closed() -> None:
    server = team()
    first = begun(server)
    again = server.run(start(asked()))
    assert (again.adopted, again.job.meta.uid) == (True, first["metadata"]["uid"])
    assert len(server.writes) == 1
    closed(server)


@pytest.mark.parametrize("queue", [objects.QUEUE, None], ids=["kueue", "plain"])
def test_taken_over_held(queue: str | None) -> None:
    """By the run that was cut off, or by an operator: Kueue need not keep the gate on a Workload that is not active."""
    server = team()
    first = server.run(start(asked(queue=queue)))
    server.run(hold(TEAM, NAME, first.job.meta.uid))
    if queue is not None:
        server.edit(WORKLOADS, WORKLOAD, lambda body: body["metadata"]["annotations"].pop(ADMISSION_GATED_BY))
    again = server.run(start(asked(queue=queue)))
    assert (again.adopted, again.job.meta.uid, again.job.held) == (True, first.job.meta.uid, True)
    closed(server)


def test_held_by_somebody_as_it_is_created() -> None:
    """A mark that no one of ours set yet: a webhook that sets marks of ours is not to be believed in others either."""
    server = team()
    webhook(server, lambda body: body["metadata"]["annotations"].update({HOLD: "true"}))
    with pytest.raises(RefusedError, match="hold"):
        server.run(start(asked()))


def test_refused_beside_another_submission() -> None:
    """Found by its ULID. Of two that start at once, both see the other, or the later one does."""
    other = objects.trainjob(name=f"{NAME[:-1]}2", uid="uid-other", gates=GATE)
    other["metadata"]["labels"][ULID_LABEL] = objects.ULID
    server = team(other)
    with pytest.raises(RefusedError, match=rf"{NAME[:-1]}2 of the same ULID is there\. .* stop that one first"):
        server.run(start(asked()))
    assert [job["metadata"]["name"] for job in trainjobs(server)] == [f"{NAME[:-1]}2"]


@pytest.mark.parametrize(("phase", "may_run"), [("Running", True), ("Pending", True), ("Succeeded", False)])
def test_refused_beside_pods_of_an_earlier_submission(phase: str, may_run: bool) -> None:
    """Its TrainJob is gone: deleted by hand, a moment ago."""
    pod = objects.pod(phase, containers=("terminated",) if not may_run else ("running",), name="left", of=NAME)
    server = team(pod)
    later = asked(identity=Identity(objects.ULID, 2), queue=None)
    if may_run:
        with pytest.raises(RefusedError, match=r"pods of an earlier submission may still run: pod left"):
            server.run(start(later))
        assert trainjobs(server) == []
    else:
        assert server.run(start(later)).job.meta.name == later.identity.name


def test_what_to_do_about_one_that_asks_for_something_else() -> None:
    server = team()
    before = begun(server)
    other = asked(labels={"a": "b"})
    with pytest.raises(
        RefusedError, match=rf"never opened: put the .* back, or .*`dispatch-gates stop {NAME} -n {TEAM}`"
    ):
        server.run(start(other))
    server.run(open_job(TEAM, NAME, before["metadata"]["uid"]))
    with pytest.raises(RefusedError, match=rf"opened: stop it \(`dispatch-gates stop {NAME} -n {TEAM}`\), then raise"):
        server.run(start(other))


def test_taken_over_open_and_running() -> None:
    """As it is: no read-back, no deletion, whatever has become of it."""
    server = team()
    begun(server)

    def run(body: JsonObject) -> None:
        del body["metadata"]["annotations"][ADMISSION_GATED_BY]
        body["spec"] |= {"suspend": False, "runtimePatches": [objects.patch({"node": 3})]}

    server.edit(TRAINJOBS, NAME, run)
    again = server.run(start(asked()))
    assert (again.adopted, again.job.count, again.job.gates.ours) == (True, 3, False)
    assert len(server.writes) == 1


def test_taken_over_open_in_plain_mode() -> None:
    server = team()
    server.run(start(asked(queue=None)))

    def run(body: JsonObject) -> None:
        body["metadata"]["annotations"] |= {OPENED: "true"}
        del body["metadata"]["annotations"][ADMISSION_GATED_BY]
        body["spec"] |= {"suspend": False}

    server.edit(TRAINJOBS, NAME, run)
    assert server.run(start(asked(queue=None))).adopted


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"owner": "somebody/else"}, "belongs to 'project/stack', not to 'somebody/else'"),
        ({"spec": {"runtimeRef": {"name": RUNTIME}, "trainer": {"image": "b"}}}, "with another specification"),
        ({"queue": "other"}, "with another specification"),
        ({"queue": None}, "with another specification"),
        ({"labels": {"a": "b"}}, "with another specification"),
        ({"priority_class": "high"}, "with another specification"),
    ],
    ids=["owner", "image", "queue", "mode", "labels", "priority"],
)
def test_not_taken_over(more: dict[str, Any], says: str) -> None:
    server = team()
    before = begun(server)
    with pytest.raises(RefusedError, match="exists already") as caught:
        server.run(start(asked(**more)))
    assert says in str(caught.value)
    assert server.read(TRAINJOBS, NAME) == before


def test_not_taken_over_without_marks() -> None:
    server = team(objects.trainjob())
    with pytest.raises(RefusedError, match="belongs to None"):
        server.run(start(asked()))
    assert server.writes == []


def test_not_taken_over_while_it_is_being_deleted() -> None:
    server = team()
    begun(server)
    server.edit(TRAINJOBS, NAME, lambda body: body["metadata"].update(deletionTimestamp=objects.T0, finalizers=["x"]))
    with pytest.raises(RefusedError, match="is being deleted"):
        server.run(start(asked()))
    assert len(server.writes) == 1


def test_the_hash_is_of_all_that_was_asked_for() -> None:
    server = team()
    marks = begun(server)["metadata"]["annotations"]
    assert marks[SPEC_HASH] == asked().digest()
    assert marks[OWNER] == asked().owner


# Faults.


def test_a_lost_reply_to_the_create() -> None:
    for error in (UnreachableError("lost"), BadReplyError("cut")):
        server = team()
        _once(server, "after", Create, error)
        started = server.run(start(asked()))
        assert started.adopted
        closed(server)


@pytest.mark.parametrize("error", [UnreachableError("no answer"), BadReplyError("HTML")], ids=["lost", "no JSON"])
def test_a_create_that_never_arrived(error: ApiError) -> None:
    server = team()
    _once(server, "before", Create, error)
    with pytest.raises(MayExistError, match="was not created"):
        server.run(start(asked()))
    assert trainjobs(server) == []


@pytest.mark.parametrize(
    "error", [DeniedError("policy says no"), InvalidError("schema"), ThrottledError("busy")], ids=["403", "422", "429"]
)
def test_a_create_that_was_refused(error: ApiError) -> None:
    server = team()
    _once(server, "before", Create, error)
    with pytest.raises(type(error)):
        server.run(start(asked()))
    assert trainjobs(server) == []


def test_a_create_of_which_nothing_is_known() -> None:
    server = team()
    server.after = _raise_if(Create, UnreachableError("lost"))

    def before(request: Request) -> None:
        if isinstance(request, Get) and request.resource == TRAINJOBS:
            raise UnreachableError("silence")

    server.before = before
    with pytest.raises(MayExistError, match=r"may exist, closed.*Repeat this"):
        server.run(start(asked()))
    closed(server)


def test_the_api_server_goes_silent_while_the_workload_is_awaited() -> None:
    """The TrainJob is there: that must be said, and a second try takes it over."""
    for kind in (List, Watch):
        server = team()
        _once(server, "before", kind, UnreachableError("silence"))
        with pytest.raises(MayExistError, match=r"exists, closed.*Repeat this"):
            server.run(start(asked()))
        closed(server)
        assert server.run(start(asked())).adopted


def _raise_if(kind: type, error: BaseException) -> Callable[..., None]:
    def hook(request: Request, _: object = None) -> None:
        if isinstance(request, kind):
            raise error

    return hook


def _once(server: ApiServer, where: str, kind: type, error: BaseException) -> None:
    """Answer the first request of a kind with an error, or lose its reply."""
    hook = _raise_if(kind, error)

    def once(request: Request, reply: object = None) -> None:
        try:
            hook(request, reply)
        finally:
            if isinstance(request, kind):
                setattr(server, where, lambda *_: None)

    setattr(server, where, once)


def _after(number: int, error: BaseException, what: Callable[[], object]) -> Callable[..., None]:
    """At the n-th request: note it, and raise."""
    counter = itertools.count()

    def hook(_: Request, __: object = None) -> None:
        if next(counter) == number:
            what()
            raise error

    return hook


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize(
    "error",
    [Crash(), UnreachableError("lost"), BadReplyError("cut"), DeniedError("401"), AlreadyExistsError("race")],
    ids=["crash", "lost", "bad reply", "denied", "exists"],
)
def test_a_second_try_after_anything(where: str, error: BaseException) -> None:
    """Whatever goes wrong at whichever request: one TrainJob at the most, closed; and a second try finishes."""
    for number in itertools.count():
        server = team()
        reached: list[int] = []
        setattr(server, where, _after(number, error, lambda reached=reached: reached.append(1)))  # type: ignore[misc]
        process: Process[Started] = Process(server, start(asked()))
        with contextlib.suppress(Crash, ApiError, MayExistError, RefusedError):
            process.finish()
        if trainjobs(server):
            closed(server)
        server.before, server.after = lambda _: None, lambda _, __: None
        server.run(start(asked()))
        closed(server)
        if not reached:
            break
    assert number >= 5
