"""What the local cluster takes from the distribution, and how it says that something is missing.

Nothing here is Debian in spirit: a program is looked up by name, and only where `apt-get` exists and the
caller is root are missing packages installed. Elsewhere the error names package and reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping

from dispatch_local.errors import MissingError


def require_root(purpose: str) -> None:
    """Raise MissingError, naming `purpose`, unless this process is root."""
    if os.geteuid() != 0:
        raise MissingError(
            f"{purpose} needs root (chroot, mounts, containers), this is user id {os.geteuid()}: "
            "run the same command through sudo"
        )


def ensure_programs(packages: Mapping[str, str], purpose: str, progress: Callable[[str], None]) -> None:
    """Make every program in `packages` (program name or absolute path -> Debian package) available.

    Missing packages are installed with apt-get when that is possible. Raises MissingError, naming all that
    is missing and the command that brings it, when it is not.
    """
    missing = sorted({package for program, package in packages.items() if _which(program) is None})
    if not missing:
        return
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *missing]
    advice = f"{purpose} needs the packages {', '.join(missing)}: run `{' '.join(command)}` as root"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise MissingError(advice)
    progress(f"installing {', '.join(missing)} with apt-get")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for attempt in (["apt-get", "update"], command):
        done = subprocess.run(attempt, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise MissingError(f"{advice}\n`{' '.join(attempt)}` failed:\n{done.stderr.strip()}")
    still = sorted(program for program in packages if _which(program) is None)
    if still:
        raise MissingError(f"apt-get installed {', '.join(missing)}, yet {', '.join(still)} cannot be found")


def apt_sources(codename: str) -> list[str]:
    """Return one-line apt sources of this machine for the Debian release `codename`.

    Mirrors are the machine's own choice, so they are asked for, not written down here. The keys are left
    to mmdebstrap, which knows those of Debian. Raises MissingError when the release is not configured.
    """
    listing = subprocess.run(
        [
            "apt-get",
            "indextargets",
            "--format",
            "$(REPO_URI) $(RELEASE) $(COMPONENT)",
            "Created-By: Packages",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    suites = {codename, f"{codename}-updates", f"{codename}-security"}
    lines = sorted({f"deb {line}" for line in listing.splitlines() if line.split()[1] in suites})
    if not any(line.split()[2] == codename for line in lines):
        raise MissingError(
            f"the apt sources of this machine do not list Debian {codename}, which the local images are made "
            f"from: add a source for it in /etc/apt/sources.list.d"
        )
    return lines


def apt_transport_options() -> list[str]:
    """Return this machine's apt settings for proxies and TLS as `key "value"` lines for mmdebstrap."""
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
    wanted = ("Acquire::http::", "Acquire::https::")
    return [line.rstrip(";") for line in dump.splitlines() if line.startswith(wanted)]


def _which(program: str) -> str | None:
    """Find a program, also in the administrator's folders that an ordinary PATH leaves out."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])
    return shutil.which(program, path=path)
