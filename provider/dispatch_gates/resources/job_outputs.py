"""The outputs that the resources share."""

from __future__ import annotations

from typing import Final

import pulumi


class Named:
    """Which TrainJob a resource is about."""

    name: pulumi.Output[str]
    """Name of the TrainJob: `dj-<ulid in lower case>-s<submission>`."""
    namespace: pulumi.Output[str]
    """Namespace of the TrainJob."""
    uid: pulumi.Output[str]
    """UID of the TrainJob."""
    ulid: pulumi.Output[str]
    """The job's identity."""
    submission: pulumi.Output[int]
    """The number of the submission."""


class JobOutputs(Named):
    """What a program may use of a job, as the last operation of its `GatedTrainJob` saw it.

    That is before a `JobOpening` opens it; `pulumi refresh` looks again.
    """

    mode: pulumi.Output[str]
    """`kueue`, or `plain` where there is no queue."""
    state: pulumi.Output[str]
    """Where the job stood: Gated, HeldByAdministrator, WaitingForQuota, Running, Complete, Failed, ..."""
    reason: pulumi.Output[str]
    """Why it stood there, for people."""
    held: pulumi.Output[bool]
    """Whether the job was held, by `hold` or by an operator."""
    held_by: pulumi.Output[list[str]]
    """The gates of administrators on the job, beside ours or without it."""
    admission_count: pulumi.Output[int | None]
    """A, the number of the last execution; 0 before the first, None where it is unreadable."""


SHARED: Final = (*Named.__annotations__, *JobOutputs.__annotations__)
