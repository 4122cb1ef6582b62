"""Runs cut off at requests of create, update, replacement and delete; after each, the plain next run.

Covered: the provider killed before a request is sent and once it was answered, or left alone with a lost answer, at the
places in TABLE: every write of a create, a hold, a release, a new submission and a delete, and every write that follows
the create where it is held from the start, in one way at least; every kind of read in one of these runs; the create of
preflight's probe. `soak_crashes`: each request of these runs, in each way. Left out are watches, since how many there
are depends on others; each follows a read after which runs are cut off. The engine killed: at the create, at the
opening, and at the delete and the create of a new submission. Ctrl-C, once and twice: at the create.

After each there is one TrainJob at the most, closed until it is recorded, and held where it is created so; the next run
ends with exactly one, recorded, and open or held as asked. A new submission begins when nothing of the old one is left.
After the next destroy there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.contract.trainjob import parse_trainjob
from resources.cutting import UNCUT, Cut, How, Watched
from resources.programs import component, inputs, job_of, jobs_of, remains_of
from resources.requests_log import RequestsLog
from resources.stacks import PROJECT, Program, RunFailedError, Stack
from world import World, until

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <coroutine object run_in_stack:pytest.PytestUnraisableExceptionWarning"
    ),
]


HOWS: Mapping[str, How] = {"before": "killed before", "after": "killed after", "lost": "reply lost"}
TABLE = """
job         | create                                | hold                       | release                    | next submission             | delete
kueue       | after preflight create trainjobs 1    | before get trainjobs 1     | after list workloads 1     | before delete trainjobs 1   | before get trainjobs 1
kueue       | before create trainjobs 1             | before replace trainjobs 1 | before replace workloads 1 | lost list trainjobs 1       | before delete trainjobs 1
kueue       | after create trainjobs 1              | after replace trainjobs 1  | after replace workloads 1  | after delete trainjobs 1    | after delete trainjobs 1
kueue       | lost create trainjobs 1               | lost replace trainjobs 1   | lost replace workloads 1   | -                           | lost delete trainjobs 1
kueue       | lost get trainjobs 1                  | before list workloads 1    | before replace trainjobs 1 | before create trainjobs 1   | before get jobsets 1
kueue       | after list workloads 1                | before replace workloads 1 | after replace trainjobs 1  | after create trainjobs 1    | after list jobs 1
kueue       | before replace trainjobs 1            | after replace workloads 1  | lost replace trainjobs 1   | lost create trainjobs 1     | lost list pods 1
kueue       | after replace trainjobs 1             | lost replace workloads 1   | before list pods 1         | after replace trainjobs 1   | before list pods 1
kueue       | lost list workloads 1                 | lost get namespaces 1      | -                          | -                           | -
plain       | after list pods 1                     | before replace trainjobs 1 | before list pods 1         | lost list pods 1            | lost get namespaces 1
plain       | before replace trainjobs 1            | after replace trainjobs 1  | before replace trainjobs 1 | after delete trainjobs 1    | before list jobs 1
plain       | after replace trainjobs 1             | lost list pods 1           | after replace trainjobs 1  | before replace trainjobs 1  | after list pods 1
plain       | lost get trainingruntimes 1           | -                          | -                          | -                           | -
kueue, held | after replace trainjobs 1             | -                          | -                          | -                           | -
kueue, held | before replace workloads 1            | -                          | -                          | -                           | -
kueue, held | before list pods 1                    | -                          | -                          | -                           | -
kueue, held | before replace trainjobs 2            | -                          | -                          | -                           | -
plain, held | after replace trainjobs 1             | -                          | -                          | -                           | -
"""  # noqa: E501 # a table
"""Each line is a job's life, and where its runs are cut off. `held`: it is created so, and held by that first run.

