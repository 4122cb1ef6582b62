"""Stories of a job over several passes, as named checks: see `test_pass` and `test_preconditions`."""

from __future__ import annotations

import json
from functools import partial

from dispatch_admission.act import Outcome, Result, readmit
from dispatch_admission.checks import activate, is_ours
from dispatch_admission.decide import MAX_MESSAGE
from dispatch_gates.contract.names import ADMISSION_CHECKS, JOBS, JOBSETS, PODS, TRAINJOBS, WORKLOADS
from dispatch_gates.contract.next_execution import Reason
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.requests import DeniedError, InvalidError, List, Replace, ReplaceStatus, Request, Watch
from model import objects
from model.apiserver import ApiServer, Process
from model.objects import CHECK, NAME, TEAM, WORKLOAD, check_state
from model.players import Cluster
from model.promises import broken, count, our_entry
from unit.checks import Checks
from unit.pass_checks import OURS, RESERVED, run_pass, scene, waits

CHECKS = Checks()


def cluster_pass(cluster: Cluster) -> Outcome:
    """One pass in a cluster that others act on, too."""
    return run_pass(cluster.server)


def counts_only_grow(cluster: Cluster) -> None:
    """No two executions may share an A, and no promise may be broken."""
    assert broken(cluster.server) == []
    assert cluster.executions == sorted(set(cluster.executions)), f"an A was used twice: {cluster.executions}"


@CHECKS
def first_second_and_third_execution() -> None:
    cluster = Cluster()
    for expected in (1, 2, 3):
        assert cluster_pass(cluster).result is Result.ADMITTED
        assert cluster.admit()
        assert cluster_pass(cluster).result is Result.NOTHING
        assert cluster.executions[-1] == expected
        cluster.evict()
    counts_only_grow(cluster)


@CHECKS
def eviction_in_progress() -> None:
    """BL-01: Pending with quota reserved is also what an eviction looks like; exactly one raise in the whole run."""
    cluster = Cluster(1)
    cluster_pass(cluster)
    cluster.admit()
    written = len(cluster.server.writes)
    for step in (cluster.begin_eviction, cluster.suspend, cluster.end_pods, cluster.clear_quota):
        step()
        assert cluster_pass(cluster).result is Result.NOTHING
    assert (len(cluster.server.writes), count(cluster.server, NAME)) == (written, 2)
    cluster.reserve()
    assert cluster_pass(cluster).result is Result.ADMITTED
    assert (len(cluster.server.writes), count(cluster.server, NAME)) == (written + 2, 3)
    cluster.admit()
    assert cluster.executions == [2, 3]


@CHECKS
def pods_that_linger_past_the_next_reservation() -> None:
    """BL-03: the quota is back before the old process is gone; then the resync alone brings the next execution."""
    cluster = Cluster()
    cluster_pass(cluster)
    cluster.admit()
    cluster.evict(linger=True)
    written = len(cluster.server.writes)
    for _ in range(3):
        outcome = cluster_pass(cluster)
        assert (outcome.result, outcome.reason) == (Result.WAITING, Reason.STILL_RUNNING)
        assert f"pod {NAME}-node-0-0-run0 (Running on node-a)" in cluster.entry["message"]
    assert (len(cluster.server.writes), count(cluster.server, NAME)) == (written + 1, 1)
    cluster.end_pods()
    assert cluster_pass(cluster).result is Result.ADMITTED
    cluster.admit()
    assert cluster.executions == [1, 2]


@CHECKS
def two_thousand_pods_in_one_message() -> None:
    pods = [objects.pod(name=f"pod-{index:04d}") for index in range(2000)]
    server = scene(pods=pods)
    waits(server, Reason.STILL_RUNNING, "pod-0000", "and 1997 more")
    assert len(our_entry(server.read(WORKLOADS, WORKLOAD))["message"]) <= MAX_MESSAGE <= 32768


@CHECKS
def one_pod_among_a_hundred() -> None:
    done = [objects.pod("Succeeded", name=f"done-{index}", containers=("terminated",)) for index in range(100)]
    waits(scene(pods=[*done, objects.pod()]), Reason.STILL_RUNNING, "x7k2p")


@CHECKS
def swallowed_suspend() -> None:
    """Trainer never saw the suspend: no pod is left, but the old JobSet runs on under the old A."""
    waits(scene(jobset=objects.jobset(suspend=False)), Reason.STILL_RUNNING, "not suspended")


