"""What the machine may lack, and how that is said: Go, a new enough Go, root. And builds that are interrupted.

Each message must say what was found, what is needed and what to do; the exit code is 4.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dispatch_local import golang, paths, programs
from dispatch_local.waiting import until
from local_cluster.surroundings import run, started

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
    assert all(programs.group(name).is_built for name in programs.CLUSTER_GROUPS), "run `build` first"
    only = [argument for name in programs.CLUSTER_GROUPS for argument in ("--only", name)]
    result = run("test-go", "build", *only, env={"PATH": path_with(tmp_path / "bin", None)})
    assert result.code == 0, result.text


def test_without_root_up_and_down_say_so(tmp_path: Path) -> None:
    for command in ("up", "down"):
        code, text = as_nobody(tmp_path, command)
        assert code == 4, text
        assert "needs root" in text
        assert "sudo" in text
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
        "import os, sys, dispatch_local.__main__ as cli; "
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


def test_two_builds_at_once_build_once(empty_cache: dict[str, str]) -> None:
    with (
        started("test-go", "build", "--only", "etcd", env=empty_cache) as one,
        started("test-go", "build", "--only", "etcd", env=empty_cache) as two,
    ):
        texts = [process.communicate(timeout=600)[0] for process in (one, two)]
    assert [one.returncode, two.returncode] == [0, 0], texts
    assert sorted("built etcd" in text for text in texts) == [False, True], texts


def test_a_build_that_is_interrupted_leaves_nothing_half_done(
    empty_cache: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", empty_cache["XDG_CACHE_HOME"])
    cache = paths.cache() / "programs"
    with started("test-go", "build", "--only", "etcd", env=empty_cache) as process:
        until("the build", lambda: any(cache.glob(".etcd-*/entry/bin")), timeout=120)
        os.killpg(process.pid, signal.SIGINT)
        text, _ = process.communicate(timeout=60)
    assert process.returncode == 130, text
    assert "interrupted" in text
    assert "Traceback" not in text
    assert [path.name for path in cache.iterdir()] == [".locks"]
    second = run("test-go", "build", "--only", "etcd", env=empty_cache)
    assert second.code == 0, second.text
    assert "built etcd" in second.text
