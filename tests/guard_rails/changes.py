"""The changes of the cases, as requests to an API server that holds what was there before them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from guard_rails.bare import Bare, Body
from guard_rails.cases import CASES, JOB, Case

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


@dataclass(frozen=True)
class Change:
    """One request."""

    method: str
    path: str
    body: Body | None = None


def change(server: Bare, index: int) -> Change:
    """Return the request of a case."""
    case = CASES[index]
    body = named(case.after or case.before or {}, index)
    path = collection(case, body)
    if case.before is None:
        return Change("POST", path, body)
    path = f"{path}/{named(case.before, index)['metadata']['name']}"
    if case.after is None:
        return Change("DELETE", path)
    found = server.admin.get(path)
    assert found is not None, path
    return Change("PUT", path + (f"/{case.subresource}" if case.subresource else ""), _onto(found, body))


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
