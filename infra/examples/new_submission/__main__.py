"""A gated job that is run again, perhaps with another specification.

A started job's specification cannot change: `pulumi config set epochs 5` alone is refused. With
`pulumi config set submission 2` the old job and its pods are gone before the new one, of the same identity, is started.
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
    submission=config.require_int("submission"),
    env={"EPOCHS": config.require("epochs")},
)

pulumi.export("name", job.name)
pulumi.export("submission", job.submission)
