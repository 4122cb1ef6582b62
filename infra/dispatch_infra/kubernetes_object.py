"""One Kubernetes object as one Pulumi resource, declared by its plain manifest."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import pulumi

from dispatch_gates.contract.names import Resource


class KubernetesObject(pulumi.CustomResource):
    """An object of any kind, custom or not, as pulumi-kubernetes manages it.

    It is the very resource that pulumi_kubernetes' classes register: the same type, awaiting and state. They are
    not used because their class for custom kinds knows no fields beside `spec`, and because manifests that are
    plain data can be tested as data.
    """

    def __init__(self, name: str, manifest: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(type_token(manifest), name, dict(manifest), _versioned(opts))


class KubernetesPatch(pulumi.CustomResource):
    """Fields of an object that belongs to somebody else: only these are ours, and go when the patch goes."""

    def __init__(self, name: str, manifest: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(f"{type_token(manifest)}Patch", name, dict(manifest), _versioned(opts))


def _versioned(opts: pulumi.ResourceOptions | None) -> pulumi.ResourceOptions:
    return pulumi.ResourceOptions.merge(pulumi.ResourceOptions(version=version("pulumi-kubernetes")), opts)


def existing(kind: Resource, name: str, opts: pulumi.ResourceOptions) -> pulumi.Resource:
    """Read the definition of a custom kind, in previews too; what depends on it is not created without it.

    A controller whose kinds are missing never gets ready: Pulumi would wait for it for minutes and then blame it.
    """
    manifest = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return KubernetesObject(name, manifest, pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(id=str(kind))))


def type_token(manifest: Mapping[str, Any]) -> str:
    """Return the Pulumi type of a manifest's kind, such as `kubernetes:apps/v1:Deployment`."""
    api_version = str(manifest["apiVersion"])
    group_version = api_version if "/" in api_version else f"core/{api_version}"
    return f"kubernetes:{group_version}:{manifest['kind']}"