@CHECKS
def a_waits_message_changes_with_what_remains() -> None:
    server = scene(pods=[objects.pod(name="one"), objects.pod(name="two")])
    run_pass(server)
    server.remove(PODS, "one")
    run_pass(server)
    run_pass(server)
    assert len(server.writes) == 2
    assert "pod two" in our_entry(server.read(WORKLOADS, WORKLOAD))["message"]


@CHECKS
def message_is_cut() -> None:
    gates = ",".join(f"a{index}.io/{'x' * 50}" for index in range(40))
    server = scene(trainjob=objects.trainjob(gates=gates))
    waits(server, Reason.GATED)
    assert len(our_entry(server.read(WORKLOADS, WORKLOAD))["message"]) == MAX_MESSAGE


def _trainer_is_away(server: ApiServer) -> None:
    server.idle = lambda _: False


@CHECKS
def trainer_does_not_carry_a() -> None:
    """A is raised once; while Trainer is behind it is not raised again."""
    server = scene()
    _trainer_is_away(server)
    for _ in range(3):
        outcome = run_pass(server)
        assert (outcome.result, outcome.reason) == (Result.WAITING, Reason.TRAINER_BEHIND)
    assert [type(entry.request) for entry in server.writes] == [Replace, ReplaceStatus]
    assert count(server, NAME) == 2


@CHECKS
def trainer_comes_back() -> None:
    """The A that was raised before may be skipped; the next one is approved."""
    cluster = Cluster()
    at_work = cluster.server.idle
    _trainer_is_away(cluster.server)
    assert cluster_pass(cluster).reason is Reason.TRAINER_BEHIND
    cluster.server.idle = at_work
    cluster.trainer_acts()
    outcome = cluster_pass(cluster)
    assert (outcome.result, outcome.count) == (Result.ADMITTED, 2)
    cluster.admit()
    counts_only_grow(cluster)


def _between(change: str) -> None:
    """Something happens while the pass waits for Trainer: the evidence is read again, and it is not Ready."""
    server = scene()
    carries = server.idle

    def meanwhile(request: Watch) -> bool:
        if count(server, NAME) != 2 or not carries(request):
            return False
        if change == "pod":
            server.put(objects.pod(count=1))
        elif change == "JobSet":
            server.edit(JOBSETS, NAME, lambda body: body["spec"].update(suspend=False))
        elif change == "Job":
            server.put(objects.job(1, suspend=False, started=True, active=1, status={"Suspended": False}))
        elif change == "ended pod with a higher A":
            server.put(objects.pod("Succeeded", containers=("terminated",), count=5))
        elif change == "Job with the new A":
            server.put(objects.job(2, status={"Suspended": True}))
        else:
            server.remove(JOBS, f"{NAME}-node-0")
        return True

    server.idle = meanwhile
    outcome = run_pass(server)
    assert outcome.result is Result.WAITING, outcome
    assert our_entry(server.read(WORKLOADS, WORKLOAD))["state"] == "Pending"
    assert count(server, NAME) == 2


for _change in ("pod", "ended pod with a higher A", "JobSet", "Job", "Job with the new A", "Job taken away"):
    CHECKS.add(f"meanwhile: {_change}", partial(_between, _change))


@CHECKS
def a_jobset_that_is_replaced_meanwhile_never_counts() -> None:
    """The new JobSet carries the new A from the start, but nothing is known of its Jobs."""
    server = scene()

    def meanwhile(_: Watch) -> bool:
        body = objects.jobset(2, uid="uid-later")
        changed: bool = server.read(JOBSETS, NAME)["metadata"]["uid"] != "uid-later"
        if changed:
            server.remove(JOBSETS, NAME)
            server.put(body)
        return changed

    server.idle = meanwhile
    outcome = run_pass(server)
    assert (outcome.result, outcome.reason) == (Result.WAITING, Reason.STILL_RUNNING)


@CHECKS
def every_page_of_reads_comes_after_the_workload() -> None:
    """The Workload first, then the owner, and the pods last; and the same evidence again after the raise."""
    server = scene()
    run_pass(server)
    seen = [getattr(request, "resource", None) for request in server.requests[:11]]
    plurals = [found.plural for found in seen if found is not None]
    evidence = ["jobsets", "jobs", "pods"]
    assert plurals == ["workloads", "trainjobs", *evidence, "trainjobs", "jobsets", *evidence, "workloads"]


@CHECKS
def pods_are_found_by_the_jobsets_name_in_the_namespace() -> None:
    server = scene()
    run_pass(server)
    lists = {request for request in server.requests if isinstance(request, List)}
    assert {(found.namespace, found.selector) for found in lists} == {(TEAM, f"jobset.sigs.k8s.io/jobset-name={NAME}")}


