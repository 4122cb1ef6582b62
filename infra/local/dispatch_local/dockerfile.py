"""A small interpreter of the Dockerfile subset that `controller/Dockerfile` uses.

It makes the local image by the very steps that docker or buildah would take, on a machine that has
neither. What it does not know is an error, never skipped: an image that differs silently from the one
that users build would make every test on it worthless.

Known: ARG, FROM .. AS, COPY [--from=stage] one-source target, RUN (shell form), ENV, LABEL, USER, WORKDIR,
ENTRYPOINT (JSON form), comments and line continuations.
"""

from __future__ import annotations

import json
import shlex
import shutil
import string
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class DockerfileError(Exception):
    """The Dockerfile asks for something unknown, or one of its steps failed. The text names the line."""


@dataclass
class Stage:
    """One stage: its root file system and what the image made from it would be set to."""

    root: Path
    name: str = ""
    env: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    arguments: dict[str, str] = field(default_factory=dict)
    user: str = ""
    workdir: str = "/"
    entrypoint: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """What `${NAME}` may name here; ENV wins over ARG."""
        return {**self.arguments, **self.env}


def parse(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line number, instruction in upper case, its text) for each instruction."""
    pending, start = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or (not pending and not line.strip()):
            continue
        start = start if pending else number
        pending += line.removesuffix("\\")
        if line.endswith("\\"):
            continue
        name, _, rest = pending.strip().partition(" ")
        yield start, name.upper(), rest.strip()
        pending = ""
    if pending:
        raise DockerfileError(f"line {start}: continued beyond the end of the file")


class Builder:
    """Runs one Dockerfile. `build` may be called once."""

    def __init__(
        self,
        context: Path,
        work: Path,
        unpack: Callable[[str, Path], None],
        arguments: Mapping[str, str],
    ) -> None:
        """`unpack(image, folder)` puts a base image's files into an empty folder; `work` is scratch."""
        self._context, self._work, self._unpack = context, work, unpack
        self._given = dict(arguments)
        self._global: dict[str, str] = {}
        self._stages: list[Stage] = []

    def build(self, text: str) -> Stage:
        """Run all instructions and return the last stage. Needs root (chroot)."""
        steps: dict[str, Callable[[str], None]] = {
            "ARG": self._arg,
            "FROM": self._from,
            "COPY": self._copy,
            "RUN": self._run,
            "ENV": self._env,
            "LABEL": self._label,
            "USER": self._user,
            "WORKDIR": self._workdir,
            "ENTRYPOINT": self._entrypoint,
        }
        for number, name, rest in parse(text):
            if name not in steps:
                raise DockerfileError(f"line {number}: {name} is not known here; known: {', '.join(steps)}")
            if not self._stages and name not in ("ARG", "FROM"):
                raise DockerfileError(f"line {number}: {name} stands before the first FROM")
            try:
                steps[name](rest)
            except (KeyError, ValueError, OSError) as error:
                raise DockerfileError(f"line {number}: {name} {rest}: {error!r}") from error
            except DockerfileError as error:
                raise DockerfileError(f"line {number}: {error}") from error
        if not self._stages:
            raise DockerfileError("there is no FROM")
        return self._stages[-1]

    @property
    def _stage(self) -> Stage:
        return self._stages[-1]

    def _arg(self, rest: str) -> None:
        name, has_default, default = rest.partition("=")
        if name not in self._given and not has_default and name not in self._global:
            raise DockerfileError(f"ARG {name} has no value")
        value = self._given.get(name, default if has_default else self._global.get(name, ""))
        (self._stage.arguments if self._stages else self._global)[name] = value

    def _from(self, rest: str) -> None:
        image, _, name = _expand(rest, self._global).partition(" AS ")
        root = self._work / f"stage-{len(self._stages)}"
        root.mkdir()
        self._unpack(image, root)
        self._stages.append(Stage(root, name))

    def _copy(self, rest: str) -> None:
        words = _expand(rest, self._stage.variables).split()
        base = self._context
        if words[0].startswith("--from="):
            wanted = words.pop(0).removeprefix("--from=")
            base = next((stage.root for stage in self._stages[:-1] if stage.name == wanted), None) or _no(wanted)
        if len(words) != 2 or words[0].startswith("--"):
            raise DockerfileError(f"COPY {rest}: one source and one target are known, and only --from")
        source, target = base / words[0].lstrip("/"), self._inside(words[1])
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
            return
        if words[1].endswith("/"):
            target /= source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)

    def _run(self, rest: str) -> None:
        stage = self._stage
        if rest.startswith(("[", "--")) or stage.user:
            raise DockerfileError("RUN is known in its shell form, before USER, without flags")
        # No network: what the build needs is in its context, and this shows it.
        command = ["unshare", "--net", "--", "chroot", str(stage.root), "/bin/sh", "-c"]
        done = subprocess.run(
            [*command, f"umask 022 && cd {stage.workdir} && {rest}"],
            env={"HOME": "/root", **stage.variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise DockerfileError(f"RUN ended with {done.returncode}:\n{done.stdout}{done.stderr}".rstrip())

    def _env(self, rest: str) -> None:
        self._stage.env.update(self._pairs("ENV", rest))

    def _label(self, rest: str) -> None:
        self._stage.labels.update(self._pairs("LABEL", rest))

    def _pairs(self, instruction: str, rest: str) -> Iterator[tuple[str, str]]:
        for word in shlex.split(_expand(rest, self._stage.variables)):
            name, separator, value = word.partition("=")
            if not separator:
                raise DockerfileError(f"{instruction} {rest}: only NAME=value is known")
            yield name, value

    def _user(self, rest: str) -> None:
        self._stage.user = _expand(rest, self._stage.variables)

    def _workdir(self, rest: str) -> None:
        self._stage.workdir = _expand(rest, self._stage.variables)
        self._inside(self._stage.workdir).mkdir(parents=True, exist_ok=True)

    def _entrypoint(self, rest: str) -> None:
        self._stage.entrypoint = [str(word) for word in json.loads(rest)]

    def _inside(self, path: str) -> Path:
        return self._stage.root / (Path(self._stage.workdir) / path).relative_to("/")


def _expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace ${NAME} and $NAME; a name that was never declared is an error (KeyError)."""
    return string.Template(text).substitute(variables)


def _no(stage: str) -> Path:
    raise DockerfileError(f"there is no earlier stage named {stage}")
