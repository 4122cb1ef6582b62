"""Ten gated jobs under one queue: the same program with ten learning rates.

Kueue runs as many at a time as the queue has room for. The identities of all are made from one that is minted, and one
opening opens them all: one resource for each job, where `GatedJob` takes four. For hundreds it matters.
"""

import pulumi

from dispatch_gates.resources import GatedTrainJob, JobIdentity, SweepOpening

config = pulumi.Config()
RATES = [f"{step}e-4" for step in range(1, 11)]

identity = JobIdentity("sweep")
jobs = [
    GatedTrainJob(
        f"rate-{rate}",
        ulid=identity.of(rate),
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
SweepOpening("sweep", jobs=jobs)

pulumi.export("names", pulumi.Output.all(*(job.name for job in jobs)))
