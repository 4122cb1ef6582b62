"""A small client for the API server: JSON in and out, server-side apply, waiting for readiness.

The official client takes a second to import and has no need to be here: what is sent are the released
manifests as they are.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from dispatch_local.errors import LocalError

Object = dict[str, Any]
TIMEOUT_SECONDS = 60.0
FIELD_MANAGER = "dispatch-local"

_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "FlowSchema": "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "MutatingWebhookConfiguration": ("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"),
    "ValidatingWebhookConfiguration": ("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"),
}


class Api:
    """One API server, one token. Safe to use from several threads, each with a connection of its own.

    As a context manager it closes the connections of all threads at the end.
    """

    def __init__(self, server: str, ca: Path, token: str) -> None:
        address = urlsplit(server)
        assert address.hostname
        self._host = address.hostname
        self._port = address.port or 443
        self._context = ssl.create_default_context(cafile=str(ca))
        self._token = token
        self._connections = threading.local()
        self._opened: list[http.client.HTTPSConnection] = []

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._opened:
            connection.close()

    def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        content_type: str = "application/json",
        more_headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Status and body of the answer; OSError or HTTPException if there is none."""
        connection: http.client.HTTPSConnection | None = getattr(self._connections, "open", None)
        if connection is None:
            connection = http.client.HTTPSConnection(
                self._host, self._port, context=self._context, timeout=TIMEOUT_SECONDS
            )
            self._connections.open = connection
            self._opened.append(connection)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type, **(more_headers or {})}
        try:
            connection.request(method, path, None if body is None else json.dumps(body).encode(), headers=headers)
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):
            # It opens again with the next request.
            connection.close()
            raise

    def get(self, path: str) -> Object | None:
        """Return the object at `path`, None if there is none."""
        status, body = self.request("GET", path)
        if status == http.HTTPStatus.NOT_FOUND:
            return None
        return self._parsed(f"GET {path}", status, body)

    def apply(self, document: Object) -> Object:
        """Create or update by server-side apply."""
        path = object_path(document)
        status, body = self.request(
            "PATCH",
            f"{path}?fieldManager={FIELD_MANAGER}&force=true",
            document,
            # JSON is YAML; the server has one name for both.
            "application/apply-patch+yaml",
        )
        return self._parsed(f"apply {path}", status, body)

    def apply_all(self, documents: Iterable[Object]) -> None:
        """Apply independent objects, a few at a time."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self.apply, documents))

    def ready(self) -> bool:
        """Whether the API server says that it is ready."""
        try:
            return self.request("GET", "/readyz")[0] == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False

    def _parsed(self, what: str, status: int, body: bytes) -> Object:
        if not 200 <= status < 300:
            text = body.decode(errors="replace")
            raise LocalError(f"the API server answered {status} to {what}: {text[:500]}")
        parsed: Object = json.loads(body)
        return parsed


def object_path(document: Object) -> str:
    """Return the address of an object on the API server."""
    metadata = document["metadata"]
    collection = _PATHS[document["kind"]].format(namespace=metadata.get("namespace", ""))
    return f"{collection}/{quote(metadata['name'])}"


def has_condition(api: Api, path: str, kind: str) -> bool | str:
    """Return True if the object at `path` has this condition with status True, what it has if not."""
    found = api.get(path)
    # The API server shows "conditions: null" for an object without any.
    conditions = ((found or {}).get("status") or {}).get("conditions") or []
    for each in conditions:
        if each["type"] == kind:
            return True if each["status"] == "True" else f"{kind}: {each.get('message', each['status'])}"
    return f"no condition {kind} yet"
