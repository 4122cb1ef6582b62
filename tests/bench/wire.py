"""The cheapest way to talk to an API server from Python: one connection a thread, bytes in, bytes out.

The raw driver, the played Trainer and the observer use it. It knows no kinds, and no error but the end.
"""

from __future__ import annotations

import http.client
import itertools
import json
import re
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

IDLE_SECONDS = 60.0
"""After 90 the API server closes a connection that nothing is sent on."""


@dataclass(frozen=True)
class Server:
    """Where an API server is, and as whom it is spoken to."""

    url: str
    authority: str
    token: str

    @classmethod
    def of(cls, kubeconfig: Path) -> Server:
        """Read a kubeconfig as the local cluster writes it."""
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = cluster.get("certificate-authority")
        if authority is None:
            import base64

            text = base64.b64decode(cluster["certificate-authority-data"]).decode()
        else:
            text = Path(authority).read_text()
        return cls(cluster["server"], text, user["token"])

    def to_json(self) -> str:
        """Hand it to another process."""
        return json.dumps(asdict(self))


class Wire:
    """Connections to one server: each thread has its own, and keeps it."""

    def __init__(self, server: Server) -> None:
        self._where = urlsplit(server.url)
        self._context = ssl.create_default_context(cadata=server.authority)
        self._headers = {"Authorization": f"Bearer {server.token}"}
        self._own = threading.local()
        self.calls = itertools.count()

    def call(
        self, method: str, path: str, body: bytes | None = None, kind: str = "application/json"
    ) -> tuple[int, bytes]:
        """Send a request and return status and content."""
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = self._open()
        elif time.monotonic() - self._own.used > IDLE_SECONDS:
            connection.close()  # it opens itself again
        self._own.used = time.monotonic()
        next(self.calls)
        connection.request(method, path, body=body, headers={**self._headers, "Content-Type": kind})
        reply = connection.getresponse()
        return reply.status, reply.read()

    def get(self, path: str) -> bytes:
        """Read what must be there."""
        status, content = self.call("GET", path)
        assert status == 200, f"GET {path}: {status} {content[:300]!r}"
        return content

    def patch(self, path: str, body: bytes) -> None:
        """Merge something into an object."""
        status, content = self.call("PATCH", path, body, "application/merge-patch+json")
        assert status == 200, f"PATCH {path}: {status} {content[:300]!r}"

    def json(self, method: str, path: str, body: Any = None) -> Any:
        """Send and receive JSON; anything but a success is an error."""
        status, content = self.call(method, path, None if body is None else json.dumps(body).encode())
        assert status < 300, f"{method} {path}: {status} {content[:300]!r}"
        return json.loads(content)

    def lines(self, path: str) -> Iterator[bytes]:
        """Yield the lines of a watch, for as long as it lasts."""
        end = time.monotonic() + 120
        while True:
            connection = self._open()
            connection.request("GET", path, headers=self._headers)
            reply = connection.getresponse()
            if reply.status != 429 or time.monotonic() > end:
                break
            time.sleep(0.5)  # "storage is (re)initializing": the kind is new
        assert reply.status == 200, f"GET {path}: {reply.status} {reply.read()[:300]!r}"
        while line := reply.readline():
            assert not line.startswith(b'{"type":"ERROR"'), f"GET {path}: {line[:300]!r}"
            yield line

    def version(self, path: str) -> str:
        """Return the version of a collection, to watch it from."""
        found: list[bytes] = re.findall(rb'"resourceVersion":"(\d+)"', self.get(f"{path}?limit=1"))
        return found[-1].decode()

    def _open(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            str(self._where.hostname), self._where.port or 443, context=self._context, timeout=600
        )
