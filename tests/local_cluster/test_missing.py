"""What the machine may lack, and how that is said: Go, a new enough Go, root.

Each message must say what was found, what is needed and what to do; the exit code is 4. test_build.py has the builds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dispatch_local import build, golang, programs
from local_cluster.surroundings import run

NOBODY = 65534


@pytest.fixture
def empty_cache(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which nothing is built yet; Go's own cache stays, so builds are short."""
    go_cache = subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "GOCACHE": go_cache.strip()}


def path_with(directory: Path, go: str | None) -> str:
    """Make a PATH that has the system's programs and, as `go`, the given script or nothing."""
    directory.mkdir()
    for name in ("sh", "ip", "mount", "unshare", "nsenter"):
        (directory / name).symlink_to(f"/usr/bin/{name}")
    if go is not None:
        (directory / "go").write_text(go)
        (directory / "go").chmod(0o755)
    return str(directory)


def test_without_go_the_message_says_which_and_from_where(empty_cache: dict[str, str], tmp_path: Path) -> None:
    result = run("test-go", "build", env=empty_cache | {"PATH": path_with(tmp_path / "bin", None)})
    assert result.code == 4, result.text
    for part in ("no `go` on PATH", golang.needed(), "https://go.dev/dl/", "run the same again"):
        assert part in result.text
    assert "Traceback" not in result.text


def test_with_an_old_go_the_message_says_which_was_found(empty_cache: dict[str, str], tmp_path: Path) -> None:
    path = path_with(tmp_path / "bin", "#!/bin/sh\necho go1.19.8\n")
    result = run("test-go", "build", env=empty_cache | {"PATH": path})
    assert result.code == 4, result.text
    for part in ("go1.19.8", "too old", golang.needed(), "https://go.dev/dl/"):
        assert part in result.text


def test_with_everything_in_the_cache_no_go_is_needed(tmp_path: Path) -> None:
    assert all(build.damage(programs.group(name)) is None for name in programs.CLUSTER_GROUPS), "run `build` first"
    only = [argument for name in programs.CLUSTER_GROUPS for argument in ("--only", name)]
    result = run("test-go", "build", *only, env={"PATH": path_with(tmp_path / "bin", None)})
    assert result.code == 0, result.text


def test_without_root_the_demo_says_what_needs_it(tmp_path: Path) -> None:
    code, text = as_nobody(tmp_path, "demo")
    assert code == 4, text
    for said in ("needs root", "cgroups", "sudo", "up"):
        assert said in text
    assert "Traceback" not in text


def test_without_root_up_says_what_will_be_missing_and_goes_on(tmp_path: Path) -> None:
    """As far as Go, which is not there; test_rootless.py has the rest."""
    code, text = as_nobody(tmp_path, "up")
    assert code == 4, text
    for said in ("without root there is no real node", "cgroups", "sudo", "no `go` on PATH"):
        assert said in text
    assert "Traceback" not in text


def test_without_root_build_comes_as_far_as_go(tmp_path: Path) -> None:
    code, text = as_nobody(tmp_path, "build")
    assert code == 4, text
    assert "no `go` on PATH" in text


def as_nobody(directory: Path, command: str) -> tuple[int, str]:
    """Run a command of the CLI as nobody, without Go. The interpreter may lie where nobody cannot read:
    all it needs is imported before the rights are given up.
    """  # noqa: D205
    program = (
        "import os, sys; from dispatch_local import cli; "
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY}); "
        f"sys.argv = ['dispatch_local', {command!r}]; sys.exit(cli.main())"
    )
    home = directory / f"home-{command}"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    for parent in (directory, *directory.parents):
        if parent != Path("/tmp"):
            parent.chmod(parent.stat().st_mode | 0o011)
        else:
            break
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"HOME": str(home), "PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr
