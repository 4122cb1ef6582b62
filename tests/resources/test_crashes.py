"""A run cut off at each request of create, update and delete; then the plain next run.

Covered: the provider killed before a request is sent and once it was applied, or left alone with a lost answer; the
engine killed; Ctrl-C, once and twice. After each there is one TrainJob at the most, closed until it is recorded and
opened; the next run ends with exactly one, recorded, and open or held as asked; and the next destroy with none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from dispatch_gates.contract.trainjob import parse_trainjob
from resources.cutting import Cut, How, Watched
from resources.programs import component, inputs, job_of, jobs_of
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
mode  | create and open                       | hold                       | release                    | delete
kueue | after preflight create trainjobs 1    | before get trainjobs 1     | after list workloads 1     | before get trainjobs 1
kueue | before create trainjobs 1             | before replace trainjobs 1 | before replace workloads 1 | before delete trainjobs 1
kueue | after create trainjobs 1              | after replace trainjobs 1  | after replace workloads 1  | after delete trainjobs 1
kueue | lost create trainjobs 1               | lost replace trainjobs 1   | lost replace workloads 1   | lost delete trainjobs 1
kueue | lost get trainjobs 1                  | before list workloads 1    | before replace trainjobs 1 | before get jobsets 1
kueue | after list workloads 1                | before replace workloads 1 | after replace trainjobs 1  | after list jobs 1
kueue | before replace trainjobs 1            | after replace workloads 1  | lost replace trainjobs 1   | lost list pods 1
kueue | after replace trainjobs 1             | lost replace workloads 1   | before list pods 1         | before list pods 1
plain | after list pods 1                     | before replace trainjobs 1 | before list pods 1         | after delete trainjobs 1
plain | before replace trainjobs 1            | after replace trainjobs 1  | before replace trainjobs 1 | before list jobs 1
plain | after replace trainjobs 1             | lost replace trainjobs 1   | after replace trainjobs 1  | after list pods 1
"""  # noqa: E501 # a table
"""Each line is a job's life, and where its four runs are cut off."""


@dataclass(frozen=True)
class Life:
    """The places at which the four runs of a job's life are cut off."""

    mode: str
    create: Cut
    hold: Cut
    release: Cut
    delete: Cut

    def __str__(self) -> str:
        return f"{self.mode}: {self.create}"


def lives() -> list[Life]:
    """Read the table."""
    rows = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()[1:]]
    return [Life(mode, *(cut(cell) for cell in cells)) for mode, *cells in rows]


def cut(text: str) -> Cut:
    """Read a cut as the table spells it."""
    how, _, place = text.partition(" ")
    return Cut(place, HOWS[how])


@pytest.mark.parametrize("life", lives(), ids=str)
def test_cut_off(life: Life, world: World, stack: Stack, tmp_path: Path) -> None:
    given = inputs(world, queue=None if life.mode == "plain" else "queue")
    plain, held, released = component(given), component(given, hold=True), component(given, hold=False)
    log = RequestsLog(world)

    attempt(stack, plain, life.create, tmp_path)
    left = jobs_of(world, stack)
    assert len(left) <= 1
    assert all(not parse_trainjob(job).past_gate for job in left) or stack.resources("GatedTrainJob")
    stack.up(plain)
    job = job_of(world, stack)
    assert (job.past_gate, job.held) == (True, False)
    assert [job.meta.uid] == [found["metadata"]["uid"] for found in left or jobs_of(world, stack)]
    assert_recorded(stack, world)

    attempt(stack, held, life.hold, tmp_path)
    stack.up(held)
    assert (job_of(world, stack).held, stack.outputs("GatedTrainJob")["held"]) == (True, True)
    attempt(stack, released, life.release, tmp_path)
    stack.up(released)
    assert (job_of(world, stack).held, stack.outputs("GatedTrainJob")["held"]) == (False, False)
    assert job_of(world, stack).meta.uid == job.meta.uid
    assert_recorded(stack, world)

    watched = Watched(life.delete, tmp_path)
    try_to(lambda: stack.destroy(**watched.environment))
    watched.provider()
    stack.destroy()
    assert stack.resources() == jobs_of(world, stack) == []
    assert world.pods_of(job) == ()
    assert log.created(f"{PROJECT}/{stack.name}/") == {job.meta.name: 1}


def attempt(stack: Stack, program: Program, cut: Cut, folder: Path) -> None:
    """Run `pulumi up`, cut off; with a lost answer it may end well all the same."""
    watched = Watched(cut, folder)
    failed = try_to(lambda: stack.up(program, **watched.environment))
    watched.provider()
    assert failed or cut.how == "reply lost", f"the run ended well, {cut}"


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


def assert_recorded(stack: Stack, world: World) -> None:
    """Assert that the state has the job that there is, and nothing half done."""
    job = job_of(world, stack)
    assert stack.outputs("GatedTrainJob")["uid"] == stack.outputs("JobOpening")["uid"] == job.meta.uid
    assert stack.pending() == []


@pytest.mark.parametrize("place", ["create trainjobs 1", "replace trainjobs 1"])
def test_engine_killed(place: str, world: World, stack: Stack, tmp_path: Path) -> None:
    """The engine leaves a lock behind; what to do about it, it says itself."""
    program = component(inputs(world))
    watched = Watched(Cut(place, "engine killed"), tmp_path)
    assert try_to(lambda: stack.up(program, **watched.environment))
    provider = watched.provider()
    assert "pulumi cancel" in stack.up_fails(program)
    until("the end of the provider", lambda: has_ended(provider))
    (left,) = jobs_of(world, stack)
    stack.cancel()
    stack.up(program)
    assert job_of(world, stack).meta.uid == left["metadata"]["uid"]
    assert not job_of(world, stack).gates.closed
    assert stack.outputs("JobOpening")["uid"] == left["metadata"]["uid"]
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