def _spent(expected: Result, status: dict[str, bool | str], ready_at: str, at: str = "2026-01-01T00:00:30Z") -> None:
    """A Ready at `ready_at`, beside conditions of the time `at`."""
    server = scene(workload=objects.workload(status, checks=[check_state(state="Ready", time=ready_at)], time=at))
    outcome = run_pass(server)
    assert outcome.result is expected, outcome
    if expected is Result.TAKEN_BACK:
        assert len(server.writes) == 1
        entry = our_entry(server.read(WORKLOADS, WORKLOAD))
        assert entry["state"] == "Pending"
        assert count(server, NAME) == 1
        again = run_pass(server)
        assert again.result is (Result.NOTHING if not status.get("QuotaReserved") else Result.ADMITTED)


_EARLY, _SAME, _LATE = (f"2026-01-01T00:00:{second}Z" for second in (29, 30, 31))
_BACK = {"QuotaReserved": True, "Admitted": False, "Evicted": False}
_SPENT_ROWS: dict[str, tuple[Result, dict[str, bool | str], str]] = {
    "the reservation is gone": (Result.TAKEN_BACK, {"QuotaReserved": False}, _LATE),
    "an admission came and went since": (Result.TAKEN_BACK, dict(_BACK), _EARLY),
    "an admission went in the same second": (Result.TAKEN_BACK, dict(_BACK), _SAME),
    "its time cannot be read": (Result.TAKEN_BACK, dict(_BACK), "soon"),
    "set for this reservation, after an earlier admission": (Result.NOTHING, dict(_BACK), _LATE),
    "set for this reservation, the first": (Result.NOTHING, {"QuotaReserved": True}, _EARLY),
    "admitted": (Result.NOTHING, {"QuotaReserved": True, "Admitted": True}, _EARLY),
    "finished": (Result.NOTHING, {"QuotaReserved": False, "Finished": True}, _EARLY),
}
for _name, (_result, _status, _time) in _SPENT_ROWS.items():
    CHECKS.add(f"a Ready is spent or not: {_name}", partial(_spent, _result, _status, _time))


@CHECKS
def a_spent_ready_of_a_workload_that_is_being_deleted_stays() -> None:
    checks = [check_state(state="Ready")]
    server = scene(workload=objects.workload({"QuotaReserved": False}, checks=checks, deleting=True))
    assert run_pass(server).result is Result.NOTHING


@CHECKS
def a_stray_ready_does_not_serve_the_next_execution() -> None:
    """Somebody's Ready survives an eviction; Kueue has no reservation yet: it goes back to Pending first."""
    cluster = Cluster()
    cluster_pass(cluster)
    cluster.admit()
    cluster.begin_eviction()
    cluster.server.edit(
        WORKLOADS, WORKLOAD, lambda body: body["status"]["admissionChecks"][0].update(state="Ready", message="stray")
    )
    assert cluster_pass(cluster).result is Result.NOTHING
    cluster.suspend()
    cluster.clear_quota()
    cluster.end_pods()
    assert cluster_pass(cluster).result is Result.TAKEN_BACK
    cluster.reserve()
    assert cluster.executions == [1]
    assert cluster_pass(cluster).result is Result.ADMITTED
    cluster.admit()
    assert cluster.executions == [1, 2]


def _later(second: int) -> None:
    """Rule 2 tells a fresh Ready from a spent one by these two times, whatever our own clock says."""
    cluster = Cluster(second=second)
    for _ in range(3):
        cluster_pass(cluster)
        cluster.admit()
        cluster.evict()
        assert cluster_pass(cluster).result is Result.ADMITTED
        assert cluster_pass(cluster).result is Result.NOTHING
    counts_only_grow(cluster)


CHECKS.add("a fresh Ready is later than the last admission", partial(_later, 1))
CHECKS.add("a fresh Ready is later than the last admission, within one second", partial(_later, 0))


@CHECKS
def check_put_back_on_the_queue_beside_a_running_job() -> None:
    """Pending, reserved and Admitted: the job runs, and A must not move under it."""
    cluster = Cluster()
    cluster_pass(cluster)
    cluster.admit()
    cluster.server.edit(WORKLOADS, WORKLOAD, lambda body: body["status"].update(admissionChecks=[]))
    assert cluster_pass(cluster).result is Result.NOTHING
    cluster.server.edit(WORKLOADS, WORKLOAD, lambda body: body["status"].update(admissionChecks=[check_state()]))
    written = len(cluster.server.writes)
    assert cluster_pass(cluster).result is Result.NOTHING
    assert (len(cluster.server.writes), count(cluster.server, NAME)) == (written, 1)


