"""`infra/` as a user runs it: the real engine, its files in a folder of their own, state on disk.

And a client for whoever looks at the cluster meanwhile: JSON in and out, as the administrator or as an account; and the
controller that was installed, for tests that take it away.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import yaml

import rails
from dispatch_gates.contract import names
from dispatch_local import images
from dispatch_local.cluster import Cluster
from dispatch_local.node import REAL_NODE
from world import until

INFRA = Path(__file__).parents[2] / "infra"
STACK = "test"
INSTALLED = "DISPATCH_INSTALLED" in os.environ
"""Whether the tests of the readmission gate run against what `pulumi up` installs."""
SECONDS = 420
"""More than the longest wait in `infra/`: Pulumi's own message is worth having."""


SOONER = 'import dispatch_infra.gated_queue as queue\n\nqueue.GONE_WITHIN = "20s"\n\n'
"""A queue that still has a running job is waited for in vain, and two minutes of it prove no more."""


ON_THE_NODE = {
    "image": images.reference("controller"),
    "allowImageTag": True,
    "imagePullPolicy": "Never",
    "leaseSeconds": 3,
    "nodeSelector": {"kubernetes.io/hostname": REAL_NODE},
    "guardRailAccounts": {"jobset": rails.ACCOUNTS.jobset},
}
"""The settings of an installation on a local cluster."""


