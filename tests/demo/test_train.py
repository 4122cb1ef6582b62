"""The demo's training: it learns, resumes, and its fence holds.

Aspects: loss falls; a checkpoint carries (submission, A, restart attempt); the newest one is resumed from, whoever
wrote it; nothing is read or written over a higher one, compared in that order, at the start or in the middle; the
last checkpoint after SIGTERM; going on until then; a real process and a real signal.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from dispatch_local import images


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train", images.TRAIN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["train"] = module
    spec.loader.exec_module(module)
    return module


train = load()


def environment(folder: Path, a: int, **more: str) -> Mapping[str, str]:
    return {
        "DISPATCH_SUBMISSION": "1",
        "DISPATCH_ADMISSION_COUNT": str(a),
        "DISPATCH_RESTART_ATTEMPT": "0",
        "DISPATCH_ULID": "01JDQM3ZK0TB6Q8E8M2A9V4C5D",
        "CHECKPOINTS": str(folder),
        "TRAIN_EPOCHS": "6",
        "TRAIN_CHECKPOINT_EVERY": "3",
        **more,
    }


def run(folder: Path, a: int, told: Callable[[], bool] = lambda: False, **more: str) -> int:
    code = train.run(environment(folder, a, **more), told, lambda _: None)
    assert isinstance(code, int)
    return code


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.json"))


def test_trains_and_tags_each_checkpoint_with_its_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, 1, TRAIN_EPOCHS="30", TRAIN_CHECKPOINT_EVERY="15") == 0
    assert checkpoints(tmp_path) == ["s001-a000001-r000-epoch000015.json", "s001-a000001-r000-epoch000030.json"]
    said = capsys.readouterr().out
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in said.splitlines() if "loss" in line]
    assert losses[-1] < losses[0] < 0.5
    assert said.startswith("A=1: I was given this admission count")


def test_resumes_from_the_newest_checkpoint_of_an_earlier_execution(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, 1)
    capsys.readouterr()
    assert run(tmp_path, 3, TRAIN_EPOCHS="9") == 0
    said = "A=3: resuming after epoch 6 from the checkpoint of submission 1, A=1, restart attempt 0"
    assert said in capsys.readouterr().out
    assert checkpoints(tmp_path)[-1] == "s001-a000003-r000-epoch000009.json"


def test_an_execution_that_was_replaced_is_fenced_at_its_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, 2)
    before = checkpoints(tmp_path)
    assert run(tmp_path, 1) == train.FENCED
    assert checkpoints(tmp_path) == before
    said = "FENCED, nothing written: a checkpoint of submission 1, A=2, restart attempt 0 is there"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lower", "higher"),
    [
        pytest.param((1, 9, 9), (2, 1, 0), id="submission before A"),
        pytest.param((2, 1, 9), (2, 2, 0), id="A before restart attempt"),
        pytest.param((2, 2, 0), (2, 2, 1), id="restart attempt"),
        pytest.param((2, 9, 0), (2, 10, 0), id="numbers, not text"),
    ],
)
def test_the_fence_compares_submission_then_a_then_restart_attempt(
    tmp_path: Path, lower: tuple[int, int, int], higher: tuple[int, int, int]
) -> None:
    def run_as(execution: tuple[int, int, int]) -> int:
        submission, a, restart_attempt = execution
        return run(tmp_path, a, DISPATCH_SUBMISSION=str(submission), DISPATCH_RESTART_ATTEMPT=str(restart_attempt))

    assert run_as(lower) == 0
    assert run_as(higher) == 0
    before = checkpoints(tmp_path)
    assert len(before) == 3, "two of the lower one, and one that the higher one adds"
    assert run_as(lower) == train.FENCED
    assert checkpoints(tmp_path) == before


def test_an_execution_that_is_replaced_while_it_runs_writes_no_more(tmp_path: Path) -> None:
    epochs = iter(range(100))

    def successor_appears() -> bool:
        if next(epochs) == 3:
            assert run(tmp_path, 2, TRAIN_EPOCHS="60", TRAIN_CHECKPOINT_EVERY="60") == 0
        return False

    assert run(tmp_path, 1, successor_appears) == train.FENCED
    assert checkpoints(tmp_path) == ["s001-a000001-r000-epoch000003.json", "s001-a000002-r000-epoch000060.json"]


def test_told_to_stop_it_writes_a_last_checkpoint_after_its_grace(tmp_path: Path) -> None:
    pauses: list[float] = []
    environ = environment(tmp_path, 1, TRAIN_GRACE_SECONDS="8")
    assert train.run(environ, lambda: True, pauses.append) == train.ENDED_BY_SIGNAL
    assert pauses == [8]
    assert checkpoints(tmp_path) == ["s001-a000001-r000-epoch000001.json"]


def test_its_grace_can_begin_when_another_job_is_trained(tmp_path: Path) -> None:
    other = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            assert run(tmp_path, 1, DISPATCH_ULID=other) == 0

    environ = environment(tmp_path, 1, TRAIN_GRACE_SECONDS="8", TRAIN_GRACE_FROM=other)
    assert train.run(environ, lambda: True, pause) == train.ENDED_BY_SIGNAL
    assert pauses == [1, 1, 1, 8]


def test_its_grace_does_not_wait_for_another_job_for_ever(tmp_path: Path) -> None:
    pauses: list[float] = []
    environ = environment(tmp_path, 1, TRAIN_GRACE_SECONDS="8", TRAIN_GRACE_FROM="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert train.run(environ, lambda: True, pauses.append) == train.ENDED_BY_SIGNAL
    assert sum(pauses) == 68


def test_the_first_execution_can_go_on_until_it_is_told_and_the_next_one_adds_a_checkpoint(tmp_path: Path) -> None:
    epochs = iter(range(20))
    assert run(tmp_path, 1, lambda: next(epochs) == 10, TRAIN_UNTIL_TOLD="true") == train.ENDED_BY_SIGNAL
    assert checkpoints(tmp_path)[-1] == "s001-a000001-r000-epoch000011.json"
    assert run(tmp_path, 2, TRAIN_UNTIL_TOLD="true") == 0
    assert checkpoints(tmp_path)[-1] == "s001-a000002-r000-epoch000014.json"


def test_a_checkpoint_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="disk full"):
        run(tmp_path, 1)
    assert checkpoints(tmp_path) == []


def test_as_a_process_it_ends_on_sigterm_with_its_checkpoint_written(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, str(images.TRAIN)],
        env=dict(environment(tmp_path, 1, TRAIN_EPOCHS="100000", TRAIN_CHECKPOINT_EVERY="1")),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        while "checkpoint written" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        said = process.stdout.read()
    assert process.wait(30) == train.ENDED_BY_SIGNAL
    assert "wrote the last checkpoint" in said