@CHECKS
def others_entries_stay_as_they_are() -> None:
    """BL-21: unknown fields and the order are kept; a change by another controller meanwhile is a conflict."""
    other: JsonObject = {"name": "prov-test", "state": "Ready", "message": "", "lastTransitionTime": objects.T0}
    other |= {"podSetUpdates": [{"name": "node", "labels": {"a": "b"}}], "retryCount": 2, "unheardOf": {"x": [1]}}
    server = scene(workload=objects.workload(checks=[other, check_state(), check_state("z")]))
    process = Process(server, readmit(TEAM, WORKLOAD, OURS))
    for _ in range(10):
        process.step()

    def retry(body: JsonObject) -> None:
        body["status"]["admissionChecks"][0]["state"] = "Retry"

    server.edit(WORKLOADS, WORKLOAD, retry)
    assert process.finish().result is Result.CONFLICT
    before = server.read(WORKLOADS, WORKLOAD)["status"]
    assert run_pass(server).result is Result.ADMITTED
    after = server.read(WORKLOADS, WORKLOAD)["status"]
    assert [entry["name"] for entry in after["admissionChecks"]] == ["prov-test", CHECK, "z"]
    assert [before["admissionChecks"][index] for index in (0, 2)] == [
        after["admissionChecks"][index] for index in (0, 2)
    ]
    assert before["conditions"] == after["conditions"]
    assert '"dispatch.phpboyscout.uk/admission-count": "3"' in json.dumps(server.read(TRAINJOBS, NAME))


def _refused(error: DeniedError | InvalidError) -> None:
    """The raise is refused, as by a webhook: a wait that quotes it, said once."""
    server = scene()

    def refuse(request: Request) -> None:
        if isinstance(request, Replace):
            raise error

    server.before = refuse
    waits(server, Reason.REFUSED, "the webhook said no")


CHECKS.add("refused: 403", partial(_refused, DeniedError("the webhook said no", status=403)))
CHECKS.add("refused: 422", partial(_refused, InvalidError("the webhook said no", status=422)))


def _ready_refused(error: DeniedError | InvalidError) -> None:
    """Ready is refused, as by a policy: a wait that quotes it, said once, and a next try with an A of its own."""
    server = scene()

    def refuse(request: Request) -> None:
        if isinstance(request, ReplaceStatus) and our_entry(request.body)["state"] == "Ready":
            raise error

    server.before = refuse
    for expected in (2, 3):
        outcome = run_pass(server)
        assert (outcome.result, outcome.reason) == (Result.WAITING, Reason.REFUSED)
        assert "the policy said no" in our_entry(server.read(WORKLOADS, WORKLOAD))["message"]
        assert count(server, NAME) == expected
    assert [type(entry.request) for entry in server.writes] == [Replace, ReplaceStatus, Replace]
    server.before = lambda _: None
    assert run_pass(server).result is Result.ADMITTED
    assert count(server, NAME) == 4


CHECKS.add("Ready refused: 403", partial(_ready_refused, DeniedError("the policy said no", status=403)))
CHECKS.add("Ready refused: 422", partial(_ready_refused, InvalidError("the policy said no", status=422)))


@CHECKS
def held_and_released() -> None:
    server = scene(trainjob=objects.trainjob(held=True))
    waits(server, Reason.HELD)
    server.edit(TRAINJOBS, NAME, lambda body: body["metadata"].update(annotations={}))
    assert run_pass(server).result is Result.ADMITTED
    assert count(server, NAME) == 2


@CHECKS
def an_administrators_gate_is_taken_away() -> None:
    server = scene(trainjob=objects.trainjob(gates="a.io/x"))
    waits(server, Reason.GATED, "a.io/x")
    server.edit(TRAINJOBS, NAME, lambda body: body["metadata"].update(annotations={}))
    assert run_pass(server).result is Result.ADMITTED


@CHECKS
def a_workload_that_is_gone() -> None:
    server = scene()
    server.remove(WORKLOADS, WORKLOAD)
    assert run_pass(server).result is Result.NOTHING
    assert server.writes == []


@CHECKS
def a_workload_made_anew_under_the_same_name() -> None:
    """Kueue replaces the Workload between read and write: the old pass conflicts, the next one looks at the new."""
    server = scene()
    process = Process(server, readmit(TEAM, WORKLOAD, OURS))
    for _ in range(10):
        process.step()
    server.remove(WORKLOADS, WORKLOAD)
    server.put(objects.workload(RESERVED, uid="uid-later"))
    assert process.finish().result is Result.CONFLICT
    assert run_pass(server).result is Result.ADMITTED
    assert count(server, NAME) == 3


