"""`GatedJob`: the usual case, identity, job and opening in one call."""

from __future__ import annotations

from typing import Unpack

import pulumi

from dispatch_gates.resources.gated_train_job import GatedTrainJob
from dispatch_gates.resources.job_identity import JobIdentity
from dispatch_gates.resources.job_inputs import JobInputs
from dispatch_gates.resources.job_opening import JobOpening
from dispatch_gates.resources.job_outputs import SHARED, JobOutputs


class GatedJob(JobOutputs, pulumi.ComponentResource):
    """A gated job that is started, recorded and then opened by one `pulumi up`.

    Its parts are children named `<name>-identity`, `<name>-job` and `<name>-opening`; its outputs are those of `job`.
    `state` is `Gated` after the run that started it: nothing waits for the job to run.
    """

    identity: JobIdentity | None
    """The identity that was minted; None where the program brought a `ulid`."""
    job: GatedTrainJob
    """The TrainJob."""
    opening: JobOpening | None
    """The opening; None with `opened=False`."""

    def __init__(
        self,
        resource_name: str,
        *,
        ulid: pulumi.Input[str] | None = None,
        opened: bool = True,
        opts: pulumi.ResourceOptions | None = None,
        **inputs: Unpack[JobInputs],
    ) -> None:
        """Declare a gated job.

        Args:
            resource_name: its Pulumi name.
            ulid: the job's identity; default: minted once by a `JobIdentity`.
            opened: whether the job is opened once it is recorded. False starts it closed; what was opened cannot
                be closed again.
            opts: Pulumi's options.
            **inputs: what the job is; see `JobInputs`.

        """
        super().__init__("dispatch:index:GatedJob", resource_name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.identity = None
        if ulid is None:
            self.identity = JobIdentity(f"{resource_name}-identity", opts=child)
            ulid = self.identity.ulid
        self.job = GatedTrainJob(
            f"{resource_name}-job",
            ulid=ulid,
            opened=None if opened else False,
            opts=child,
            **inputs,
        )
        self.opening = JobOpening(f"{resource_name}-opening", job=self.job, opts=child) if opened else None
        for key in SHARED:
            setattr(self, key, getattr(self.job, key))
        # No outputs are registered: that would have the engine write its whole state once more for each job.
