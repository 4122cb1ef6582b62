"""The sign of life that preflight looks for, where the machine may be too busy for the controller's own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

from dispatch_gates.contract import names
from dispatch_gates.contract.objects import JsonObject
from resources.stacks import LEASE
from world import World


@contextmanager
def heartbeat(world: World, seconds: float = 0.2) -> Iterator[None]:
    """Renew a Lease that lasts long, every `seconds`: preflight neither waits long for it, nor gives up where busy."""
    stopped = threading.Event()
    there = World(world.cluster, names.CONTROLLER_NAMESPACE)
    if there.get(names.LEASES, LEASE) is None:
        there.create(names.LEASES, LEASE, spec={"holderIdentity": "tests", "leaseDurationSeconds": 60})

    def renew() -> None:
        while not stopped.wait(seconds):
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            there.change(names.LEASES, LEASE, partial(_set, now))

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    yield
    stopped.set()
    thread.join()


def _set(time: str, lease: JsonObject) -> None:
    lease["spec"]["renewTime"] = time
