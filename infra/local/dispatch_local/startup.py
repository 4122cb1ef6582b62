"""Starting a cluster: from nothing to "ready", in the order that dependencies allow."""

from __future__ import annotations

import base64
import http
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dispatch_local import configuration, control, host, manifests, node, parts, waiting
from dispatch_local.api import Api, Object, has_condition, object_path
from dispatch_local.errors import LocalError
from dispatch_local.layout import KWOK_TAINT, NODE_LABEL, REAL_NODE, Addresses, Layout
from dispatch_local.manifests import RELEASES

LOG_LINES = 25
BEGAN_WITH = "node.kubernetes.io/not-ready"
ROOTLESS_HINT = (
    "\nWithout root a cluster runs in a user namespace. This machine seems not to allow that: look at the sysctls "
    "user.max_user_namespaces (above 0), kernel.unprivileged_userns_clone (1, where it exists) and "
    "kernel.apparmor_restrict_unprivileged_userns (0, where it exists), or use root."
)


@dataclass
class Startup:
    """One start of one cluster. Raises LocalError with the part's last words; cleans nothing up."""

    layout: Layout
    say: Callable[[str], None]
    with_node: bool
    kwok_nodes: int
    without: Collection[str]
    images: Sequence[Path]
    bare: bool = False
    _began: float = field(default_factory=time.monotonic)
    _definitions: dict[str, parts.Definition] = field(default_factory=dict)
    _addresses: Addresses = field(init=False)

    def run(self) -> None:
        """Start everything; returns when the cluster is ready for any object."""
        layout = self.layout
        for directory in (layout.logs, layout.data, layout.data / "tmp"):
            directory.mkdir()
        write_state(layout, {"ready": False})
        claim: socket.socket | None = None
        if host.is_root():
            addresses = host.claim_link(layout)
        else:
            addresses, claim = host.claim_loopback()
        self._addresses = addresses
        token = configuration.write(layout, addresses)
        self._definitions = parts.define(layout, addresses, bare=self.bare)
        pid = self._namespaces(addresses, claim)
        with (
            Api(addresses.server, layout.pki / "ca.crt", token) as api,
            ThreadPoolExecutor(1) as pool,
        ):
            try:
                self._parts(api, pool, pid)
            except BaseException:
                # Ends an import of images too, for which the pool would wait.
                host.end_processes(layout)
                raise
        write_state(
            layout,
            {"ready": True, "index": addresses.index, "rootless": addresses.rootless, "node": self.with_node},
        )

    def _parts(self, api: Api, pool: ThreadPoolExecutor, pid: int) -> None:
        self._start("etcd", "kube-apiserver")
        loading: Future[None] | None = None
        if self.with_node:
            self._start("containerd")
            loading = pool.submit(self._load_images, pid)
        # Reading the YAML takes as long as the API server's start.
        ca_bundle = base64.b64encode((self.layout.pki / "ca.crt").read_bytes()).decode()
        releases = [release for release in RELEASES if release.group not in self.without]
        crds = [crd for release in releases for crd in manifests.crds(release, ca_bundle, self._addresses.inside)]
        managers = [*releases, *([manifests.KWOK] if self.kwok_nodes else [])]
        rbac = [each for release in managers for each in manifests.rbac(release)]
        self._ready("kube-apiserver")
        if not self.bare:
            self._start("kube-controller-manager", "kube-scheduler")
        self._apply_base(api, releases, crds, rbac)
        names = ", ".join(release.group for release in releases)
        self._say_ready(f"API server with the kinds and roles of {names}")
        if self.bare:
            return
        if self.with_node:
            self._start("kubelet")
        self._start(*(release.group for release in releases), *(["kwok"] if self.kwok_nodes else []))
        self._nodes(api)
        self._managers(api, releases, ca_bundle)
        self._say_ready(f"{names} with their webhooks")
        if loading is not None:
            loading.result()
        self._await_rest(api)

    def _namespaces(self, addresses: Addresses, claim: socket.socket | None) -> int:
        """Start the init process in namespaces and cgroups of its own; returns its process id."""
        layout = self.layout
        if claim is None:
            spawn_init(layout, host.create_cgroups(layout))
        else:
            # The init process inherits the claim and has it as long as it lives.
            with claim:
                spawn_init(layout, [], claim)

        def still() -> None:
            if not host.processes(layout):
                hint = "" if claim is None else ROOTLESS_HINT
                raise LocalError(f"the namespaces could not be set up:\n{self._tail('init')}{hint}")

        waiting.until("the init process of the cluster", lambda: control.listens(layout.control), still)
        pid = control.peer(layout.control)
        if not addresses.rootless:
            host.settle_cgroups(layout)
            host.give_link(addresses, pid)
        return pid

    def _start(self, *names: str) -> None:
        for name in names:
            control.call(self.layout.control, "start", part=self._definitions[name].part.to_json())

    def _alive(self) -> None:
        """Raise if a part has ended: at this stage it will end again."""
        status = control.call(self.layout.control, "status")["parts"]
        for name, each in status.items():
            if each["starts"] > 1 or not each["pid"]:
                raise LocalError(
                    f"{name} ended with {each['exit']} while the cluster was starting. "
                    f"The end of its log:\n{self._tail(name)}"
                )

    def _tail(self, name: str) -> str:
        return tail(self.layout.logs / f"{name}.log", LOG_LINES)

    def _until(self, name: str, what: str, check: Callable[[], bool | str]) -> None:
        try:
            waiting.until(what, check, self._alive)
        except waiting.NotInTimeError as error:
            raise LocalError(f"{error}. The end of the log of {name}:\n{self._tail(name)}") from error

    def _ready(self, *names: str) -> None:
        for name in names:
            url = self._definitions[name].ready
            assert url is not None, name
            check = partial(waiting.answers, url, self.layout.pki / "ca.crt")
            self._until(name, f"{name} ready", check)

    def _apply_base(
        self,
        api: Api,
        releases: Sequence[manifests.Release],
        crds: Sequence[Object],
        rbac: Sequence[Object],
    ) -> None:
        api.apply_all(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": release.namespace}} for release in releases
        )
        api.apply_all([*crds, *rbac])
        # Kueue and Trainer end at once if a kind they watch is not there yet.
        for crd in crds:
            path = object_path(crd)
            self._until(
                "kube-apiserver",
                f"{crd['metadata']['name']} established",
                partial(has_condition, api, path, "Established"),
            )

    def _managers(self, api: Api, releases: Sequence[manifests.Release], ca_bundle: str) -> None:
        self._ready(*(release.group for release in releases))
        # Kueue's last, so that seeing them work proves the others: the API server takes them in order.
        for release in sorted(releases, key=lambda each: each is manifests.KUEUE):
            for document in manifests.webhooks(release, ca_bundle, self._addresses.inside):
                api.apply(document)
        if manifests.KUEUE in releases:
            self._until("kueue", "Kueue's webhooks in force", lambda: _kueue_webhooks_work(api))

    def _nodes(self, api: Api) -> None:
        api.apply_all(kwok_node(index) for index in range(self.kwok_nodes))

    def _await_rest(self, api: Api) -> None:
        self._ready("kube-controller-manager", "kube-scheduler")
        # Without it the first pod would be refused.
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self._until("kube-controller-manager", "the default ServiceAccount", lambda: api.get(account) is not None)
        nodes = [("kwok", f"kwok-{index}") for index in range(self.kwok_nodes)]
        if self.with_node:
            nodes.append(("kubelet", REAL_NODE))
        for part, name in nodes:
            path = f"/api/v1/nodes/{name}"
            self._until(
                part,
                f"node {name} ready",
                partial(_takes_pods, api, path),
            )
        self._say_ready(f"nodes {', '.join(name for _, name in nodes)}")

    def _load_images(self, pid: int) -> None:
        waiting.until("containerd's socket", lambda: control.listens(self.layout.containerd_socket), self._alive)
        for tar in self.images:
            node.load_image(pid, str(self.layout.containerd_socket), str(tar))

    def _say_ready(self, what: str) -> None:
        self.say(f"  {time.monotonic() - self._began:4.1f} s  {what}")


