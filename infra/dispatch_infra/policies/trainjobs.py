"""TrainJobs: who creates, opens, holds and resumes them, and who raises A."""

from __future__ import annotations

from typing import Final

from dispatch_gates.contract import names
from dispatch_gates.contract.identity import NAME_PATTERN
from dispatch_infra.policies.accounts import Accounts
from dispatch_infra.policies.cel import (
    ADAPTER,
    ASK_FOR_VERB,
    COUNT,
    CREATE,
    UPDATE,
    Policy,
    Rule,
    count_of,
    gated,
    higher,
    label,
    named_ours,
    same,
    same_keys,
)


def _patches(at: str) -> str:
    return f"{at}.spec.?runtimePatches.orValue([])"


def _jobs(patch: str) -> str:
    return f"{patch}.?trainingRuntimeSpec.?template.?spec.?replicatedJobs.orValue([])"


def _count(job: str) -> str:
    return count_of(f"{job}.?template.?spec.?template")


def _counts(jobs: str) -> str:
    return f"{jobs}.map(job, {{'name': job.name, 'count': dyn({_count('job')})}})"


_OURS: Final = f"patch.manager == '{names.PATCH_MANAGER}'"

_VARIABLES: Final = {
    "patches": _patches("object"),
    "ours": f"variables.patches.filter(patch, {_OURS})",
    "jobs": f"variables.ours.size() == 0 ? [] : {_jobs('variables.ours[0]')}",
    "counts": _counts("variables.jobs"),
    "oldPatches": f"oldObject == null ? [] : {_patches('oldObject')}",
    "oldOurs": f"variables.oldPatches.filter(patch, {_OURS})",
    "oldJobs": f"variables.oldOurs.size() == 0 ? [] : {_jobs('variables.oldOurs[0]')}",
    "oldCounts": _counts("variables.oldJobs"),
}

_COUNT_ALONE: Final = Rule(
    "patch-holds-the-count-alone",
    f"""variables.jobs.all(job, {_count("job")}.matches('{COUNT}') && job.all(key, key in ['name', 'template']) &&
  job.template == {{'spec': {{'template': {{'metadata': {{'annotations': {{
    '{names.ADMISSION_COUNT}': {_count("job")}}}}}}}}}}})""",
    "dispatch's runtime patch holds the admission count and nothing else: put other settings under another manager",
)
_COUNT_GROWS: Final = Rule(
    "count-only-grows",
    f"""oldObject == null || variables.oldCounts.all(old, variables.counts.exists(new, new.name == old.name &&
  (new.count == old.count || ({higher("new.count", "old.count")}))))""",
    "an admission count is used once, so it only rises: leave dispatch's runtime patch alone",
)


