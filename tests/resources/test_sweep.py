"""The opening of many jobs at once.

Covered, without an engine: what is refused, what is a change, what is opened of a list that has changed. On the real
engine and a real cluster: nothing is opened before all jobs are recorded; a second run changes nothing and writes
nothing; jobs and submissions that come to the list are opened, and no other; a job that was opened is not opened again
as another TrainJob, be it that it left the list; one that cannot be opened; the provider and the engine cut off
half-way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dispatch_gates.contract.names import TRAINJOBS, ULID_LABEL
from dispatch_gates.contract.trainjob import TrainJob, parse_trainjob
from dispatch_gates.resources import GatedTrainJob, JobIdentity, SweepOpening
from dispatch_gates.resources._running import GatesError
from dispatch_gates.resources.job_opening import JobOpeningProvider
from dispatch_gates.resources.sweep_opening import SweepOpeningProvider
from resources.cutting import Cut, Watched
from resources.programs import inputs, jobs_of, remains_of
from resources.records import Records, has
from resources.requests_log import RequestsLog
from resources.stacks import PROJECT, Program, Stack
from resources.test_checks import OTHER_ULID, UNKNOWN, opening
from resources.test_crashes import HOWS, has_ended, try_to
from world import World, until

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <coroutine object run_in_stack:pytest.PytestUnraisableExceptionWarning"
    ),
]


# What is asked, without an engine.


def listed(*jobs: Any) -> dict[str, Any]:
    return {"jobs": list(jobs), "__provider": "x"}


OTHER = opening(ulid=OTHER_ULID, uid="u-7")
HERE, THERE = f"team-a/{opening()['name']}", f"team-a/{OTHER['name']}"


def second(**changes: Any) -> dict[str, Any]:
    return opening(**{"submission": 2.0, "uid": "u-2", **changes})


def refused(olds: Mapping[str, Any], news: dict[str, Any]) -> list[str]:
    result = SweepOpeningProvider().check(dict(olds), news)
    assert {failure.property for failure in result.failures} <= {"jobs"}
    return [failure.reason for failure in result.failures]


def test_submission_that_was_opened_is_not_opened_for_another_object() -> None:
    (why,) = refused(listed(OTHER, opening()), listed(opening(uid="u-2"), OTHER))
    assert why.startswith(f"{HERE}: submission 1 was opened already, as the TrainJob of uid u-1")
    for news in (
        listed(second()),
        listed(opening(uid=UNKNOWN)),
        listed(opening(uid="u-2", ulid=UNKNOWN)),
        listed(UNKNOWN),
        {"jobs": UNKNOWN},
    ):
        assert refused(listed(opening()), news) == []
    assert refused({}, listed(opening(uid="u-2"))) == []


def test_what_left_the_list_is_not_opened_for_another_object() -> None:
    """The old inputs know nothing of it, the record does."""
    provider, olds = SweepOpeningProvider(), {**listed(), "opened": {HERE: "u-1"}, "already": [], "held_by": {}}
    with pytest.raises(GatesError, match="submission 1 was opened already, as the TrainJob of uid u-1"):
        provider.update("id", olds, listed(opening(uid="u-2")))
    outs = provider.update("id", olds, listed(opening())).outs
    assert outs == {"jobs": [opening()], "opened": {HERE: "u-1"}, "already": [], "held_by": {}}


def test_a_job_is_listed_once() -> None:
    assert refused({}, listed(opening(), OTHER, opening())) == [f"{HERE} is there twice"]
    assert refused({}, listed(opening(), opening(namespace="team-b"))) == []


def test_a_job_that_was_left_out_of_the_run_is_not_opened_as_its_next_submission() -> None:
    left_out = opening(submission=2.0, name=opening()["name"])
    assert "its job is" in refused({}, listed(left_out))[0]
    assert "its job is" in JobOpeningProvider().check({}, left_out).failures[0].reason


def test_without_checkpoints_nothing_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_SKIP_CHECKPOINTS", "true")
    with pytest.raises(GatesError, match="jobs: PULUMI_SKIP_CHECKPOINTS is set"):
        SweepOpeningProvider().create(listed(opening()))


@pytest.mark.parametrize(
    ("news", "changed"),
    [
        (listed(opening(), OTHER), False),
        (listed(OTHER, opening()), False),
        (listed(opening(submission=1), OTHER), False),
        (listed(opening()), True),
        (listed(opening(), OTHER, second()), True),
        (listed(second(), OTHER), True),
        (listed(opening(uid=UNKNOWN, name=UNKNOWN, cluster=UNKNOWN), OTHER), True),
        (listed(opening(context="other"), OTHER), True),
        (listed(opening(ulid=UNKNOWN), OTHER), True),
        (listed(UNKNOWN, OTHER), True),
        ({"jobs": UNKNOWN}, True),
    ],
    ids=str,
)
def test_it_changes_with_its_jobs_and_is_never_replaced(news: dict[str, Any], changed: bool) -> None:
    """A replacement would lose what was opened: the same submission could be opened again."""
    result = SweepOpeningProvider().diff(
        "id", {**listed(opening(), OTHER), "opened": {HERE: "u-1", THERE: "u-7"}}, news
    )
    assert (result.changes, result.replaces) == (changed, [])


def test_what_was_seen_is_kept_of_the_jobs_that_are_listed() -> None:
    """Nothing comes to the list, so that no cluster is asked. What was opened is kept of all."""
    opened = {HERE: "u-1", THERE: "u-7"}
    seen = {"opened": opened, "already": sorted(opened), "held_by": {THERE: ["a/b"], HERE: ["c/d"]}}
    outs = SweepOpeningProvider().update("id", {**listed(opening(), OTHER), **seen}, listed(OTHER)).outs
    assert outs == {"jobs": [OTHER], "opened": opened, "already": [THERE], "held_by": {THERE: ["a/b"]}}


# On the real engine.


def sweep(given: dict[str, Any], *keys: str, opened: bool = True, swept: str = "", **submissions: int) -> Program:
    """Return a program of a sweep of one job a key, each in its first submission unless another is given.

    `swept`: the keys of those that the opening lists; default: all.
    """

    def program() -> None:
        identity = JobIdentity("sweep")
        jobs = {
            key: GatedTrainJob(key, ulid=identity.of(key), **{**given, "submission": submissions.get(key, 1)})
            for key in keys
        }
        if opened:
            SweepOpening("sweep", jobs=[job for key, job in jobs.items() if key in (swept or keys)])

    return program


def by_key(world: World, stack: Stack) -> dict[str, TrainJob]:
    """Return the TrainJobs of a stack by the names of their resources."""
    ulids = {resource["outputs"]["ulid"]: resource["urn"] for resource in stack.resources("GatedTrainJob")}
    jobs = [parse_trainjob(raw) for raw in jobs_of(world, stack)]
    return {ulids[job.meta.labels[ULID_LABEL]].rpartition("::")[2]: job for job in jobs}


def uids(jobs: Mapping[str, TrainJob]) -> dict[str, str]:
    return {key: job.meta.uid for key, job in jobs.items()}


def assert_recorded(stack: Stack, jobs: Mapping[str, TrainJob]) -> None:
    """Assert that the state has these jobs, each opened, and nothing half done."""
    there = {*uids(jobs).values()}
    assert {entry["uid"] for entry in stack.outputs("SweepOpening")["jobs"]} == there
    assert {entry["outputs"]["uid"] for entry in stack.resources("GatedTrainJob")} == there
    assert not any(job.gates.closed for job in jobs.values())
    assert stack.pending() == []


def test_engine_killed(world: World, stack: Stack, tmp_path: Path) -> None:
    """Runs that are cut off come first here: what the SDK leaves of them is collected a while later, and told of."""
    program = sweep(inputs(world), "a", "b", "c")
    watched = Watched(Cut("replace trainjobs 2", "engine killed"), tmp_path)
    assert try_to(lambda: stack.up(program, **watched.environment))
    provider = watched.provider()
    until("the end of the provider", lambda: has_ended(provider))
    before = by_key(world, stack)
    stack.cancel()
    stack.up(program)
    stack.refresh(clear_pending_creates=True)  # of which the engine never learnt the end
    after = by_key(world, stack)
    assert uids(after) == uids(before)
    assert_recorded(stack, after)
    stack.destroy()


CUTS: Sequence[str] = (
    "before replace trainjobs 1",
    "after replace trainjobs 2",
    "lost replace trainjobs 3",
    "before get trainjobs 8",
)


@pytest.mark.parametrize("text", CUTS)
def test_cut_off(text: str, world: World, stack: Stack, tmp_path: Path) -> None:
    """Each of the three is read by Start, by the look before the first is opened, and when it is opened."""
    program, log = sweep(inputs(world), "a", "b", "c"), RequestsLog(world)
    how, _, place = text.partition(" ")
    watched = Watched(Cut(place, HOWS[how]), tmp_path)
    failed = try_to(lambda: stack.up(program, **watched.environment))
    assert watched.noted()
    before = by_key(world, stack)
    assert sorted(before) == ["a", "b", "c"]
    assert failed is (stack.resources("SweepOpening") == [])
    assert failed or how == "lost"
    stack.up(program)
    after = by_key(world, stack)
    assert uids(after) == uids(before)
    assert_recorded(stack, after)
    assert log.created(f"{PROJECT}/{stack.name}/") == {job.meta.name: 1 for job in after.values()}
    stack.destroy()
    assert jobs_of(world, stack) == []


def test_one_that_cannot_be_opened_keeps_all_that_are_new_closed(world: World, stack: Stack) -> None:
    """All or none, since nothing is recorded of an opening that failed."""
    given = inputs(world)
    stack.up(sweep(given, "a", "b", opened=False))
    jobs = by_key(world, stack)
    world.delete(TRAINJOBS, jobs["a"].meta.name)
    until("the job to be gone", lambda: not remains_of(jobs["a"], world))
    where = f"{world.namespace}/{jobs['a'].meta.name}"
    printed = stack.up_fails(sweep(given, "a", "b"))
    assert (
        f"1 of 2 jobs cannot be opened, and so none was: TrainJob {where} (uid {jobs['a'].meta.uid}) is gone" in printed
    )
    assert by_key(world, stack)["b"].gates.ours
    assert stack.resources("SweepOpening") == []

    stack.refresh()
    stack.up(sweep(given, "a", "b"))
    now = by_key(world, stack)
    assert (now["a"].meta.uid != jobs["a"].meta.uid, now["b"].meta.uid == jobs["b"].meta.uid) == (True, True)
    assert_recorded(stack, now)

    # The same where it is there already, and of the jobs that come to its list one cannot be opened.
    stack.up(sweep(given, "a", "b", "c", "d", swept="ab"))
    came = by_key(world, stack)
    assert (came["c"].gates.ours, came["d"].gates.ours) == (True, True)
    world.delete(TRAINJOBS, came["c"].meta.name)
    until("the job to be gone", lambda: not remains_of(came["c"], world))
    assert "1 of 2 jobs cannot be opened, and so none was" in stack.up_fails(sweep(given, "a", "b", "c", "d"))
    assert by_key(world, stack)["d"].gates.ours

    # What leaves the list and comes back as another object is not opened again, and keeps the new ones closed.
    stack.refresh()
    stack.up(sweep(given, "b", "c", "d", swept="b"))
    printed = stack.up_fails(sweep(given, "a", "b", "c", "d"))
    assert f"{where}: submission 1 was opened already" in printed
    assert {key for key, job in by_key(world, stack).items() if job.gates.ours} == {"a", "c", "d"}
    stack.up(sweep(given, "a", "b", "c", "d", a=2))
    assert_recorded(stack, by_key(world, stack))
    assert len(stack.outputs("SweepOpening")["opened"]) == 5
    stack.destroy()


def test_the_life_of_a_sweep(world: World, stack: Stack) -> None:
    given, log = inputs(world), RequestsLog(world)
    program = sweep(given, "a", "b", "c")
    assert stack.preview(program, KUBECONFIG="/nowhere/kubeconfig") == {"create": 6}
    with Records(stack) as records:
        assert stack.up(program)["create"] == 6
    first = by_key(world, stack)
    assert_recorded(stack, first)
    recorded = [records.first(has("GatedTrainJob", uid=job.meta.uid)) for job in first.values()]
    opened = [log.received("update", job.meta.name) for job in first.values()]
    assert max(recorded) < min(opened), "nothing is opened before all are recorded"
    assert (stack.outputs("SweepOpening")["already"], stack.outputs("SweepOpening")["held_by"]) == ([], {})

    log = RequestsLog(world)
    assert stack.up(program).unchanged
    assert stack.up(sweep(given, "c", "a", "b")).unchanged, "in another order"
    stack.refresh()
    assert stack.up(program).unchanged
    assert log.writes() == []

    # One comes, one goes on to its next submission, one goes.
    log = RequestsLog(world)
    assert stack.up(sweep(given, "a", "b", "d", b=2))["update"] == 1
    second = by_key(world, stack)
    assert sorted(second) == ["a", "b", "d"]
    assert_recorded(stack, second)
    updates = [line for line in log.writes(refused=False) if line.startswith("update trainjobs")]
    assert sorted(updates) == sorted(f"update trainjobs {second[key].meta.name}" for key in "bd")
    assert second["a"].meta.uid == first["a"].meta.uid

    # What was opened and is gone is not opened again as another object; its next submission is.
    world.delete(TRAINJOBS, second["a"].meta.name)
    until("the job to be gone", lambda: not remains_of(second["a"], world))
    stack.refresh()
    printed = stack.up_fails(sweep(given, "a", "b", "d", b=2))
    assert "submission 1 was opened already" in printed
    assert "Traceback" not in printed
    assert by_key(world, stack)["a"].gates.ours
    stack.up(sweep(given, "a", "b", "d", a=2, b=2))
    assert_recorded(stack, by_key(world, stack))

    stack.destroy()
    assert stack.resources() == jobs_of(world, stack) == []