def _takes_pods(api: Api, path: str) -> bool | str:
    """Whether a node is Ready, and the taint that it began with is gone, which another part takes away later."""
    taints = ((api.get(path) or {}).get("spec") or {}).get("taints") or []
    if any(taint["key"] == BEGAN_WITH for taint in taints):
        return f"it has the taint {BEGAN_WITH} still"
    return has_condition(api, path, "Ready")


def write_state(layout: Layout, state: Object) -> None:
    """Write the state file as a whole or not at all; only its owner may read it."""
    temporary = layout.state.with_suffix(".tmp")
    temporary.touch(mode=0o600)
    temporary.write_text(json.dumps(state) + "\n")
    temporary.rename(layout.state)


def tail(file: Path, lines: int) -> str:
    """Return the last lines of a file that may not exist."""
    if not file.exists():
        return "(no log)"
    with file.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(0, size - 400 * lines))
        return "\n".join(stream.read().decode(errors="replace").splitlines()[-lines:])


def _kueue_webhooks_work(api: Api) -> bool:
    """Whether Kueue changes and refuses what it should; nothing is stored."""
    flavor: Object = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "dispatch-local-probe"},
    }
    path = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors?dryRun=All"
    status, body = api.request("POST", path, flavor)
    if status != http.HTTPStatus.CREATED or not json.loads(body)["metadata"].get("finalizers"):
        return False
    status, _ = api.request("POST", path, flavor | {"spec": {"nodeLabels": {"not a label": "x"}}})
    return status != http.HTTPStatus.CREATED


def kwok_node(index: int) -> Object:
    """Return a node that KWOK keeps Ready; only pods that tolerate its taint land on it."""
    name = f"kwok-{index}"
    resources = {"cpu": "64", "memory": "256Gi", "pods": "1000", "nvidia.com/gpu": "8"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                NODE_LABEL: "kwok",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            },
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": [{"key": KWOK_TAINT, "value": "true", "effect": "NoSchedule"}]},
        "status": {"capacity": resources, "allocatable": resources},
    }


def spawn_init(layout: Layout, cgroup_files: Sequence[Path], claim: socket.socket | None = None) -> None:
    """Start the init process in the cluster's cgroups, in a session of its own and not as a child of ours.

    When this returns the new process is in the cgroups: while they are empty, it has ended. With a `claim` there
    are none, and no network of its own: root in a user namespace stands in for root.
    """
    enter = 'while [ "$1" != -- ]; do echo $$ >"$1" || exit; shift; done; shift; exec setsid --fork "$@"'
    own = ("--net", "--cgroup") if claim is None else ("--user", "--map-root-user")
    namespaces = (*own, "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    init = (sys.executable, "-m", "dispatch_local.init", layout.name, *(["rootless"] if claim else []))
    with (layout.logs / "init.log").open("ab") as log:
        subprocess.run(
            ["sh", "-c", enter, "enter", *map(str, cgroup_files), "--", "unshare", *namespaces, *init],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=False,
            env=os.environ | dict([layout.mark.split("=", 1)]),
            pass_fds=() if claim is None else (claim.fileno(),),
        )
