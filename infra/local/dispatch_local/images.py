"""The images of the local cluster, made without a registry and without a container engine.

| name | reference | content |
|---|---|---|
| pause | dispatch.local/pause:1 | Debian's static busybox; waits, ends at once on SIGTERM, has a shell |
| training | dispatch.local/training:1 | Debian with Python, and the demo's train.py as entry point |
| controller | dispatch.local/controller:HASH | the project's wheel, by the steps of controller/Dockerfile |
| kueue, jobset, trainer | dispatch.local/NAME:1 | the manager that is built here, where its chart looks for it |

Each is an OCI archive for `ctr -n k8s.io images import`, kept in a cache under a hash of all it is made
from. All but pause share one base layer, which the node unpacks once.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from dispatch_local import debian, dockerfile, host, oci, programs, wheels
from dispatch_local.build import ensure as build_programs
from dispatch_local.errors import LocalError, MissingError
from dispatch_local.locks import directory_lock

Progress = Callable[[str], None]
PURPOSE = "making the images of the local cluster"
LOCAL = wheels.PROJECT / "infra" / "local"
CODE = [Path(__file__).with_name(f"{module}.py") for module in ("images", "oci", "dockerfile", "wheels", "sbom")]
TRAIN = LOCAL / "demo" / "train.py"
DOCKERFILE = wheels.PROJECT / "controller" / "Dockerfile"

KEPT = 6  # files of one image, the most recently used
RELEASE = "bookworm"
BASE_IMAGE = "dispatch.local/python:3.11"
# usr-is-merged stands in for usrmerge, which brings all of Perl.
PACKAGES = "usr-is-merged,python3-venv"
MERGED = "/usr/share/mmdebstrap/hooks/merged-usr"
UNWANTED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*")
RECIPE = (RELEASE, "essential", PACKAGES, MERGED, *UNWANTED)

BUSYBOX = "/bin/busybox"
# sh is process 1: it reaps, and its trap ends the container at once; a plain sleep would ignore SIGTERM.
PAUSE = ("/bin/busybox", "sh", "-c", "trap 'exit 0' TERM INT; /bin/busybox sleep 2147483647 & wait")
# The programs of the managers, and who they run as: their charts want anybody but root.
MANAGERS = {"kueue": "kueue", "jobset": "jobset", "trainer": "trainer-controller-manager"}
NOBODY = "65532:65532"
APPLETS = ("sh", "sleep", "cat", "echo", "ls", "touch", "rm", "wget", "date", "true", "false", "env", "id")


def reference(name: str) -> str:
    """Return the name under which the node knows the image `name`."""
    tag = _key("controller")[:12] if name == "controller" else "1"
    return f"dispatch.local/{name}:{tag}"


def build(cache_dir: Path, which: Sequence[str], progress: Progress) -> dict[str, Path]:
    """Return an OCI archive for each image named in `which`, made where the cache does not hold it.

    Safe beside other processes with the same cache: one makes an image, the others wait for it. Raises
    MissingError, with what to do, where root or a program is missing; DockerfileError where a step fails.
    """
    cache_dir.mkdir(parents=True, exist_ok=True)
    return {name: _cached(cache_dir, name, f"{name}-{_key(name)[:16]}.tar", progress) for name in which}


def _key(name: str) -> str:
    """Hash all that the image or base `name` is made from: sources by name and content, recipes, machine."""
    inputs: list[str] = [name, platform.machine()]
    files = list(CODE)
    if name != "pause":
        inputs += RECIPE
    if name == "training":
        files.append(TRAIN)
    if name == "controller":
        inputs.append(".".join(map(str, sys.version_info[:2])))
        files += [DOCKERFILE, *(wheels.PROJECT / each for each in wheels.SOURCES)]
    if name in MANAGERS:
        inputs.append(programs.group(name).key)
    digest = hashlib.sha256("\0".join(inputs).encode())
    for path in sorted(_files(files)):
        digest.update(f"\0{path.relative_to(wheels.PROJECT)}\0{path.stat().st_mode & 0o111}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from (each for each in path.rglob("*") if each.is_file() and "__pycache__" not in each.parts)
        else:
            yield path


def _cached(cache: Path, name: str, file_name: str, progress: Progress) -> Path:
    """Return the file `file_name` of the cache, made by the maker of `name` if it is not there."""
    target = cache / file_name
    if target.exists():
        target.touch()
        return target
    # The lock is on the folder it is made in: what a killed process left there is nobody's, and goes.
    with directory_lock(cache / f".{name}"):
        if target.exists():
            return target
        host.require_root(PURPOSE)
        progress(f"making image {name}")
        for left in (cache / f".{name}").iterdir():
            shutil.rmtree(left)
        with tempfile.TemporaryDirectory(dir=cache / f".{name}") as scratch:
            made = MAKERS[name](cache, Path(scratch), progress)
            made.rename(target)
        # Every change of the sources makes another controller: only what was used last is kept.
        files = sorted(cache.glob(f"{name}-*.tar"), key=lambda file: file.stat().st_mtime, reverse=True)
        for old in files[KEPT:]:
            old.unlink()
    return target


def _base(_cache: Path, scratch: Path, progress: Progress) -> Path:
    """Make the base layer: Debian with Python, from this machine's own apt sources."""
    host.ensure_packages({"mmdebstrap": "mmdebstrap"}, progress)
    progress(f"unpacking Debian {RELEASE} with Python (about half a minute)")
    target = scratch / "base.tar"
    command = ["mmdebstrap", "--quiet", "--variant=essential", f"--hook-dir={MERGED}"]
    command += [f"--include={PACKAGES}"]
    command += [f"--aptopt={option}" for option in debian.apt_transport_options()]
    command += [f"--dpkgopt=path-exclude={pattern}" for pattern in UNWANTED]
    sources = "\n".join(debian.apt_sources(RELEASE))
    done = subprocess.run(
        [*command, RELEASE, str(target), "-"], input=sources, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise LocalError(f"mmdebstrap failed:\n{done.stderr.strip()[-2000:]}")
    return target


def _base_layer(cache: Path, progress: Progress) -> Path:
    key = hashlib.sha256("\0".join((platform.machine(), *RECIPE)).encode()).hexdigest()
    return _cached(cache, "base", f"base-{key[:16]}.tar", progress)


def _pause(_cache: Path, scratch: Path, progress: Progress) -> Path:
    host.ensure_packages({BUSYBOX: "busybox-static"}, progress)
    if _is_dynamic(BUSYBOX):
        raise MissingError(f"{BUSYBOX} is not a static program: install the package busybox-static")
    root = scratch / "root"
    (root / "bin").mkdir(parents=True)
    (root / "tmp").mkdir(mode=0o1777)
    shutil.copy2(BUSYBOX, root / "bin" / "busybox")
    for applet in APPLETS:
        (root / "bin" / applet).symlink_to("busybox")
    settings = oci.Settings(PAUSE, {"PATH": "/bin"}, user="65535:65535")
    return _archive("pause", [], root, {}, settings, scratch)


def _is_dynamic(program: str) -> bool:
    """Tell whether an ELF program names a loader (PT_INTERP, program header type 3)."""
    content = Path(program).read_bytes()
    start = int.from_bytes(content[32:40], "little")
    size, count = (int.from_bytes(content[at : at + 2], "little") for at in (54, 56))
    return any(content[start + n * size : start + n * size + 4] == b"\x03\0\0\0" for n in range(count))


def _training(cache: Path, scratch: Path, progress: Progress) -> Path:
    base = _base_layer(cache, progress)
    root = scratch / "root"
    (root / "opt" / "train").mkdir(parents=True)
    shutil.copyfile(TRAIN, root / "opt" / "train" / "train.py")
    settings = oci.Settings(
        ("/usr/bin/python3", "/opt/train/train.py"), {"PATH": dockerfile.PATH, "PYTHONUNBUFFERED": "1"}
    )
    return _archive("training", [base], root, {}, settings, scratch)


def _controller(cache: Path, scratch: Path, progress: Progress) -> Path:
    base = _base_layer(cache, progress)
    context = scratch / "wheels"
    wheels.collect(context, cache, progress)
    before: dict[str, oci.Fingerprint] = {}

    def unpack(image: str, folder: Path) -> None:
        if image != BASE_IMAGE:
            raise dockerfile.DockerfileError(f"FROM {image}: only {BASE_IMAGE} is here")
        subprocess.run(
            ["tar", "--extract", "--numeric-owner", "--preserve-permissions", "--file", base],
            cwd=folder,
            check=True,
        )
        before.clear()
        before.update(oci.snapshot(folder))

    progress("running controller/Dockerfile")
    builder = dockerfile.Builder(context, scratch, unpack, {"PYTHON_IMAGE": BASE_IMAGE})
    stage = builder.build(DOCKERFILE.read_text())
    settings = oci.Settings(stage.entrypoint, stage.env, stage.user, stage.workdir, stage.labels)
    return _archive("controller", [base], stage.root, before, settings, scratch)


def _manager(name: str, cache: Path, scratch: Path, progress: Progress) -> Path:
    build_programs([name], progress)
    base = _base_layer(cache, progress)
    root = scratch / "root"
    root.mkdir()
    shutil.copy2(programs.binary(MANAGERS[name]), root / "manager")
    return _archive(name, [base], root, {}, oci.Settings(("/manager",), user=NOBODY), scratch)


def _archive(
    name: str,
    below: Sequence[Path],
    root: Path,
    before: Mapping[str, oci.Fingerprint],
    settings: oci.Settings,
    scratch: Path,
) -> Path:
    oci.write_layer(root, before, scratch / "layer.tar")
    oci.write_archive(reference(name), [*below, scratch / "layer.tar"], settings, scratch / "image.tar")
    return scratch / "image.tar"


MAKERS: Mapping[str, Callable[[Path, Path, Progress], Path]] = {
    "base": _base,
    "pause": _pause,
    "training": _training,
    "controller": _controller,
    **{name: partial(_manager, name) for name in MANAGERS},
}
