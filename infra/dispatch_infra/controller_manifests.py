"""The objects of the controller's installation, as the plain manifests that the API server gets."""

from __future__ import annotations

from typing import Any, Final

from dispatch_gates.contract import names
from dispatch_infra import alerts, rights
from dispatch_infra.arguments import ControllerArgs

Manifest = dict[str, Any]

LABELS: Final = {"app.kubernetes.io/name": names.CONTROLLER, "app.kubernetes.io/part-of": "dispatch-gates"}
SELECTOR: Final = {"app.kubernetes.io/name": names.CONTROLLER}

SERVICE_MONITORS: Final = names.Resource("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor")
PROMETHEUS_RULES: Final = names.Resource("monitoring.coreos.com", "v1", "prometheusrules", "PrometheusRule")
PORT: Final = 8080
PORT_NAME: Final = "http"
USER: Final = 65532

WAIT_FOR: Final = "pulumi.com/waitFor"
"""The annotation that makes pulumi-kubernetes wait for a condition of a custom resource."""
ACTIVE: Final = {WAIT_FOR: "condition=Active"}

_ENV: Final = "DISPATCH_ADMISSION_"


def namespace(args: ControllerArgs) -> Manifest:
    """Return the controller's namespace. Pod Security refuses any pod in it that is less confined than ours."""
    levels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
    return {
        "apiVersion": names.NAMESPACES.api_version,
        "kind": names.NAMESPACES.kind,
        "metadata": {"name": args.namespace, "labels": LABELS | levels},
    }


def service_account(args: ControllerArgs) -> Manifest:
    """Return the controller's account. Its token is mounted where a pod asks for it, and nowhere else."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(args),
        "automountServiceAccountToken": False,
    }


def cluster_role(args: ControllerArgs) -> Manifest:
    """Return the rights in all namespaces."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": _cluster_wide(args), "labels": LABELS},
        "rules": rights.cluster_rules(args.admission_check),
    }


def cluster_role_binding(args: ControllerArgs) -> Manifest:
    """Return the grant of the rights in all namespaces."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": _cluster_wide(args), "labels": LABELS},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": _cluster_wide(args)},
        "subjects": _subjects(args),
    }


def role(args: ControllerArgs) -> Manifest:
    """Return the rights in the controller's own namespace."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": _metadata(args),
        "rules": rights.namespace_rules(names.CONTROLLER),
    }


def role_binding(args: ControllerArgs) -> Manifest:
    """Return the grant of the rights in the controller's own namespace."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": _metadata(args),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": names.CONTROLLER},
        "subjects": _subjects(args),
    }


def deployment(args: ControllerArgs) -> Manifest:
    """Return the controller itself."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(args),
        "spec": {
            "replicas": args.replicas,
            "selector": {"matchLabels": SELECTOR},
            # A new version proves that it serves before an old one leaves.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": LABELS}, "spec": _pod(args)},
        },
    }


def disruption_budget(args: ControllerArgs) -> Manifest:
    """Return the limit on how many replicas a drain may take at a time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(args),
        # Not minAvailable: with one replica that would block every drain of its node for ever.
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": SELECTOR}},
    }


def service(args: ControllerArgs) -> Manifest:
    """Return the Service that metrics are scraped through."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        # Nothing stands on it, and Pulumi would watch a Service for ten seconds before it calls it done.
        "metadata": _metadata(args) | {"annotations": {"pulumi.com/skipAwait": "true"}},
        "spec": {
            "selector": SELECTOR,
            "ports": [{"name": PORT_NAME, "port": PORT, "targetPort": PORT_NAME, "protocol": "TCP"}],
        },
    }


def network_policy(args: ControllerArgs) -> Manifest:
    """Return the limits on who may talk to the controller, and to whom it may talk."""

    def ports(protocol: str, *numbers: int) -> list[Manifest]:
        return [{"protocol": protocol, "port": number} for number in numbers]

    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(args),
        "spec": {
            "podSelector": {"matchLabels": SELECTOR},
            "policyTypes": ["Ingress", "Egress"],
            # Whoever scrapes is not known here, and the kubelet asks from the node.
            "ingress": [{"ports": ports("TCP", PORT)}],
            # The API server has no label that a policy could select: its ports are all that can be said.
            "egress": [{"ports": ports("TCP", *args.api_server_ports)}, {"ports": ports("UDP", 53) + ports("TCP", 53)}],
        },
    }