@CHECKS
def one_of_eight_checks() -> None:
    """As many as a Workload can have, in every state: ours alone changes, and it waits for none of the others."""
    states = ("Ready", "Pending", "Retry", "Rejected", "Ready", "Pending", "Retry")
    others = [check_state(f"check-{number}", state) for number, state in enumerate(states)]
    server = scene(workload=objects.workload(checks=[*others[:5], check_state(), *others[5:]]))
    assert run_pass(server).result is Result.ADMITTED
    entries = server.read(WORKLOADS, WORKLOAD)["status"]["admissionChecks"]
    assert [entry for entry in entries if entry["name"] != CHECK] == others
    assert (entries[5]["name"], entries[5]["state"]) == (CHECK, "Ready")


@CHECKS
def a_workload_that_is_made_anew_while_a_pass_is_under_way() -> None:
    """Same name, another UID, as after a change of the runtime: at no moment is anything written to the new one."""
    for stop in range(1, 11):
        server = scene()
        process = Process(server, readmit(TEAM, WORKLOAD, OURS))
        for _ in range(stop):
            process.step()
        server.remove(WORKLOADS, WORKLOAD)
        server.put(objects.workload(uid="uid-anew"))
        assert process.finish().result is Result.CONFLICT, stop
        anew = server.read(WORKLOADS, WORKLOAD)
        assert (anew["metadata"]["uid"], our_entry(anew)["state"]) == ("uid-anew", "Pending"), stop
        before = count(server, NAME)
        assert run_pass(server).result is Result.ADMITTED
        assert count(server, NAME) == before + 1


@CHECKS
def two_checks_of_ours_on_one_queue() -> None:
    """Each is served in its turn; the second Ready has an A of its own, and then nothing is left to do."""
    both = frozenset({CHECK, "dispatch-2"})
    server = scene(workload=objects.workload(checks=[check_state(), check_state("dispatch-2")]))
    for expected in (2, 3):
        outcome = server.run(readmit(TEAM, WORKLOAD, both))
        assert (outcome.result, outcome.count) == (Result.ADMITTED, expected)
    assert [entry["state"] for entry in server.read(WORKLOADS, WORKLOAD)["status"]["admissionChecks"]] == ["Ready"] * 2
    assert server.run(readmit(TEAM, WORKLOAD, both)).result is Result.NOTHING


def _may_not_look(kind: str) -> None:
    """The right to read a part of the evidence is taken away: a wait that says so, said once."""
    server = scene()

    def refuse(request: Request) -> None:
        if getattr(request, "resource", None) is not None and request.resource.kind == kind:  # type: ignore[union-attr]
            raise DeniedError("pods is forbidden", status=403)

    server.before = refuse
    waits(server, Reason.STILL_RUNNING, "no right to look", "forbidden")


for _kind in ("JobSet", "Job", "Pod"):
    CHECKS.add(f"may not look at: {_kind}", partial(_may_not_look, _kind))


@CHECKS
def only_the_check_with_our_controller_name_is_ours() -> None:
    for controller in ("kueue.x-k8s.io/provisioning-request", "", "dispatch.phpboyscout.uk/admission2"):
        server = ApiServer(objects.admission_check(controller=controller))
        assert not is_ours(objects.admission_check(controller=controller))
        assert server.run(activate(CHECK, objects.T0)) is False
        assert server.writes == []
    assert is_ours(objects.admission_check())


@CHECKS
def our_check_is_set_active_once() -> None:
    """BL-37 (5): a conflict with Kueue's finalizer is read again; others' conditions stay."""
    other = objects.condition("Other", True)
    server = ApiServer(objects.admission_check(conditions=[other]))
    conflicts = iter([True])

    def finalizer(request: Request) -> None:
        if isinstance(request, ReplaceStatus) and next(conflicts, False):
            server.edit(ADMISSION_CHECKS, CHECK, lambda body: body["metadata"].update(finalizers=["kueue"]), "")

    server.before = finalizer
    assert server.run(activate(CHECK, objects.T0)) is True
    found = server.read(ADMISSION_CHECKS, CHECK, "")
    assert found["metadata"]["finalizers"] == ["kueue"]
    assert [entry["type"] for entry in found["status"]["conditions"]] == ["Other", "Active"]
    assert found["status"]["conditions"][1]["status"] == "True"
    assert found["status"]["conditions"][1]["observedGeneration"] == 1
    assert server.run(activate(CHECK, "2026-02-02T00:00:00Z")) is False
    assert len(server.writes) == 1
