"""An operation in a process of its own that kills itself, with SIGKILL, at a chosen request."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any, Literal

from dispatch_gates.cluster import Target
from dispatch_gates.cluster.connection import Connection
from dispatch_gates.cluster.driver import Driver
from dispatch_gates.contract.manifest import JobSpec
from dispatch_gates.operations.opening import open_job
from dispatch_gates.operations.start import start
from dispatch_gates.requests import Operation, Request
from world import WAIT_SECONDS

When = Literal["before", "after"]
Asked = JobSpec | tuple[str, str, str]
"""What to start, or the namespace, name and UID of what to open."""

# A server that has imported all this already forks each process: half a second less for each of them.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["start_gate.cut_off"])


class _CutOff(Driver):
    """Ends the process before it sends its request number `at`, or once that was answered; 0: never."""

    def __init__(self, connection: Connection, at: int, when: When) -> None:
        super().__init__(connection)
        self._left, self._when = at, when

    async def perform(self, request: Request) -> Any:
        self._left -= 1
        if self._left == 0 and self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return await super().perform(request)
        finally:
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def _main(target: Target, asked: Asked, at: int, when: When) -> None:
    async def work() -> None:
        connection = await Connection.open(target)
        driver = _CutOff(connection, at, when)
        operation: Operation[Any] = start(asked) if isinstance(asked, JobSpec) else open_job(*asked)
        await driver.run(operation)
        await connection.close()

    asyncio.run(work())


def run_cut_off(
    target: Target, asked: Asked, at: int, when: When, meet: Callable[[int], object] = lambda _: None
) -> int | None:
    """Run the operation until it is cut off; return how the process ended. `meet` is told its id first."""
    process = _processes.Process(target=_main, args=(target, asked, at, when), daemon=True)
    process.start()
    assert process.pid is not None
    meet(process.pid)
    process.join(WAIT_SECONDS)
    return process.exitcode
