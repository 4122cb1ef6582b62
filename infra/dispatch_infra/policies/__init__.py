"""The guard rails as data: each rule is one CEL expression that must hold, with one name and one message.

A policy is what is said about one kind of object. Its rules see that object and the one before the change, and
nothing else: whether old pods are gone, no policy can know. That stays the controller's to prove.

What is dispatch's is told by names, as everywhere: a TrainJob, and the JobSet of the same name, by the name itself;
Jobs and pods by the label that JobSet gives them; a Workload by the TrainJob that owns it. The beginning of a name
is enough here: what looks like dispatch's, without being it, is refused where it is created.
"""

from dispatch_gates.contract.guard_rails import Level
from dispatch_infra.policies import children, executions, trainjobs, workloads
from dispatch_infra.policies.accounts import Accounts
from dispatch_infra.policies.cel import Policy, Rule

__all__ = ["Accounts", "Policy", "Rule", "policies"]


def policies(accounts: Accounts, check: str, level: Level) -> list[Policy]:
    """Return the policies of a level; those of `executions` hold those of `admissions` too."""
    found = [
        trainjobs.all_users(accounts),
        trainjobs.controller(accounts),
        workloads.all_users(accounts),
        workloads.status(accounts, check),
        workloads.controller_status(accounts, check),
        children.jobsets(accounts),
        children.jobs(accounts),
        children.pods(accounts),
    ]
    if level is Level.EXECUTIONS:
        found += [executions.jobsets(), executions.jobs()]
    return found
