"""Each precondition of the safety rule, taken away: a named check must fail.

The table is in the words of the project's list of preconditions; a row may stand more than once where more than one
place keeps it. A snippet that is not in the source exactly once is an error, so the table follows the code.
"""

from __future__ import annotations

import importlib

import pytest

from unit.checks import Check
from unit.mutants import Mutant, installed

DECIDE = "dispatch_admission.decide"
NEXT = "dispatch_gates.contract.next_execution"
ACT = "dispatch_admission.act"
OBSERVE = "dispatch_admission.observe"
CHECKS = "dispatch_admission.checks"
EXECUTION = "dispatch_gates.contract.execution"
COUNT = "dispatch_gates.contract.count"
TRAINJOB = "dispatch_gates.contract.trainjob"
WORKLOAD = "dispatch_gates.contract.workload"
NEXT = "dispatch_gates.contract.next_execution"
EVIDENCE = "dispatch_gates.operations.evidence"
REQUESTS = "dispatch_gates.requests"
DRIVER = "dispatch_gates.cluster.driver"
SHARING = "dispatch_admission.sharing"

_NOT_TURN = 'for kind in ("Finished", "DeactivationTarget", "Evicted", "Admitted"):'
_REREAD = '["metadata"]["resourceVersion"] = (yield from find({}))["metadata"]["resourceVersion"]'
_COUNTED = "count = next_count(job, evidence)"
_BLIND = (
    "from dataclasses import replace as with_\n"
    "    blind_ = with_(evidence, jobset=evidence.jobset and with_(evidence.jobset, count=job.count))\n"
    "    count = next_count(job, {})"
)
_LATE = "a replica stalls, meanwhile: run_and_evicted_with_pods_left"


def _without(kind: str) -> str:
    return _NOT_TURN.replace(f'"{kind}", ', "").replace(f', "{kind}"', "")


def _trusting(when: str) -> str:
    """Return a call of the rule that takes the JobSet's A for granted in one half of the pass."""
    trusted = "replace(evidence, jobset=replace(evidence.jobset, count=job.count))"
    trusted = trusted.replace("replace", "__import__('dataclasses').replace")
    return f"next_count(job, {trusted} if {when} and evidence.jobset else evidence)"


