"""What a cluster takes from the host: a network link, cgroups, and a few programs of the distribution."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dispatch_local.errors import LocalError, MissingError
from dispatch_local.layout import INDEXES, LOOPBACK_PREFIX, NETWORK_PREFIX, SERVICE_ADDRESS, Addresses, Layout

# Command or file to look for, and the Debian package that brings it.
BASE_PACKAGES = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux", "mount": "mount"}
NODE_PACKAGES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
}
ROOTLESS_PACKAGES = {"unshare": "util-linux", "mount": "mount"}
WHY_ROOT = "a real node takes cgroups, mounts and a network of its own, which only root may give"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CGROUPS = Path("/sys/fs/cgroup")
CLAIM_PORT = 6443
# etcd, API server, controller manager, scheduler, managers' health and webhooks, KWOK.
ROOTLESS_PORTS = (2379, 2380, 2381, 6443, 10257, 10259, 8081, 8082, 8083, 9443, 9444, 9445, 10247)


def run(*command: str, stdin: str | None = None) -> str:
    """Run a command of the system and return its output; LocalError with what it said if it fails."""
    done = subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PATH": SYSTEM_PATH, "LC_ALL": "C.UTF-8"},
    )
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise LocalError(f"`{' '.join(command)}` failed (exit {done.returncode}): {said}")
    return done.stdout


def is_root() -> bool:
    """Whether we may do everything."""
    return os.geteuid() == 0


def require_root(what: str) -> None:
    """MissingError unless we are root."""
    if not is_root():
        raise MissingError(
            f"{what} needs root: {WHY_ROOT}. You are user id {os.geteuid()}. Run the same with sudo or as root. "
            "Without root there are `build`, and `up` with KWOK nodes alone."
        )


def ensure_packages(wanted: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Install the Debian packages whose command or file is missing; MissingError if that cannot be done."""
    missing = sorted({package for what, package in wanted.items() if not _there(what)})
    if not missing:
        return
    by_hand = f"apt-get install --no-install-recommends {' '.join(missing)}"
    apt = shutil.which("apt-get", path=SYSTEM_PATH)
    if apt is None or os.geteuid() != 0:
        why = "there is no apt-get here" if apt is None else "only root may install them"
        raise MissingError(f"These Debian packages are missing: {' '.join(missing)} ({why}). As root: {by_hand}")
    say(f"installing Debian packages: {' '.join(missing)}")
    environment = os.environ | {"PATH": SYSTEM_PATH, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", *missing]):
        # Somebody else may be installing: another start of a cluster, or the machine's own updates.
        command = [apt, "--quiet", "--option", "DPkg::Lock::Timeout=600", *arguments]
        failed, errors = run_to_its_end(command, environment)
        # A failed update is no reason to stop: the lists on the machine may do.
        if failed and arguments[0] == "install":
            raise MissingError(f"`{by_hand}` failed: {errors.strip()[-1500:]}")


def run_to_its_end(command: list[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Run a command that an interrupt does not cut off; return its exit code and what it wrote as errors.

    The interrupt is raised once it has ended: dpkg, cut off half-way, refuses everything that comes after.
    """
    with tempfile.TemporaryFile() as errors:
        # In a session of its own the terminal's Ctrl-C does not reach it.
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        interrupt: KeyboardInterrupt | None = None
        while process.returncode is None:
            try:
                process.wait()
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt
        errors.seek(0)
        return process.returncode, errors.read().decode(errors="replace")


def _there(what: str) -> bool:
    return Path(what).exists() if what.startswith("/") else shutil.which(what, path=SYSTEM_PATH) is not None


# --- network ---------------------------------------------------------------------------------------------


def _links() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("ip", "-json", "link", "show"))
    return found


def claim_link(layout: Layout) -> Addresses:
    """Make a link with the lowest number that clashes with nothing on this machine.

    The kernel lets one caller make an interface of a name, so two clusters never get the same number.
    """
    taken = {link["ifname"] for link in _links()}
    for index in INDEXES:
        addresses = Addresses(index)
        if addresses.interface in taken or _routed(addresses):
            continue
        try:
            run("ip", "link", "add", addresses.interface, "type", "veth", "peer", "name", _peer(addresses))
        except LocalError as error:
            if "File exists" in str(error):
                continue
            raise
        run("ip", "link", "set", addresses.interface, "alias", layout.alias)
        run("ip", "address", "add", f"{addresses.host}/30", "dev", addresses.interface)
        run("ip", "link", "set", addresses.interface, "up")
        return addresses
    raise LocalError(f"all {len(INDEXES)} networks {NETWORK_PREFIX}.N.0/30 are in use on this machine")


def _peer(addresses: Addresses) -> str:
    return f"{addresses.interface}c"


def _routed(addresses: Addresses) -> bool:
    """Whether the host already reaches the link's network by something better than its default route."""
    routes = json.loads(run("ip", "-json", "route", "show", "to", "match", addresses.cluster) or "[]")
    return any(route["dst"] != "default" for route in routes)


def give_link(addresses: Addresses, pid: int) -> None:
    """Move the cluster's end of the link into its network namespace and set up the addresses there."""
    run("ip", "link", "set", _peer(addresses), "netns", str(pid), "name", "eth0")
    # The service address of the API server lies on the loopback interface: it serves on all addresses, so
    # pods reach it there without kube-proxy.
    inside = f"address add {addresses.cluster}/30 dev eth0\nlink set eth0 up\naddress add {SERVICE_ADDRESS}/32 dev lo\n"
    run("nsenter", "--target", str(pid), "--net", "ip", "-batch", "-", stdin=inside)


def remove_links(layout: Layout) -> None:
    """Remove the cluster's interfaces, known by their alias; those of others stay."""
    for link in _links() if is_root() else []:
        if link.get("ifalias") == layout.alias:
            try:
                run("ip", "link", "delete", link["ifname"])
            except LocalError:
                # With the last process of the network namespace the kernel removes the link by itself.
                if link["ifname"] in {each["ifname"] for each in _links()}:
                    raise


def has_links(layout: Layout) -> bool:
    """Whether an interface of the cluster is there."""
    return is_root() and any(link.get("ifalias") == layout.alias for link in _links())


def claim_loopback() -> tuple[Addresses, socket.socket]:
    """Return loopback addresses on which every port of a cluster is free, and the socket that claims them.

    Whoever listens there has them: the kernel gives them to one, and takes them back when that one ends, however
    it ends. LocalError names a port that is taken on all addresses.
    """
    taken = ""
    for index in INDEXES:
        addresses = Addresses(index, rootless=True)
        claim = socket.socket()
        try:
            claim.bind((f"{LOOPBACK_PREFIX}.{index}.1", CLAIM_PORT))
            claim.listen()
        except OSError:
            claim.close()
            taken = f"{LOOPBACK_PREFIX}.N.1:{CLAIM_PORT}"
            continue
        busy = [port for port in ROOTLESS_PORTS if not _is_free(addresses.cluster, port)]
        if not busy:
            return addresses, claim
        claim.close()
        taken = f"port {busy[0]}"
    raise LocalError(
        f"{taken} is taken on all {len(INDEXES)} loopback addresses {LOOPBACK_PREFIX}.N.2, most likely by a program "
        "that listens on all addresses (`ss -ltnp` names it). End it, or use root: then the cluster has a network of "
        "its own."
    )


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        # What ended a moment ago is no hindrance to a server, which says the same.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


# --- cgroups ---------------------------------------------------------------------------------------------


def hierarchies() -> list[Path]:
    """Mount points of all cgroup hierarchies: one with version 2 alone, a dozen with version 1."""
    points = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split()
        if kind in {"cgroup", "cgroup2"} and Path(point).is_relative_to(CGROUPS):
            points.append(Path(point))
    if not points:
        raise MissingError(f"No cgroup hierarchy is mounted under {CGROUPS}; the cluster needs one.")
    return points


def require_controllers() -> None:
    """Raise MissingError if version 2 alone is mounted and lacks what runc needs for pods."""
    if hierarchies() != [CGROUPS]:
        return
    missing = {"cpu", "memory", "pids"} - set((CGROUPS / "cgroup.controllers").read_text().split())
    if missing:
        raise MissingError(
            f"The cgroups under {CGROUPS} lack the controllers {', '.join(sorted(missing))}, which pods on "
            "the real node need: boot with cgroup version 2 alone or mount version 1 beside it. Without "
            "the node the cluster works here: up --without-node"
        )


def create_cgroups(layout: Layout) -> list[Path]:
    """Make the cluster's cgroup in every hierarchy; returns the files that take a process in."""
    files = []
    for hierarchy in hierarchies():
        directory = hierarchy / layout.cgroup
        directory.mkdir(exist_ok=True)
        for file in ("cpuset.mems", "cpuset.cpus"):
            # Version 1 takes no process into a cpuset that has no processors or memory yet.
            if (hierarchy / "cpuset.sched_load_balance").exists():
                (directory / file).write_text((hierarchy / file).read_text())
        if (hierarchy / "cgroup.subtree_control").exists():
            _delegate(hierarchy)
        files.append(directory / "cgroup.procs")
    return files


def _delegate(hierarchy: Path) -> None:
    """Version 2: hand the controllers of the top down to the cluster's cgroup, as far as the host lets us."""
    for controller in (hierarchy / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):
            (hierarchy / "cgroup.subtree_control").write_text(f"+{controller}")


def settle_cgroups(layout: Layout) -> None:
    """Version 2: move the cluster's processes from its cgroup into a leaf of it.

    Only a cgroup without processes can hand controllers down to those of pods. Done from outside, since
    the process that made the namespaces is not in them.
    """
    for hierarchy in hierarchies():
        top = hierarchy / layout.cgroup
        if (top / "cgroup.subtree_control").exists():
            (top / "parts").mkdir()
            for pid in (top / "cgroup.procs").read_text().split():
                (top / "parts" / "cgroup.procs").write_text(pid)


def memory(layout: Layout) -> dict[int, int]:
    """Resident bytes of the cluster's processes, by their ids in its PID namespace."""
    found = {}
    for pid in processes(layout):
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        values = dict(line.split(":", 1) for line in lines)
        if "VmRSS" in values:
            found[int(values["NSpid"].split()[-1])] = int(values["VmRSS"].split()[0]) * 1024
    return found


def end_processes(layout: Layout) -> bool:
    """End the cluster's processes and return whether there were any.

    Being in its cgroups is what makes a process ours, or its mark: process ids get used again, these do not.
    """
    found = processes(layout)
    for pid in found:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            if pid in processes(layout):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            continue
        finally:
            os.close(descriptor)
    return bool(found)


def has_cgroups(layout: Layout) -> bool:
    """Whether a cgroup of the cluster is there."""
    return is_root() and any((hierarchy / layout.cgroup).exists() for hierarchy in hierarchies())


def processes(layout: Layout) -> set[int]:
    """Return the cluster's processes: by cgroup, or without root by the mark in their environment."""
    return cgroup_processes(layout) if is_root() else _marked(layout)


def _marked(layout: Layout) -> set[int]:
    found, ours, mark = set(), os.geteuid(), layout.mark.encode()
    for directory in Path("/proc").iterdir():
        # Of another user's processes neither would be to be seen.
        with contextlib.suppress(OSError):
            if (
                directory.name.isdecimal()
                and directory.stat().st_uid == ours
                and mark in (directory / "environ").read_bytes().split(b"\0")
            ):
                found.add(int(directory.name))
    return found


def cgroup_processes(layout: Layout) -> set[int]:
    """Return the processes in the cluster's cgroups, whoever started them."""
    found: set[int] = set()
    for hierarchy in hierarchies():
        for directory, _, files in os.walk(hierarchy / layout.cgroup):
            if "cgroup.procs" in files:
                with contextlib.suppress(OSError):
                    text = (Path(directory) / "cgroup.procs").read_text()
                    found.update(int(pid) for pid in text.split())
    return found


def remove_cgroups(layout: Layout) -> bool:
    """Remove the cluster's cgroups, children first; whether all are gone.

    The kernel refuses for a moment after the last process has ended.
    """
    for hierarchy in hierarchies() if is_root() else []:
        for directory, _, _ in os.walk(hierarchy / layout.cgroup, topdown=False):
            with contextlib.suppress(OSError):
                Path(directory).rmdir()
    return not has_cgroups(layout)
