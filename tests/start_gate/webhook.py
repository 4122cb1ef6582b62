"""A mutating webhook of the test's own: an HTTPS server in this process that the real API server calls.

It listens on the host's end of the cluster's link and is asked last of all mutating webhooks, so that nothing repairs
what it did. Which object it changes, and how, is said by name before the object is created.
"""

from __future__ import annotations

import base64
import copy
import datetime
import ipaddress
import json
import secrets
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dispatch_gates.cluster import run
from dispatch_gates.contract.names import Resource
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.requests import Delete, Operation
from dispatch_local.layout import Addresses
from start_gate.site import CONFIG_MAPS, Site
from world import until

Change = Callable[[JsonObject], object]
CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"
)
_SECONDS = 30


class Webhook:
    """Changes TrainJobs of one namespace, and their Workloads, as they are created: a function for each name."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.changes: dict[str, Change] = {}
        self.workload_changes: dict[str, Change] = {}
        self._site = site
        self._name = f"zz-{site.namespace}"
        self._probed = threading.Event()
        server = yaml.safe_load(site.cluster.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        host = Addresses(int(str(urlsplit(server).hostname).split(".")[2])).host
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._certificate = _certificate(host, folder / "webhook.pem")
        context.load_cert_chain(folder / "webhook.pem")
        self._server = ThreadingHTTPServer((host, 0), _handler(self._answer))
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        host, port = self._server.server_address[:2]
        rule = {"operations": ["CREATE"], "apiVersions": ["*"]}
        webhook = {
            "name": "tests.dispatch.local",
            "clientConfig": {
                "url": f"https://{host!s}:{port}/",
                "caBundle": base64.b64encode(self._certificate).decode(),
            },
            "rules": [
                {**rule, "apiGroups": ["trainer.kubeflow.org"], "resources": ["trainjobs"]},
                {**rule, "apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"]},
                {**rule, "apiGroups": [""], "resources": ["configmaps"]},
            ],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self._site.namespace}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": _SECONDS,
        }
        self._site.create(CONFIGURATIONS, self._name, cluster_scoped=True, webhooks=[webhook])
        try:
            until("the API server to call the webhook", self._called)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()
        self._server.shutdown()
        self._server.server_close()

    def _called(self) -> bool:
        self._site.create(CONFIG_MAPS, f"webhook-{secrets.token_hex(4)}")
        return self._probed.is_set()

    def _remove(self) -> None:
        raw = self._site.get(CONFIGURATIONS, self._name, cluster_scoped=True)
        assert raw is not None
        run(self._site.target, _delete(raw["metadata"]))

    def _answer(self, review: Any) -> Any:
        asked = review["request"]
        answer: dict[str, Any] = {"uid": asked["uid"], "allowed": True}
        kind = asked["kind"]["kind"]
        owners = asked["object"]["metadata"].get("ownerReferences") or [{}]
        change = (
            self.workload_changes.get(owners[0].get("name")) if kind == "Workload" else self.changes.get(asked["name"])
        )
        if kind == "ConfigMap":
            self._probed.set()
        elif change is not None:
            body = copy.deepcopy(asked["object"])
            change(body)
            # Whole parts, so that no change needs a JSON patch of its own.
            patch = [{"op": "replace", "path": f"/{part}", "value": body[part]} for part in ("metadata", "spec")]
            answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
        return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer}


def _delete(metadata: dict[str, str]) -> Operation[None]:
    yield Delete(CONFIGURATIONS, "", metadata["name"], metadata["uid"], metadata["resourceVersion"])


def _handler(answer: Callable[[Any], Any]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def do_POST(self) -> None:
            content = json.dumps(answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _certificate(host: str, file: Path) -> bytes:
    """Write key and certificate of a server at this address, signed by itself; return the certificate (PEM)."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + pem)
    return pem
