"""The second level: every start needs a resume, which needs a new A; so nothing restarts inside one admission."""

from __future__ import annotations

from dispatch_gates.contract import names
from dispatch_gates.contract.guard_rails import Level
from dispatch_infra.policies.cel import CREATE, UPDATE, Policy, Rule, labelled_ours, named_ours
from dispatch_infra.policies.children import JOB_VARIABLES


def jobsets() -> Policy:
    """Return the rules of JobSets."""
    return Policy(
        name="dispatch-executions-jobsets",
        resource=names.JOBSETS,
        operations=(CREATE, UPDATE),
        level=Level.EXECUTIONS,
        about=named_ours("object"),
        variables={},
        rules=(
            Rule(
                "created-suspended",
                "oldObject != null || object.spec.?suspend.orValue(false)",
                "a JobSet of dispatch's is created suspended, so that each start raises the admission count: Hold and "
                "Release the job",
            ),
            Rule(
                "without-restarts",
                "object.spec.?failurePolicy.?maxRestarts.orValue(0) == 0 && "
                "!object.spec.?ttlSecondsAfterFinished.hasValue()",
                "a restart or a removal by time-to-live would run the job again under the same admission count: take "
                "failurePolicy.maxRestarts and ttlSecondsAfterFinished out of the runtime",
            ),
        ),
    )


def jobs() -> Policy:
    """Return the rules of Jobs."""
    return Policy(
        name="dispatch-executions-jobs",
        resource=names.JOBS,
        operations=(CREATE,),
        level=Level.EXECUTIONS,
        about=labelled_ours("object"),
        variables=JOB_VARIABLES,
        rules=(
            Rule(
                "created-suspended",
                "variables.suspended",
                "a Job of dispatch's is created suspended, so that each start raises the admission count: runtimes "
                "with dependsOn need level admissions",
            ),
            Rule(
                "without-restarts",
                """object.spec.?backoffLimit.orValue(6) == 0 && !object.spec.?backoffLimitPerIndex.hasValue() &&
!object.spec.?ttlSecondsAfterFinished.hasValue() && object.spec.template.spec.?restartPolicy.orValue('') == 'Never' &&
object.spec.?podFailurePolicy.?rules.orValue([]).all(rule, rule.action != 'Ignore')""",
                "a replaced pod or a restarted container would run under the same admission count: give the runtime "
                "backoffLimit 0 and restartPolicy Never, and neither backoffLimitPerIndex, ttlSecondsAfterFinished nor "
                "a podFailurePolicy that ignores failures",
            ),
        ),
    )
