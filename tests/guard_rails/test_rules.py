"""Each rule of the guard rails on a real API server: who is refused what, and who is not.

Aspects: for each rule, a change that it and no other rule refuses, by everybody who must not; the same change, or one
beside it, granted to whom it is for; outside guarded namespaces nobody is refused anything, save the controller;
each expression compiles against the schemas without a warning; every rule has cases of both kinds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dispatch_gates.contract.guard_rails import POLICIES, Level
from dispatch_infra.policies import policies
from dispatch_local import waiting
from guard_rails import bare
from guard_rails.bare import ACCOUNTS, Bare, Body
from guard_rails.cases import CASES, CHECK, EVERYBODY, JOB, Case

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
RULES = {
    f"{policy.name}/{rule.name}" for policy in policies(ACCOUNTS, CHECK, Level.EXECUTIONS) for rule in policy.rules
}


def named(body: Body, index: int) -> Body:
    """Give the objects of a case a name of their own."""
    own = f"dj-01arz3ndektsv4rrffq69g5f{ALPHABET[index // 32]}{ALPHABET[index % 32]}-s1"
    made: Body = json.loads(json.dumps(body).replace(JOB[:-1], own[:-1]).replace('"a-', f'"a{index}-'))
    return made


def collection(case: Case, body: Body) -> str:
    resource = case.resource
    group = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    return f"{group}/namespaces/{body['metadata']['namespace']}/{resource.plural}"


def store(server: Bare, case: Case, body: Body) -> None:
    """Put what is there before the change, with its status."""
    path = collection(case, body)
    status, reply = server.admin.request("POST", path, body)
    assert status == 201, reply
    if "status" in body:
        stored = json.loads(reply)
        path = f"{path}/{body['metadata']['name']}/status"
        status, reply = server.admin.request("PUT", path, stored | {"status": body["status"]})
        assert status == 200, reply


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


def ask(server: Bare, index: int, who: str) -> bare.Answer:
    """Ask for the change of a case, as somebody."""
    case = CASES[index]
    body = named(case.after or case.before or {}, index)
    path = collection(case, body)
    if case.before is None:
        return server.ask(who, "POST", path, body)
    path = f"{path}/{named(case.before, index)['metadata']['name']}"
    if case.after is None:
        return server.ask(who, "DELETE", path)
    found = server.admin.get(path)
    assert found is not None, path
    return server.ask(who, "PUT", path + (f"/{case.subresource}" if case.subresource else ""), _onto(found, body))


def _onto(found: Body, wanted: Body) -> Body:
    """Change what is there into what is wanted, leaving what the API server filled in."""
    result = {**found, **{key: value for key, value in wanted.items() if key != "metadata"}}
    server_owned = {key: found["metadata"][key] for key in ("uid", "resourceVersion", "creationTimestamp")}
    result["metadata"] = wanted["metadata"] | server_owned
    for key in ("generation",):
        if key in found["metadata"]:
            result["metadata"][key] = found["metadata"][key]
    if wanted["kind"] in ("Job", "Pod"):
        result["spec"] = _merged(found["spec"], wanted["spec"])
    return result


def _merged(found: Any, wanted: Any) -> Any:
    """Keep what the API server defaulted where the case says nothing else."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        annotations = "annotations" in wanted
        kept = {key: value for key, value in found.items() if not (annotations and key == "annotations")}
        return kept | {
            key: value if key == "annotations" else _merged(found.get(key), value) for key, value in wanted.items()
        }
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        return [_merged(one, other) for one, other in zip(found, wanted, strict=True)]
    return wanted


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
