"""Two gated jobs in one queue that has room for one of them.

The patient job is started, recorded and opened by the first `pulumi up`. The urgent one, of higher
priority, is started and recorded by it too, but stays closed: nothing of it runs, whatever the queue's room,
until `openUrgent` is set. It then preempts the patient one, which has to run a second time. `infra/` made
the queue and the priority classes.

Without `queue` both are in plain mode: nobody preempts. There `hold` set and taken back is what makes the patient
job run a second time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import Namespace

from dispatch_gates.resources import GatedJob, GatedTrainJob, JobIdentity, JobOpening
from dispatch_gates.resources.job_inputs import JobInputs

VOLUME = "checkpoints"

config = pulumi.Config()
IMAGE = config.get("image") or "dispatch.local/training:1"
NAMESPACE, QUEUE = config.require("namespace"), config.get("queue")
NODE = config.get_object("nodeSelector") or {"dispatch.local/node": "real"}
GRACE = "20" if QUEUE else "10"

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
                    # Time to write a last checkpoint; train.py takes a minute and TRAIN_GRACE_SECONDS at the most.
                    "terminationGracePeriodSeconds": 90,
                    "automountServiceAccountToken": False,
                    "nodeSelector": NODE,
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

namespace = None
if config.get_bool("createNamespace"):
    namespace = Namespace("namespace", metadata={"name": NAMESPACE})


def common(name: str, env: Mapping[str, pulumi.Input[str]]) -> JobInputs:
    """Return what both jobs are declared with."""
    inputs: JobInputs = {
        "namespace": NAMESPACE,
        "runtime": "dispatch-demo",
        "image": IMAGE,
        "resources_per_node": {"cpu": "500m", "memory": "128Mi"},
        "env": {"TRAIN_CHECKPOINT_EVERY": "15", **env},
        "labels": {"dispatch.local/demo": name},
    }
    if QUEUE:
        inputs |= {"queue": QUEUE, "priority_class": f"demo-{name}"}
    return inputs


ready = pulumi.ResourceOptions(depends_on=[each for each in (runtime, namespace) if each is not None])

identity = JobIdentity("urgent-identity")

# The usual case: one resource that starts, records and opens.
patient_env: dict[str, pulumi.Input[str]] = {
    "TRAIN_EPOCHS": "60",
    "TRAIN_EPOCH_SECONDS": "0.25",
    # Its first execution is there to be preempted, however long that takes on this machine.
    "TRAIN_UNTIL_TOLD": "true",
    "TRAIN_GRACE_SECONDS": GRACE,
}
if QUEUE:
    # The urgent job comes and goes meanwhile, so that the check is seen to wait for the old pod.
    patient_env["TRAIN_GRACE_FROM"] = identity.ulid
patient_inputs = common("patient", patient_env)
patient_inputs["hold"] = config.get_bool("hold")
patient = GatedJob("patient", **patient_inputs, opts=ready)

# The same in its parts, where somebody decides later.
urgent_env: dict[str, pulumi.Input[str]] = {"TRAIN_EPOCHS": "30", "TRAIN_EPOCH_SECONDS": "0.05"}
urgent = GatedTrainJob("urgent-job", ulid=identity.ulid, **common("urgent", urgent_env), opts=ready)
if config.get_bool("openUrgent"):
    JobOpening("urgent-opening", job=urgent)

pulumi.export("patient", patient.name)
pulumi.export("urgent", urgent.name)
