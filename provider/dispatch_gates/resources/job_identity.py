"""`JobIdentity`: a ULID, minted once and kept in the state.

It is a resource of its own because its state is on disk before the job that needs it can be registered. A ULID
that the job itself minted would be lost whenever its creation fails, and the next run would start a second job
beside the first.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, Resource, ResourceProvider
from ulid import ULID

from dispatch_gates.contract.identity import ulid_for


class JobIdentityProvider(ResourceProvider):
    """Mints ULIDs; talks to nobody. Stored in states by module and name: never move it."""

    serialize_as_secret_always: ClassVar[bool] = False  # type: ignore[misc] # the SDK reads it from the class

    def create(self, props: dict[str, Any]) -> CreateResult:  # noqa: ARG002 # the SDK's signature
        """Mint a ULID."""
        minted = str(ULID())
        return CreateResult(minted, {"ulid": minted})

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Nothing about an identity can change."""
        return DiffResult(changes=False)


class JobIdentity(Resource, module="dispatch", name="JobIdentity"):
    """The identity of a job, through all its submissions. A new one is a new job: replace it only for that."""

    ulid: pulumi.Output[str]
    """The ULID, 26 characters in upper case; unknown in previews until it was minted."""

    def __init__(self, resource_name: str, *, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare an identity; `resource_name` is its Pulumi name."""
        super().__init__(JobIdentityProvider(), resource_name, {"ulid": None}, opts)

    def of(self, key: str) -> pulumi.Output[str]:
        """Return the ULID of one of many jobs that share this identity: the same for the same key, for ever.

        A `JobIdentity` for each job does the same; this one is a single resource, whatever the number of jobs. It
        outlives them: a job that was destroyed and is declared again under its key is the same job, so give it the
        next submission. Its admission counts begin anew, and storage that has seen it refuses what it has seen.
        """
        return self.ulid.apply(lambda minted: ulid_for(minted, key))
