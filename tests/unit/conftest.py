"""Failures in the shared checks say what they compared."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "unit.pass_checks",
    "unit.owner_checks",
    "unit.story_checks",
    "unit.fault_checks",
    "unit.driver_checks",
    "unit.sharing_checks",
)
