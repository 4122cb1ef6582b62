"""One gated job in plain mode: no queue and no Kueue.

One `pulumi up` starts it closed, records it, and opens it. Nobody but dispatch starts another execution of it.
"""

import pulumi

from dispatch_gates.resources import GatedJob

config = pulumi.Config()

job = GatedJob(
    "mnist",
    namespace=config.require("namespace"),
    runtime=config.require("runtime"),
    runtime_kind=config.require("runtimeKind"),
    image=config.get("image") or None,
    nodes=1,
    resources_per_node={"cpu": "500m"},
    env={"EPOCHS": "3"},
)

pulumi.export("name", job.name)
