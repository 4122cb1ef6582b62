"""A gated job that is kept from running for a while: `pulumi config set held true`, then `pulumi up`.

Its pods are told to stop. `held false` lets it run again, as its next execution, with a higher admission count.
"""

import pulumi

from dispatch_gates.resources import GatedJob

config = pulumi.Config()

job = GatedJob(
    "mnist",
    namespace=config.require("namespace"),
    queue=config.require("queue"),
    check=config.require("check"),
    runtime=config.require("runtime"),
    runtime_kind=config.require("runtimeKind"),
    image=config.get("image") or None,
    nodes=1,
    resources_per_node={"cpu": "500m"},
    hold=config.require_bool("held"),
)

pulumi.export("name", job.name)
pulumi.export("held", job.held)
