"""Where one cluster keeps what, and under which addresses its parts listen: computed, never looked up."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from dispatch_local import paths
from dispatch_local.errors import LocalError

SERVICE_ADDRESS = "10.96.0.1"
SERVICE_RANGE = "10.96.0.0/16"
POD_RANGE = "10.244.0.0/24"
KWOK_POD_RANGE = "10.245.0.0/16"
NETWORK_PREFIX = "10.213"
LOOPBACK_PREFIX = "127.213"
INDEXES = range(256)

REAL_NODE = "real-0"
NODE_LABEL = "dispatch.local/node"
KWOK_TAINT = "dispatch.local/kwok"
HOLD_ANNOTATION = "dispatch.local/hold"


@dataclass(frozen=True)
class Layout:
    """All paths and names of the cluster called `name`."""

    name: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?", self.name):
            raise LocalError(
                f"{self.name!r} is no name for a cluster: at most 30 of a-z, 0-9 and '-', "
                "beginning and ending with a letter or digit"
            )

    @property
    def home(self) -> Path:
        """The directory that holds everything of this cluster and is removed with it."""
        return paths.clusters() / self.name

    @property
    def state(self) -> Path:
        """Who runs the cluster (JSON); written first, so that leftovers are recognised as such."""
        return self.home / "state.json"

    @property
    def control(self) -> Path:
        """Socket of the init process."""
        return self.home / "control.sock"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, usable from the host."""
        return self.home / "kubeconfig"

    @property
    def context(self) -> str:
        """Name of the context in it."""
        return f"dispatch-local-{self.name}"

    @property
    def logs(self) -> Path:
        """One file per part."""
        return self.home / "logs"

    @property
    def audit_log(self) -> Path:
        """What the API server was asked, one JSON event a line."""
        return self.logs / "audit.log"

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.home / "pki"

    @property
    def configuration(self) -> Path:
        """Configuration files and kubeconfigs of the parts."""
        return self.home / "configuration"

    @property
    def data(self) -> Path:
        """What etcd, containerd and kubelet keep."""
        return self.home / "data"

    @property
    def containerd_socket(self) -> Path:
        """Where containerd listens; short, since socket paths are limited to 107 bytes."""
        return self.home / "containerd.sock"

    @property
    def cgroup(self) -> str:
        """Name of the cluster's cgroup at the top of every hierarchy.

        It says whose cluster it is: users with different homes may use the same name.
        """
        return f"dispatch-{self.name}-{hashlib.sha256(str(self.home).encode()).hexdigest()[:8]}"

    @property
    def mark(self) -> str:
        """What the environment of the cluster's processes says, where there are no cgroups to tell by."""
        return f"DISPATCH_LOCAL_CLUSTER={self.home}"

    @property
    def alias(self) -> str:
        """What marks the cluster's network interface on the host as its own."""
        return f"dispatch-gates {self.home}"


@dataclass(frozen=True)
class Addresses:
    """The addresses of cluster number `index`; two clusters never have the same.

    With root a cluster has a network of its own and a link to it. Without, it shares the host's and listens on
    loopback addresses of its own: all of 127.0.0.0/8 is there, and nobody routes it.
    """

    index: int
    rootless: bool = False

    @property
    def interface(self) -> str:
        """The host's end of the link."""
        return f"dispatch{self.index}"

    @property
    def network(self) -> str:
        """The link's network."""
        return f"{NETWORK_PREFIX}.{self.index}.0/30"

    @property
    def host(self) -> str:
        """The host's address on the link."""
        return f"{NETWORK_PREFIX}.{self.index}.1"

    @property
    def cluster(self) -> str:
        """The cluster's address: API server, node and health ports."""
        return f"{LOOPBACK_PREFIX if self.rootless else NETWORK_PREFIX}.{self.index}.2"

    @property
    def inside(self) -> str:
        """Where parts find each other, and nobody else finds them."""
        return self.cluster if self.rootless else "127.0.0.1"

    @property
    def all(self) -> str:
        """What a part binds to that is to be found from outside."""
        return self.cluster if self.rootless else "0.0.0.0"

    @property
    def port(self) -> int:
        """The API server's port; one below 1024 takes root."""
        return 6443 if self.rootless else 443

    @property
    def server(self) -> str:
        """The API server as seen from the host."""
        return f"https://{self.cluster}:{self.port}"
