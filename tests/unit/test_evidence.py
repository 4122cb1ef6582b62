"""Waiting for Trainer, and the time that is written beside a check.

Aspects: what ends the wait for A, and with which answer; the time that is left; a transition time by Kueue's clock,
later than the last admission.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dispatch_admission.act import transition_time
from dispatch_gates.contract.execution import parse_jobset
from dispatch_gates.contract.names import JOBSETS
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.contract.workload import parse_workload
from dispatch_gates.operations.evidence import await_count
from dispatch_gates.requests import ExpiredError, Request, UnreachableError, Watch
from model import objects
from model.apiserver import ApiServer
from model.objects import NAME, check_state

Step = Callable[[ApiServer], object]


def waited(*steps: Step) -> tuple[bool, list[Request]]:
    """Wait for A=2 while these things happen, one a watch; return the answer and the requests."""
    server = ApiServer(objects.jobset(1))
    left = list(steps)

    def idle(_: Watch) -> bool:
        if not left:
            return False
        left.pop(0)(server)
        return True

    server.idle = idle
    answer = server.run(await_count(parse_jobset(server.read(JOBSETS, NAME)), 2, 10))
    return answer, server.requests


def put(body: JsonObject) -> Step:
    return lambda server: server.put(body)


def _label(server: ApiServer) -> None:
    server.edit(JOBSETS, NAME, lambda body: body["metadata"].update(labels={"n": str(server.state.version)}))


@pytest.mark.parametrize(
    ("steps", "answer", "watches"),
    [
        ([put(objects.jobset(2))], True, 1),
        ([_label, _label, put(objects.jobset(2))], True, 3),
        ([put(objects.jobset(1)), put(objects.jobset(0)), put(objects.jobset("x")), put(objects.jobset(2))], True, 4),
        ([put(objects.jobset(2, suspend=False))], False, 1),
        ([put(objects.jobset(2, suspend=None))], False, 1),
        ([put(objects.jobset(2, uid="uid-later"))], False, 1),
        ([lambda server: server.remove(JOBSETS, NAME)], False, 1),
        ([put(objects.jobset(3)), put(objects.jobset(4))], False, 3),
        ([], False, 1),
    ],
    ids=[
        "carried",
        "carried after other changes",
        "carried after other counts",
        "carried, but resumed",
        "carried, but not suspended",
        "carried by another JobSet",
        "deleted",
        "passed over",
        "silence",
    ],
)
def test_what_ends_the_wait(steps: list[Step], answer: bool, watches: int) -> None:
    found, requests = waited(*steps)
    assert found is answer
    assert len(requests) == watches
    versions = [int(request.resource_version) for request in requests if isinstance(request, Watch)]
    assert versions == sorted(set(versions)), "each watch goes on from the last change"


def test_an_expired_version_ends_the_wait_and_a_lost_connection_is_raised() -> None:
    for error in (ExpiredError("410"), UnreachableError("lost")):
        server = ApiServer(objects.jobset(1))

        def before(_: Request, error: Exception = error) -> None:
            raise error

        server.before = before
        operation = await_count(parse_jobset(server.read(JOBSETS, NAME)), 2, 10)
        if isinstance(error, ExpiredError):
            assert server.run(operation) is False
        else:
            with pytest.raises(UnreachableError):
                server.run(operation)


EARLY, NOON, LATE = "2026-01-01T11:59:59Z", "2026-01-01T12:00:00Z", "2026-01-01T12:00:01Z"


@pytest.mark.parametrize(
    ("conditions", "check", "expected"),
    [
        ({"QuotaReserved": NOON}, EARLY, NOON),
        ({"QuotaReserved": EARLY}, NOON, NOON),
        ({"QuotaReserved": NOON, "Evicted": LATE}, EARLY, LATE),
        ({"QuotaReserved": NOON, "Admitted": EARLY}, EARLY, NOON),
        ({"QuotaReserved": EARLY, "Admitted": NOON}, EARLY, LATE),
        ({"QuotaReserved": NOON, "Admitted": NOON}, EARLY, LATE),
        ({"QuotaReserved": EARLY, "Admitted": NOON}, LATE, LATE),
        ({"QuotaReserved": "soon", "Admitted": "soon"}, NOON, NOON),
        ({"Admitted": "soon"}, "never", "never"),
        ({}, NOON, NOON),
    ],
    ids=str,
)
def test_transition_time(conditions: dict[str, str], check: str, expected: str) -> None:
    """The latest that Kueue wrote; where that is the last admission itself, a second more."""
    raw = objects.workload({}, checks=[check_state(time=check)])
    raw["metadata"]["resourceVersion"] = "7"
    raw["status"]["conditions"] = [objects.condition(kind, False, time=time) for kind, time in conditions.items()]
    workload = parse_workload(raw)
    assert transition_time(workload, workload.checks[0]) == expected
