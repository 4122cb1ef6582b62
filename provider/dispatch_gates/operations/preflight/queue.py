"""Preflight's look at the queue, its check and the controller: reads, and the rules that judge them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from dispatch_gates.contract import names
from dispatch_gates.contract.capability import Answer, Capability, Name
from dispatch_gates.contract.objects import JsonObject, dig, entries, number, parse_conditions, text
from dispatch_gates.operations.preflight.values import Asked
from dispatch_gates.requests import Operation, Pause, find

_PODS: Final = "pods"
_LOOK_SECONDS: Final = 0.5
_LONGEST_SECONDS: Final = 60.0
"""How long a Lease is looked at where its own duration is longer still."""


def read_queue(asked: Asked) -> Operation[Capability]:
    """Say whether the queue leads to a ClusterQueue that holds every job for our check."""
    assert asked.queue is not None, "plain mode has no queue"
    local = yield from find(names.LOCAL_QUEUES, asked.namespace, asked.queue)
    target = text(local, "spec", "clusterQueue") or ""
    cluster = (yield from find(names.CLUSTER_QUEUES, "", target)) if target else None
    return judge_queue(asked, local, cluster)


def judge_queue(asked: Asked, local: JsonObject | None, cluster: JsonObject | None) -> Capability:
    """Judge a LocalQueue and the ClusterQueue that it names. Rules in order; the first that fits says it."""
    where = f"LocalQueue {asked.namespace}/{asked.queue}"
    if local is None:
        return _no(f"{where} does not exist", "`localQueues` of infra/, or name one of `kubectl get localqueues -A`")
    target = text(local, "spec", "clusterQueue") or ""
    if cluster is None:
        remedy = f"`pulumi up` in infra/, or kubectl -n {asked.namespace} delete localqueue {asked.queue}"
        return _no(f"{where} points to ClusterQueue {target}, which does not exist", remedy)
    if problem := gate_problem(cluster, target, asked.check):
        return _no(*problem)
    for kind, name, body in (("localqueue", asked.queue, local), ("clusterqueue", target, cluster)):
        policy = text(body, "spec", "stopPolicy") or "None"
        if policy != "None":
            scope = f"-n {asked.namespace} " if kind == "localqueue" else ""
            patch = '{"spec":{"stopPolicy":"None"}}'
            remedy = f"kubectl {scope}patch {kind} {name} --type merge -p '{patch}', or `stopPolicy` of infra/"
            return _no(f"{kind} {name} is stopped ({policy}): nothing is admitted, so nothing proves the gate", remedy)
    active = parse_conditions(cluster).get("Active")
    if active is None or active.status != "True":
        said = f"{active.reason}: {active.message}" if active else "Kueue has not looked at it"
        return _no(f"ClusterQueue {target} is not active: {said}", f"kubectl describe clusterqueue {target}")
    return Capability(Name.QUEUE, Answer.YES, f"ClusterQueue {target} holds every job for AdmissionCheck {asked.check}")


def gate_problem(cluster: JsonObject, name: str, check: str) -> tuple[str, str] | None:
    """Return what lets jobs of a ClusterQueue past our check, and the remedy; None where nothing does."""
    listed = entries(cluster, "spec", "admissionChecksStrategy", "admissionChecks")
    ours = [entry for entry in listed if text(entry, "name") == check]
    wired = "wire the queue by GatedQueue of infra/"
    if not ours:
        seen = ", ".join(sorted(str(text(entry, "name")) for entry in listed)) or "none"
        return (
            f"ClusterQueue {name} does not list AdmissionCheck {check} (it lists: {seen})",
            f"{wired}, or add {check} to spec.admissionChecksStrategy.admissionChecks; the older field "
            "spec.admissionChecks is dropped by the API server without a word",
        )
    narrowed = sorted({flavor for entry in ours for flavor in _strings(dig(entry, "onFlavors"))})
    if narrowed:
        groups = entries(cluster, "spec", "resourceGroups")
        flavors = {text(flavor, "name") or "?" for group in groups for flavor in entries(group, "flavors")}
        bare = ", ".join(sorted(flavors - set(narrowed))) or "any that is added later"
        return (
            f"ClusterQueue {name} narrows AdmissionCheck {check} to flavors {', '.join(narrowed)}; not covered: {bare}",
            f"{wired}, or take onFlavors out of the entry",
        )
    covered = {
        resource
        for group in entries(cluster, "spec", "resourceGroups")
        for resource in _strings(dig(group, "coveredResources"))
    }
    if _PODS not in covered:
        return (
            f"ClusterQueue {name} does not cover {_PODS}: a job that requests nothing else it covers skips the check",
            f"{wired}, or add {_PODS} to coveredResources",
        )
    return None


def _strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _no(reason: str, remedy: str) -> Capability:
    return Capability(Name.QUEUE, Answer.NO, reason, remedy)


def read_check(asked: Asked) -> Operation[Capability]:
    """Say whether the AdmissionCheck is ours and Active."""
    return judge_check(asked.check, (yield from find(names.ADMISSION_CHECKS, "", asked.check)))


def judge_check(name: str, raw: JsonObject | None) -> Capability:
    """Judge an AdmissionCheck."""
    if raw is None:
        return Capability(
            Name.ADMISSION_CHECK, Answer.NO, f"AdmissionCheck {name} does not exist", "`pulumi up` in infra/"
        )
    controller = text(raw, "spec", "controllerName") or ""
    if controller != names.CONTROLLER_NAME:
        return Capability(
            Name.ADMISSION_CHECK,
            Answer.NO,
            f"AdmissionCheck {name} belongs to controller {controller!r}, not to {names.CONTROLLER_NAME}",
            "name dispatch's check by --check, or install it by `pulumi up` in infra/",
        )
    active = parse_conditions(raw).get("Active")
    if active is None or active.status != "True":
        said = f"{active.reason}: {active.message}" if active else "no controller has looked at it"
        return Capability(
            Name.ADMISSION_CHECK,
            Answer.NO,
            f"AdmissionCheck {name} is not Active: {said}",
            "see to the controller (Controller, below)",
        )
    return Capability(Name.ADMISSION_CHECK, Answer.YES, f"AdmissionCheck {name} is dispatch's and Active")


def read_lease(asked: Asked) -> Operation[JsonObject | None]:
    """Read the controller's Lease."""
    return (yield from find(names.LEASES, asked.controller_namespace, asked.lease))


