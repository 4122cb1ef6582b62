"""JobSets, Jobs and pods: each made, changed and removed by its own manager alone, and started with a new A."""

from __future__ import annotations

from typing import Final

from dispatch_gates.contract import names
from dispatch_infra.policies.accounts import Accounts
from dispatch_infra.policies.cel import (
    CREATE,
    DELETE,
    RAISED,
    UPDATE,
    Policy,
    Rule,
    count_of,
    higher,
    labelled_ours,
    named_ours,
    same,
    same_keys,
)

_CREATES: Final = f"request.operation == '{CREATE}'"
_UPDATES: Final = f"request.operation == '{UPDATE}'"
_DELETES: Final = f"request.operation == '{DELETE}'"

JOB_VARIABLES: Final = {
    "count": f"object == null ? '' : {count_of('object.spec.template')}",
    "oldCount": f"oldObject == null ? '' : {count_of('oldObject.spec.template')}",
    "suspended": "object != null && object.spec.?suspend.orValue(false)",
    "resumed": f"{_UPDATES} && oldObject.spec.?suspend.orValue(false) && !variables.suspended",
}
_LABELLED: Final = (
    f"(object != null && {labelled_ours('object')}) || (oldObject != null && {labelled_ours('oldObject')})"
)


def jobsets(accounts: Accounts) -> Policy:
    """Return the rules of JobSets: Trainer's alone, since it makes a lost one again and runs it."""
    return Policy(
        name="dispatch-jobsets",
        resource=names.JOBSETS,
        operations=(CREATE, UPDATE, DELETE),
        about=f"{_DELETES} ? {named_ours('oldObject')} : {named_ours('object')}",
        variables=accounts.users("trainer", "jobset", "garbage_collector", "namespace_controller"),
        rules=(
            Rule(
                "created-by-trainer",
                f"!({_CREATES}) || variables.byTrainer",
                "JobSets named dj-<ulid>-… are made by Trainer for dispatch's TrainJobs: choose another name",
            ),
            Rule(
                "changed-by-its-managers",
                f"!({_UPDATES}) || variables.byTrainer || variables.byJobset || variables.byGarbageCollector || "
                f"({same('.spec', '.metadata.?ownerReferences')})",
                "the JobSet of a job of dispatch's is changed by Trainer and JobSet alone: Hold and Release the job",
            ),
            Rule(
                "deleted-with-its-job",
                f"!({_DELETES}) || variables.byTrainer || variables.byGarbageCollector || "
                "variables.byNamespaceController",
                "Trainer would make this JobSet again and run it under the same admission count: delete the TrainJob, "
                "and the JobSet goes with it",
            ),
        ),
    )


def jobs(accounts: Accounts) -> Policy:
    """Return the rules of Jobs. A resume must raise A: through it goes every execution, whoever wanted it."""
    return Policy(
        name="dispatch-jobs",
        resource=names.JOBS,
        operations=(CREATE, UPDATE, DELETE),
        about=_LABELLED,
        variables=JOB_VARIABLES | accounts.users("jobset", "garbage_collector", "namespace_controller"),
        rules=(
            Rule(
                "created-by-jobset",
                f"!({_CREATES}) || variables.byJobset",
                f"Jobs with label {names.JOBSET_NAME}=dj-<ulid>-… are made by JobSet for dispatch's TrainJobs: leave "
                "the label out",
            ),
            Rule(
                "resumed-with-a-higher-count",
                f"!variables.resumed || ({higher('variables.count', 'variables.oldCount')})",
                "this execution would have the admission count of the last one: somebody suspended and resumed the "
                "job beside Kueue and dispatch. Hold and Release it, and it runs with a new one",
            ),
            Rule(
                "started-with-a-count",
                f"!({_CREATES}) || variables.suspended || variables.count.matches('{RAISED}')",
                "a Job of dispatch's starts with an admission count of 1 and more: open the job, or Hold and Release "
                "it",
            ),
            Rule(
                "count-changes-at-a-resume-alone",
                f"!({_UPDATES}) || variables.resumed || variables.count == variables.oldCount",
                "the admission count of a Job changes as it is resumed, and at no other time",
            ),
            Rule(
                "changed-by-jobset",
                f"!({_UPDATES}) || variables.byJobset || ({same('.spec')} && "
                f"({same('.metadata.?ownerReferences')} || variables.byGarbageCollector) && "
                f"{same_keys('labels', names.JOBSET_NAME)})",
                "Jobs of dispatch's are changed by JobSet alone: Hold and Release the TrainJob",
            ),
            Rule(
                "deleted-with-its-jobset",
                f"!({_DELETES}) || variables.byJobset || variables.byGarbageCollector || "
                "variables.byNamespaceController",
                "JobSet would make this Job again and run it under the same admission count: Hold and Release the "
                "TrainJob, or delete it",
            ),
        ),
    )


def pods(accounts: Accounts) -> Policy:
    """Return the rules of pods: what says A is not to be forged, before or after."""
    carries = " || ".join(f"({at} != null && {count_of(at)} != '')" for at in ("object", "oldObject"))
    return Policy(
        name="dispatch-pods",
        resource=names.PODS,
        operations=(CREATE, UPDATE),
        about=f"{_LABELLED} || {carries}",
        variables={"count": count_of("object")} | accounts.users("job_controller"),
        rules=(
            Rule(
                "created-by-the-job-controller",
                f"!({_CREATES}) || variables.byJobController",
                f"pods with label {names.JOBSET_NAME}=dj-<ulid>-… or an admission count are made by the Job "
                "controller for dispatch's TrainJobs: leave both out",
            ),
            Rule(
                "created-with-a-count",
                f"!({_CREATES}) || variables.count.matches('{RAISED}')",
                "a pod of dispatch's has an admission count of 1 and more: open the job, or Hold and Release it",
            ),
            Rule(
                "identity-stays",
                f"!({_UPDATES}) || ({same_keys('labels', names.JOBSET_NAME)} && "
                f"variables.count == {count_of('oldObject')})",
                "which job and which execution a pod belongs to never changes",
            ),
        ),
    )
