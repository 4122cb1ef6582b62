"""Apt settings of this machine, for making a Debian root file system from the same mirrors."""

from __future__ import annotations

import subprocess

from dispatch_local.errors import MissingError


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
