"""The caller's rights: one review of all rules, and one question more for each right that it does not show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from dispatch_gates.contract import names
from dispatch_gates.contract.capability import Answer, Capability, Name
from dispatch_gates.contract.names import Resource
from dispatch_gates.contract.objects import JsonObject, dig, entries, flag
from dispatch_gates.operations.preflight.values import Asked
from dispatch_gates.requests import Create, Operation

_CLUSTER_SCOPED: Final = {names.CLUSTER_QUEUES, names.ADMISSION_CHECKS, names.CLUSTER_TRAINING_RUNTIMES}


@dataclass(frozen=True)
class Right:
    """One verb on one resource, in a namespace or, where that is empty, in the whole cluster; `name`: of that one."""

    verb: str
    resource: Resource
    namespace: str
    name: str = ""

    def __str__(self) -> str:
        what = " ".join(filter(None, (self.verb, str(self.resource), self.name)))
        return what + (f" in namespace {self.namespace}" if self.namespace else "")

    @property
    def attributes(self) -> JsonObject:
        """The question, as the API server wants it."""
        found = {"verb": self.verb, "group": self.resource.group, "resource": self.resource.plural}
        return found | {key: value for key in ("namespace", "name") if (value := getattr(self, key))}


def needed(asked: Asked, guarded: bool) -> tuple[Right, ...]:
    """Return the rights that the operations on jobs use: exactly those. `guarded`: guard rails ask for one more."""
    of_jobs = (
        Right(verb, resource, "" if resource in _CLUSTER_SCOPED else asked.namespace)
        for resource, verbs in _verbs(asked, guarded)
        for verb in verbs.split()
    )
    # By which the Pulumi resources tell clusters apart.
    return (*of_jobs, Right("get", names.NAMESPACES, "", names.IDENTIFYING_NAMESPACE))


def _verbs(asked: Asked, guarded: bool) -> Iterator[tuple[Resource, str]]:
    yield names.TRAINJOBS, "get list watch create update delete" + (f" {names.ADAPTER_VERB}" if guarded else "")
    yield names.JOBSETS, "get list watch"
    yield names.JOBS, "list watch"
    yield names.PODS, "list watch"
    kind = asked.runtime[0] if asked.runtime else None
    for resource in (names.CLUSTER_TRAINING_RUNTIMES, names.TRAINING_RUNTIMES):
        if kind in (None, resource.kind):
            yield resource, "get" if asked.runtime else "get list"
    if asked.queue is not None:
        yield names.WORKLOADS, "list watch update"
        yield names.LOCAL_QUEUES, "get"
        yield names.CLUSTER_QUEUES, "get"
        yield names.ADMISSION_CHECKS, "get"


def read_rights(asked: Asked, guarded: bool) -> Operation[Capability]:
    """Say which of the needed rights the caller lacks."""
    review: JsonObject = yield Create(
        names.RULES_REVIEWS,
        {
            "apiVersion": names.RULES_REVIEWS.api_version,
            "kind": names.RULES_REVIEWS.kind,
            "spec": {"namespace": asked.namespace},
        },
    )
    rules = entries(review, "status", "resourceRules")
    missing = []
    for right in needed(asked, guarded):
        # The review need not be complete: an authorizer may know more than it can list.
        if not _shown(rules, right) and not (yield from _allowed(right)):
            missing.append(right)
    return judge_rights(missing)


def judge_rights(missing: Iterable[Right]) -> Capability:
    """Judge the rights that are missing."""
    lacking = [str(right) for right in missing]
    if not lacking:
        return Capability(Name.RIGHTS, Answer.YES, "all that starting, opening and holding jobs takes")
    return Capability(
        Name.RIGHTS,
        Answer.NO,
        f"you may not: {'; '.join(lacking)}",
        "have an administrator bind you to a role that holds them (provider/README.md, Rights)",
    )


def _shown(rules: Iterable[JsonObject], right: Right) -> bool:
    return any(
        _holds(rule, "verbs", right.verb)
        and _holds(rule, "apiGroups", right.resource.group)
        and _holds(rule, "resources", right.resource.plural)
        and (not dig(rule, "resourceNames") or (right.name and _holds(rule, "resourceNames", right.name)))
        for rule in rules
    )


def _holds(rule: JsonObject, key: str, wanted: str) -> bool:
    found: Any = dig(rule, key)
    return isinstance(found, list) and (wanted in found or "*" in found)


def _allowed(right: Right) -> Operation[bool]:
    review: JsonObject = yield Create(
        names.ACCESS_REVIEWS,
        {
            "apiVersion": names.ACCESS_REVIEWS.api_version,
            "kind": names.ACCESS_REVIEWS.kind,
            "spec": {"resourceAttributes": right.attributes},
        },
    )
    return flag(review, "status", "allowed") is True
