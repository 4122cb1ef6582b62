"""The released manifests of Kueue, JobSet, Trainer and KWOK, made to fit managers that run outside pods.

They are read as the releases ship them. What kustomize would do to them is done here (names, namespaces,
JSON patches), and each webhook is pointed at the manager's port on the loopback interface, which it shares
with the API server.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dispatch_local import programs

Object = dict[str, Any]
LOOPBACK = "127.0.0.1"

_NAMESPACED = {"ServiceAccount", "Role", "RoleBinding"}
_RBAC_FILES = (
    "service_account",
    "role",
    "role_binding",
    "leader_election_role",
    "leader_election_role_binding",
    "manager_secrets_role",
    "manager_secrets_role_binding",
    "manager_clusterprofiles_role",
    "manager_clusterprofiles_role_binding",
)


@dataclass(frozen=True)
class Release:
    """One manager as released: where it is installed and under which names."""

    group: str
    namespace: str
    prefix: str
    port: int
    crds: str = "crd"

    @property
    def directory(self) -> Path:
        """The copied manifests."""
        return programs.group(self.group).path / "manifests"


KUEUE = Release("kueue", "kueue-system", "kueue-", 9443)
JOBSET = Release("jobset", "jobset-system", "jobset-", 9444)
TRAINER = Release("trainer", "kubeflow-system", "", 9445, crds="crds")
KWOK = Release("kwok", "kube-system", "", 0)
RELEASES = (KUEUE, JOBSET, TRAINER)

# Kueue's webhooks for frameworks whose integration is off answer "allowed" to everything. They would only
# add a round trip to every pod and Deployment, and stop all of them while a test holds Kueue up.
_KUEUE_WEBHOOKS = {
    f"{letter}{kind}.kb.io"
    for letter in "mv"
    for kind in ("clusterqueue", "resourceflavor", "cohort", "workload", "trainjob")
}


def load(path: Path) -> list[Object]:
    """All documents of a YAML file."""
    with path.open() as stream:
        return [document for document in yaml.load_all(stream, Loader=_LOADER) if document]


def _load_list(path: Path) -> list[Object]:
    with path.open() as stream:
        found: list[Object] = yaml.load(stream, Loader=_LOADER)
    return found


# The C loader is ten times as fast, which counts with 50,000 lines of CRDs; it is optional in PyYAML.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def crds(release: Release, ca_bundle: str, host: str = LOOPBACK) -> list[Object]:
    """Return the CustomResourceDefinitions, with a conversion webhook where the release uses one."""
    directory = release.directory / release.crds
    bases = directory / "bases"
    found = [
        document
        for file in sorted((bases if bases.is_dir() else directory).glob("*.yaml"))
        for document in load(file)
        if document["kind"] == "CustomResourceDefinition"
    ]
    converted = _converted(release)
    for crd in found:
        crd.pop("status", None)
        if crd["metadata"]["name"] in converted and len(crd["spec"]["versions"]) > 1:
            crd["spec"]["conversion"] = {
                "strategy": "Webhook",
                "webhook": {
                    "clientConfig": _client_config(release, host, "/convert", ca_bundle),
                    "conversionReviewVersions": ["v1"],
                },
            }
    return found


def _converted(release: Release) -> set[str]:
    """Names of the CRDs that the release's kustomization gives a conversion webhook.

    Not all that have two versions: Kueue answers with an error for a kind that is the same in both.
    """
    directory = release.directory / release.crds
    file = directory / "kustomization.yaml"
    patches = load(file)[0].get("patches", []) if file.is_file() else []
    documents = [load(directory / patch["path"])[0] for patch in patches]
    return {each["metadata"]["name"] for each in documents if "conversion" in each.get("spec", {})}


def rbac(release: Release) -> list[Object]:
    """ServiceAccount, roles and bindings of the manager, under their released names."""
    documents = [
        document
        for name in _RBAC_FILES
        if (release.directory / "rbac" / f"{name}.yaml").is_file()
        for document in load(release.directory / "rbac" / f"{name}.yaml")
    ]
    return [_installed(release, document) for document in documents]


def webhooks(release: Release, ca_bundle: str, host: str = LOOPBACK) -> list[Object]:
    """Return the webhook configurations, calling the manager's port at `host`."""
    documents = load(release.directory / "webhook" / "manifests.yaml")
    for document in documents:
        kind = "mutating" if document["kind"].startswith("Mutating") else "validating"
        for patch in (f"patches/{kind}-patch.yaml", f"patch_{kind}.yaml"):
            file = release.directory / "webhook" / patch
            if file.is_file():
                _json_patch(document, _load_list(file))
        if release is KUEUE:
            document["webhooks"] = [webhook for webhook in document["webhooks"] if webhook["name"] in _KUEUE_WEBHOOKS]
        for webhook in document["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = _client_config(release, host, path, ca_bundle)
    return [_installed(release, document) for document in documents]


def configuration(release: Release) -> Object:
    """Return the manager's configuration file as released, to be changed only where it must be."""
    return load(release.directory / "manager" / "controller_manager_config.yaml")[0]


def kwok_stages() -> dict[str, Object]:
    """KWOK's released stages for nodes, by name."""
    files = ("node/fast/node-initialize.yaml", "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml")
    documents = [load(KWOK.directory / "stage" / file)[0] for file in files]
    return {document["metadata"]["name"]: document for document in documents}


def _client_config(release: Release, host: str, path: str, ca_bundle: str) -> Object:
    return {"url": f"https://{host}:{release.port}{path}", "caBundle": ca_bundle}


def _installed(release: Release, document: Object) -> Object:
    """Do what `namespace` and `namePrefix` of the release's kustomization would do."""
    result = copy.deepcopy(document)
    result["metadata"]["name"] = release.prefix + result["metadata"]["name"]
    result["metadata"].pop("namespace", None)
    if result["kind"] in _NAMESPACED:
        result["metadata"]["namespace"] = release.namespace
    if "roleRef" in result:
        result["roleRef"]["name"] = release.prefix + result["roleRef"]["name"]
    for subject in result.get("subjects", []):
        subject["name"] = release.prefix + subject["name"]
        subject["namespace"] = release.namespace
    for rule in result.get("rules", []) if "Role" in result["kind"] else []:
        # Kueue may update its own webhook configurations, which the prefix has renamed.
        rule_names = rule.get("resourceNames")
        if rule_names and rule["apiGroups"] == ["admissionregistration.k8s.io"]:
            rule["resourceNames"] = [release.prefix + name for name in rule_names]
    return result


def _json_patch(document: Object, operations: Iterable[Mapping[str, Any]]) -> None:
    """Do the part of RFC 6902 that these releases use: replace, and add of a key."""
    for operation in operations:
        assert operation["op"] in {"replace", "add"}, operation
        *parents, last = operation["path"].lstrip("/").split("/")
        target: Any = document
        for parent in parents:
            target = target[int(parent) if isinstance(target, list) else parent]
        target[int(last) if isinstance(target, list) else last] = copy.deepcopy(operation["value"])
