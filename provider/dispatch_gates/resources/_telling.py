"""Warnings and progress, in one line each.

What the process prints is shown by the engine, as lines of the stack: it gives a dynamic provider no other way.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Mapping
from typing import Final, TypeVar

from dispatch_gates.contract.names import (
    ADMISSION_COUNT,
    ADMISSION_GATED_BY,
    ENV_ADMISSION_COUNT,
    ENV_RESTART_ATTEMPT,
    JOBS,
    JOBSETS,
    PODS,
    TRAINJOBS,
    WORKLOADS,
    Resource,
)
from dispatch_gates.operations.start import Started
from dispatch_gates.operations.status import JobState
from dispatch_gates.printable import printable
from dispatch_gates.requests import ApiError, Operation, Pause, Request, Watch
from dispatch_gates.resources._inputs import Props

T = TypeVar("T")


def warn(outs: Props, *, moving: bool = False) -> None:
    """Print what keeps a job from running although nothing failed, and what to do about it.

    `moving`: it was opened or released a moment ago, so that a wait at the check says nothing yet.
    """
    where = f"TrainJob {outs['namespace']}/{outs['name']}"
    if outs.get("held_by"):
        gates = ", ".join(outs["held_by"])
        say(
            "warning",
            f"{where} is held by an administrator: it runs once these gates are taken out of its annotation "
            f"{ADMISSION_GATED_BY}: {gates}",
        )
    elif outs.get("state") == JobState.HELD and outs.get("hold") is not True:
        say("warning", f"{where} is held by an operator ({outs['reason']}); `hold=False` releases it.")
    elif (todo := _TODO.get(outs.get("state", ""))) and not (moving and outs["state"] == JobState.WAITING_AT_CHECK):
        say("warning", f"{where} does not run: {outs['reason']}. {todo}")


_TODO: Final[Mapping[str, str]] = {
    JobState.WAITING_AT_CHECK: "It waits at the admission check; if that lasts, the README's table of reasons says "
    "what to do, and without a reason look at the controller: is it running?",
    JobState.UNMANAGED: "See to Kueue.",
    JobState.DEACTIVATED: "Activate its Workload, or set `hold=True` and then `hold=False`.",
    JobState.SUSPENDED: "Set `hold=True` and then `hold=False`: that raises A. Resumed by hand it would run with the "
    "old one.",
}
"""What to do about the states that last until somebody does something."""


def warn_of_runtime(done: Started) -> None:
    """Print what the job's runtime may do inside one admission, and which of its pods are not given A.

    Once in a process, however many jobs use it.
    """
    runtime = " ".join(done.job.runtime)
    lines = set()
    if done.warnings:
        lines.add(
            f"{runtime} can begin an execution again under the same A: {'; '.join(done.warnings)}. "
            f"Compare (A, {ENV_RESTART_ATTEMPT}) before writing to shared storage, or change the runtime."
        )
    if done.annotation_only:
        lines.add(
            f"{runtime}: the containers of {', '.join(done.annotation_only)} are not given {ENV_ADMISSION_COUNT}: "
            "they are neither the trainer's nor an initializer's of the job. Their pods carry A as the annotation "
            f"{ADMISSION_COUNT}: if they write to shared storage, have the runtime give it to them, by fieldRef."
        )
    with _lock:
        new = lines - _said
        _said.update(new)
    for line in sorted(new):
        say("warning", line)


_lock: Final = threading.Lock()
_said: Final[set[str]] = set()
_FIRST_SECONDS = 5.0
"""After how long a wait is told of for the first time."""
_AGAIN_SECONDS = 30.0
_AWAITED: Final[Mapping[Resource, str]] = {
    TRAINJOBS: "the TrainJob to be gone",
    JOBSETS: "its JobSet to be gone",
    JOBS: "its Jobs to be gone",
    PODS: "its pods to end",
    WORKLOADS: "Kueue to make its Workload, with the gate and the check",
}


def told(operation: Operation[T], subject: str) -> Operation[T]:
    """Run an operation and print, now and then, what it waits for. To be run in the driver's event loop."""
    loop, began = asyncio.get_running_loop(), time.monotonic()
    awaited = "the API server"
    timer: asyncio.TimerHandle

    def tell() -> None:
        nonlocal timer
        say("info", f"{subject}: waiting for {awaited} ({time.monotonic() - began:.0f} s so far)")
        timer = loop.call_later(_AGAIN_SECONDS, tell)

    timer = loop.call_later(_FIRST_SECONDS, tell)
    try:
        request: Request = next(operation)
        while True:
            if not (isinstance(request, Pause) and awaited in _AWAITED.values()):
                awaited = _awaited(request) or awaited  # a pause between watches waits for what they do
            try:
                reply = yield request
            except ApiError as error:
                request = operation.throw(error)
            else:
                request = operation.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        timer.cancel()
        operation.close()


def _awaited(request: Request) -> str | None:
    if isinstance(request, Pause):
        return "its JobSet, Jobs and pods to be ready for the next execution"
    return _AWAITED.get(request.resource) if isinstance(request, Watch) else None


def say(kind: str, text: str) -> None:
    """Print a line of this kind, `info` or `warning`."""
    print(f"{kind}: {printable(text)}", file=sys.stderr, flush=True)  # noqa: T201 # see the module
