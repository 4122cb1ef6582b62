"""One gated job in Kueue mode: the usual case.

One `pulumi up` starts it closed, records it, and opens it; from then on Kueue decides when it runs, and each execution
waits at dispatch's AdmissionCheck for an admission count of its own.
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
    env={"EPOCHS": "3"},
)

pulumi.export("name", job.name)
pulumi.export("uid", job.uid)
pulumi.export("state", job.state)
