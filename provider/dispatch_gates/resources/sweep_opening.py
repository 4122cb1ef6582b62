"""`SweepOpening`: opens many jobs at once, in the same `pulumi up` that started them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pulumi
from pulumi.dynamic import (
    CheckResult,
    CreateResult,
    DiffResult,
    Resource,
    UpdateResult,
)
from ulid import ULID

from dispatch_gates.resources import _opening, _rules
from dispatch_gates.resources._inputs import Props
from dispatch_gates.resources._provider import Provider, checked, refuse
from dispatch_gates.resources.gated_train_job import GatedTrainJob


class SweepOpeningProvider(Provider):
    """Translates the engine's calls to operations. Stored in states by module and name: never move it.

    Like a `JobOpening` it is a record of what happened: refreshing keeps it, and so does a job that leaves the list. No
    submission in it is opened again as another TrainJob.
    """

    def check(self, olds: Props, news: Props) -> CheckResult:
        """Refuse to open a submission a second time, for another TrainJob."""
        # Of what left the list the old inputs know nothing: an update asks the record.
        before = {where: job.get("uid") for where, job in _rules.swept(olds).items()}
        return checked(news, _rules.sweep_failures(before, news))

    def diff(self, _id: str, olds: Props, news: Props) -> DiffResult:
        """Other jobs or submissions are to be opened; of itself it is never replaced: that would lose its record."""
        return DiffResult(changes=_rules.sweep_difference(olds, news), replaces=[], delete_before_replace=True)

    def create(self, props: Props) -> CreateResult:
        """Open all jobs; success without a write for those that are open already."""
        return CreateResult(str(ULID()), _opened({}, props))

    def update(self, _id: str, olds: Props, news: Props) -> UpdateResult:
        """Open the jobs, and submissions, that came to the list. What left it stays as it is."""
        return UpdateResult(_opened(olds, news))

    def delete(self, _id: str, _props: Props) -> None:
        """Change nothing: what is open stays open."""


def _opened(olds: Props, news: Props) -> Props:
    """Open what is not recorded as opened yet; return the outputs."""
    before: dict[str, str | None] = olds.get("opened", {})
    refuse(_rules.sweep_failures(before, news))
    jobs = _rules.swept(news)
    done = {
        str(_rules.where_of(outs)): outs
        for outs in _opening.open_all([job for where, job in jobs.items() if where not in before])
    }
    already = {*olds.get("already", ()), *(where for where, outs in done.items() if outs["already"])}
    held_by = {**olds.get("held_by", {}), **{where: outs["held_by"] for where, outs in done.items()}}
    return {
        "jobs": news["jobs"],
        "opened": before | {where: jobs[where]["uid"] for where in done},
        "already": sorted(already & jobs.keys()),
        "held_by": {where: held_by[where] for where in sorted(jobs) if held_by.get(where)},
    }


class SweepOpening(Resource, module="dispatch", name="SweepOpening"):
    """The opening of many recorded jobs in one go, once all of them are recorded.

    It does what a `JobOpening` for each does, and costs the engine one resource instead of hundreds, which is much of
    what a `pulumi up` of hundreds of jobs takes. In return it is all or none: one that cannot be started, or opened,
    keeps all that are new closed until the next run. Destroying it changes nothing in the cluster.
    """

    jobs: pulumi.Output[list[dict[str, Any]]]
    """The jobs as the program lists them: of each its identity, name, UID and cluster, as a `JobOpening` has them."""
    opened: pulumi.Output[dict[str, str]]
    """All that were ever opened, also those that are not listed any more: their UIDs by `namespace/name`."""
    already: pulumi.Output[list[str]]
    """Which of the jobs, as `namespace/name`, were open before."""
    held_by: pulumi.Output[dict[str, list[str]]]
    """By `namespace/name` of a job, the gates of administrators that still held it when it was opened; refreshing does
    not look again. A job that none held is not in it."""

    def __init__(
        self, resource_name: str, *, jobs: Sequence[GatedTrainJob], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare that `jobs` are open, as soon as all of them are recorded in the state.

        Args:
            resource_name: its Pulumi name.
            jobs: the jobs, in any order; a job that is added later, or its next submission, is opened then. Leave
                their own input `opened` out.
            opts: Pulumi's options.

        """
        # Said outright and not only through the outputs: nothing is opened before all jobs are recorded.
        merged = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=list(jobs)))
        props = {"jobs": [_without_none(job.recorded) for job in jobs], **dict.fromkeys(_SEEN)}
        super().__init__(SweepOpeningProvider(), resource_name, props, merged)


def _without_none(props: Any) -> Props:
    # Of a resource's own inputs the SDK leaves out what is None; of what is nested in them it does not.
    return {key: value for key, value in props.items() if value is not None}


_SEEN: Final = ("opened", "already", "held_by")
"""What the provider adds to the inputs."""
