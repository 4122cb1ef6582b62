"""The requests: no write without the version it was decided on, and the answer must be the object that was meant."""

from __future__ import annotations

from typing import Any

import pytest

from dispatch_gates.contract.names import TRAINJOBS
from dispatch_gates.requests import Create, Operation, Replace, find, get, write
from model import objects
from model.apiserver import ApiServer, apply
from model.objects import NAME, TEAM
from unit import write_checks
from unit.checks import Check


@pytest.mark.parametrize("check", write_checks.CHECKS.values(), ids=write_checks.CHECKS.keys())
def test_writes(check: Check) -> None:
    check()


def answer(operation: Operation[Any], reply: Any) -> Any:
    """Answer the one request of an operation."""
    next(operation)
    with pytest.raises(StopIteration) as end:
        operation.send(reply)
    return end.value.value


@pytest.mark.parametrize("key", ["name", "namespace", "uid"])
def test_an_answer_about_another_object(key: str) -> None:
    body = objects.trainjob()
    body["metadata"]["resourceVersion"] = "7"
    other = {**body, "metadata": {**body["metadata"], key: "other"}}
    operation = write(Replace(TRAINJOBS, body))
    next(operation)
    with pytest.raises(AssertionError, match=f"wrote {key} "):
        operation.send(other)


def test_a_created_object_has_the_servers_uid() -> None:
    body = objects.trainjob()
    del body["metadata"]["uid"]
    stored = {**body, "metadata": {**body["metadata"], "uid": "new"}}
    assert answer(write(Create(TRAINJOBS, body)), stored) == stored


def test_find_and_get() -> None:
    server = ApiServer(objects.trainjob())
    found = server.run(get(TRAINJOBS, TEAM, NAME))
    assert found == server.run(find(TRAINJOBS, TEAM, NAME)) == server.read(TRAINJOBS, NAME)
    assert server.run(find(TRAINJOBS, TEAM, "other")) is None


def test_requests_are_values() -> None:
    """The explorer keeps them in sets: two that ask the same are the same."""
    body = objects.trainjob()
    body["metadata"]["resourceVersion"] = "7"
    assert len({Replace(TRAINJOBS, body), Replace(TRAINJOBS, dict(body))}) == 1
    state, reply = apply(ApiServer(objects.trainjob()).state, next(get(TRAINJOBS, TEAM, NAME)))
    reply["spec"].clear()
    assert apply(state, next(get(TRAINJOBS, TEAM, NAME)))[1]["spec"], "a reply is a copy"
