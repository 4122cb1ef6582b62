"""How `dispatch_local` and the init process of a cluster talk: one JSON line each way over a Unix socket."""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dispatch_local.errors import LocalError

TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Part:
    """A program that the init process keeps running."""

    name: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    log: str

    def to_json(self) -> dict[str, Any]:
        """For the way over the socket."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Part:
        """Back again."""
        return cls(value["name"], tuple(value["argv"]), value["environment"], value["log"])


def call(control: Path, operation: str, **arguments: object) -> dict[str, Any]:
    """Ask the init process for one thing; OSError if it does not listen, LocalError if it refuses."""
    with _connected(control) as connection:
        connection.sendall(json.dumps({"operation": operation, **arguments}).encode() + b"\n")
        with connection.makefile("rb") as stream:
            line = stream.readline()
    if not line:
        raise LocalError(f"the init process ended while it was asked for {operation!r}")
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise LocalError(answer["error"])
    return answer


def peer(control: Path) -> int:
    """Process id of the init process as this process sees it, told by the kernel."""
    with _connected(control) as connection:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", credentials)[0]
    return pid


def listens(path: Path) -> bool | str:
    """Return True if somebody listens on the Unix socket `path`, what was seen if not."""
    try:
        _connected(path).close()
    except OSError as error:
        return f"{path}: {error}"
    return True


def _connected(control: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(TIMEOUT_SECONDS)
    try:
        connection.connect(str(control))
    except OSError:
        connection.close()
        raise
    return connection