def service_monitor(args: ControllerArgs) -> Manifest:
    """Return what tells the Prometheus operator where the metrics are."""
    return {
        "apiVersion": SERVICE_MONITORS.api_version,
        "kind": SERVICE_MONITORS.kind,
        "metadata": _metadata(args),
        "spec": {
            "selector": {"matchLabels": SELECTOR},
            "endpoints": [{"port": PORT_NAME, "path": "/metrics", "interval": "30s"}],
        },
    }


def prometheus_rule(args: ControllerArgs) -> Manifest:
    """Return the alerts, as the Prometheus operator takes them."""
    return {
        "apiVersion": PROMETHEUS_RULES.api_version,
        "kind": PROMETHEUS_RULES.kind,
        "metadata": _metadata(args),
        "spec": alerts.rules(),
    }


def admission_check(args: ControllerArgs) -> Manifest:
    """Return our AdmissionCheck; it counts as created once the controller has set it Active."""
    return {
        "apiVersion": names.ADMISSION_CHECKS.api_version,
        "kind": names.ADMISSION_CHECKS.kind,
        "metadata": {"name": args.admission_check, "labels": LABELS, "annotations": ACTIVE},
        "spec": {"controllerName": names.CONTROLLER_NAME},
    }


def _pod(args: ControllerArgs) -> Manifest:
    return {
        "serviceAccountName": names.CONTROLLER,
        "automountServiceAccountToken": True,
        "nodeSelector": dict(args.node_selector),
        "tolerations": [dict(toleration) for toleration in args.tolerations],
        "topologySpreadConstraints": [_spread("kubernetes.io/hostname"), _spread("topology.kubernetes.io/zone")],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(args)],
    }


def _container(args: ControllerArgs) -> Manifest:
    return {
        "name": "controller",
        "image": args.checked_image(),
        "imagePullPolicy": args.image_pull_policy,
        "args": [
            f"--lease-name={names.CONTROLLER}",
            f"--lease-seconds={args.lease_seconds}",
            f"--listen=0.0.0.0:{PORT}",
        ],
        "env": [
            _from_field(f"{_ENV}IDENTITY", "metadata.name"),
            _from_field(f"{_ENV}NAMESPACE", "metadata.namespace"),
        ],
        "ports": [{"name": PORT_NAME, "containerPort": PORT, "protocol": "TCP"}],
        # A slow machine may take long to load Python; a loaded one that stops answering is restarted in 30 s.
        "startupProbe": _probe("/healthz", period=1, failures=120),
        "livenessProbe": _probe("/healthz", period=10, failures=3),
        "readinessProbe": _probe("/readyz", period=3, failures=3),
        "resources": {
            "requests": {"cpu": "100m", "memory": "192Mi"},
            "limits": {"cpu": "1", "memory": "512Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _probe(path: str, *, period: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": PORT_NAME},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _spread(topology_key: str) -> Manifest:
    return {
        "topologyKey": topology_key,
        "maxSkew": 1,
        # A cluster with one node runs both replicas on it.
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": SELECTOR},
        # Without it, a rollout is spread against the pods that it is about to remove.
        "matchLabelKeys": ["pod-template-hash"],
    }


def _from_field(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _metadata(args: ControllerArgs) -> Manifest:
    return {"name": names.CONTROLLER, "namespace": args.namespace, "labels": LABELS}


def _subjects(args: ControllerArgs) -> list[Manifest]:
    return [{"kind": "ServiceAccount", "name": names.CONTROLLER, "namespace": args.namespace}]


def _cluster_wide(args: ControllerArgs) -> str:
    """Return a name for cluster-wide objects that a second installation in another namespace does not share."""
    return f"{args.namespace}:{names.CONTROLLER}"
