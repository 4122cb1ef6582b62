"""The programs of a cluster with their arguments, and how to tell that each is ready."""

from __future__ import annotations

from dataclasses import dataclass

from dispatch_local import node, programs
from dispatch_local.configuration import HEALTH_PORTS
from dispatch_local.control import Part
from dispatch_local.host import SYSTEM_PATH
from dispatch_local.layout import KWOK_POD_RANGE, REAL_NODE, SERVICE_RANGE, Addresses, Layout
from dispatch_local.pki import FRONT_PROXY

MANAGERS = ("jobset", "trainer", "kueue")
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
KWOK_PORT = 10247
NODE = ("containerd", "kubelet")
# In the order in which they start.
ALL = (*CONTROL_PLANE, *MANAGERS, "kwok", *NODE)


@dataclass(frozen=True)
class Definition:
    """A part and the address on which it answers 200 once it is ready; none: told in another way."""

    part: Part
    ready: str | None = None


def define(layout: Layout, addresses: Addresses, *, bare: bool = False) -> dict[str, Definition]:
    """All parts by name.

    For a `bare` cluster, which is there to be measured: writes reach the disk as they do where data matters, nothing
    is audited, and etcd can be filled from outside.
    """
    pki, configuration = layout.pki, layout.configuration
    serving = (f"--tls-cert-file={pki / 'tls.crt'}", f"--tls-private-key-file={pki / 'tls.key'}")

    # One file, never rotated: tests read it from its first line.
    audit = (
        f"--audit-policy-file={configuration / 'audit.yaml'}",
        f"--audit-log-path={layout.audit_log}",
        "--audit-log-maxsize=100000",
    )

    def kubeconfig(name: str) -> str:
        return f"--kubeconfig={configuration / name}.kubeconfig"

    def manager(name: str, binary: str, *more: str, **environment: str) -> Definition:
        arguments = (f"--config={configuration / name}.yaml", kubeconfig(name), *more)
        health = f"http://{addresses.cluster}:{HEALTH_PORTS[name]}/readyz"
        return define_part(name, _built(binary), *arguments, ready=health, **environment)

    def define_part(
        name: str, program: str, *arguments: str, ready: str | None = None, **environment: str
    ) -> Definition:
        base = {"PATH": SYSTEM_PATH, "HOME": str(layout.data), "TMPDIR": str(layout.data / "tmp")}
        base |= dict([layout.mark.split("=", 1)])
        part = Part(name, (program, *arguments), base | environment, str(layout.logs / f"{name}.log"))
        return Definition(part, ready)

    definitions = [
        define_part(
            "etcd",
            _built("etcd"),
            "--name=dispatch",
            f"--data-dir={layout.data / 'etcd'}",
            f"--listen-client-urls=http://{addresses.inside}:2379"
            + (f",http://{addresses.cluster}:2379" if bare and not addresses.rootless else ""),
            f"--advertise-client-urls=http://{addresses.inside}:2379",
            f"--listen-peer-urls=http://{addresses.inside}:2380",
            f"--initial-advertise-peer-urls=http://{addresses.inside}:2380",
            f"--initial-cluster=dispatch=http://{addresses.inside}:2380",
            f"--listen-metrics-urls=http://{addresses.cluster}:2381",
            # The cluster lives no longer than its processes: nothing has to survive a power cut.
            *(() if bare else ("--unsafe-no-fsync",)),
            "--log-level=warn",
            ready=f"http://{addresses.cluster}:2381/readyz",
        ),
        define_part(
            "kube-apiserver",
            _built("kube-apiserver"),
            f"--etcd-servers=http://{addresses.inside}:2379",
            f"--bind-address={addresses.all}",
            f"--secure-port={addresses.port}",
            f"--advertise-address={addresses.cluster}",
            # A loopback address is no endpoint for pods; there are no real ones then.
            *(("--endpoint-reconciler-type=none",) if addresses.rootless else ()),
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            *serving,
            f"--client-ca-file={pki / 'ca.crt'}",
            f"--token-auth-file={pki / 'tokens.csv'}",
            # Webhooks and API servers behind Services, as charts have them, are called at their pods: there is no
            # kube-proxy.
            "--enable-aggregator-routing=true",
            f"--requestheader-client-ca-file={pki / 'ca.crt'}",
            f"--requestheader-allowed-names={FRONT_PROXY}",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={pki / 'front-proxy.crt'}",
            f"--proxy-client-key-file={pki / 'front-proxy.key'}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki / 'service-account.pub'}",
            f"--service-account-signing-key-file={pki / 'service-account.key'}",
            f"--kubelet-certificate-authority={pki / 'ca.crt'}",
            f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
            f"--kubelet-client-key={pki / 'kubelet-client.key'}",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged=true",
            *(() if bare else audit),
            "--profiling=false",
            ready=f"{addresses.server}/readyz",
        ),
        define_part(
            "kube-controller-manager",
            _built("kube-controller-manager"),
            kubeconfig("kube-controller-manager"),
            f"--bind-address={addresses.all}",
            *serving,
            "--use-service-account-credentials",
            f"--service-account-private-key-file={pki / 'service-account.key'}",
            f"--root-ca-file={pki / 'ca.crt'}",
            "--leader-elect=false",
            ready=f"https://{addresses.cluster}:10257/healthz",
        ),
        define_part(
            "kube-scheduler",
            _built("kube-scheduler"),
            kubeconfig("kube-scheduler"),
            f"--bind-address={addresses.all}",
            *serving,
            "--leader-elect=false",
            ready=f"https://{addresses.cluster}:10259/readyz",
        ),
        manager("jobset", "jobset"),
        # Trainer looks for its webhook certificate under the directory for temporary files, nowhere else.
        manager("trainer", "trainer-controller-manager", TMPDIR=str(configuration)),
        manager("kueue", "kueue"),
        define_part(
            "kwok",
            _built("kwok"),
            kubeconfig("kwok"),
            f"--config={configuration / 'kwok.yaml'}",
            "--manage-all-nodes=false",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            # Without leases of theirs the nodes, and so their pods, would be NotReady for a moment in each minute.
            "--node-lease-duration-seconds=40",
            f"--cidr={KWOK_POD_RANGE}",
            f"--node-ip={addresses.cluster}",
            f"--server-address={addresses.inside}:{KWOK_PORT}",
        ),
        define_part(
            "containerd",
            "/usr/bin/containerd",
            f"--config={configuration / 'containerd.toml'}",
            ready=f"unix:{layout.containerd_socket}",
        ),
        define_part(
            "kubelet",
            _built("kubelet"),
            kubeconfig("kubelet"),
            f"--config={configuration / 'kubelet.yaml'}",
            f"--root-dir={layout.data / 'kubelet'}",
            f"--hostname-override={REAL_NODE}",
            f"--node-ip={addresses.cluster}",
            f"--node-labels={node.labels()}",
            ready=f"http://{addresses.cluster}:10248/healthz",
        ),
    ]
    return {definition.part.name: definition for definition in definitions}


def _built(name: str) -> str:
    return str(programs.binary(name))
