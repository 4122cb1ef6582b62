"""What a cluster could leave on this machine, seen before and after, and the command line run as people run it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import interrupting
from dispatch_local import host
from dispatch_local.layout import Layout

TIMEOUT_SECONDS = 600
SHARED_DIRECTORIES = ("/etc", "/run", "/var/lib", "/var/log", "/var/run", "/opt")


@dataclass(frozen=True)
class Surroundings:
    """Mounts, interfaces, firewall rules, cgroups, top-level files; those of other clusters are left out by name."""

    mounts: frozenset[str]
    interfaces: frozenset[str]
    rules: frozenset[str]
    cgroups: frozenset[str]
    files: frozenset[str]

    @classmethod
    def see(cls, layout: Layout) -> Surroundings:
        """Look at the machine around the cluster of `layout`."""
        host.ensure_packages({"nft": "nftables"}, print)
        links = json.loads(host.run("ip", "-json", "link", "show"))
        return cls(
            frozenset(
                line
                for line in Path("/proc/self/mounts").read_text().splitlines()
                # The images of other clusters are made in mounts under the directory for temporary files.
                if not line.split()[1].startswith("/tmp/")
            ),
            frozenset(
                link["ifname"]
                for link in links
                if link.get("ifalias") == layout.alias or not re.fullmatch(r"dispatch\d+c?", link["ifname"])
            ),
            # Those of iptables included, which has been a front of nftables for long.
            frozenset(host.run("nft", "list", "ruleset").splitlines()),
            frozenset(
                str(path)
                for hierarchy in host.hierarchies()
                for path in hierarchy.glob("*/")
                if path.name == layout.cgroup or not path.name.startswith("dispatch-")
            ),
            frozenset(str(path) for directory in SHARED_DIRECTORIES for path in Path(directory).iterdir()),
        )


def processes(layout: Layout) -> frozenset[tuple[int, int]]:
    """Return the cluster's processes: id and time of start, since ids are used again."""
    return frozenset((pid, started_at) for pid in host.cgroup_processes(layout) if (started_at := _started_at(pid)))


def _started_at(pid: int) -> int | None:
    """Return when a process started, in clock ticks after boot; None if it has ended."""
    try:
        # Fields 3 and 22; the name in field 2 may hold spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # A zombie has ended; when the machine's own init reaps it is not the cluster's doing.
    return None if fields[0] == "Z" else int(fields[19])


def namespaces(layout: Layout) -> frozenset[str]:
    """Return the namespaces that the cluster's processes are in and we are not."""
    found = {space for pid in host.cgroup_processes(layout) for space in _namespaces(pid)}
    return frozenset(found) - _namespaces(os.getpid())


def _namespaces(pid: int) -> frozenset[str]:
    spaces = set()
    if _started_at(pid) is None:
        return frozenset()
    for link in Path(f"/proc/{pid}/ns").glob("*"):
        with suppress(OSError):
            spaces.add(str(link.readlink()))
    return frozenset(spaces)


def _commands() -> Iterator[str]:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue


def assert_nothing_left(
    layout: Layout,
    before: Surroundings,
    ran: frozenset[tuple[int, int]] = frozenset(),
    spaces: frozenset[str] = frozenset(),
) -> None:
    """Fail with what is there now and was not before, and with any process of `ran` or namespace of `spaces` left."""
    after = Surroundings.see(layout)
    for kind in ("mounts", "interfaces", "rules", "cgroups", "files"):
        left = getattr(after, kind) - getattr(before, kind)
        assert not left, f"{kind} left behind: {sorted(left)}"
    assert not [pid for pid, started_at in ran if _started_at(pid) == started_at]
    in_use = {space for each in Path("/proc").glob("[0-9]*") for space in _namespaces(int(each.name))}
    assert not spaces & in_use, f"namespaces left behind: {spaces & in_use}"
    assert not [command for command in _commands() if str(layout.home) in command]
    assert not host.cgroup_processes(layout)
    assert not layout.home.exists(), f"{layout.home} is left"


def command(name: str, *arguments: str) -> list[str]:
    """Return the command line for the cluster `name`."""
    return [sys.executable, "-m", "dispatch_local", "--name", name, *arguments]


@dataclass(frozen=True)
class Result:
    """How a command ended and what it said."""

    code: int
    text: str


def run(name: str, *arguments: str, env: Mapping[str, str] | None = None) -> Result:
    """Run the command line to its end."""
    with started(name, *arguments, env=env) as process:
        text, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        return Result(process.returncode, text)


def interrupted(name: str, arguments: tuple[str, ...], moment: float, env: Mapping[str, str] | None = None) -> Result:
    """Run the command line and press Ctrl-C `moment` seconds later, if it still runs; check what it says then."""
    with started(name, *arguments, env=env) as process:
        said = interrupting.interrupted(process, moment, f"{arguments}, {moment:.2f} s")
    if process.returncode == 130:
        assert "nterrupted" in said, said
    return Result(process.returncode, said)


@contextmanager
def started(name: str, *arguments: str, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """Start the command line as a shell does, in a process group of its own, standard error with the output."""
    process = subprocess.Popen(
        command(name, *arguments),
        env=os.environ | (env or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
