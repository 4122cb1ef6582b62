"""Two gated jobs in one queue that has room for one of them.

The patient job is started, recorded and opened by the first `pulumi up`. The urgent one, of higher
priority, is started and recorded by it too, but stays closed: nothing of it runs, whatever the queue's room,
until `openUrgent` is set. It then preempts the patient one, which has to run a second time. `infra/` made
the queue and the priority classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource

from dispatch_gates.resources import GatedJob, GatedTrainJob, JobIdentity, JobOpening

VOLUME = "checkpoints"

config = pulumi.Config()
IMAGE = config.get("image") or "dispatch.local/training:1"

# An execution is one life of one pod: nothing below the queue starts a pod again on its own.
NODE_JOB: Mapping[str, Any] = {
    "name": "node",
    "template": {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    # Time to write a last checkpoint; train.py takes TRAIN_GRACE_SECONDS of it.
                    "terminationGracePeriodSeconds": 90,
                    "automountServiceAccountToken": False,
                    "nodeSelector": {"dispatch.local/node": "real"},
                    "containers": [
                        {
                            "name": "node",
                            "image": IMAGE,
                            "volumeMounts": [{"name": VOLUME, "mountPath": "/checkpoints"}],
                        }
                    ],
                    # Of the node, so that it outlives the pod: the next execution resumes from it.
                    "volumes": [
                        {
                            "name": VOLUME,
                            "hostPath": {"path": "/run/dispatch-demo/checkpoints", "type": "DirectoryOrCreate"},
                        }
                    ],
                }
            },
        },
    },
}

runtime = CustomResource(
    "runtime",
    api_version="trainer.kubeflow.org/v1alpha1",
    kind="ClusterTrainingRuntime",
    metadata={"name": "dispatch-demo"},
    spec={
        "mlPolicy": {"numNodes": 1},
        "template": {"spec": {"failurePolicy": {"maxRestarts": 0}, "replicatedJobs": [NODE_JOB]}},
    },
)


def common(name: str, env: Mapping[str, str]) -> dict[str, Any]:
    """Return what both jobs are declared with."""
    return {
        "namespace": config.require("namespace"),
        "queue": config.require("queue"),
        "runtime": "dispatch-demo",
        "image": IMAGE,
        "resources_per_node": {"cpu": "500m", "memory": "128Mi"},
        "env": {"TRAIN_CHECKPOINT_EVERY": "15", **env},
        "priority_class": f"demo-{name}",
        "labels": {"dispatch.local/demo": name},
    }


ready = pulumi.ResourceOptions(depends_on=[runtime])

# The usual case: one resource that starts, records and opens.
patient = GatedJob(
    "patient",
    **common("patient", {"TRAIN_EPOCHS": "140", "TRAIN_EPOCH_SECONDS": "0.25", "TRAIN_GRACE_SECONDS": "30"}),
    opts=ready,
)

# The same in its parts, where somebody decides later.
identity = JobIdentity("urgent-identity")
urgent = GatedTrainJob(
    "urgent-job",
    ulid=identity.ulid,
    **common("urgent", {"TRAIN_EPOCHS": "30", "TRAIN_EPOCH_SECONDS": "0.1"}),
    opts=ready,
)
if config.get_bool("openUrgent"):
    JobOpening("urgent-opening", job=urgent)

pulumi.export("patient", patient.name)
pulumi.export("urgent", urgent.name)
