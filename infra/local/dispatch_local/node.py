"""The one real node: containerd, runc and CNI plugins of the distribution under our own kubelet."""

from __future__ import annotations

import json

import yaml

from dispatch_local import mounts
from dispatch_local.host import run
from dispatch_local.layout import NODE_LABEL, POD_RANGE, REAL_NODE, Addresses, Layout

__all__ = ["REAL_NODE", "write"]

PAUSE = "dispatch.local/pause:1"
CNI_PLUGINS = "/usr/lib/cni"
KUBELET_PORT = 10250


def write(layout: Layout, addresses: Addresses) -> None:
    """Write the configuration of containerd, CNI and kubelet."""
    (layout.configuration / "containerd.toml").write_text(_containerd(layout))
    cni = layout.configuration / "cni"
    cni.mkdir()
    (cni / "10-dispatch.conflist").write_text(json.dumps(_cni(layout), indent=2))
    # Nothing answers there. Pods find the API server by the address in their environment; a look-up
    # of any other name fails at once instead of leaking to the host's servers.
    (layout.configuration / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    (layout.configuration / "kubelet.yaml").write_text(yaml.safe_dump(_kubelet(layout, addresses), sort_keys=False))


def _snapshotter(layout: Layout) -> str:
    """Overlays where the file system below allows them; in a container of its own it may not."""
    return "overlayfs" if mounts.overlay_works(layout.data) else "native"


def _containerd(layout: Layout) -> str:
    root, state = layout.data / "containerd", "/run/containerd"
    return f"""\
version = 2
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt"]

[grpc]
  address = "{layout.containerd_socket}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  # Our processes may not lower this value further, and runc would give up trying.
  restrict_oom_score_adj = true
  disable_apparmor = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PLUGINS}"
    conf_dir = "{layout.configuration / "cni"}"

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{_snapshotter(layout)}"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
"""


def _cni(layout: Layout) -> dict[str, object]:
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "isGateway": True,
        # Without a default route pods cannot even reach the service address.
        "isDefaultGateway": True,
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": POD_RANGE}]],
            "dataDir": str(layout.data / "cni"),
        },
    }
    return {"cniVersion": "1.0.0", "name": "dispatch", "plugins": [bridge]}


def _kubelet(layout: Layout, addresses: Addresses) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "0.0.0.0",
        "port": KUBELET_PORT,
        "healthzBindAddress": addresses.cluster,
        "tlsCertFile": str(layout.pki / "tls.crt"),
        "tlsPrivateKeyFile": str(layout.pki / "tls.key"),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
        "resolvConf": str(layout.configuration / "resolv.conf"),
        "podLogsDir": str(layout.data / "pod-logs"),
        "volumePluginDir": str(layout.data / "volume-plugins"),
        # Cgroups as the host has them: version 1 beside version 2 is common, and nothing here needs pods
        # sorted by quality of service.
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        # A laptop with a full disk must not have its demo evicted.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": False,
        "registerNode": True,
        "nodeStatusUpdateFrequency": "5s",
        # A Secret that changes is in the pods after this time, and not after a minute: managers of charts make their
        # certificates once they run.
        "syncFrequency": "5s",
        "shutdownGracePeriod": "0s",
    }


def load_image(pid: int, socket: str, tar: str) -> None:
    """Import an image for kubelet to find; `pid` is the cluster's init process."""
    enter = ("nsenter", "--target", str(pid), "--mount", "--pid", "--net", "--cgroup")
    run(*enter, "ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", tar)


def labels() -> str:
    """Return the node's labels as kubelet takes them."""
    return f"{NODE_LABEL}=real"
