"""Configuration files of all parts, written before any of them starts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from dispatch_gates.audit.policy import RULE
from dispatch_local import manifests, node, pki, programs
from dispatch_local.layout import HOLD_ANNOTATION, Addresses, Layout
from dispatch_local.manifests import JOBSET, KUEUE, TRAINER, Object, Release

HEALTH_PORTS = {"kueue": 8081, "jobset": 8082, "trainer": 8083}

# Who each part is to the API server: nobody but the administrator has rights of an administrator.
USERS = {
    "admin": pki.User("dispatch-local-admin", ("system:masters",)),
    "kube-controller-manager": pki.User("system:kube-controller-manager"),
    "kube-scheduler": pki.User("system:kube-scheduler"),
    "kubelet": pki.User(f"system:node:{node.REAL_NODE}", ("system:nodes",)),
    "kwok": pki.service_account("kube-system", "kwok-controller"),
    "kueue": pki.service_account("kueue-system", "kueue-controller-manager"),
    "jobset": pki.service_account("jobset-system", "jobset-controller-manager"),
    "trainer": pki.service_account("kubeflow-system", "kubeflow-trainer-controller-manager"),
}


def write(layout: Layout, addresses: Addresses) -> str:
    """Write everything; returns the administrator's token."""
    tokens = pki.write(layout.pki, addresses, USERS)
    layout.configuration.mkdir(mode=0o700)
    inside = f"https://{addresses.inside}:{addresses.port}"
    for user, token in tokens.items():
        if user == "admin":
            _kubeconfig(layout, layout.kubeconfig, addresses.server, layout.context, token)
        else:
            _kubeconfig(layout, layout.configuration / f"{user}.kubeconfig", inside, user, token)
    _yaml(layout, "audit.yaml", [audit_policy()])
    for release in (KUEUE, JOBSET, TRAINER):
        _yaml(layout, f"{release.group}.yaml", [_manager(layout, addresses, release)])
    certificates = layout.configuration / "k8s-webhook-server" / "serving-certs"
    certificates.mkdir(parents=True)
    for file in ("tls.crt", "tls.key"):
        (certificates / file).symlink_to(layout.pki / file)
    _yaml(layout, "kwok.yaml", [*manifests.kwok_stages().values(), *kwok_pod_stages()])
    node.write(layout, addresses)
    return tokens["admin"]


def _kubeconfig(layout: Layout, file: Path, server: str, context: str, token: str) -> None:
    cluster = {"server": server, "certificate-authority": str(layout.pki / "ca.crt")}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": context, "user": {"token": token}}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
        "current-context": context,
    }
    pki.write_private(file, yaml.safe_dump(content, sort_keys=False).encode())


def _yaml(layout: Layout, file: str, documents: Iterable[Object]) -> None:
    (layout.configuration / file).write_text(yaml.safe_dump_all(documents, sort_keys=False))


def audit_policy() -> Object:
    """Return the policy: writes to what the product is about with their bodies, and no mere noise."""
    with_bodies: list[dict[str, Any]] = [
        {"group": "trainer.kubeflow.org"},
        {"group": "kueue.x-k8s.io"},
        {"group": "jobset.x-k8s.io"},
        {"group": "batch", "resources": ["jobs", "jobs/status"]},
        {"group": "", "resources": ["pods", "pods/status", "pods/eviction", "pods/binding"]},
    ]
    configured = ["admissionchecks", "clusterqueues", "localqueues", "resourceflavors", "workloadpriorityclasses"]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": True,
        "rules": [
            # What the tests' judge needs, as users are told.
            RULE,
            # Reads carry no change; watches of the managers would fill the disk.
            {"level": "Metadata", "verbs": ["get", "list", "watch"], "resources": with_bodies},
            # An apply with a YAML body is lost altogether at a level with bodies: so Pulumi sends what it configures.
            {
                "level": "Metadata",
                "verbs": ["patch"],
                "resources": [{"group": "kueue.x-k8s.io", "resources": configured}],
            },
            {"level": "RequestResponse", "resources": with_bodies},
            {
                "level": "None",
                "users": [
                    "system:kube-controller-manager",
                    "system:kube-scheduler",
                    f"system:node:{node.REAL_NODE}",
                    "system:apiserver",
                    USERS["kwok"].name,
                ],
                "resources": [{"group": "coordination.k8s.io"}],
            },
            {"level": "Metadata", "resources": [{"group": "coordination.k8s.io"}]},
            {
                "level": "None",
                "resources": [
                    {"group": "", "resources": ["events", "nodes", "nodes/status"]},
                    {"group": "events.k8s.io"},
                    {"group": "authentication.k8s.io"},
                    {"group": "authorization.k8s.io"},
                ],
            },
            {"level": "None", "nonResourceURLs": ["*"]},
            {"level": "None", "verbs": ["get", "list", "watch"]},
            {"level": "Metadata"},
        ],
    }


