"""The Go command: found, new enough, and run in an environment that does not depend on the user's settings."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dispatch_local import paths
from dispatch_local.errors import LocalError, MissingError


@dataclass(frozen=True)
class Go:
    """A usable Go command and its version, for example "go1.26.8"."""

    command: str
    version: str

    def environment(self) -> dict[str, str]:
        """Return the caller's environment without what would change the build: workspaces, flags, other targets."""
        kept = {
            key: value
            for key, value in os.environ.items()
            if key not in {"GOFLAGS", "GOBIN", "GOOS", "GOARCH", "GO111MODULE"}
        }
        return kept | {"GOWORK": "off", "GOTOOLCHAIN": "local"}

    def folders(self) -> list[Path]:
        """Return where a build writes: our cache and Go's own."""
        asked = [self.command, "env", "GOCACHE"]
        done = subprocess.run(asked, env=self.environment(), cwd="/", capture_output=True, text=True, check=False)
        return [folder for folder in (paths.cache(), Path(done.stdout.strip() or "/")) if folder.exists()]

    def module_directory(self, module: str, version: str) -> Path:
        """Where the module cache holds that version, downloaded if need be."""
        done = subprocess.run(
            [self.command, "mod", "download", "-json", f"{module}@{version}"],
            env=self.environment(),
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        try:
            answer = json.loads(done.stdout)
        except json.JSONDecodeError:
            answer = {"Error": done.stderr.strip()}
        if done.returncode or "Dir" not in answer:
            raise LocalError(
                f"Go could not download {module}@{version}: {answer.get('Error', 'no reason given')}\n"
                "It needs the Go module proxy (`go env GOPROXY`). Once it is reachable, run the same again."
            )
        return Path(answer["Dir"])


def needed() -> str:
    """Return the oldest Go that all our modules accept: the highest `go` line of their go.mod files."""
    found: list[str] = re.findall(
        r"^go (\d+\.\d+(?:\.\d+)?)$",
        "\n".join(file.read_text() for file in paths.MODULES.glob("*/go.mod")),
        re.MULTILINE,
    )
    return max(found, key=_numbers)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def find() -> Go:
    """Return the Go command on PATH; MissingError says which version is needed and where it comes from."""
    advice = (
        f"Go {needed()} or newer is needed to build the local cluster's programs: install it from "
        "https://go.dev/dl/ (or your distribution, if its package is new enough), put its bin directory on "
        "PATH and run the same again."
    )
    command = shutil.which("go")
    if command is None:
        raise MissingError(f"There is no `go` on PATH. {advice}")
    # In "/", so that the go.mod of some current directory cannot ask for another toolchain.
    done = subprocess.run(
        [command, "env", "GOVERSION"],
        env=os.environ | {"GOTOOLCHAIN": "local"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    version = done.stdout.strip()
    match = re.match(r"go(\d+\.\d+(?:\.\d+)?)", version)
    if done.returncode or match is None:
        raise MissingError(f"{command} does not say its version ({done.stderr.strip() or version}). {advice}")
    if _numbers(match[1]) < _numbers(needed()):
        raise MissingError(f"{command} is {version}, which is too old. {advice}")
    return Go(command, version)
