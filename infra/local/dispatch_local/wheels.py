"""Collects what the controller's image is made from: `python -m dispatch_local.wheels`.

The folder it fills (dist/wheels) holds the project's own wheel, the wheels of everything that
`dispatch-gates[controller]` needs at the versions and hashes of requirements.lock, a
requirements.txt that names each file's SHA-256, and the bill of materials. controller/Dockerfile needs nothing else.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import click
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dispatch_local import sbom
from dispatch_local.errors import LocalError

PROJECT = Path(__file__).resolve().parents[3]
DISTRIBUTION = "dispatch-gates"
EXTRA = "controller"
IMAGE = "dispatch-admission"
# All that the wheels are made from, below PROJECT.
SOURCES = (
    *("provider/dispatch_gates", "controller/dispatch_admission", "infra/dispatch_infra"),
    *("pyproject.toml", "requirements.lock", "LICENSE"),
)
PYTHON = (3, 11)  # of the image's base; wheels with C code fit one Python only


def collect(target: Path, cache: Path, progress: Callable[[str], None]) -> None:
    """Fill the folder `target`, replacing what it held. `cache` keeps the dependencies between calls.

    Raises LocalError with pip's own words when a wheel cannot be had or does not have the locked hash.
    """
    if sys.version_info[:2] != PYTHON:
        raise LocalError(
            f"the controller's wheels are collected with the Python of its image, {PYTHON[0]}.{PYTHON[1]}; "
            f"this is {sys.version_info.major}.{sys.version_info.minor}: make clean, and again with "
            f"PYTHON=python{PYTHON[0]}.{PYTHON[1]}"
        )
    dependencies = _dependencies(cache, progress)
    with tempfile.TemporaryDirectory(prefix="wheels-", dir=_folder(target.parent)) as scratch:
        fresh = Path(scratch) / "wheels"
        shutil.copytree(dependencies, fresh)
        progress(f"building the wheel of {DISTRIBUTION}")
        _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(fresh), str(PROJECT))
        (fresh / "requirements.txt").write_text("".join(_pinned(fresh)))
        (fresh / sbom.FILE).write_text(sbom.bill(IMAGE, _project()["version"], list(fresh.glob("*.whl"))))
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)


def locked(names: set[str], lock: str) -> str:
    """Return the lines of the lock file `lock` for the distributions `names`, hashes and markers included."""
    blocks: dict[str, str] = {}
    for block in re.split(r"\n(?=\S)", lock):
        match = re.match(r"([A-Za-z0-9._-]+)==", block)
        if match:
            blocks[canonicalize_name(match[1])] = re.sub(r"\n\s*#.*", "", block).rstrip()
    absent = sorted(names - blocks.keys())
    if absent:
        raise LocalError(f"requirements.lock lacks {', '.join(absent)}, which {DISTRIBUTION}[{EXTRA}] needs")
    return "".join(f"{blocks[name]}\n" for name in sorted(names))


def closure(requirements: Sequence[str]) -> set[str]:
    """Return the names of all distributions that `requirements` need here, by what is installed here."""
    seen: set[tuple[str, str]] = set()
    todo = [(requirement, "") for requirement in requirements]
    while todo:
        text, extra = todo.pop()
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in {"", *requirement.extras} - {extra for seen_name, extra in seen if seen_name == name}:
            seen.add((name, wanted))
            try:
                todo += [(needed, wanted) for needed in metadata.requires(name) or []]
            except metadata.PackageNotFoundError as error:
                raise LocalError(f"{name} is not installed here: install requirements.lock first") from error
    return {name for name, _ in seen}


def requirements() -> list[str]:
    """Return what the controller requires directly, from pyproject.toml: installed metadata may be older."""
    project = _project()
    return [*project["dependencies"], *project["optional-dependencies"][EXTRA]]


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    return project


def _dependencies(cache: Path, progress: Callable[[str], None]) -> Path:
    """Return a folder of the locked wheels, downloaded at most once for one set of pins."""
    pins = locked(closure(requirements()), (PROJECT / "requirements.lock").read_text())
    platform = f"{sys.implementation.cache_tag}-{os.uname().machine}"
    key = hashlib.sha256(f"{platform}\n{pins}".encode()).hexdigest()[:16]
    folder = _folder(cache) / f"wheels-{key}"
    if folder.is_dir():
        return folder
    progress("downloading the controller's dependencies, as locked")
    with tempfile.TemporaryDirectory(prefix="wheels-", dir=cache) as scratch:
        (Path(scratch) / "pins.txt").write_text(pins)
        fresh = Path(scratch) / "fresh"
        _pip(
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--require-hashes",
            *("--dest", str(fresh)),
            *("--requirement", str(Path(scratch) / "pins.txt")),
        )
        try:
            fresh.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster, with the same content
                raise
    return folder


def _pinned(folder: Path) -> Iterator[str]:
    for wheel in sorted(folder.glob("*.whl")):
        name, version = wheel.name.split("-")[:2]
        yield f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LocalError(f"`pip {' '.join(arguments)}` failed:\n{done.stdout}{done.stderr}".rstrip())


@click.command()
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=PROJECT / "dist" / "wheels",
    help="Folder to fill; what it holds is replaced.",
)
def main(output: Path) -> None:
    """Collect the wheels of the controller's image."""
    try:
        collect(output, output.parent / ".wheels", click.echo)
    except LocalError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{len(list(output.glob('*.whl')))} wheels in {output}")


if __name__ == "__main__":
    main()
