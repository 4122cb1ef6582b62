"""Running operations for callers that block: one event loop in the background, one connection for each target."""

from __future__ import annotations

import asyncio
import atexit
import threading
from contextlib import suppress
from typing import Final, TypeVar

from dispatch_gates.cluster.connection import Connection, Target
from dispatch_gates.cluster.driver import Driver
from dispatch_gates.requests import Operation, UnreachableError

T = TypeVar("T")

_END_SECONDS: Final = 1.0
"""How long an operation that was cut off may take to notice; it usually takes no time."""


class _Background:
    """The event loop and what lives in it. The thread is a daemon: it ends with the process."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._drivers: dict[Target, asyncio.Task[Driver]] = {}
        self._connections: list[Connection] = []
        threading.Thread(target=self._loop.run_forever, name="dispatch-gates", daemon=True).start()

    def run(self, target: Target, operation: Operation[T], seconds: float | None) -> T:
        ended = threading.Event()
        future = asyncio.run_coroutine_threadsafe(self._run(target, operation, ended), self._loop)
        try:
            return future.result(seconds)
        except BaseException as error:
            late = isinstance(error, TimeoutError) and not future.done()
            # Ctrl-C in the caller: what the operation was about to send is not sent, and when this is left it is over.
            if future.cancel():
                ended.wait(_END_SECONDS)
            if late:
                raise UnreachableError(f"given up after {seconds:g} s without an end") from error
            raise

    async def _run(self, target: Target, operation: Operation[T], ended: threading.Event) -> T:
        try:
            driver = await self._driver(target)
            return await driver.run(operation)
        finally:
            ended.set()

    async def _driver(self, target: Target) -> Driver:
        task = self._drivers.get(target)
        if task is None or (task.done() and task.exception() is not None):
            task = self._drivers[target] = asyncio.create_task(self._open(target))
        return await asyncio.shield(task)

    async def _open(self, target: Target) -> Driver:
        connection = await Connection.open(target)
        self._connections.append(connection)
        return Driver(connection)

    def close(self) -> None:
        """Close all connections, at the end of the process: the client complains of those that nobody closed."""

        async def work() -> None:
            for connection in self._connections:
                await connection.close()

        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(work(), self._loop).result(_END_SECONDS)


_lock = threading.Lock()
_background: _Background | None = None


def run(target: Target, operation: Operation[T], seconds: float | None = None) -> T:
    """Run an operation against a cluster and return its result; safe to call from any number of threads.

    Raises what the operation raises, `ClusterConfigError` where the target cannot be used, and `UnreachableError`
    after `seconds`, where they are given: the operation is then cut off before its next request.
    """
    global _background
    with _lock:
        if _background is None:
            _background = _Background()
            atexit.register(_background.close)
    return _background.run(target, operation, seconds)
