"""The vocabulary: every group, label, annotation, condition type and name that the product uses, once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DOMAIN: Final = "dispatch.phpboyscout.uk"

# What we write on TrainJobs and their pods.
GATE: Final = f"{DOMAIN}/gate"
OPENED: Final = f"{DOMAIN}/opened"
HOLD: Final = f"{DOMAIN}/hold"
SPEC_HASH: Final = f"{DOMAIN}/spec-hash"
OWNER: Final = f"{DOMAIN}/owner"
ULID_LABEL: Final = f"{DOMAIN}/ulid"
PATCH_MANAGER: Final = f"{DOMAIN}/adapter"
ADMISSION_COUNT: Final = f"{DOMAIN}/admission-count"

# What containers read.
ENV_ULID: Final = "DISPATCH_ULID"
ENV_SUBMISSION: Final = "DISPATCH_SUBMISSION"
ENV_ADMISSION_COUNT: Final = "DISPATCH_ADMISSION_COUNT"
ENV_RESTART_ATTEMPT: Final = "DISPATCH_RESTART_ATTEMPT"

# The controller and what `infra/` creates for it.
CONTROLLER_NAME: Final = f"{DOMAIN}/admission"
ADMISSION_CHECK: Final = "dispatch"
CONTROLLER_NAMESPACE: Final = "dispatch-system"
CONTROLLER: Final = "dispatch-admission"
"""Name of the Deployment, the ServiceAccount and the Lease."""
ADAPTER_VERB: Final = "dispatch"
"""The RBAC verb on trainjobs that makes somebody the adapter."""
GUARDED: Final = f"{DOMAIN}/guarded"
"""The label, `true`, of the namespaces in which the guard rails hold."""
GUARD_RAILS: Final = f"{DOMAIN}/guard-rails"
"""The label of the guard rails' policies and bindings: the level that needs them."""

# Kueue, Trainer, JobSet.
ADMISSION_GATED_BY: Final = "kueue.x-k8s.io/admission-gated-by"
ADMISSION_GATED: Final = "AdmissionGated"
"""The reason that Kueue gives for QuotaReserved False where that annotation is what holds a Workload."""
QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
PRIORITY_CLASS: Final = "kueue.x-k8s.io/priority-class"
PREBUILT_WORKLOAD: Final = "kueue.x-k8s.io/prebuilt-workload-name"
JOB_UID: Final = "kueue.x-k8s.io/job-uid"
KUEUE_PATCH_MANAGER: Final = "kueue.x-k8s.io/manager"
TRAINER_MANAGER: Final = "trainer.kubeflow.org/trainjob-controller"
JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
RESTART_ATTEMPT: Final = "jobset.sigs.k8s.io/restart-attempt"


@dataclass(frozen=True)
class Resource:
    """A kind of object, as the API server's paths spell it."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        """`group/version`, or `version` alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


TRAINJOBS: Final = Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob")
TRAINING_RUNTIMES: Final = Resource("trainer.kubeflow.org", "v1alpha1", "trainingruntimes", "TrainingRuntime")
CLUSTER_TRAINING_RUNTIMES: Final = Resource(
    "trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime"
)
WORKLOADS: Final = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")
ADMISSION_CHECKS: Final = Resource("kueue.x-k8s.io", "v1beta2", "admissionchecks", "AdmissionCheck")
LOCAL_QUEUES: Final = Resource("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue")
CLUSTER_QUEUES: Final = Resource("kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue")
JOBSETS: Final = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
JOBS: Final = Resource("batch", "v1", "jobs", "Job")
PODS: Final = Resource("", "v1", "pods", "Pod")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace")
IDENTIFYING_NAMESPACE: Final = "kube-system"
"""Its UID tells a cluster from every other one."""
EVENTS: Final = Resource("", "v1", "events", "Event")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
CRDS: Final = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
RULES_REVIEWS: Final = Resource("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview")
ACCESS_REVIEWS: Final = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview")
POLICIES: Final = Resource(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy"
)
POLICY_BINDINGS: Final = Resource(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"
)
SUBJECT_REVIEWS: Final = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview")
