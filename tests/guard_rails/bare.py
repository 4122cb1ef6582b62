"""An API server with the kinds and the policies, and nobody at work: a place to ask it one thing at a time.

Every account of it is a ServiceAccount with a real token and, on purpose, the right to everything that the policies are
about: what they are refused is refused by a policy.
"""

from __future__ import annotations

import http
import http.client
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import yaml

from dispatch_gates.contract import names
from dispatch_gates.contract.guard_rails import Level
from dispatch_infra import guard_rails_manifests, rights
from dispatch_infra.policies import Accounts, policies
from dispatch_local import manifests, parts, waiting
from dispatch_local.api import Api, has_condition, object_path
from dispatch_local.cluster import Cluster

GUARDED, OPEN = "guarded", "unguarded"
ACCOUNTS = Accounts()
OTHERS = {"tenant": f"{GUARDED}:tenant", "adapter": f"{GUARDED}:adapter", "otherCheck": "default:other-check"}
EVERYTHING = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
Body = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What the API server said."""

    status: int
    message: str

    @property
    def accepted(self) -> bool:
        return 200 <= self.status < 300


class Bare:
    """The API server, and who asks it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
        endpoint = kubeconfig["clusters"][0]["cluster"]
        self._api = partial(Api, endpoint["server"], endpoint["certificate-authority"])
        self.admin = self._api(kubeconfig["users"][0]["user"]["token"])
        self._users: dict[str, Api] = {}

    def prepare(self) -> None:
        """Install kinds, namespaces, accounts with rights to everything, and the one that is the adapter."""
        for release in manifests.RELEASES:
            crds = manifests.crds(release, "")
            self.admin.apply_all(crds)
            for crd in crds:
                waiting.until("a kind", partial(has_condition, self.admin, object_path(crd), "Established"))
        accounts = {**vars(ACCOUNTS), **OTHERS}
        namespaces = {GUARDED, OPEN, *(account.partition(":")[0] for account in accounts.values())}
        for namespace in namespaces:
            labels = {names.GUARDED: "true"} if namespace == GUARDED else {}
            self.apply("v1", "Namespace", namespace, labels=labels)
            self.apply("v1", "ServiceAccount", "default", namespace)
        groups = [names.TRAINJOBS.group, names.WORKLOADS.group, names.JOBSETS.group, names.JOBS.group, ""]
        rules = [{"apiGroups": groups, "resources": ["*"], "verbs": EVERYTHING}]
        everybody = [{"kind": "Group", "name": f"system:serviceaccounts:{namespace}"} for namespace in namespaces]
        self.role("everything", rules, *everybody)
        namespace, _, name = OTHERS["adapter"].partition(":")
        adapter = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        self.role("adapter", rights.adapter_rules() + rights.adapter_cluster_rules(), adapter)
        for who, account in accounts.items():
            namespace, _, name = account.partition(":")
            self.apply("v1", "ServiceAccount", name, namespace)
            self._users[who] = self._api(self.token(namespace, name))

    def install(self, level: Level, check: str) -> None:
        """Install the policies that a level adds."""
        found = [policy for policy in policies(ACCOUNTS, check, level) if policy.level is level]
        self.put(guard_rails_manifests.policy(policy) for policy in found)
        self.put(guard_rails_manifests.binding(policy, guard_rails_manifests.DENY) for policy in found)

    def remove(self) -> None:
        """Remove all guard rails."""
        for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            status, reply = self.admin.request("DELETE", f"/apis/{names.POLICIES.api_version}/{kind}")
            assert status == http.HTTPStatus.OK, reply

    def ask(self, who: str, method: str, path: str, body: Body | None = None, query: str = "dryRun=All") -> Answer:
        """Have somebody ask for something, without storing it; return what the API server says."""
        user = self.admin if who == "admin" else self._users[who]
        try:
            status, reply = user.request(method, f"{path}?{query}", body)
        except (OSError, http.client.HTTPException):
            # A connection of before the API server started again: the next one is new.
            status, reply = user.request(method, f"{path}?{query}", body)
        try:
            return Answer(status, str(json.loads(reply).get("message", "")))
        except ValueError:  # an API server that is on its way up or down
            return Answer(status, reply.decode())

    def rest(self) -> None:
        """Keep the controllers of Kubernetes from changing, or reacting to, what the tests put there."""
        self.cluster.pause("kube-controller-manager")

    def wake(self) -> None:
        """Let the controllers of Kubernetes work again."""
        self.cluster.resume("kube-controller-manager")

    def close(self) -> None:
        for api in (self.admin, *self._users.values()):
            api.__exit__()

    def token(self, namespace: str, name: str) -> str:
        """Ask for a token of a ServiceAccount."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        status, reply = self.admin.request("POST", path, body)
        assert status == http.HTTPStatus.CREATED, reply
        return str(json.loads(reply)["status"]["token"])

    def role(self, name: str, rules: list[Body], *subjects: Body) -> None:
        """Grant rights in all namespaces."""
        group = "rbac.authorization.k8s.io"
        self.apply(f"{group}/v1", "ClusterRole", name, rules=rules)
        reference = {"apiGroup": group, "kind": "ClusterRole", "name": name}
        self.apply(f"{group}/v1", "ClusterRoleBinding", name, roleRef=reference, subjects=list(subjects))

    def apply(self, version: str, kind: str, name: str, namespace: str = "", **body: Any) -> None:
        metadata = {"name": name, "labels": body.pop("labels", {})} | ({"namespace": namespace} if namespace else {})
        self.admin.apply({"apiVersion": version, "kind": kind, "metadata": metadata, **body})

    def put(self, documents: Iterable[Body]) -> None:
        """Create policies and bindings, or change those that are there."""
        for document in documents:
            resource = names.POLICIES if document["kind"] == names.POLICIES.kind else names.POLICY_BINDINGS
            path = f"/apis/{resource.api_version}/{resource.plural}/{document['metadata']['name']}"
            status, reply = self.admin.request(
                "PATCH", f"{path}?fieldManager=tests", document, "application/apply-patch+yaml"
            )
            assert status in (http.HTTPStatus.CREATED, http.HTTPStatus.OK), reply


def started(name: str) -> Cluster:
    """Bring up a cluster in which only the API server works on."""
    cluster = Cluster(name)
    cluster.up(node=False, kwok_nodes=0, without=set(parts.MANAGERS))
    # Nobody else is to change, or to react to, what the tests put there.
    cluster.pause("kube-controller-manager")
    return cluster