def all_users(accounts: Accounts) -> Policy:
    """Return what holds for everybody."""
    return Policy(
        name="dispatch-trainjobs",
        resource=names.TRAINJOBS,
        operations=(CREATE, UPDATE),
        about=f"{named_ours('object')} || {_patches('object')}.exists(patch, {_OURS}) || "
        f"(oldObject != null && {_patches('oldObject')}.exists(patch, {_OURS}))",
        variables=_VARIABLES
        | accounts.users("controller", "kueue")
        | {
            "byAdapter": ADAPTER,
            # The mode before the change: whoever takes the label away does not choose the rules.
            "kueueMode": f"oldObject != null && {label('oldObject', names.QUEUE_NAME)} != ''",
        },
        rules=(
            Rule(
                "created-by-the-adapter",
                "oldObject != null || variables.byAdapter",
                f"TrainJobs named dj-<ulid>-… are dispatch's to create: choose another name; {ASK_FOR_VERB}",
            ),
            Rule(
                "patch-under-our-name",
                f"variables.ours.size() == 0 || object.metadata.?name.orValue('').matches('{NAME_PATTERN}')",
                f"runtime patches under manager {names.PATCH_MANAGER} belong to TrainJobs that dispatch started: "
                "use another manager",
            ),
            Rule(
                "created-closed",
                "oldObject != null || (object.spec.?suspend.orValue(false) && variables.counts.size() > 0 && "
                f"variables.counts.all(job, job.count == '0') && {gated('object')})",
                "a TrainJob of dispatch's is created closed: suspended, gated, and with admission count 0. Start it "
                "with GatedTrainJob",
            ),
            Rule(
                "count-in-our-patch-alone",
                f"variables.patches.all(patch, {_OURS} || {_jobs('patch')}.all(job, {_count('job')} == ''))",
                f"{names.ADMISSION_COUNT} in another runtime patch would hide dispatch's: leave it out",
            ),
            _COUNT_ALONE,
            _COUNT_GROWS,
            Rule(
                "count-by-who-owns-it",
                "oldObject == null || variables.jobs == variables.oldJobs || "
                "(variables.kueueMode ? variables.byController : variables.byAdapter)",
                "the admission count is raised by dispatch's controller before Kueue admits, or by the adapter where "
                "there is no queue: to run the job again, Hold and Release it",
            ),
            Rule(
                "suspend-by-who-owns-it",
                "oldObject == null || object.spec.?suspend.orValue(false) == oldObject.spec.?suspend.orValue(false) "
                "|| (variables.kueueMode ? variables.byKueue : variables.byAdapter)",
                "suspend belongs to Kueue, or to the adapter where there is no queue: Hold and Release the job instead",
            ),
            Rule(
                "queue-stays",
                f"oldObject == null || ({same_keys('labels', names.QUEUE_NAME, names.PREBUILT_WORKLOAD)})",
                "a started job stays in its queue, before which the check stands: start it as the next submission",
            ),
            Rule(
                "gate-by-the-adapter",
                f"oldObject == null || !{gated('oldObject')} || {gated('object')} || variables.byAdapter",
                f"the start gate {names.GATE} is taken away by Open alone; {ASK_FOR_VERB}",
            ),
            Rule(
                "marks-by-the-adapter",
                "oldObject == null || variables.byAdapter || "
                f"({same_keys('annotations', names.OPENED, names.HOLD, names.OWNER, names.SPEC_HASH)} && "
                f"{same_keys('labels', names.ULID_LABEL)})",
                f"what dispatch wrote on its TrainJob is changed by Open, Hold and Release alone; {ASK_FOR_VERB}",
            ),
        ),
    )


def controller(accounts: Accounts) -> Policy:
    """Return what holds for the controller in every namespace, whatever its rights would let it do."""
    return Policy(
        name="dispatch-controller-trainjobs",
        resource=names.TRAINJOBS,
        operations=(UPDATE,),
        everywhere=True,
        about=accounts.is_user("controller"),
        variables=_VARIABLES
        | {
            "others": f"variables.patches.filter(patch, !({_OURS}))",
            "oldOthers": f"variables.oldPatches.filter(patch, !({_OURS}))",
            # As maps: the schema knows only their fields one by one.
            "spec": "dyn(object.spec)",
            "oldSpec": "dyn(oldObject.spec)",
        },
        rules=(
            Rule(
                "a-job-of-dispatch",
                f"variables.oldOurs.size() > 0 || {named_ours('oldObject')}",
                "the controller changes TrainJobs of dispatch's alone",
            ),
            Rule(
                "the-count-and-nothing-else",
                f"""{same(".metadata.?labels", ".metadata.?annotations", ".metadata.?ownerReferences")} &&
{same(".metadata.?finalizers")} && variables.others == variables.oldOthers &&
variables.spec.all(key, key == 'runtimePatches' ||
  (key in variables.oldSpec && variables.spec[key] == variables.oldSpec[key])) &&
variables.oldSpec.all(key, key == 'runtimePatches' || key in variables.spec)""",
                "the controller raises the admission count and changes nothing else of a TrainJob",
            ),
            _COUNT_ALONE,
            _COUNT_GROWS,
        ),
    )