class Installation:
    """One stack of `infra/` with the configuration that it was made with."""

    def __init__(self, cluster: Cluster, folder: Path, config: Mapping[str, Any], seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self.cluster = cluster
        self._env = os.environ | cluster.pulumi_env(folder)
        self._folder = folder / "infra"
        self._folder.mkdir()
        # A copy, so that no stack file is left in the checkout.
        shutil.copy(INFRA / "Pulumi.yaml", self._folder)
        (self._folder / "__main__.py").write_text(SOONER + (INFRA / "__main__.py").read_text())
        self._run("stack", "init", STACK)
        self.configure(config)

    def configure(self, config: Mapping[str, Any]) -> None:
        """Replace the stack's configuration."""
        path = self._folder / f"Pulumi.{STACK}.yaml"
        whole = yaml.safe_load(path.read_text())
        whole["config"] = {"pulumi:disable-default-providers": ["kubernetes"]} | {
            f"dispatch-infra:{key}": value for key, value in config.items()
        }
        path.write_text(yaml.safe_dump(whole))

    def up(self, **env: str) -> dict[str, Any]:
        """Run `pulumi up` and return the outputs."""
        self._run("up", "--yes", "--skip-preview", env=env)
        outputs: dict[str, Any] = json.loads(self._run("stack", "output", "--json"))
        return outputs

    def previewed(self) -> list[dict[str, Any]]:
        """Run `pulumi preview` and return what it would register: type, urn, inputs and the like."""
        # Before it Pulumi says which of its programs it found where.
        printed = self._run("preview", "--json")
        return [step["newState"] for step in json.loads(printed[printed.index("{") :])["steps"]]

    def up_fails(self) -> str:
        """Run `pulumi up`, which has to fail, and return what it prints."""
        return self._run("up", "--yes", "--skip-preview", fails=True)

    def expect_no_changes(self) -> None:
        """Run `pulumi preview`, which has to find nothing to do."""
        self._run("preview", "--expect-no-changes")

    def refresh_finds_no_drift(self) -> None:
        """Run `pulumi refresh`, which has to find the cluster as the state says."""
        self._run("refresh", "--yes", "--skip-preview", "--expect-no-changes")

    def refresh_finds_drift(self) -> str:
        """Run `pulumi refresh`, which has to find the cluster otherwise, and return what it prints."""
        self._run("refresh", "--yes", "--skip-preview", "--expect-no-changes", "--preview-only", fails=True)
        return self._run("refresh", "--yes", "--skip-preview", "--diff")

    def destroy(self) -> None:
        """Run `pulumi destroy`."""
        self._run("destroy", "--yes", "--skip-preview")

    def destroy_fails(self) -> str:
        """Run `pulumi destroy`, which has to fail, and return what it prints."""
        return self._run("destroy", "--yes", "--skip-preview", fails=True)

    def _run(self, *arguments: str, fails: bool = False, env: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            ["pulumi", "--non-interactive", "--color=never", *arguments],
            cwd=self._folder,
            env={**self._env, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=self._seconds,
            check=False,
        )
        assert (done.returncode != 0) is fails, f"pulumi {' '.join(arguments)}\n{done.stdout}"
        return done.stdout


class Server:
    """The API server of a cluster, seen by one account."""

    def __init__(self, cluster: Cluster, token: str | None = None) -> None:
        self._cluster = cluster
        kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
        endpoint = kubeconfig["clusters"][0]["cluster"]
        self._address = endpoint["server"]
        self._context = ssl.create_default_context(cafile=endpoint["certificate-authority"])
        self._token = token or kubeconfig["users"][0]["user"]["token"]

    def account(self, namespace: str, name: str) -> Server:
        """Return the server as a ServiceAccount sees it, with a real token."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        return Server(self._cluster, self.post(path, request)["status"]["token"])

    def get(self, path: str) -> Any:
        """Return what is at `path`; None if there is nothing."""
        try:
            return self._sent("GET", path)
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            return None

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Create an object."""
        return self._sent("POST", path, body)

    def merge(self, path: str, body: dict[str, Any]) -> Any:
        """Change some fields of an object."""
        return self._sent("PATCH", path, body, "application/merge-patch+json")

    def delete(self, path: str) -> None:
        """Delete an object."""
        self._sent("DELETE", path)

    def now(self) -> int:
        """Return the newest version of anything in the cluster: one etcd counts for all objects."""
        return int(self.get("/api/v1/namespaces?limit=1")["metadata"]["resourceVersion"])

    def histories(self, since: int, *paths: str) -> list[list[Version]]:
        """Return for each object all its versions after `since`, oldest first.

        Not the audit log: it loses server-side applies in YAML, which is how pulumi-kubernetes writes.
        """
        # A watch tells what it knows at once and lasts a second: all of them together do, too.
        with ThreadPoolExecutor(len(paths)) as pool:
            return list(pool.map(partial(self._history, since), paths))

    def _history(self, since: int, path: str) -> list[Version]:
        collection, _, name = path.rpartition("/")
        watch = f"watch=true&resourceVersion={since}&timeoutSeconds=1&fieldSelector=metadata.name%3D{name}"
        with self._open("GET", f"{collection}?{watch}") as lines:
            return [Version.parse(json.loads(line)) for line in lines]

    def _sent(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        with self._open(method, path, body, content_type) as answer:
            return json.load(answer)

    def _open(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> HTTPResponse:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, data, headers, method=method)
        try:
            answer: HTTPResponse = urllib.request.urlopen(request, timeout=60, context=self._context)
        except urllib.error.HTTPError as error:
            error.add_note(error.read().decode())
            error.close()
            raise
        return answer


class InstalledController:
    """The controller that `pulumi up` put into a cluster. Its replicas are pods on the real node."""

    def __init__(self, cluster: Cluster, namespace: str = names.CONTROLLER_NAMESPACE) -> None:
        self._server = Server(cluster)
        self._deployment = f"/apis/apps/v1/namespaces/{namespace}/deployments/{names.CONTROLLER}"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"

    @property
    def there(self) -> bool:
        """Whether it was installed."""
        return self._server.get(self._deployment) is not None

    @contextmanager
    def away(self) -> Iterator[None]:
        """End all replicas, and start as many anew at the end."""
        replicas = self._server.get(self._deployment)["spec"]["replicas"]
        self._scale(0)
        until("the end of the controller's pods", lambda: not self._server.get(self._pods)["items"])
        try:
            yield
        finally:
            self._scale(replicas)
            until("the controller", lambda: self._available() == replicas)

    def _scale(self, replicas: int) -> None:
        self._server.merge(self._deployment, {"spec": {"replicas": replicas}})

    def _available(self) -> int:
        status: dict[str, int] = self._server.get(self._deployment)["status"]
        return status.get("availableReplicas", 0)


def install(cluster: Cluster, folder: Path) -> None:
    """Have `pulumi up` install all that `infra/` installs, under the names that it gives by default."""
    if not InstalledController(cluster).there:
        Installation(cluster, folder, ON_THE_NODE | {"guardRails": str(rails.LEVEL)}).up()


@dataclass(frozen=True)
class Version:
    """One version of an object, as a watch tells of it."""

    order: int
    """Compares across all objects of the cluster."""
    deleted: bool
    body: Any

    @classmethod
    def parse(cls, event: Any) -> Version:
        assert event["type"] in ("ADDED", "MODIFIED", "DELETED"), event
        return cls(int(event["object"]["metadata"]["resourceVersion"]), event["type"] == "DELETED", event["object"])

    def condition(self, kind: str) -> str:
        """Return the status of a condition, `absent` if there is none."""
        return condition(self.body, kind)


def condition(found: Any, kind: str) -> str:
    """Return the status of an object's condition, `absent` if there is none."""
    conditions = (found.get("status") or {}).get("conditions") or []
    return next((entry["status"] for entry in conditions if entry["type"] == kind), "absent")
