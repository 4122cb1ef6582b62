"""What no code path may send, as named checks: see `test_requests` and `test_preconditions`."""

from __future__ import annotations

from collections.abc import Callable

from dispatch_gates.contract.count import with_count
from dispatch_gates.contract.names import TRAINJOBS
from dispatch_gates.requests import Delete, Replace, ReplaceStatus
from model import objects
from unit.checks import Checks

CHECKS = Checks()


def _refused(make: Callable[[], object]) -> bool:
    try:
        make()
    except AssertionError:
        return True
    return False


@CHECKS
def no_write_can_be_made_without_a_version() -> None:
    body = objects.trainjob()
    for kind in (Replace, ReplaceStatus):
        for missing in ("resourceVersion", "uid"):
            versioned = {**body, "metadata": {**body["metadata"], "resourceVersion": "7"}}
            kind(TRAINJOBS, versioned)
            del versioned["metadata"][missing]
            assert _refused(lambda kind=kind, body=versioned: kind(TRAINJOBS, body)), (kind, missing)  # type: ignore[misc]
            versioned["metadata"][missing] = ""
            assert _refused(lambda kind=kind, body=versioned: kind(TRAINJOBS, body)), (kind, missing)  # type: ignore[misc]
    for uid, version in (("", "7"), ("u", "")):
        assert _refused(lambda uid=uid, version=version: Delete(TRAINJOBS, "team", "x", uid, version))  # type: ignore[misc]


@CHECKS
def a_count_that_is_not_higher_is_never_written() -> None:
    for before, count in ((1, 1), (2, 1), (None, 0), (0, -1), (0, 10**18), ("x", 5)):
        job = objects.trainjob(before) if before is not None else objects.trainjob(patches=[])
        assert _refused(lambda job=job, count=count: with_count(job, count, ["node"])), (before, count)  # type: ignore[misc]
