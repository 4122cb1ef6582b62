"""What passes share: one list as the evidence of many, and one stream in which each sees its JobSet change.

Aspects: alone, and together with others; never an answer that is older than its question; pods with a label that is
forged or missing; failures, refusals, pages that expire; cancellation; bounds, and what is not
shared at all; changes of a JobSet, none missed and none old; the end of everything, between two requests.
"""

from __future__ import annotations

import pytest

from unit import sharing_checks
from unit.checks import Check


@pytest.mark.parametrize("check", sharing_checks.CHECKS.values(), ids=sharing_checks.CHECKS.keys())
def test_sharing(check: Check) -> None:
    check()
