"""Each rule of the guard rails on a real API server: who is refused what, and who is not.

Aspects: for each rule, a change that it and no other rule refuses, by everybody who must not; the same change, or one
beside it, granted to whom it is for; outside guarded namespaces nobody is refused anything, save the controller;
each expression compiles against the schemas without a warning; every rule has cases of both kinds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dispatch_gates.contract.guard_rails import POLICIES, Level
from dispatch_infra.policies import policies
from dispatch_local import waiting
from guard_rails.bare import ACCOUNTS, Answer, Bare
from guard_rails.cases import CASES, CHECK, EVERYBODY
from guard_rails.changes import change, named, store

RULES = {
    f"{policy.name}/{rule.name}" for policy in policies(ACCOUNTS, CHECK, Level.EXECUTIONS) for rule in policy.rules
}


@pytest.fixture(scope="module")
def server(api_server: Bare) -> Iterator[Bare]:
    for index, case in enumerate(CASES):
        if case.before is not None:
            store(api_server, case, named(case.before, index))
    install(api_server, Level.ADMISSIONS)
    yield api_server
    api_server.remove()


@pytest.fixture(scope="module")
def strict(server: Bare) -> Bare:
    install(server, Level.EXECUTIONS)
    return server


def install(server: Bare, level: Level) -> None:
    """Install the policies that a level adds, and wait until the last of them denies."""
    server.install(level, CHECK)
    last = POLICIES[level][-1]
    index = next(i for i, case in enumerate(CASES) if case.rule.startswith(f"{last}/") and case.refused)
    waiting.until("the last policy to deny", lambda: not ask(server, index, CASES[index].refused[0]).accepted)


def ask(server: Bare, index: int, who: str) -> Answer:
    """Ask for the change of a case, as somebody."""
    wanted = change(server, index)
    return server.ask(who, wanted.method, wanted.path, wanted.body)


def of_level(level: Level) -> list[Any]:
    return [
        pytest.param(index, id=str(case))
        for index, case in enumerate(CASES)
        if case.rule.partition("/")[0] in POLICIES[level]
    ]


@pytest.mark.parametrize("index", of_level(Level.ADMISSIONS))
def test_rule(server: Bare, index: int) -> None:
    judge(server, index)


@pytest.mark.parametrize("index", of_level(Level.EXECUTIONS))
def test_rule_of_executions(strict: Bare, index: int) -> None:
    judge(strict, index)


def judge(server: Bare, index: int) -> None:
    case = CASES[index]
    policy, _, rule = case.rule.partition("/")
    for who in case.refused:
        answer = ask(server, index, who)
        assert answer.status == 403, f"{who}: {answer}"
        assert f"ValidatingAdmissionPolicy '{policy}'" in answer.message, f"{who}: {answer}"
        assert f"denied request: {rule}: " in answer.message, f"{who}: {answer}"
    for who in case.allowed:
        answer = ask(server, index, who)
        assert answer.accepted, f"{who}: {answer}"


def test_every_rule_is_tried() -> None:
    assert {case.rule for case in CASES} == RULES
    assert {case.rule for case in CASES if case.refused} == RULES
    assert {who for case in CASES for who in (*case.refused, *case.allowed)} == set(EVERYBODY)


def test_the_policies_are_those_that_others_look_for() -> None:
    for level in (Level.ADMISSIONS, Level.EXECUTIONS):
        found = {policy.name for policy in policies(ACCOUNTS, CHECK, Level.EXECUTIONS) if policy.level is level}
        assert found == set(POLICIES[level])


@pytest.mark.parametrize("policy", [name for found in POLICIES.values() for name in found])
def test_no_expression_misspells_a_field(strict: Bare, policy: str) -> None:
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{policy}"

    def checked() -> Any:
        found = strict.admin.get(path)
        return found and (found.get("status") or {}).get("typeChecking") is not None and found

    # The controller manager checks types; it rests during the other tests.
    strict.wake()
    waiting.until("the type check", lambda: bool(checked()))
    assert (checked()["status"]["typeChecking"].get("expressionWarnings") or []) == []