def _manager(layout: Layout, addresses: Addresses, release: Release) -> Object:
    """Return the released configuration, changed where a manager outside a pod needs it."""
    result = manifests.configuration(release)
    result["health"] = {"healthProbeBindAddress": f"{addresses.all}:{HEALTH_PORTS[release.group]}"}
    # Health is asked from the host; webhooks only by the API server, over the loopback interface.
    result["webhook"] = {"port": release.port, "host": addresses.inside}
    result["metrics"] = {"bindAddress": "0"}
    result["leaderElection"] = {"leaderElect": False}
    if release is TRAINER:
        result["certManagement"] = {"enable": False}
        return result
    result["webhook"]["certDir"] = str(layout.pki)
    result["internalCertManagement"] = {"enable": False}
    if release is KUEUE:
        result["namespace"] = release.namespace
        result["integrations"] = {"frameworks": ["trainer.kubeflow.org/trainjob"]}
        # As Kueue's release has it for batch Jobs: one worker alone takes a second to get to the last of a few jobs.
        result["controller"]["groupKindConcurrency"]["TrainJob.trainer.kubeflow.org"] = 5
        # The visibility server wants certificates and an APIService; nothing here uses it.
        result["featureGates"] = {"VisibilityOnDemand": False}
        if programs.group("kueue").version.startswith(("v0.17.", "v0.18.")):
            # Off there unless asked for; from 0.19 on it is at its default, which is on.
            result["featureGates"]["AdmissionGatedBy"] = True
    return result


def kwok_pod_stages() -> list[Object]:
    """Return what happens to pods on KWOK nodes: they run at once, run on, and end when deleted.

    A pod annotated `dispatch.local/hold: "true"` is left alone, so that a test can put it in any phase. As
    with a real kubelet a deleted pod first reports that its containers have ended, and finalizers are
    respected.
    """
    not_held = {"key": f'.metadata.annotations["{HOLD_ANNOTATION}"]', "operator": "NotIn", "values": ["true"]}
    deleted = {"key": ".metadata.deletionTimestamp", "operator": "Exists"}
    not_deleted = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}
    ended = {"key": ".status.phase", "operator": "In", "values": ["Succeeded", "Failed"]}
    not_ended = {"key": ".status.phase", "operator": "NotIn", "values": ["Succeeded", "Failed"]}
    pending = {"key": ".status.podIP", "operator": "DoesNotExist"}
    return [
        _stage("pod-runs", [not_held, not_deleted, not_ended, pending], {"statusTemplate": _RUNNING}),
        _stage("pod-ends", [not_held, deleted, not_ended], {"statusTemplate": _TERMINATED}),
        _stage("pod-is-gone", [not_held, deleted, ended], {"delete": True}),
    ]


def _stage(name: str, expressions: list[Object], then: Object) -> Object:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {"matchExpressions": expressions},
            "next": then,
        },
    }


_RUNNING = """
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
podIP: {{ PodIPWith .spec.nodeName (or .spec.hostNetwork false) (or .metadata.uid "") (or .metadata.name "") \
(or .metadata.namespace "") | Quote }}
conditions:
{{ range $index, $type := list "Initialized" "ContainersReady" "Ready" }}
- type: {{ $type | Quote }}
  status: "True"
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  started: true
  restartCount: 0
  state:
    running:
      startedAt: {{ $now | Quote }}
{{ end }}
"""

_TERMINATED = """
{{ $now := Now }}
phase: Failed
conditions:
{{ range $index, $type := list "ContainersReady" "Ready" }}
- type: {{ $type | Quote }}
  status: "False"
  reason: PodFailed
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: false
  started: false
  restartCount: 0
  state:
    terminated:
      exitCode: 143
      reason: Error
      startedAt: {{ $now | Quote }}
      finishedAt: {{ $now | Quote }}
{{ end }}
"""
