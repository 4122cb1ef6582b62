"""What the controller counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_PREFIX = "dispatch_admission"


class Metrics:
    """The controller's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.passes = Counter(
            f"{_PREFIX}_passes", "Passes over a Workload, by result", ["result"], registry=self.registry
        )
        self.pass_seconds = Histogram(f"{_PREFIX}_pass_seconds", "Time that a pass took", registry=self.registry)
        self.waits = Counter(
            f"{_PREFIX}_waits", "Passes that ended in a wait, by reason", ["reason"], registry=self.registry
        )
        self.waiting = Gauge(f"{_PREFIX}_waiting_workloads", "Workloads that wait for a job", registry=self.registry)
        self.queue_depth = Gauge(
            f"{_PREFIX}_queue_depth", "Workloads to be looked at, now or later", registry=self.registry
        )
        self.leading = Gauge(f"{_PREFIX}_leading", "Whether this replica leads", registry=self.registry)
