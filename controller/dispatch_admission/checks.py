"""Our AdmissionChecks: those whose controllerName, which is immutable, is ours. They are set Active, never inactive."""

from __future__ import annotations

from dispatch_gates.contract.names import ADMISSION_CHECKS, CONTROLLER_NAME
from dispatch_gates.contract.objects import JsonObject, copied, entries, number, text
from dispatch_gates.requests import ConflictError, Operation, ReplaceStatus, find, write


def is_ours(check: JsonObject) -> bool:
    """Whether this AdmissionCheck is served by us."""
    return text(check, "spec", "controllerName") == CONTROLLER_NAME


def activate(name: str, now: str) -> Operation[bool]:
    """Set Active=True on our AdmissionCheck where it does not say so already; return whether it was written.

    `now` is RFC 3339. A conflict, as when Kueue adds its finalizer, is decided anew.
    """
    while True:
        check = yield from find(ADMISSION_CHECKS, "", name)
        if check is None or not is_ours(check):
            return False
        generation = number(check, "metadata", "generation")
        conditions = entries(check, "status", "conditions")
        current = next((entry for entry in conditions if entry.get("type") == "Active"), {})
        if current.get("status") == "True" and current.get("observedGeneration") == generation:
            return False
        active = {
            "type": "Active",
            "status": "True",
            "reason": "Serving",
            "message": "The admission controller of dispatch serves this check",
            "lastTransitionTime": current.get("lastTransitionTime", now) if current.get("status") == "True" else now,
            "observedGeneration": generation,
        }
        body = copied(check)
        body.setdefault("status", {})["conditions"] = [
            *(entry for entry in conditions if entry.get("type") != "Active"),
            active,
        ]
        try:
            yield from write(ReplaceStatus(ADMISSION_CHECKS, body))
        except ConflictError:
            continue
        return True
