"""Ten gated jobs under one queue: the same program with ten learning rates.

Each has an identity of its own. Kueue runs as many at a time as the queue has room for.
"""

import pulumi

from dispatch_gates.resources import GatedJob

config = pulumi.Config()
RATES = [f"{step}e-4" for step in range(1, 11)]

jobs = [
    GatedJob(
        f"rate-{rate}",
        namespace=config.require("namespace"),
        queue=config.require("queue"),
        check=config.require("check"),
        runtime=config.require("runtime"),
        runtime_kind=config.require("runtimeKind"),
        image=config.get("image") or None,
        nodes=1,
        resources_per_node={"cpu": "500m"},
        args=["--learning-rate", rate],
        labels={"example/sweep": "learning-rate"},
    )
    for rate in RATES
]

pulumi.export("names", pulumi.Output.all(*(job.name for job in jobs)))
