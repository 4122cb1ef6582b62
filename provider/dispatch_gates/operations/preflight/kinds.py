"""Preflight's look at the kinds: whether the API server knows them, in the versions and with the fields that we use."""

from __future__ import annotations

from collections.abc import Iterable

from dispatch_gates.contract import names
from dispatch_gates.contract.capability import Answer, Capability, Name
from dispatch_gates.contract.names import Resource
from dispatch_gates.contract.objects import JsonObject, dig, entries, flag, text
from dispatch_gates.operations.preflight.values import Problem, attempt
from dispatch_gates.requests import Operation, find

_PATCHES = "runtimePatches"
_INSTALLED_BY = {
    names.TRAINJOBS: "install Trainer 2.3",
    names.JOBSETS: "install JobSet 0.12",
    names.WORKLOADS: "install Kueue 0.19, or leave the queue out for plain mode",
}


def read_kinds(doubtful: Iterable[Resource]) -> Operation[Capability]:
    """Say whether the kinds are there; read the definitions of those alone that the other requests did not show."""
    problems: list[tuple[Answer, str, str]] = []
    for resource in doubtful:
        raw = yield from attempt(find(names.CRDS, "", str(resource)))
        if problem := judge_kind(resource, raw):
            problems.append((*problem, _INSTALLED_BY[resource]))
    if not problems:
        return Capability(Name.KINDS, Answer.YES, "all kinds are there, in the versions and with the fields needed")
    answer = Answer.NO if any(found is Answer.NO for found, *_ in problems) else Answer.UNKNOWN
    remedy = "; ".join(dict.fromkeys(remedy for *_, remedy in problems))
    return Capability(Name.KINDS, answer, "; ".join(reason for _, reason, _ in problems), remedy)


def judge_kind(resource: Resource, raw: JsonObject | Problem | None) -> tuple[Answer, str] | None:
    """Return what is wrong with a CustomResourceDefinition; None where nothing is."""
    if isinstance(raw, Problem):
        return Answer.UNKNOWN, f"{resource} {resource.version} was not shown, and its CRD cannot be read: {raw.message}"
    if raw is None:
        return Answer.NO, f"CRD {resource} is not installed"
    served = [version for version in entries(raw, "spec", "versions") if flag(version, "served") is True]
    version = next((found for found in served if text(found, "name") == resource.version), None)
    if version is None:
        seen = ", ".join(sorted(str(text(found, "name")) for found in served)) or "none"
        return Answer.NO, f"CRD {resource} serves {seen}; {resource.version} is needed"
    spec = dig(version, "schema", "openAPIV3Schema", "properties", "spec", "properties")
    if resource is names.TRAINJOBS and dig(spec, _PATCHES) is None:
        return Answer.NO, f"CRD {resource} {resource.version} lacks spec.{_PATCHES}, which carries A"
    return None