TABLE: dict[str, Mutant] = {
    # Of the Workload.
    "QuotaReserved": Mutant(DECIDE, "if not workload.reserved:", "if False:", "nothing: no quota reserved"),
    "QuotaReserved: backed by an admission": Mutant(
        WORKLOAD,
        'self.conditions.true("QuotaReserved") and self.admission',
        'self.conditions.true("QuotaReserved")',
        "nothing: quota reserved, but no admission to back it",
    ),
    "QuotaReserved: Unknown is not True": Mutant(
        WORKLOAD,
        'self.conditions.true("QuotaReserved")',
        'not self.conditions.clear("QuotaReserved")',
        "nothing: quota reserved reads Unknown",
    ),
    "not Evicted": Mutant(DECIDE, _NOT_TURN, _without("Evicted"), "nothing: evicted, quota still reserved"),
    "not Evicted: in the whole story": Mutant(
        DECIDE, _NOT_TURN, _NOT_TURN.replace(', "Evicted", "Admitted"', ""), "eviction_in_progress"
    ),
    "not Admitted": Mutant(
        DECIDE, _NOT_TURN, _without("Admitted"), "nothing: admitted: the check was put back beside a running job"
    ),
    "not Finished": Mutant(DECIDE, _NOT_TURN, _without("Finished"), "nothing: finished"),
    "no DeactivationTarget": Mutant(
        DECIDE, _NOT_TURN, _without("DeactivationTarget"), "nothing: deactivation is under way"
    ),
    "no deletionTimestamp": Mutant(
        DECIDE,
        'if workload.meta.deleting:\n        return "the',
        'if False:\n        return "the',
        "nothing: being deleted",
    ),
    "spec.active": Mutant(DECIDE, "if not workload.active:", "if False:", "nothing: inactive"),
    "our entry present": Mutant(
        WORKLOAD,
        "found = [check for check in self.checks if check.name in ours]",
        "found = list(self.checks)",
        "nothing: our check is not listed",
    ),
    "our entry Pending": Mutant(
        DECIDE, "if check.state != State.PENDING:", "if False:", "nothing: our check says Retry"
    ),
    "our entry Pending: a Ready serves one admission": Mutant(
        DECIDE,
        "if check.state == State.READY and _spent(workload, check):",
        "if False:",
        "a_stray_ready_does_not_serve_the_next_execution",
    ),
    "our entry Pending: a Ready of an earlier admission is spent": Mutant(
        DECIDE,
        "return not workload.reserved or (",
        "return not workload.reserved and (",
        "a Ready is spent or not: an admission came and went since",
    ),
    "our entry Pending: a fresh Ready is later than the last admission": Mutant(
        ACT,
        "and not later_than(moment, admitted.time):",
        "and False:",
        "a fresh Ready is later than the last admission, within one second",
    ),
    "our entry Pending: of several, each in its turn": Mutant(
        WORKLOAD,
        "next((check for check in found if check.state == State.PENDING), found[0] if found else None)",
        "found[0] if found else None",
        "two_checks_of_ours_on_one_queue",
    ),
    "the AdmissionCheck is ours (controllerName)": Mutant(
        CHECKS,
        'return text(check, "spec", "controllerName") == CONTROLLER_NAME',
        "return True",
        "only_the_check_with_our_controller_name_is_ours",
    ),
    # Of the owner.
    "owner is a TrainJob": Mutant(
        OBSERVE,
        "resource = _FOLLOWED.get((child.owner.group, kind))",
        "resource = {name: found for (_, name), found in _FOLLOWED.items()}.get(kind)",
        "foreign: 11 kind TrainJob in another API group",
    ),
    "owner is a TrainJob: found above a JobSet, too": Mutant(
        OBSERVE,
        "(TRAINJOBS, WORKLOADS, JOBSETS, JOBS)\n",
        "(TRAINJOBS, WORKLOADS)\n",
        "owner: 3 the JobSet of its TrainJob",
    ),
    "owner is a TrainJob: no variant of its Workload": Mutant(
        OBSERVE, "            if variant:", "            if False:", "owner: 2 a Workload of its TrainJob"
    ),
    "owner is a TrainJob: no variant of its Workload, however far up": Mutant(
        OBSERVE,
        "variant = variant or resource == WORKLOADS",
        "variant = resource == WORKLOADS",
        "owner: 2b a Workload of the JobSet of its TrainJob",
    ),
    "owner is a TrainJob: one that cannot be read may be": Mutant(
        OBSERVE,
        'return Unknown(Reason.OWNER_UNREADABLE, f"its owner {kind} {name} cannot be read',
        'return Foreign(f"its owner {kind} {name} cannot be read',
        "owner: 6, 7 trainjobs.trainer.kubeflow.org answers DeniedError",
    ),
    "owner is a TrainJob: one that is gone may have been": Mutant(
        OBSERVE,
        'return Unknown(Reason.OWNER_UNREADABLE, f"its owner {kind} {name} is gone")',
        'return Foreign(f"its owner {kind} {name} is gone")',
        "owner: 5 a TrainJob that is gone",
    ),
    "owner is a TrainJob: of dispatch's by its name": Mutant(
        TRAINJOB, "self.patched or Identity.parse(self.meta.name) is not None", "self.patched", "ours_by_name_alone"
    ),
    "owner is a TrainJob: of dispatch's by our patch": Mutant(
        TRAINJOB,
        "self.patched or Identity.parse(self.meta.name) is not None",
        "Identity.parse(self.meta.name) is not None",
        "ours_by_patch_alone",
    ),
    "owner UID equals the live UID": Mutant(
        OBSERVE,
        "if meta.uid != child.owner.uid:",
        "if False:",
        "owner: 4 a TrainJob of the right name and another uid",
    ),
    "TrainJob not being deleted": Mutant(
        DECIDE, "if job.meta.deleting:", "if False:", "waits for the TrainJob: being deleted"
    ),
    "TrainJob suspended": Mutant(DECIDE, "if not job.suspended:", "if False:", "waits for the TrainJob: not suspended"),
    "TrainJob suspended: unset is not": Mutant(
        TRAINJOB,
        'suspended=flag(raw, "spec", "suspend") is True,',
        'suspended=flag(raw, "spec", "suspend") is not False,',
        "waits for the TrainJob: suspend is unset",
    ),
    "TrainJob not ended": Mutant(DECIDE, "if job.ended:", "if False:", "waits for the TrainJob: failed"),
    "no hold mark": Mutant(DECIDE, "if job.held:", "if False:", "waits for the TrainJob: held"),
    "start gate open": Mutant(
        DECIDE, "if job.gates.closed:", "if False:", "waits for the TrainJob: our gate is closed"
    ),
    "start gate open: a blank entry closes it": Mutant(
        DECIDE, "if job.gates.closed:", "if job.gates.names:", "waits for the TrainJob: a blank gate is closed"
    ),
    # Of the previous execution.
    "pods found by what the tenant cannot forge away: of an earlier JobSet of the name": Mutant(
        EVIDENCE,
        "pods = yield from select(PODS, namespace, selector)",
        """pods = yield from select(PODS, namespace, f"{selector},jobset.sigs.k8s.io/jobset-uid=uid-jobset")""",
        "waits for a pod: 13 of an earlier JobSet of the same name",
    ),
    "pods found by what the tenant cannot forge away: without an owner": Mutant(
        EXECUTION,
        "*alive(self.pods),",
        "*alive(pod for pod in self.pods if pod.meta.owner),",
        "waits for a pod: without an owner",
    ),
    "pods found by what the tenant cannot forge away: one without labels counts in its Job": Mutant(
        EXECUTION,
        "return stopped and self.active == 0 and self.terminating == 0",
        "return stopped and self.active == 0",
        "waits for what remains: Job with a terminating pod",
    ),
    "pods found by what the tenant cannot forge away: one that cannot be read counts": Mutant(
        EXECUTION, "            *self.unreadable,\n", "", "waits for a pod: unreadable"
    ),
    "pods in phase Pending count": Mutant(
        EXECUTION,
        'self.phase not in ("Succeeded", "Failed")',
        'self.phase not in ("Succeeded", "Failed", "Pending")',
        "waits for a pod: 1 Pending, no node",
    ),
    "Unknown counts": Mutant(
        EXECUTION,
        'self.phase not in ("Succeeded", "Failed")',
        'self.phase not in ("Succeeded", "Failed", "Unknown")',
        "waits for a pod: 5b Unknown, no container reported",
    ),
    "terminating counts": Mutant(
        EXECUTION,
        "or bool(self.running)\n\n    def __str__",
        "and not self.meta.deleting\n\n    def __str__",
        "waits for a pod: 4 Running, being deleted",
    ),
    "a container that runs counts beside an end phase": Mutant(
        EXECUTION,
        "or bool(self.running)\n\n    def __str__",
        "or False\n\n    def __str__",
        "waits for a pod: 10 Failed, a container still runs",
    ),
    "JobSet exists": Mutant(
        EXECUTION, 'yield "its JobSet does not exist yet"', "yield from ()", "waits for what remains: no JobSet"
    ),
    "JobSet suspended": Mutant(EXECUTION, "elif not self.jobset.suspended:", "elif False:", "swallowed_suspend"),
    "JobSet not being deleted": Mutant(
        EXECUTION, "elif self.jobset.meta.deleting:", "elif False:", "waits for what remains: JobSet being deleted"
    ),
    "JobSet carries the current A before the raise": Mutant(
        DECIDE, _COUNTED, _BLIND.format("blind_ if raised is None else evidence"), "waits for A: JobSet behind"
    ),
    "JobSet carries the new A after the raise": Mutant(
        DECIDE, _COUNTED, _BLIND.format("evidence if raised is None else blind_"), "trainer_does_not_carry_a"
    ),
    "Jobs finished or observed suspended": Mutant(
        EXECUTION,
        "stopped = self.finished or (",
        "stopped = True or (",
        "waits for what remains: Job not suspended",
    ),
    "Jobs observed suspended": Mutant(
        EXECUTION,
        '(self.suspended and (self.conditions.true("Suspended") or not self.started))',
        "self.suspended",
        "waits for what remains: Job told to suspend, not seen to be",
    ),
    "Jobs finished without a pod left": Mutant(
        EXECUTION,
        "return stopped and self.active == 0 and",
        "return stopped and",
        "waits for what remains: finished Job with an active pod",
    ),
    "no Job missing": Mutant(EXECUTION, "            *self._missing(),\n", "", "waits for what remains: Job missing"),
    "no Job missing: an earlier JobSet's does not count": Mutant(
        EXECUTION,
        " if _belongs(job.meta, self.jobset.meta)}",
        "}",
        "waits for what remains: the Job is an earlier JobSet's",
    ),
    "no Job missing: of a dependency that was reached": Mutant(
        EXECUTION,
        "return all(job is not None and job.complete for job in jobs)",
        "return False",
        "waits for what remains: the initializer is over, its dependent Job is missing",
    ),
    "evidence read again after the raise": Mutant(
        ACT,
        "raised=action.count, evidence=None)",
        "raised=action.count, evidence=replace(evidence, jobset=replace(evidence.jobset, count=action.count)))",
        "meanwhile: pod",
    ),
    "evidence read again after the raise: what carries the new A already": Mutant(
        DECIDE,
        "any(isinstance(batch.count, int) and batch.count >= raised for batch in evidence.jobs)",
        "False",
        "meanwhile: Job with the new A",
    ),
    "evidence read again after the raise: a higher A anywhere": Mutant(
        DECIDE, "if count != raised + 1 or any(", "if any(", "meanwhile: ended pod with a higher A"
    ),
    # Of reading and writing.
    "all pages read": Mutant(DRIVER, "            if not token:", "            if True:", "all_pages_are_read"),
    "all pages read: none from an expired list": Mutant(
        DRIVER,
        "continue  # a part of a list is never handed out: begin anew",
        "pages = [Listing((), '1')]",
        "a_list_whose_pages_expire_begins_anew",
    ),
    "consistent read (never resourceVersion=0): lists": Mutant(
        DRIVER,
        '"limit": str(limit or PAGE), "continue": token}',
        '"limit": str(limit or PAGE), "continue": token, "resourceVersion": "0"}',
        "no_read_may_be_old",
    ),
    "consistent read (never resourceVersion=0): objects": Mutant(
        DRIVER,
        'return await call("GET", path_of(resource, namespace, name))',
        'return await call("GET", path_of(resource, namespace, name, resourceVersion="0"))',
        "no_read_may_be_old",
    ),
    "Workload read before the evidence": Mutant(
        ACT,
        "seen = replace(seen, evidence=evidence)",
        "latest_ = parse_workload((yield from find(WORKLOADS, workload.meta.namespace, workload.meta.name)))\n"
        "                seen = replace(seen, evidence=evidence, workload=latest_)",
        _LATE,
    ),
    "Workload read before the evidence: where it is shared, too": Mutant(
        SHARING,
        "if self.gathering.sent or len(",
        "if len(",
        "a_list_answers_only_those_who_asked_before_it_was_sent",
    ),
    "pods found by what the tenant cannot forge away: of a list that is shared, each its own": Mutant(
        SHARING,
        "found[label].append(item)",
        "found[label][:] = [item]",
        "those_that_wait_go_out_together_and_each_gets_its_own",
    ),
    "resourceVersion on the raise of A": Mutant(
        ACT,
        "    stored = yield from write(Replace(TRAINJOBS, with_count(job.raw, action.count, action.replicated_jobs)))",
        "    body_ = with_count(job.raw, action.count, action.replicated_jobs)\n"
        "    body_" + _REREAD.format("TRAINJOBS, job.meta.namespace, job.meta.name") + "\n"
        "    stored = yield from write(Replace(TRAINJOBS, body_))",
        _LATE,
    ),
    "resourceVersion on Ready": Mutant(
        ACT,
        "    stored = parse_workload((yield from write(ReplaceStatus(WORKLOADS, body))))",
        "    body" + _REREAD.format("WORKLOADS, workload.meta.namespace, workload.meta.name") + "\n"
        "    stored = parse_workload((yield from write(ReplaceStatus(WORKLOADS, body))))",
        _LATE,
    ),
    "resourceVersion on every write": Mutant(
        REQUESTS,
        '    assert text(body, "metadata", "resourceVersion"), "a write without',
        '    assert True or "a write without',  # what the mutant says: here nothing is asserted
        "no_write_can_be_made_without_a_version",
    ),
    "only our own entry changed": Mutant(
        WORKLOAD, 'if entry.get("name") == name:', "if True:", "others_entries_stay_as_they_are"
    ),
    "only our own entry changed: time only with the state": Mutant(
        WORKLOAD, 'if entry.get("state") != state:', "if True:", "pods_that_linger_past_the_next_reservation"
    ),
    # Of A.
    "A readable everywhere": Mutant(
        NEXT, "if isinstance(carrier, Unreadable):", "if False:", "waits for A: unreadable in a Job"
    ),
    "A above all that anything carries": Mutant(
        NEXT,
        "highest = max(evidence.highest_count(), job.count if",
        "highest = max(0, job.count if",
        "admits: a Job carries a higher A",
    ),
    "A only raised": Mutant(
        COUNT, "(before is not None and count <= before)", "False", "a_count_that_is_not_higher_is_never_written"
    ),
    "no write that changes nothing": Mutant(
        ACT, "if action.check.message != action.message:", "if True:", "swallowed_suspend"
    ),
}

