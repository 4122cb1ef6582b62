"""`JobOpening`: opens a job in the same `pulumi up` that started it."""

from __future__ import annotations

from typing import Final

import pulumi
from pulumi.dynamic import (
    CheckResult,
    CreateResult,
    DiffResult,
    Resource,
    UpdateResult,
)

from dispatch_gates.resources import _opening, _rules
from dispatch_gates.resources._inputs import Props
from dispatch_gates.resources._provider import Provider, checked, refuse
from dispatch_gates.resources.gated_train_job import GatedTrainJob
from dispatch_gates.resources.job_outputs import Named


class JobOpeningProvider(Provider):
    """Translates the engine's calls to operations. Stored in states by module and name: never move it.

    An opening is something that happened: refreshing keeps it, also where the job is gone, so that the same
    submission is never opened again under a new TrainJob.
    """

    def check(self, olds: Props, news: Props) -> CheckResult:
        """Refuse to open a submission a second time, for another TrainJob."""
        return checked(news, _rules.opening_failures(olds, news))

    def diff(self, _id: str, olds: Props, news: Props) -> DiffResult:
        """Another job or submission is another opening; another kubeconfig is not."""
        changes, replaces = _rules.opening_difference(olds, news)
        return DiffResult(changes=changes, replaces=replaces, delete_before_replace=True)

    def create(self, props: Props) -> CreateResult:
        """Open the job; success without a write where it is open already."""
        refuse(_rules.opening_failures({}, props))
        outs = _opening.open_one(props)
        return CreateResult(f"{outs['namespace']}/{outs['name']}", outs)

    def update(self, _id: str, olds: Props, news: Props) -> UpdateResult:
        """Note the new inputs; the opening itself is done."""
        seen = {key: olds[key] for key in _SEEN}
        return UpdateResult({key: value for key, value in news.items() if key != "__provider"} | seen)

    def delete(self, _id: str, _props: Props) -> None:
        """Change nothing: what is open stays open."""


class JobOpening(Named, Resource, module="dispatch", name="JobOpening"):
    """The opening of a recorded job. Destroying it changes nothing; a new submission of the job replaces it."""

    already: pulumi.Output[bool]
    """Whether the job was open before."""
    held_by: pulumi.Output[list[str]]
    """The gates of administrators that still held the job when it was opened; refreshing does not look again."""

    def __init__(self, resource_name: str, *, job: GatedTrainJob, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare that `job` is open, as soon as it is recorded in the state.

        Args:
            resource_name: its Pulumi name.
            job: the job. Leave its own input `opened` out.
            opts: Pulumi's options.

        """
        # Said outright and not only through the outputs: nothing is opened before the job is recorded.
        merged = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[job]))
        super().__init__(JobOpeningProvider(), resource_name, {**job.recorded, **dict.fromkeys(_SEEN)}, merged)


_SEEN: Final = ("already", "held_by")
"""What the provider adds to the inputs."""
