"""Pulumi as a user runs it: which `pulumi`, in which environment, on which of the checkout's projects."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from dispatch_local.errors import LocalError

STACK = "demo"
INIT_SECONDS, INTERRUPT_SECONDS, DESTROY_SECONDS = 120.0, 20.0, 600.0
TAIL_LINES = 30


@dataclass
class Project:
    """One Pulumi project of the checkout, run from a folder of its own: its stack files stay out of the checkout."""

    source: Path
    folder: Path
    env: Mapping[str, str]
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        """What `pulumi` printed, all runs."""
        return self.folder / "pulumi.log"

    @property
    def exists(self) -> bool:
        """Whether its stack was made."""
        return (self.folder / f"Pulumi.{STACK}.yaml").exists()

    def create(self) -> None:
        """Make the stack."""
        self.folder.mkdir(parents=True)
        for name in ("Pulumi.yaml", "__main__.py"):
            (self.folder / name).symlink_to(self.source / name)
        self._run(lambda running: running.wait(INIT_SECONDS), "stack", "init", STACK)

    def up(self, wait: Callable[[Callable[[], bool]], None]) -> None:
        """Run `pulumi up`; `wait(ended)` returns once `ended()` says so. Whatever it raises ends `pulumi` too."""
        self._configure()
        self._run(
            lambda running: wait(lambda: running.poll() is not None), "up", "--yes", "--skip-preview", "--stack", STACK
        )

    def preview(self) -> list[dict[str, Any]]:
        """Return the inputs of every Kubernetes object that `up` would create now; nothing is changed."""
        self._configure()
        output = self.folder / "preview.json"
        arguments = ("preview", "--json", "--stack", STACK)
        try:
            with output.open("wb") as file:
                self._run(lambda running: running.wait(INIT_SECONDS), *arguments, stdout=file.fileno())
        except LocalError as error:
            # With --json its words are there.
            found = re.findall(r'"message": (".*"),\s*"severity": "error"', output.read_text())
            raise LocalError("\n".join([str(error), *map(json.loads, found)])) from error
        steps = json.loads(output.read_text()).get("steps") or []
        states = [step.get("newState") or {} for step in steps if step.get("op") == "create"]
        return [state["inputs"] for state in states if str(state.get("type", "")).startswith("kubernetes:")]

    def destroy(self) -> None:
        """Take everything down that `up` made, also after one that was cut off."""
        # A `pulumi` that had to be killed left its lock.
        with contextlib.suppress(LocalError):
            self._run(lambda running: running.wait(INIT_SECONDS), "cancel", "--yes", "--stack", STACK)
        arguments = ("destroy", "--yes", "--skip-preview", "--stack", STACK)
        self._run(lambda running: running.wait(DESTROY_SECONDS), *arguments)

    def _configure(self) -> None:
        settings = self.folder / f"Pulumi.{STACK}.yaml"
        content = yaml.safe_load(settings.read_text()) if settings.exists() else {}
        settings.write_text(yaml.safe_dump({**content, "config": self.config}))

    def _run(
        self, wait: Callable[[subprocess.Popen[bytes]], object], *arguments: str, stdout: int | None = None
    ) -> None:
        running = self._start(*arguments, stdout=stdout)
        try:
            wait(running)
        except subprocess.TimeoutExpired as error:
            _end(running)
            raise LocalError(
                f"`pulumi {arguments[0]}` of {self.source.name} took longer than {error.timeout:g} s"
            ) from None
        except BaseException:
            _end(running)
            raise
        if running.returncode:
            tail = "\n".join(self.log.read_text().splitlines()[-TAIL_LINES:])
            raise LocalError(
                f"`pulumi {arguments[0]}` of {self.source.name} ended with {running.returncode}, expected 0. "
                f"It said last:\n{tail}"
            )

    def _start(self, *arguments: str, stdout: int | None) -> subprocess.Popen[bytes]:
        command = ["pulumi", "--non-interactive", "--color=never", "--cwd", str(self.folder), *arguments]
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C is ours to pass on, once.
            return subprocess.Popen(
                command,
                env={**os.environ, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=log if stdout is None else stdout,
                stderr=log,
                start_new_session=True,
            )


def needed() -> str:
    """Return the oldest `pulumi` that will do: as new as the SDK that the programs use."""
    return metadata.version("pulumi")


def users_own() -> str | None:
    """Return the version of the `pulumi` on PATH; None if there is none that says one."""
    command = shutil.which("pulumi")
    if command is None:
        return None
    env = os.environ | {"PULUMI_SKIP_UPDATE_CHECK": "true"}
    done = subprocess.run([command, "version"], env=env, capture_output=True, text=True, check=False)
    found = re.fullmatch(r"v?(\d+\.\d+\.\d+)\S*", done.stdout.strip())
    return found[1] if found else None


def will_do(version: str | None) -> bool:
    """Whether a `pulumi` of this version can run our programs: the same major version, and as new as the SDK."""
    if version is None:
        return False
    have, want = (tuple(map(int, each.split("."))) for each in (version, needed()))
    return have[0] == want[0] and have >= want


def _end(running: subprocess.Popen[bytes]) -> None:
    """Interrupt `pulumi` as Ctrl-C would, then kill what is left of it and of what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.wait(INTERRUPT_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()
