"""The alerts that an installation should have, as data: `rules` is what a PrometheusRule or a rules file holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

_METRIC: Final = "dispatch_admission"
NEEDS_A_PERSON: Final = ("ConcurrentAdmission", "CountUnreadable", "OwnerUnreadable", "Refused")
"""Waits that do not end by themselves; a test holds them against the controller's own list."""
WAITED_MINUTES: Final = 30


@dataclass(frozen=True)
class Alert:
    """One rule. `expression` is PromQL over the controller's metrics, `minutes` how long it must hold."""

    name: str
    expression: str
    minutes: int
    severity: str
    summary: str
    todo: str

    def rule(self) -> dict[str, Any]:
        """Return the rule as Prometheus takes it."""
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": f"{self.minutes}m",
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "description": self.todo},
        }


ALERTS: Final = (
    Alert(
        "DispatchAdmissionDown",
        f"absent({_METRIC}_leading)",
        5,
        "critical",
        "No replica of dispatch's admission controller is there",
        "Jobs that get quota wait at the check and hold it; nothing runs that should not. Look at the Deployment.",
    ),
    Alert(
        "DispatchAdmissionNoLeader",
        f"max({_METRIC}_leading) == 0",
        2,
        "critical",
        "No replica of dispatch's admission controller leads",
        "Jobs wait at the check. Look at the log for lease-not-renewed, and at the Lease and the right to update it.",
    ),
    Alert(
        "DispatchAdmissionSeveralLeaders",
        f"sum({_METRIC}_leading) > 1",
        2,
        "warning",
        "Several replicas of dispatch's admission controller lead at once",
        "Safe, since no promise rests on the Lease, but they get in each other's way. Do they use the same Lease?",
    ),
    Alert(
        "DispatchWorkloadWaitsForAPerson",
        f'max by (reason) ({_METRIC}_waiting_workloads{{reason=~"{"|".join(NEEDS_A_PERSON)}"}}) > 0',
        5,
        "warning",
        "A Workload waits at dispatch's check for something that does not end by itself ({{ $labels.reason }})",
        "Its check's message and the Events on it say what; the README's table of reasons says what to do.",
    ),
    Alert(
        "DispatchWorkloadWaitsLong",
        f'max by (reason) ({_METRIC}_longest_wait_seconds{{reason!~"Held|Gated"}}) > {WAITED_MINUTES * 60}',
        1,
        "warning",
        f"A Workload has held its quota at dispatch's check for {WAITED_MINUTES} minutes ({{{{ $labels.reason }}}})",
        "Its check's message names what remains. For a pod on a lost node: the node must come back, or be removed.",
    ),
    Alert(
        "DispatchAdmissionConflicts",
        f"sum(rate({_METRIC}_conflicts_total[5m])) > 1",
        10,
        "warning",
        "Dispatch's admission controller loses more than one race a second",
        "Somebody writes Workloads or TrainJobs all the time: look for a controller that fights with another one.",
    ),
    Alert(
        "DispatchAdmissionWatchBreaks",
        f"max by (resource) (increase({_METRIC}_watch_restarts_total[15m])) > 10",
        5,
        "warning",
        "Dispatch's admission controller watches {{ $labels.resource }} anew again and again",
        "Look at the log for watch-ended: rights, network, or an API server that is overloaded.",
    ),
    Alert(
        "DispatchAdmissionFails",
        f'sum(rate({_METRIC}_passes_total{{result=~"error|failed"}}[5m])) > 0.02',
        10,
        "warning",
        "Passes of dispatch's admission controller fail again and again",
        "Look at the log for pass-failed.",
    ),
    Alert(
        "DispatchAdmissionBehind",
        f"max({_METRIC}_queue_depth) > 500",
        15,
        "warning",
        "More than 500 Workloads wait for dispatch's admission controller to look at them",
        "Is the API server slow? A processor limit on the controller makes it slow, too.",
    ),
)


def rules() -> dict[str, Any]:
    """Return the alerts as one group: the `spec` of a PrometheusRule, or the content of a rules file."""
    return {"groups": [{"name": "dispatch-admission", "rules": [alert.rule() for alert in ALERTS]}]}
