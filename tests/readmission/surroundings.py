"""What all jobs of one cluster share: its parts, and the controllers that serve the check."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol

from dispatch_local.cluster import Cluster
from world import Deployment


class Controllers(Protocol):
    """The controllers that serve the check, however they were deployed."""

    def away(self) -> AbstractContextManager[None]:
        """End them, and start them again at the end."""
        ...


class Surroundings:
    """A cluster with its controllers, for `parties` jobs that are in it at the same time, each in a thread.

    What happens to the cluster happens once for all of them, when all are ready for it. Where one fails, the others
    fail with BrokenBarrierError.
    """

    def __init__(self, cluster: Cluster, controllers: Controllers, second: Deployment, parties: int = 1) -> None:
        self._cluster = cluster
        self._controllers = controllers
        self._second = second
        self._barrier = threading.Barrier(parties)

    def give_up(self) -> None:
        """Have the others not wait for a job that has failed."""
        self._barrier.abort()

    def standing_still(self, part: str) -> AbstractContextManager[None]:
        """Have a part of the control plane stand still, its webhooks too."""
        return self._during(lambda: _paused(self._cluster, part))

    def start_again(self, part: str) -> None:
        """End a part and start it again."""
        self._once(lambda: self._cluster.restart(part))

    def configured(self, manager: str, edit: Callable[[dict[str, Any]], object]) -> AbstractContextManager[None]:
        """Have a manager run with another configuration."""
        return self._during(lambda: self._cluster.configured(manager, edit))

    def without_controller(self) -> AbstractContextManager[None]:
        """Kill the controller, and start it again at the end."""
        return self._during(self._controllers.away)

    def two_leaders(self) -> AbstractContextManager[object]:
        """Have a second replica that leads, too: it has a Lease of its own."""
        return self._during(lambda: self._second)

    def signal_second(self, number: signal.Signals) -> None:
        """Send a signal to the second replica."""
        self._once(lambda: self._second.signal(number))

    def _once(self, event: Callable[[], object]) -> None:
        """Have something happen when all are here; nobody goes on before it did."""
        try:
            if self._barrier.wait() == 0:
                event()
            self._barrier.wait()
        except BaseException:
            self._barrier.abort()
            raise

    @contextmanager
    def _during(self, something: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
        """Have something be so from when all are here until all have gone through; it ends even if one fails."""
        with ExitStack() as stack:
            try:
                if self._barrier.wait() == 0:
                    stack.enter_context(something())
                self._barrier.wait()
                yield
                self._barrier.wait()
            except BaseException:
                self._barrier.abort()
                raise
        self._once(lambda: None)


@contextmanager
def _paused(cluster: Cluster, part: str) -> Iterator[None]:
    cluster.pause(part)
    try:
        yield
    finally:
        cluster.resume(part)
