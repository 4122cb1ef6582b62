"""Who else takes part: a played Trainer, which carries A to the JobSet, and an observer, who takes the times.

Trainer is played because the API server is alone. It costs what it costs: its requests are counted apart.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from bench.site import INDEX, VERSION, Filled
from bench.wire import Wire
from dispatch_gates.cluster.connection import path_of
from dispatch_gates.contract.names import ADMISSION_CHECK, ADMISSION_COUNT, TRAINJOBS, WORKLOADS, Resource

_READY = re.compile(rb'"name":"' + ADMISSION_CHECK.encode() + rb'"[^{}]*"state":"Ready"')
_COUNT = re.compile(rb'"' + re.escape(ADMISSION_COUNT.encode()) + rb'":"(\d+)"')


@dataclass
class Observer:
    """Sees each Workload get quota, and our check become Ready; times are of the monotonic clock, by job."""

    filled: Filled
    wire: Wire
    reserved: dict[int, float] = field(default_factory=dict)
    ready: dict[int, float] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def start(self) -> None:
        """Begin to watch."""
        _follow(self.wire, WORKLOADS, self.filled, self._see)

    def _see(self, index: int, line: bytes) -> None:
        now = time.monotonic()
        if _READY.search(line):
            self.ready.setdefault(index, now)
        elif b'"admission":{' in line:
            self.reserved.setdefault(index, now)
        with self.changed:
            self.changed.notify_all()

    def wait_ready(self, number: int, seconds: float, index: int | None = None) -> bool:
        """Wait until so many are Ready, or this one; return whether they are."""
        end = time.monotonic() + seconds
        with self.changed:
            return self.changed.wait_for(
                lambda: (index in self.ready) if index is not None else len(self.ready) >= number,
                max(end - time.monotonic(), 0),
            )


@dataclass
class Trainer:
    """Carries a raised A to the suspended JobSet."""

    filled: Filled
    wire: Wire
    seconds: list[float] = field(default_factory=list)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4))
    _versions: dict[int, bytes] = field(default_factory=dict)
    _done: dict[int, int] = field(default_factory=dict)

    def start(self) -> None:
        """Begin to watch."""
        _follow(self.wire, TRAINJOBS, self.filled, self._see)

    @property
    def requests(self) -> int:
        """How many writes it sent."""
        return len(self.seconds)

    def _see(self, index: int, line: bytes) -> None:
        found = _COUNT.search(line)
        assert found is not None, line[:300]
        count = int(found[1])
        if count > self._done.get(index, self.filled.copies.count):
            self._done[index] = count
            self._pool.submit(self._carry, index, count, time.monotonic())

    def _carry(self, index: int, count: int, began: float) -> None:
        copies = self.filled.copies
        version = self._versions.get(index, b"%d" % self.filled.versions[index])
        status, content = self.wire.call(
            "PUT", copies.path("JobSet", index), copies.write("JobSet", index, version, count=count)
        )
        assert status == 200, content[:300]
        stored = VERSION.search(content)
        assert stored is not None
        self._versions[index] = stored[1]
        self.seconds.append(time.monotonic() - began)


def _follow(wire: Wire, resource: Resource, filled: Filled, see: Callable[[int, bytes], None]) -> None:
    """Watch the copies of a kind from now on, in a thread that ends with the process or its namespace."""
    path = path_of(resource, filled.copies.namespace)
    version = wire.version(path)

    def run() -> None:
        for line in wire.lines(f"{path}?watch=true&resourceVersion={version}&timeoutSeconds=3600"):
            if line.startswith(b'{"type":"MODIFIED"') and (found := INDEX.search(line)):
                see(int(found[1]), line)

    threading.Thread(target=run, daemon=True).start()
