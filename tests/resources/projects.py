"""An ordinary Pulumi project, run by the `pulumi` command as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import yaml

from resources.stacks import CONFIG

SECONDS = 900.0
"""How long a command may take; usually a few seconds."""


class Project:
    """A project of the checkout, run from a folder of its own: its stack files stay out of the checkout."""

    def __init__(self, source: Path, folder: Path, env: Mapping[str, str]) -> None:
        self._folder, self._env = folder / source.name, env
        self._folder.mkdir()
        for name in ("Pulumi.yaml", "__main__.py"):
            (self._folder / name).symlink_to(source / name)
        self.pulumi("stack", "init", "tests")
        self.set(**CONFIG)

    def set(self, **config: str) -> None:
        """Do what `pulumi config set` does, with all of them at once."""
        path = self._folder / "Pulumi.tests.yaml"
        content = yaml.safe_load(path.read_text())
        project = yaml.safe_load((self._folder / "Pulumi.yaml").read_text())["name"]
        for key, value in config.items():
            content.setdefault("config", {})[key if ":" in key else f"{project}:{key}"] = value
        path.write_text(yaml.safe_dump(content))

    def pulumi(self, *arguments: str, fails: bool = False, **env: str) -> str:
        """Run `pulumi`; return what it printed, which must be the print of a failure where it `fails`."""
        command = ["pulumi", "--non-interactive", "--color=never", *arguments]
        done = subprocess.run(
            command,
            cwd=self._folder,
            env={**os.environ, **self._env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        backend = Path(self._env["PULUMI_BACKEND_URL"].removeprefix("file://"))
        with (backend / "printed.log").open("a") as log:  # searched for credentials, too
            log.write(done.stdout)
        assert (done.returncode != 0) is fails, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def output(self, name: str) -> object:
        """Run `pulumi stack output`."""
        printed: object = json.loads(self.pulumi("stack", "output", "--json"))[name]
        return printed
