"""A small, real training: a two-layer network learns two interleaved half moons, in plain Python.

What matters here is how it keeps its checkpoints. Every file is tagged with (submission, A, restart attempt), as
the execution was given them. An execution

- resumes from the newest checkpoint, whichever execution wrote it;
- reads and writes nothing where a checkpoint of a higher tag lies, compared in that order: it has been replaced,
  says so, and ends with exit code 3.

That second rule is the fence. It can only work because the tag grows with every execution: with the same one
twice, an execution that should be over could not be told from the one that is meant to run.

Environment: DISPATCH_ULID (one folder of checkpoints for all submissions of it), DISPATCH_SUBMISSION,
DISPATCH_ADMISSION_COUNT (A), DISPATCH_RESTART_ATTEMPT, CHECKPOINTS (the volume), TRAIN_EPOCHS, TRAIN_EPOCH_SECONDS
(the least time an epoch takes: leaves the processor to others), TRAIN_CHECKPOINT_EVERY (epochs),
TRAIN_GRACE_SECONDS (how long a last checkpoint takes after SIGTERM), TRAIN_GRACE_FROM (the ULID of another job: these
seconds begin when that one is trained, a minute later at the most), TRAIN_UNTIL_TOLD (set: whoever has nothing to
resume from goes on until it gets SIGTERM).
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

HIDDEN = 12
POINTS = 240
RATE = 0.05
FENCED, ENDED_BY_SIGNAL = 3, 143
TRAINED = "trained"
"""A file beside the checkpoints of a job that has ended."""
MOST_SECONDS = 60
"""How long it waits for the other job of TRAIN_GRACE_FROM."""
CHECKPOINT = re.compile(r"s(\d{3})-a(\d{6})-r(\d{3})-epoch(\d{6})\.json")

Weights = dict[str, Any]


class Execution(NamedTuple):
    """What an execution was given. The higher one replaces the lower: compared as a tuple, in this order."""

    submission: int
    a: int
    restart_attempt: int

    def __str__(self) -> str:
        return f"submission {self.submission}, A={self.a}, restart attempt {self.restart_attempt}"


class FencedError(Exception):
    """A later execution has written already: this one may write no more."""


@dataclass(frozen=True)
class Store:
    """The checkpoints of one ULID, as the execution `mine` may use them."""

    folder: Path
    mine: Execution

    def newest(self) -> tuple[Execution, int, Weights] | None:
        """Return (execution, epoch, weights) of the newest checkpoint: the highest execution, then the highest epoch.

        Raises FencedError if a later execution has written it.
        """
        self._refuse_if_replaced()
        found = self._tags()
        if not found:
            return None
        by, epoch, path = max(found)
        return by, epoch, json.loads(path.read_text())

    def save(self, epoch: int, weights: Weights) -> None:
        """Write a checkpoint, whole or not at all. Raises FencedError if a later execution has written."""
        with self._alone():
            self._refuse_if_replaced()
            tag = "s{:03d}-a{:06d}-r{:03d}".format(*self.mine)
            part = self.folder / f".part-{tag}"
            with part.open("w") as file:
                json.dump(weights, file)
                file.flush()
                os.fsync(file.fileno())
            part.rename(self.folder / f"{tag}-epoch{epoch:06d}.json")

    def _refuse_if_replaced(self) -> None:
        newest = max((by for by, _, _ in self._tags()), default=self.mine)
        if newest > self.mine:
            raise FencedError(f"a checkpoint of {newest} is there; this execution was given {self.mine}")

    def _tags(self) -> list[tuple[Execution, int, Path]]:
        found = []
        for path in self.folder.iterdir():
            if match := CHECKPOINT.fullmatch(path.name):
                *tag, epoch = map(int, match.groups())
                found.append((Execution(*tag), epoch, path))
        return found

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Between the look at the tags and the write no other execution writes."""
        with (self.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def moons(randomness: random.Random) -> list[tuple[float, float, float]]:
    """Return points (x, y, class) of two half moons, slightly blurred."""
    points = []
    for number in range(POINTS):
        angle, upper = randomness.uniform(0, math.pi), number % 2
        x, y = (math.cos(angle), math.sin(angle)) if upper else (1 - math.cos(angle), 0.4 - math.sin(angle))
        points.append((x + randomness.gauss(0, 0.12), y + randomness.gauss(0, 0.12), float(upper)))
    return points


def fresh(randomness: random.Random) -> Weights:
    """Return untrained weights."""
    return {
        "in": [[randomness.gauss(0, 1) for _ in range(3)] for _ in range(HIDDEN)],
        "out": [randomness.gauss(0, 0.3) for _ in range(HIDDEN + 1)],
    }


def train_epoch(weights: Weights, points: list[tuple[float, float, float]]) -> float:
    """Take one step of gradient descent per point, in place; return the mean loss (cross entropy)."""
    inner, outer, loss = weights["in"], weights["out"], 0.0
    for x, y, wanted in points:
        hidden = [math.tanh(w[0] * x + w[1] * y + w[2]) for w in inner]
        logit = sum(w * h for w, h in zip(outer, hidden, strict=False)) + outer[HIDDEN]
        said = 1 / (1 + math.exp(-max(-30.0, min(30.0, logit))))
        loss -= math.log(max(1e-12, said if wanted else 1 - said))
        error = said - wanted
        for number, h in enumerate(hidden):
            back = error * outer[number] * (1 - h * h)
            outer[number] -= RATE * error * h
            w = inner[number]
            w[0], w[1], w[2] = w[0] - RATE * back * x, w[1] - RATE * back * y, w[2] - RATE * back
        outer[HIDDEN] -= RATE * error
    return loss / len(points)


def run(
    environment: Mapping[str, str],
    told_to_stop: Callable[[], bool],
    pause: Callable[[float], None],
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Train to the end and return the exit code; `told_to_stop` is asked after every epoch."""
    mine = Execution(
        int(environment["DISPATCH_SUBMISSION"]),
        int(environment["DISPATCH_ADMISSION_COUNT"]),
        int(environment["DISPATCH_RESTART_ATTEMPT"]),
    )
    a = mine.a
    folder = Path(environment.get("CHECKPOINTS", "/checkpoints")) / environment["DISPATCH_ULID"]
    epochs = int(environment.get("TRAIN_EPOCHS", "60"))
    every = int(environment.get("TRAIN_CHECKPOINT_EVERY", "5"))
    least = float(environment.get("TRAIN_EPOCH_SECONDS", "0"))
    until_told = bool(environment.get("TRAIN_UNTIL_TOLD"))
    folder.mkdir(parents=True, exist_ok=True)
    store, points = Store(folder, mine), moons(random.Random(1))  # the same data for every execution
    print(f"A={a}: I was given this admission count")
    weights, done = fresh(random.Random(2)), 0
    try:
        found = store.newest()
        if found is None:
            last = None if until_told else epochs
        else:
            by, done, weights = found
            # It adds a checkpoint in any case: its tag has to stand on one.
            last = epochs if done < epochs else done + every
            print(f"A={a}: resuming after epoch {done} from the checkpoint of {by}")
        for epoch in count(done + 1):
            started = clock()
            loss = train_epoch(weights, points)
            if told_to_stop():
                print(f"A={a}: told to stop at epoch {epoch}; the last checkpoint takes a while")
                _take_a_while(environment, folder.parent, pause)
                store.save(epoch, weights)
                print(f"A={a}: wrote the last checkpoint, epoch {epoch}")
                return ENDED_BY_SIGNAL
            if epoch % every == 0 or epoch == last:
                store.save(epoch, weights)
                print(f"A={a}: epoch {epoch}, loss {loss:.4f}, checkpoint written")
            if epoch == last:
                break
            pause(max(0.0, least - (clock() - started)))
    except FencedError as error:
        print(f"A={a}: FENCED, nothing written: {error}")
        return FENCED
    (folder / TRAINED).touch()
    print(f"A={a}: trained")
    return 0


def _take_a_while(environment: Mapping[str, str], folders: Path, pause: Callable[[float], None]) -> None:
    """Be as slow with the last checkpoint as a big model is."""
    if other := environment.get("TRAIN_GRACE_FROM"):
        for _ in range(MOST_SECONDS):
            if (folders / other / TRAINED).exists():
                break
            pause(1.0)
    pause(float(environment.get("TRAIN_GRACE_SECONDS", "0")))


def main() -> int:
    """Run as the container's first process."""
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a text stream, in a container
    return run(os.environ, lambda: bool(stopping), time.sleep)


if __name__ == "__main__":
    sys.exit(main())