def read_controller(
    asked: Asked, first: JsonObject | None, since: float, clock: Callable[[], float]
) -> Operation[Capability]:
    """Say whether the Lease is being renewed: seen to change since `first` was read, at `since` by `clock`.

    The Lease's own times are not compared with any clock. Where it was not renewed yet, it is looked at for two
    fifths of its duration, which is twice the time between renewals.
    """
    while True:
        now = yield from read_lease(asked)
        found = judge_controller(asked, first, now, clock() - since)
        seconds = min((number(now, "spec", "leaseDurationSeconds") or 0) * 2 / 5, _LONGEST_SECONDS)
        if found.answer is Answer.YES or now is None or clock() - since >= seconds:
            return found
        yield Pause(_LOOK_SECONDS)


def judge_controller(asked: Asked, first: JsonObject | None, now: JsonObject | None, seconds: float) -> Capability:
    """Judge two views of the Lease, taken so many seconds apart."""
    where = f"Lease {asked.controller_namespace}/{asked.lease}"
    logs = f"kubectl -n {asked.controller_namespace} logs deployment/{names.CONTROLLER} --tail 50"
    if now is None:
        return Capability(
            Name.CONTROLLER,
            Answer.NO,
            f"{where} does not exist: no controller has ever led there",
            "`pulumi up` in infra/, or name its Lease by --controller-namespace and --lease",
        )
    holder = text(now, "spec", "holderIdentity") or ""
    if not holder:
        return Capability(Name.CONTROLLER, Answer.NO, f"{where} is held by nobody: no controller leads", logs)
    if first is None or _renewal(first) == _renewal(now):
        return Capability(
            Name.CONTROLLER,
            Answer.NO,
            f"{where}, held by {holder}, was not renewed for {seconds:.1f} s: the controller is down or hangs",
            logs,
        )
    return Capability(Name.CONTROLLER, Answer.YES, f"{where}, held by {holder}, is being renewed")


def _renewal(lease: JsonObject) -> Iterable[str | None]:
    return tuple(text(lease, "spec", key) for key in ("holderIdentity", "renewTime"))