A run that no later one needs is left out where it is not cut off.
"""


@dataclass(frozen=True)
class Life:
    """The places at which the runs of a job's life are cut off; None where one is not."""

    job: str
    create: Cut | None
    hold: Cut | None
    release: Cut | None
    submission: Cut | None
    delete: Cut | None

    def __str__(self) -> str:
        return f"{self.job}: {self.create}"


def lives() -> list[Life]:
    """Read the table."""
    rows = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()[1:]]
    return [Life(job, *(cut(cell) for cell in cells)) for job, *cells in rows]


def cut(text: str) -> Cut | None:
    """Read a cut as the table spells it."""
    how, _, place = text.partition(" ")
    return Cut(place, HOWS[how]) if place else None


@pytest.mark.parametrize("life", lives(), ids=str)
def test_cut_off(life: Life, world: World, stack: Stack, tmp_path: Path) -> None:
    live(life, world, stack, tmp_path)


def live(life: Life, world: World, stack: Stack, folder: Path) -> Mapping[str, list[str]]:
    """Live this life; return what was noted of the runs that were cut off, or let through."""
    given = inputs(world, queue=None if life.job.startswith("plain") else "queue")
    held, released = component(given, hold=True), component(given, hold=False)
    created_held = life.job.endswith("held")
    program = held if created_held else component(given)
    log = RequestsLog(world)
    noted: dict[str, list[str]] = {}

    noted["create"] = attempt(stack, program, life.create, folder)
    left = jobs_of(world, stack)
    assert_closed_until_recorded(stack, left)
    stack.up(program)
    job = job_of(world, stack)
    assert (job.past_gate, job.held) == (True, created_held)
    assert [job.meta.uid] == [found["metadata"]["uid"] for found in left or jobs_of(world, stack)]
    assert_recorded(stack, world)
    assert not (created_held and world.pods_of(job)), "it ran"

    if not created_held and (life.hold or life.release):
        noted["hold"] = attempt(stack, held, life.hold, folder)
        stack.up(held)
        assert (job_of(world, stack).held, stack.outputs("GatedTrainJob")["held"]) == (True, True)
    if life.release:
        noted["release"] = attempt(stack, released, life.release, folder)
        stack.up(released)
        assert (job_of(world, stack).held, stack.outputs("GatedTrainJob")["held"]) == (False, False)
    assert job_of(world, stack).meta.uid == job.meta.uid
    assert_recorded(stack, world)

    submissions = [job]
    if life.submission:
        following = component(given, submission=2)
        noted["next submission"] = attempt(stack, following, life.submission, folder)
        left = jobs_of(world, stack)
        begun = [found for found in left if found["metadata"]["uid"] != job.meta.uid]
        if begun:
            assert begun == left, "one TrainJob at the most"
            assert remains_of(job, world) == []
            assert_closed_until_recorded(stack, begun)
        stack.up(following)
        submissions.append(job_of(world, stack))
        assert (submissions[1].meta.name, submissions[1].meta.uid != job.meta.uid) == (f"{job.meta.name[:-1]}2", True)
        assert (submissions[1].past_gate, submissions[1].held) == (True, False)
        assert [submissions[1].meta.uid] == [found["metadata"]["uid"] for found in begun or jobs_of(world, stack)]
        assert remains_of(job, world) == []
        assert_recorded(stack, world)

    if life.delete:
        watched = Watched(life.delete, folder)
        try_to(lambda: stack.destroy(**watched.environment))
        noted["delete"] = watched.noted()
    stack.destroy()
    assert stack.resources() == jobs_of(world, stack) == []
    assert remains_of(submissions[-1], world) == []
    assert log.created(f"{PROJECT}/{stack.name}/") == {found.meta.name: 1 for found in submissions}
    return noted


def attempt(stack: Stack, program: Program, cut: Cut | None, folder: Path) -> list[str]:
    """Run `pulumi up`, cut off; with a lost answer it may end well all the same. Return what was noted."""
    if cut is None:
        return []
    watched = Watched(cut, folder)
    failed = try_to(lambda: stack.up(program, **watched.environment))
    noted = watched.noted()
    assert cut.how == "reply lost" or failed is (cut != UNCUT), f"the run {'failed' if failed else 'ended well'}, {cut}"
    return noted


