"""One pass over one Workload, against the model API server.

Aspects: when it is not our turn; each wait, its words, and no second write; what counts as over (BL-41, Jobs,
dependencies); A; whose the Workload is (BL-07); spent Readies; evictions in progress (BL-01); conflicts, replicas that
stall, crashes, lost replies and errors at every request.
"""

from __future__ import annotations

import pytest

from unit import fault_checks, owner_checks, pass_checks, story_checks
from unit.checks import Check

CHECKS = pass_checks.CHECKS | owner_checks.CHECKS | story_checks.CHECKS | fault_checks.CHECKS


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS.keys())
def test_pass(check: Check) -> None:
    check()
