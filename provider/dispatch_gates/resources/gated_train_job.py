"""`GatedTrainJob`: a TrainJob that is recorded before it runs.

Create is Start, update is Open, Hold and Release, read is Status, delete is Stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Unpack

import pulumi
from pulumi.dynamic import (
    CheckResult,
    CreateResult,
    DiffResult,
    ReadResult,
    Resource,
    UpdateResult,
)

from dispatch_gates.operations.errors import RefusedError, TimedOutError
from dispatch_gates.resources import _life, _preflight, _rules, _running, _telling
from dispatch_gates.resources._inputs import Props, canonical, job_spec
from dispatch_gates.resources._provider import Provider, checked, refuse
from dispatch_gates.resources.job_inputs import JobInputs, with_defaults
from dispatch_gates.resources.job_outputs import JobOutputs

DELETION: Final[_running.Todo] = {
    RefusedError: "`pulumi refresh` takes the one that is gone out of the state, once no pods of that name are left.",
    TimedOutError: "Run the same again: it goes on waiting, `delete_timeout_seconds` long, as the state has them.",
}
"""What to do about a deletion that failed."""


class GatedTrainJobProvider(Provider):
    """Translates the engine's calls to operations. Stored in states by module and name: never move it."""

    def check(self, olds: Props, news: Props) -> CheckResult:
        """Check what can be checked without a cluster; in previews too, where inputs may be unknown."""
        return checked(news, [*_rules.failures(olds, news), *_preflight.settings_failures()])

    def diff(self, _id: str, olds: Props, news: Props) -> DiffResult:
        """Say whether the inputs differ from what was last done, and whether it takes a new submission."""
        changes, replaces = _rules.difference(olds, news)
        return DiffResult(changes=changes, replaces=replaces, delete_before_replace=True)

    def create(self, props: Props) -> CreateResult:
        """Start the job, closed, or take over the one that an earlier, interrupted create started."""
        refuse(_rules.failures({}, props))
        asked, _ = job_spec(props)
        assert asked is not None, "the inputs are valid and known"
        _preflight.prove(props, asked.queue, asked.runtime)
        outs, done = _running.run(props, _life.started(asked, props))
        _telling.warn_of_runtime(done)
        _telling.warn(outs)
        return CreateResult(f"{outs['namespace']}/{outs['name']}", outs)

    def update(self, _id: str, olds: Props, news: Props) -> UpdateResult:
        """Open, hold or release the job where that is asked for; anything else that may change needs no write."""
        if job := _running.run(news, _life.to_prove(olds, news)):
            _preflight.prove(news, job.queue, job.runtime)
        outs = _running.run(news, _life.updated(olds, news))
        _telling.warn(outs, moving=job is not None)
        return UpdateResult(outs)

    def read(self, id_: str, props: Props) -> ReadResult:
        """Read where the job stands; empty where it is gone from the very cluster that it was started in."""
        outs = _running.run(props, _life.refreshed(props))
        if outs is None:
            return ReadResult("", {})
        _telling.warn(outs)
        return ReadResult(id_, outs)

    def delete(self, _id: str, props: Props) -> None:
        """Delete the job of the recorded UID and wait until it and its pods are gone."""
        _running.run(props, _life.deleted(props), then=DELETION)


class GatedTrainJob(JobOutputs, Resource, module="dispatch", name="GatedTrainJob"):
    """One gated TrainJob. It starts closed: nothing of it runs before it is opened.

    What a started job was asked to do cannot change; raise `submission` for that. The old job and its pods are
    then gone before the new one is created. Outputs say what was seen at the last operation on the resource;
    `pulumi refresh` brings them up to date.
    """

    is_open: pulumi.Output[bool]
    """Whether the job was past its start gate."""
    cluster: pulumi.Output[str]
    """Which cluster the job is in: the UID of its namespace kube-system."""
    owner: pulumi.Output[str]
    """The Pulumi project, stack and resource that started the job."""
    kubeconfig: pulumi.Output[str | None]
    """Path of the kubeconfig that was used."""
    context: pulumi.Output[str | None]
    """Context of the kubeconfig that was used."""

    def __init__(
        self,
        resource_name: str,
        *,
        ulid: pulumi.Input[str],
        opened: pulumi.Input[bool] | None = None,
        opts: pulumi.ResourceOptions | None = None,
        **inputs: Unpack[JobInputs],
    ) -> None:
        """Declare a gated job.

        Args:
            resource_name: its Pulumi name.
            ulid: the job's identity, from `JobIdentity.ulid` or from the stack's configuration. Never mint it in
                the program itself: it would be another job at each run.
            opened: True opens a job that an earlier `pulumi up` started; once True it stays True. None (default):
                not managed here, but by a `JobOpening` or an operator. False: must not be open.
            opts: Pulumi's options. `delete_before_replace` is always on.
            **inputs: what the job is; see `JobInputs`.

        """
        props = with_defaults(resource_name, inputs)
        # With the resource's own name: of two resources with one identity the second is refused, and does not take
        # over, and then delete, the job of the first.
        owner = f"{pulumi.get_project()}/{pulumi.get_stack()}/{resource_name}"
        props |= {"ulid": ulid, "opened": opened, "owner": owner}
        if "spec" in props:
            # As text: the engine would turn its integers into floats.
            props["spec"] = pulumi.Output.from_input(props["spec"]).apply(canonical)
        if opts is not None and opts.delete_before_replace is False:
            raise ValueError(
                f"{resource_name}: a gated job is always deleted before it is replaced; leave the option out."
            )
        # Said here too, because a replacement that the user forces (`--replace`) does not ask the provider: the new
        # job would be the old one, taken over, and then deleted.
        merged = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(delete_before_replace=True))
        self._given = {key: props.get(key) for key in _GIVEN}
        super().__init__(
            GatedTrainJobProvider(),
            resource_name,
            {"kubeconfig": None, "context": None, **dict.fromkeys(_OUTPUTS), **props},
            merged,
        )

    @property
    def recorded(self) -> Mapping[str, Any]:
        """What an opening takes of the job: what the program gave, and what is known once it is recorded."""
        # The identity is not taken from the outputs: the engine would then delete the record of an opening together
        # with the job whenever the job is replaced, and the same submission could be opened a second time.
        return {**self._given, "name": self.name, "uid": self.uid, "cluster": self.cluster}


_GIVEN: Final = (
    "ulid",
    "submission",
    "namespace",
    "queue",
    "check",
    "kubeconfig",
    "context",
    "workload_timeout_seconds",
)
_OUTPUTS: Final = ("name", "uid", "mode", "state", "reason", "is_open", "held", "held_by", "admission_count", "cluster")
"""What the provider adds to the inputs."""