def try_to(run: Callable[[], object]) -> bool:
    """Run; return whether it failed."""
    try:
        run()
    except RunFailedError:
        return True
    return False


def has_ended(process: int) -> bool:
    """Whether a process has ended, be it that nobody has asked how."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def assert_closed_until_recorded(stack: Stack, jobs: Sequence[JsonObject]) -> None:
    """Assert that there is one TrainJob at the most, and that it is open only if the state has it."""
    assert len(jobs) <= 1
    recorded = {resource["outputs"]["uid"] for resource in stack.resources("GatedTrainJob")}
    assert all(not parse_trainjob(job).past_gate or job["metadata"]["uid"] in recorded for job in jobs)


def assert_recorded(stack: Stack, world: World) -> None:
    """Assert that the state has the job that there is, and nothing half done."""
    job = job_of(world, stack)
    assert stack.outputs("GatedTrainJob")["uid"] == stack.outputs("JobOpening")["uid"] == job.meta.uid
    assert stack.pending() == []


@pytest.mark.parametrize(
    ("submission", "place"),
    [(1, "create trainjobs 1"), (1, "replace trainjobs 1"), (2, "delete trainjobs 1"), (2, "create trainjobs 1")],
)
def test_engine_killed(submission: int, place: str, world: World, stack: Stack, tmp_path: Path) -> None:
    """The engine leaves a lock behind; what to do about it, it says itself."""
    given = inputs(world)
    for earlier in range(1, submission):
        stack.up(component(given, submission=earlier))
    program = component(given, submission=submission)
    watched = Watched(Cut(place, "engine killed"), tmp_path)
    assert try_to(lambda: stack.up(program, **watched.environment))
    provider = watched.provider()
    assert "pulumi cancel" in stack.up_fails(program)
    until("the end of the provider", lambda: has_ended(provider))
    left = [found["metadata"]["uid"] for found in jobs_of(world, stack)]
    assert len(left) == (not place.startswith("delete"))
    stack.cancel()
    stack.up(program)
    job = job_of(world, stack)
    assert job.meta.name.endswith(f"-s{submission}")
    assert [job.meta.uid] == left or not left
    assert not job.gates.closed
    assert stack.outputs("JobOpening")["uid"] == stack.outputs("GatedTrainJob")["uid"] == job.meta.uid
    stack.destroy()


@pytest.mark.parametrize("how", ["interrupted", "interrupted twice"])
def test_ctrl_c(how: How, world: World, stack: Stack, tmp_path: Path) -> None:
    """The first lets the create end, and records it; the second leaves what the provider still did without a record."""
    program = component(inputs(world))
    watched = Watched(Cut("create trainjobs 1", how), tmp_path)
    assert try_to(lambda: stack.up(program, **watched.environment))
    provider = watched.provider()
    until("the end of the provider", lambda: has_ended(provider))
    left = jobs_of(world, stack)
    recorded = stack.resources("GatedTrainJob")
    assert stack.resources("JobOpening") == []
    assert all(parse_trainjob(job).gates.ours for job in left)
    if how == "interrupted":
        assert [job["metadata"]["uid"] for job in left] == [recorded[0]["outputs"]["uid"]]
    else:
        assert recorded == []
    done = stack.up(program)
    if stack.pending():  # a create of which the engine never learnt the end stays on its list, and it says so
        assert how == "interrupted twice"
        assert "pulumi refresh" in done.printed
        stack.refresh(clear_pending_creates=True)
    assert_recorded(stack, world)
    assert [job_of(world, stack).meta.uid] == [job["metadata"]["uid"] for job in left or jobs_of(world, stack)]
    assert not job_of(world, stack).gates.closed
    stack.destroy()
