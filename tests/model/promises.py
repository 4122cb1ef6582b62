"""The promises that can be read off the requests alone, whatever sent them. None of the product's rules is used.

The words S1, S3, S5 and S6 are the project's: Ready only on an unadmitted, unevicted reservation with our entry
Pending; A only grows, and no two Readies share one; nobody else's part of a status is touched; no idle writes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

from dispatch_gates.contract.names import ADMISSION_COUNT, ADMISSION_GATED_BY, PATCH_MANAGER, TRAINJOBS, WORKLOADS
from dispatch_gates.contract.objects import JsonObject, dig
from dispatch_gates.requests import ApiError, Replace, ReplaceStatus
from model.apiserver import ApiServer, Entry, Key
from model.objects import CHECK

_FALSE_OR_ABSENT = ("Evicted", "Admitted", "Finished")


def counts(trainjob: JsonObject) -> set[str]:
    """Return every A that a TrainJob's patch of ours carries, as text."""
    return {
        dig(job, "template", "spec", "template", "metadata", "annotations", ADMISSION_COUNT) or ""
        for patch in dig(trainjob, "spec", "runtimePatches") or []
        if patch["manager"] == PATCH_MANAGER
        for job in dig(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs") or []
    }


def count(server: ApiServer, name: str) -> int:
    """Return the A of a TrainJob, the same in each of its replicated jobs."""
    (found,) = counts(server.read(TRAINJOBS, name))
    return int(found)


def our_entry(workload: JsonObject, check: str = CHECK) -> JsonObject:
    """Return the entry of our check, empty where there is none."""
    return next((entry for entry in workload["status"]["admissionChecks"] if entry["name"] == check), {})


def readies(entries: Iterable[Entry]) -> list[JsonObject]:
    """Return the Workloads as stored by each write that turned our entry Ready."""
    return [
        entry.reply
        for entry in entries
        if isinstance(entry.request, ReplaceStatus)
        and entry.request.resource == WORKLOADS
        and not isinstance(entry.reply, ApiError)
        and entry.before is not None
        and our_entry(entry.before).get("state") != "Ready"
        and our_entry(entry.reply).get("state") == "Ready"
    ]


def broken(server: ApiServer) -> list[str]:
    """Return the promises that the applied writes broke, each in words."""
    return list(_broken(server))


def _broken(server: ApiServer) -> Iterator[str]:
    used: dict[str, int] = {}
    latest: dict[str, int] = {}
    for entry in server.writes:
        request, before = entry.request, entry.before
        if before is None or not isinstance(request, Replace | ReplaceStatus):
            continue
        if entry.reply["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]:
            yield f"S6: {request.resource} was written without a change"
        if request.resource == TRAINJOBS:
            yield from _lowered(before, entry.reply)
            if _without_ours(before) != _without_ours(entry.reply):
                yield "S5: somebody else's part of a TrainJob was changed"
            latest[server.key(entry.reply).name] = _highest(entry.reply)
        elif request.resource == WORKLOADS and isinstance(request, ReplaceStatus):
            yield from _foreign_parts(before, entry.reply)
            if our_entry(before).get("state") != "Ready" and our_entry(entry.reply).get("state") == "Ready":
                yield from _too_early(before)
                job = _job_of(server, entry.reply)
                if job:
                    if used.get(job, 0) >= latest.get(job, 0):
                        yield f"S3: Ready for A={latest.get(job)}, which is not above the last Ready's {used.get(job)}"
                    used[job] = latest.get(job, 0)


def _highest(trainjob: JsonObject) -> int:
    return max((int(found) for found in counts(trainjob) if found.isdecimal()), default=-1)


def _lowered(before: JsonObject, after: JsonObject) -> Iterator[str]:
    if _highest(after) < _highest(before):
        yield f"S3: A went from {_highest(before)} to {_highest(after)}"


def _without_ours(trainjob: JsonObject) -> JsonObject:
    """Return what of a TrainJob is not for the product to change: all but our patch, our gate and the version."""
    body = copy.deepcopy(trainjob)
    for key in ("resourceVersion", "generation"):
        body["metadata"].pop(key, None)
    body["metadata"].setdefault("annotations", {}).pop(ADMISSION_GATED_BY, None)
    patches = dig(body, "spec", "runtimePatches") or []
    body["spec"]["runtimePatches"] = [patch for patch in patches if patch["manager"] != PATCH_MANAGER]
    return body


def _foreign_parts(before: JsonObject, after: JsonObject) -> Iterator[str]:
    stripped = []
    for body in (before, after):
        status = copy.deepcopy(body["status"])
        for key in ("state", "message", "lastTransitionTime"):
            our_entry({"status": status}).pop(key, None)
        stripped.append(status)
    if stripped[0] != stripped[1]:
        yield "S5: somebody else's part of a Workload's status was changed"
    was, now = our_entry(before), our_entry(after)
    if was.get("state") == now.get("state") and was.get("lastTransitionTime") != now.get("lastTransitionTime"):
        yield "S5: lastTransitionTime moved although the state did not change"


def _too_early(workload: JsonObject) -> Iterator[str]:
    said = {entry["type"]: entry["status"] for entry in workload["status"].get("conditions", [])}
    if said.get("QuotaReserved") != "True" or "admission" not in workload["status"]:
        yield "S1: Ready without reserved quota"
    for kind in _FALSE_OR_ABSENT:
        if said.get(kind, "False") != "False":
            yield f"S1: Ready while {kind} is {said[kind]}"
    if workload["metadata"].get("deletionTimestamp"):
        yield "S1: Ready on a Workload that is being deleted"
    if workload["spec"].get("active") is False:
        yield "S1: Ready on an inactive Workload"
    if our_entry(workload).get("state") != "Pending":
        yield f"S1: Ready from {our_entry(workload).get('state')}"


def _job_of(server: ApiServer, workload: JsonObject) -> str:
    """Return the name of the TrainJob of dispatch's that owns a Workload, or nothing."""
    namespace = workload["metadata"]["namespace"]
    for reference in workload["metadata"].get("ownerReferences", []):
        owner = server.state.objects.get(Key(TRAINJOBS, namespace, reference["name"]))
        ours = owner is not None and (counts(owner) or reference["name"].startswith("dj-"))
        of_theirs = reference["apiVersion"].startswith(("trainer.kubeflow.org/", "jobset.x-k8s.io/"))
        if ours and of_theirs and reference.get("controller"):
            return str(reference["name"])
    return ""
