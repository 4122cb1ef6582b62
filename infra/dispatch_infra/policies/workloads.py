"""Workloads: who may take the start gate off them, and who sets our check Ready, and when."""

from __future__ import annotations

from dispatch_gates.contract import names
from dispatch_infra.policies.accounts import Accounts
from dispatch_infra.policies.cel import CREATE, OURS, UPDATE, Policy, Rule, gated, same


def _owned_by_ours(at: str) -> str:
    owners = f"{at}.metadata.?ownerReferences.orValue([])"
    return f"{owners}.exists(owner, owner.kind == '{names.TRAINJOBS.kind}' && owner.name.matches('{OURS}'))"


def _entries(at: str) -> str:
    return f"{at}.?status.?admissionChecks.orValue([])"


def _listed(at: str, check: str) -> str:
    return f"{_entries(at)}.exists(entry, entry.name == '{check}')"


def _true(kind: str) -> str:
    return f"variables.conditions.exists(known, known.type == '{kind}' && known.status == 'True')"


def all_users(accounts: Accounts) -> Policy:
    """Return what holds for everybody, of all but the status."""
    return Policy(
        name="dispatch-workloads",
        resource=names.WORKLOADS,
        operations=(CREATE, UPDATE),
        about=f"{_owned_by_ours('object')} || (oldObject != null && {_owned_by_ours('oldObject')})",
        variables=accounts.users("kueue", "garbage_collector"),
        rules=(
            Rule(
                "created-by-kueue",
                "oldObject != null || variables.byKueue",
                "Kueue makes the Workload of a TrainJob of dispatch's: create none for it",
            ),
            Rule(
                "gate-by-kueue",
                f"oldObject == null || !{gated('oldObject')} || {gated('object')} || variables.byKueue",
                "Kueue takes the start gate off a Workload, once Open has taken it off the TrainJob: open the job",
            ),
            Rule(
                "owner-and-queue-stay",
                "oldObject == null || variables.byKueue || variables.byGarbageCollector || "
                f"({same('.metadata.?ownerReferences', '.spec.?queueName')})",
                "a Workload stays with its TrainJob and in its queue, before which the check stands: start the job "
                "as the next submission",
            ),
        ),
    )


def _status_variables(check: str) -> dict[str, str]:
    return {
        "own": f"{_entries('object')}.filter(entry, entry.name == '{check}')",
        "oldOwn": f"{_entries('oldObject')}.filter(entry, entry.name == '{check}')",
        "opens": "variables.own.exists(entry, entry.state == 'Ready') && "
        "!variables.oldOwn.exists(entry, entry.state == 'Ready')",
        "status": "object.?status.orValue({})",
        "oldStatus": "oldObject.?status.orValue({})",
        "restStays": """variables.status.all(key, key == 'admissionChecks' ||
  (key in variables.oldStatus && variables.status[key] == variables.oldStatus[key])) &&
variables.oldStatus.all(key, key == 'admissionChecks' || key in variables.status)""",
    }


def status(accounts: Accounts, check: str) -> Policy:
    """Return what holds for everybody but the controller: the check is not theirs to answer."""
    return Policy(
        name="dispatch-workload-status",
        resource=names.WORKLOADS,
        subresource="status",
        operations=(UPDATE,),
        about=f"!({accounts.is_user('controller')}) && ({_listed('object', check)} || "
        f"{_listed('oldObject', check)} || {_owned_by_ours('object')})",
        variables=_status_variables(check) | accounts.users("kueue"),
        rules=(
            Rule(
                "ready-by-the-controller",
                "!variables.opens",
                f"AdmissionCheck {check} is set Ready by dispatch's controller alone, after it has raised the "
                "admission count: its message says what it waits for",
            ),
            Rule(
                "admission-by-kueue",
                "variables.byKueue || (variables.own == variables.oldOwn && variables.restStays)",
                f"reservation, admission and AdmissionCheck {check} are written by Kueue and dispatch: other "
                "controllers change the entry of their own check and nothing else",
            ),
        ),
    )


def controller_status(accounts: Accounts, check: str) -> Policy:
    """Return what holds for the controller in every namespace: it answers its own check, and only in time."""
    return Policy(
        name="dispatch-controller-status",
        resource=names.WORKLOADS,
        subresource="status",
        operations=(UPDATE,),
        everywhere=True,
        about=accounts.is_user("controller"),
        variables=_status_variables(check)
        | {
            "others": f"{_entries('object')}.filter(entry, entry.name != '{check}')",
            "oldOthers": f"{_entries('oldObject')}.filter(entry, entry.name != '{check}')",
            "conditions": "oldObject.?status.?conditions.orValue([])",
        },
        rules=(
            Rule(
                "our-entry-and-nothing-else",
                "variables.restStays && variables.others == variables.oldOthers && "
                "variables.own.size() == 1 && variables.oldOwn.size() == 1",
                f"the controller changes the entry of AdmissionCheck {check} and nothing else of a Workload's status",
            ),
            Rule(
                "state-and-message-alone",
                """variables.own.all(entry, entry.state in ['Pending', 'Ready'] && variables.oldOwn.all(old,
  entry.all(key, key in ['state', 'message', 'lastTransitionTime'] || (key in old && entry[key] == old[key])) &&
  old.all(key, key in entry)))""",
                f"the controller sets AdmissionCheck {check} Pending or Ready, with a message, and nothing else",
            ),
            Rule(
                "ready-for-an-open-reservation",
                f"""!variables.opens || (variables.oldOwn.all(entry, entry.state == 'Pending') &&
  {_true("QuotaReserved")} && oldObject.?status.?admission.hasValue() &&
  !{_true("Evicted")} && !{_true("Admitted")} &&
  !{_true("Finished")} && !{_true("DeactivationTarget")} &&
  object.spec.?active.orValue(true) && !object.metadata.?deletionTimestamp.hasValue())""",
                "Ready is for a Workload with quota reserved that is neither admitted, evicted, deactivated, finished "
                "nor being deleted: read it again",
            ),
        ),
    )
