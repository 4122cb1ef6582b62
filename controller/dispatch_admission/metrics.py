"""What the controller counts, for Prometheus. controller/README.md explains each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dispatch_admission.waiting import Waiting
from dispatch_gates.contract.next_execution import Reason

_PREFIX: Final = "dispatch_admission"
_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 28800.0)


class Metrics:
    """The controller's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.passes = self._counter("passes", "Passes over a Workload, by what became of them", "result")
        self.pass_seconds = self._histogram("pass_seconds", "Time that a pass took")
        self.reserved_seconds = self._histogram(
            "reserved_to_ready_seconds",
            "Time from when this replica first saw the reservation until it set Ready, by result",
            "result",
        )
        self.waits = self._counter("waits", "Passes that ended in a wait, by reason", "reason")
        self.conflicts = Counter(f"{_PREFIX}_conflicts", "Passes that ended in a conflict", registry=self.registry)
        self.watch_restarts = self._counter("watch_restarts", "Watches that broke, by resource", "resource")
        self.api_requests = self._counter(
            "api_requests",
            "Requests to the API server, by verb and status of the answer (0: none came)",
            "verb",
            "code",
        )
        self.events = self._counter("events", "Events for people: written, failed, or dropped", "result")
        self.queue_depth = Gauge(
            f"{_PREFIX}_queue_depth", "Workloads to be looked at, now or later", registry=self.registry
        )
        self.leading = Gauge(f"{_PREFIX}_leading", "Whether this replica leads", registry=self.registry)
        self._waiting: _Waits | None = None

    def answered(self, verb: str, status: int) -> None:
        """Count a request to the API server."""
        self.api_requests.labels(verb, str(status)).inc()

    def follow(self, queue_depth: Callable[[], int], waiting: Waiting) -> None:
        """Show the state of a controller, from now on this one's."""
        self.queue_depth.set_function(queue_depth)
        if self._waiting is not None:
            self.registry.unregister(self._waiting)
        self._waiting = _Waits(waiting)
        self.registry.register(self._waiting)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(f"{_PREFIX}_{name}", text, labels, registry=self.registry, buckets=_SECONDS)


class _Waits(Collector):
    """What waits, by reason: taken when somebody asks. Every reason is there, so that an alert sees zeros, too."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting

    def collect(self) -> Iterator[Metric]:
        number = GaugeMetricFamily(f"{_PREFIX}_waiting_workloads", "Workloads that wait, by reason", labels=["reason"])
        longest = GaugeMetricFamily(
            f"{_PREFIX}_longest_wait_seconds", "How long the first of them has waited, by reason", labels=["reason"]
        )
        found, seconds = self._waiting.by_reason(), self._waiting.longest(time.monotonic())
        for reason in Reason:
            number.add_metric([reason.value], found[reason])
            longest.add_metric([reason.value], seconds.get(reason, 0.0))
        yield from (number, longest)
