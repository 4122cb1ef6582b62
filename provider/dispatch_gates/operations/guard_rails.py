"""Which guard rails are in force in a namespace: read by name, and proven by a request that must be refused."""

from __future__ import annotations

from typing import Final

from dispatch_gates.contract import names
from dispatch_gates.contract.count import runtime_patch
from dispatch_gates.contract.guard_rails import POLICIES, TRAINJOBS_POLICY, GuardRails, Level
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.objects import JsonObject, dig, listed, text
from dispatch_gates.requests import Create, DeniedError, InvalidError, Operation, select, write

_PROBE: Final = Identity("0" * 26, 0)
_DENY, _AUDIT = "Deny", "Audit"


def guard_rails(namespace: str) -> Operation[GuardRails]:
    """Tell the level in force in a namespace: the highest whose policies are all bound, and refuse what they must.

    Nothing is stored. Raises what the requests raise, save for rights that are missing: those are a reason why no
    level is proven.
    """
    try:
        modes = yield from _modes()
    except DeniedError as error:
        return GuardRails(Level.NO, f"whether they are installed could not be read: {error}")
    missing = {level: [name for name in POLICIES[level] if modes[name] is None] for level in POLICIES}
    if missing[Level.ADMISSIONS]:
        return GuardRails(Level.NO, f"not installed: {_few(missing[Level.ADMISSIONS])}")
    lenient = [name for name in POLICIES[Level.ADMISSIONS] if modes[name] != _DENY]
    if lenient:
        return GuardRails(Level.AUDIT, f"only reported: {_few(lenient)}")
    if answer := (yield from _not_refused(namespace)):
        return GuardRails(Level.NO, answer)
    strict = [name for name in POLICIES[Level.EXECUTIONS] if modes[name] != _DENY]
    if strict:
        return GuardRails(Level.ADMISSIONS, f"for executions, not in force: {', '.join(strict)}")
    return GuardRails(Level.EXECUTIONS)


def _few(policies: list[str]) -> str:
    return listed(policies, len(policies))


def _modes() -> Operation[dict[str, str | None]]:
    """Read for each policy whether it denies, only reports, or is not there as a whole (None). By two lists."""
    policies = {
        text(raw, "metadata", "name") for raw in (yield from select(names.POLICIES, "", names.GUARD_RAILS)).items
    }
    found = yield from select(names.POLICY_BINDINGS, "", names.GUARD_RAILS)
    bindings = {text(raw, "metadata", "name"): raw for raw in found.items}
    return {
        name: _mode(bindings[name], name) if name in policies and name in bindings else None
        for name in (name for level in POLICIES.values() for name in level)
    }


def _mode(binding: JsonObject, policy: str) -> str | None:
    actions = dig(binding, "spec", "validationActions")
    if text(binding, "spec", "policyName") != policy or not isinstance(actions, list):
        return None
    return _DENY if _DENY in actions else _AUDIT


def _not_refused(namespace: str) -> Operation[str]:
    """Try, without storing anything, a TrainJob that may never be; return why it is no proof, empty if it is one."""
    body: JsonObject = {
        "apiVersion": names.TRAINJOBS.api_version,
        "kind": names.TRAINJOBS.kind,
        "metadata": {"name": _PROBE.name, "namespace": namespace},
        # An admission count that nobody raised, and no gate: whoever asks, this is refused.
        "spec": {
            "suspend": True,
            "runtimeRef": {"name": "guard-rails-probe"},
            "runtimePatches": [runtime_patch(1, ["node"])],
        },
    }
    try:
        yield from write(Create(names.TRAINJOBS, body, dry_run=True))
    except (DeniedError, InvalidError) as error:
        if f"'{TRAINJOBS_POLICY}'" in str(error):
            return ""
        return f"a forbidden TrainJob was not refused by policy {TRAINJOBS_POLICY}, but so: {error}"
    return (
        f"a forbidden TrainJob was accepted in a dry run: does namespace {namespace} have the label "
        f"{names.GUARDED}=true?"
    )
