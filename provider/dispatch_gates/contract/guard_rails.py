"""The guard rails: how far the API server itself keeps the promises, and how to tell.

`infra/` writes the policies; here is what others must know of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Level(StrEnum):
    """How much the API server refuses."""

    NO = "no"
    AUDIT = "audit"
    """The policies are there and only report."""
    ADMISSIONS = "admissions"
    """No execution without an admission count above the last one's."""
    EXECUTIONS = "executions"
    """Restarts inside one admission are refused too."""


TRAINJOBS_POLICY: Final = "dispatch-trainjobs"

POLICIES: Final = {
    Level.ADMISSIONS: (
        TRAINJOBS_POLICY,
        "dispatch-workloads",
        "dispatch-workload-status",
        "dispatch-controller-trainjobs",
        "dispatch-controller-status",
        "dispatch-jobsets",
        "dispatch-jobs",
        "dispatch-pods",
    ),
    Level.EXECUTIONS: ("dispatch-executions-jobsets", "dispatch-executions-jobs"),
}
"""The policies that each level adds. The binding of each has the policy's name."""


@dataclass(frozen=True)
class GuardRails:
    """The level in force in one namespace, and why not a higher one; empty where it is the highest."""

    level: Level
    why: str = ""
