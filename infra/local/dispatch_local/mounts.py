"""The cluster's own view of the file system: what its parts write under /etc, /run and /var stays with them."""

from __future__ import annotations

import shutil
from pathlib import Path

from dispatch_local.host import CGROUPS, run
from dispatch_local.layout import Layout

# Written to by containerd, runc, kubelet or Kueue under paths that no option changes.
OVERLAID = ("/etc", "/var/lib", "/var/log", "/opt")
KUEUE_METRICS = Path("/etc/kueue/metrics/certs")


def prepare(layout: Layout) -> None:
    """Set up the mount namespace; runs in it, before any part does."""
    hierarchies = _own_hierarchies()
    # Out of the host's sight and the other way round: no socket of the host's daemons can be reached.
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    kept = Path("/run/kept")
    kept.mkdir()
    run("mount", "--bind", str(layout.home), str(kept))
    for directory in OVERLAID:
        if not Path(directory).is_dir():
            continue
        upper, work = (Path(f"/run/overlay{directory}") / each for each in ("upper", "work"))
        upper.mkdir(parents=True)
        work.mkdir()
        options = f"lowerdir={directory},upperdir={upper},workdir={work}"
        run("mount", "-t", "overlay", "-o", options, "overlay", directory)
    # The overlays may lie on top of the cluster's own directory; that one is shared with the host.
    run("mount", "--bind", str(kept), str(layout.home))
    _kueue_certificates(layout)
    _mount_sys(hierarchies)
    run("ip", "link", "set", "lo", "up")


def prepare_rootless(layout: Layout) -> None:
    """Set up the mount namespace of a user namespace: all that is needed is Kueue's file under /etc."""
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/mnt")
    upper, work = Path("/mnt/upper"), Path("/mnt/work")
    upper.mkdir()
    work.mkdir()
    # Without the option such a mount would need rights of the real root.
    options = f"lowerdir=/etc,upperdir={upper},workdir={work},userxattr"
    run("mount", "-t", "overlay", "-o", options, "overlay", "/etc")
    _kueue_certificates(layout)


def _kueue_certificates(layout: Layout) -> None:
    """Kueue insists on certificates for its metrics at a fixed path, even with metrics off."""
    KUEUE_METRICS.mkdir(parents=True)
    for file in ("tls.crt", "tls.key"):
        shutil.copy(layout.pki / file, KUEUE_METRICS / file)


def _own_hierarchies() -> list[tuple[str, str, list[str]]]:
    """Mount point, type and options of each cgroup hierarchy of the host."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = before.split()[4]
        kind, _, options = after.split()
        if kind in {"cgroup", "cgroup2"} and Path(point).is_relative_to(CGROUPS):
            found.append((point, kind, options.split(",")))
    return found


def _mount_sys(hierarchies: list[tuple[str, str, list[str]]]) -> None:
    """Mount /sys again, with our network's devices, and the cgroups with ours as their top.

    So everything that runs here, containerd's pods included, lies below the cluster's own cgroup.
    """
    run("mount", "-t", "sysfs", "sysfs", "/sys")
    only_version_2 = [point for point, _, _ in hierarchies] == [str(CGROUPS)]
    if not only_version_2:
        run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(CGROUPS))
    for point, kind, options in hierarchies:
        Path(point).mkdir(exist_ok=True)
        chosen = [option for option in options if option not in {"ro", "rw"}]
        arguments = ["-o", ",".join(_named(chosen))] if kind == "cgroup" else []
        run("mount", "-t", kind, *arguments, kind, point)


def _named(options: list[str]) -> list[str]:
    """Options of a version 1 hierarchy; one with a name but no controller has to say "none"."""
    if any(option.startswith("name=") for option in options):
        return ["none", *(option for option in options if option.startswith("name="))]
    return [option for option in options if option not in {"xattr", "release_agent"}]


def overlay_works(directory: Path) -> bool:
    """Whether an overlay can be written on `directory`'s file system; on another overlay it cannot."""
    mount = Path("/proc/self/mountinfo").read_text().splitlines()
    best, kind = "", ""
    for line in mount:
        before, _, after = line.partition(" - ")
        point = before.split()[4]
        # The last mount wins, as with the kernel.
        if Path(directory).is_relative_to(point) and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return kind not in {"overlay", "nfs", "nfs4", "fuse", "9p", "virtiofs"}
