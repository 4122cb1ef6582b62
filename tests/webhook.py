"""A webhook of a test's own: an HTTPS server in this process that the real API server asks.

It listens on the host's end of the cluster's link, and is asked after all others of its kind.
"""

from __future__ import annotations

import base64
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
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dispatch_gates.contract.names import Resource
from dispatch_local.layout import Addresses
from world import CONFIG_MAPS, World, until

MUTATING = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"
)
VALIDATING = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"
)
SECONDS = 30
"""The longest that the API server waits for an answer."""


class Webhook:
    """Is asked about the writes of one namespace that `rules` name; a subclass answers."""

    configurations: ClassVar[Resource] = MUTATING
    rules: ClassVar[tuple[dict[str, Any], ...]] = ()

    def __init__(self, world: World, folder: Path) -> None:
        self._world = world
        self._name = f"zz-{world.namespace}"
        self._probed = threading.Event()
        server = yaml.safe_load(world.cluster.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        host = Addresses(int(str(urlsplit(server).hostname).split(".")[2])).host
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._certificate = _certificate(host, folder / "webhook.pem")
        context.load_cert_chain(folder / "webhook.pem")
        self._server = ThreadingHTTPServer((host, 0), _handler(self._answer))
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return what to add to "allowed" for this request."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        host, port = self._server.server_address[:2]
        probe = {"operations": ["CREATE"], "apiVersions": ["*"], "apiGroups": [""], "resources": ["configmaps"]}
        webhook = {
            "name": "tests.dispatch.local",
            "clientConfig": {
                "url": f"https://{host!s}:{port}/",
                "caBundle": base64.b64encode(self._certificate).decode(),
            },
            "rules": [*self.rules, probe],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self._world.namespace}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": SECONDS,
        }
        self._world.create(self.configurations, self._name, cluster_scoped=True, webhooks=[webhook])
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
        self._world.create(CONFIG_MAPS, f"webhook-{secrets.token_hex(4)}")
        return self._probed.is_set()

    def _remove(self) -> None:
        self._world.delete(self.configurations, self._name, cluster_scoped=True)

    def _answer(self, review: Any) -> Any:
        asked = review["request"]
        answer: dict[str, Any] = {"uid": asked["uid"], "allowed": True}
        if asked["kind"]["kind"] == "ConfigMap":
            self._probed.set()
        else:
            answer |= self.answer(asked)
        return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer}


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
