"""The projects of infra/examples, each run by the `pulumi` command on a real cluster with the controller at work.

Covered: what each example is there to show; up, preview, refresh and destroy of an ordinary project by the command;
a second `up`, one with another hash seed, and one after a refresh change nothing and write nothing to the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from dispatch_gates.contract import names
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_infra import __file__ as infra
from resources.projects import Project
from resources.requests_log import RequestsLog
from world import World, count_of, until

EXAMPLES = Path(infra).parent.parent / "examples"


@pytest.fixture
def example(served: World, engine: Mapping[str, str], tmp_path: Path) -> Callable[..., Project]:
    def make(name: str, **config: str) -> Project:
        project = Project(EXAMPLES / name, tmp_path, engine)
        project.set(namespace=served.namespace, runtime="kwok", runtimeKind="TrainingRuntime", **config)
        return project

    return make


def the_job(served: World, project: Project) -> TrainJob:
    return served.job(str(project.output("name")))


def test_every_example_is_run_here() -> None:
    there = {path.parent.name for path in EXAMPLES.glob("*/Pulumi.yaml")}
    text = Path(__file__).read_text()
    assert there == {name for name in there if f'example("{name}"' in text}
    readme = (EXAMPLES / "README.md").read_text()
    assert there == {name for name in there if f"({name}/__main__.py)" in readme}


def test_gated_job(served: World, example: Callable[..., Project]) -> None:
    """Also what an ordinary project needs of the command: preview, up, refresh, destroy."""
    project = example("gated_job", queue="queue")
    log = RequestsLog(served)
    assert "+ 5 to create" in project.pulumi("preview", KUBECONFIG="/nowhere/kubeconfig")
    assert log.writes() == []
    assert "+ 5 created" in project.pulumi("up", "--yes")
    job = the_job(served, project)
    served.running(job, 1)

    log = RequestsLog(served)
    for arguments in (["preview", "--expect-no-changes"], ["up", "--yes", "--expect-no-changes"]):
        assert "5 unchanged" in project.pulumi(*arguments, PYTHONHASHSEED="7")
        assert "5 unchanged" in project.pulumi(*arguments, PYTHONHASHSEED="8")
    project.pulumi("refresh", "--yes")
    assert "5 unchanged" in project.pulumi("up", "--yes", "--expect-no-changes")
    assert log.writes() == []

    assert "- 5 deleted" in project.pulumi("destroy", "--yes")
    assert served.get(names.TRAINJOBS, job.meta.name) is None
    assert served.pods_of(job) == ()


def test_plain_job(served: World, example: Callable[..., Project]) -> None:
    project = example("plain_job")
    project.pulumi("up", "--yes")
    job = the_job(served, project)
    assert not job.kueue_mode
    served.running(job, 1)
    project.pulumi("destroy", "--yes")


def test_sweep(served: World, example: Callable[..., Project]) -> None:
    project = example("sweep", queue="queue")
    project.pulumi("up", "--yes")
    started = project.output("names")
    assert isinstance(started, list)
    assert len(set(started)) == 10
    for name in started:
        served.running(served.job(name), 1)
    project.pulumi("destroy", "--yes")
    assert not {raw["metadata"]["name"] for raw in served.list(names.TRAINJOBS)} & set(started)


def test_hold(served: World, example: Callable[..., Project]) -> None:
    project = example("hold", queue="queue")
    project.pulumi("up", "--yes")
    job = the_job(served, project)
    first = count_of(served.running(job, 1))
    project.set(held="true")
    project.pulumi("up", "--yes")
    until("the end of its pods", lambda: not served.pods_of(job))
    assert project.output("held") is True
    project.set(held="false")
    project.pulumi("up", "--yes")
    assert count_of(served.running(job, 2)) > first
    project.pulumi("destroy", "--yes")


def test_new_submission(served: World, example: Callable[..., Project]) -> None:
    project = example("new_submission", queue="queue")
    project.pulumi("up", "--yes")
    first = the_job(served, project)
    project.set(epochs="5")
    printed = project.pulumi("up", "--yes", fails=True)
    assert "raise `submission`" in printed
    assert "Traceback" not in printed
    project.set(submission="2")
    project.pulumi("up", "--yes")
    second = the_job(served, project)
    assert second.meta.name == f"{first.meta.name[:-1]}2"
    assert served.get(names.TRAINJOBS, first.meta.name) is None
    assert served.pods_of(first) == ()
    served.running(second, 1)
    project.pulumi("destroy", "--yes")