PROJECTS_LIST = (
    "QuotaReserved",
    "not Evicted",
    "not Admitted",
    "not Finished",
    "no deletionTimestamp",
    "spec.active",
    "our entry present",
    "our entry Pending",
    "the AdmissionCheck is ours (controllerName)",
    "owner is a TrainJob",
    "owner UID equals the live UID",
    "TrainJob not being deleted",
    "TrainJob suspended",
    "TrainJob not ended",
    "no hold mark",
    "start gate open",
    "pods found by what the tenant cannot forge away",
    "pods in phase Pending count",
    "Unknown counts",
    "terminating counts",
    "JobSet suspended",
    "JobSet carries the current A before the raise",
    "JobSet carries the new A after the raise",
    "Jobs finished or observed suspended",
    "no Job missing",
    "evidence read again after the raise",
    "all pages read",
    "consistent read (never resourceVersion=0)",
    "Workload read before the evidence",
    "resourceVersion on the raise of A",
    "resourceVersion on Ready",
    "only our own entry changed",
)


_MODULES = (
    "pass_checks",
    "owner_checks",
    "story_checks",
    "fault_checks",
    "driver_checks",
    "write_checks",
    "sharing_checks",
)
_HOME = {name: module for module in _MODULES for name in importlib.import_module(f"unit.{module}").CHECKS}


def named(check: str) -> Check:
    """Return a check as imported now, on top of what is installed now."""
    found: Check = importlib.import_module(f"unit.{_HOME[check]}").CHECKS[check]
    return found


@pytest.mark.parametrize("mutant", TABLE.values(), ids=TABLE.keys())
def test_is_missed(mutant: Mutant) -> None:
    """The check holds on the code as it is (as all of them: see the other tests), and fails on the mutant."""
    named(mutant.caught_by)()
    with installed(mutant):
        check = named(mutant.caught_by)
        with pytest.raises(AssertionError):
            check()


@pytest.mark.parametrize("precondition", PROJECTS_LIST)
def test_list_is_complete(precondition: str) -> None:
    assert [name for name in TABLE if name.partition(":")[0] == precondition]
