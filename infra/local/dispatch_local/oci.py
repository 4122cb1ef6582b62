"""OCI images as plain files: layers from folders, and the archive that `ctr images import` reads.

No registry and no container tool: an image is a tar of blobs named by their SHA-256, an index and one
annotation with the name under which the node will know it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"

Fingerprint = tuple[int, int, int]


@dataclass(frozen=True)
class Settings:
    """What a container of the image runs, and how."""

    entrypoint: Sequence[str] = ()
    env: Mapping[str, str] | None = None
    user: str = ""
    workdir: str = "/"
    labels: Mapping[str, str] | None = None


def snapshot(root: Path) -> dict[str, Fingerprint]:
    """Return what is below `root` now: relative path -> (inode, change time, mode). See `write_layer`."""
    return {name: _fingerprint(root / name) for name in _names(root)}


def write_layer(root: Path, before: Mapping[str, Fingerprint], target: Path) -> None:
    """Write what changed below `root` since the snapshot `before` as a layer tar.

    The tar depends on names, contents, modes and numeric owners only: order and times are fixed, so that
    the same tree gives the same digest. Removed names become whiteouts, as the OCI layer format has it.
    """
    after = snapshot(root)
    changed = [name for name, print_ in after.items() if before.get(name) != print_]
    removed = [name for name in before if name not in after and (_parent(name) in after or "/" not in name)]
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as tar:
        for name in sorted(changed):
            entry = tar.gettarinfo(root / name, arcname=name)
            entry.mtime, entry.uname, entry.gname = 0, "", ""
            if entry.isreg():
                with (root / name).open("rb") as content:
                    tar.addfile(entry, content)
            else:
                tar.addfile(entry)
        for name in sorted(removed):
            folder, _, last = name.rpartition("/")
            tar.addfile(tarfile.TarInfo(f"{folder}/.wh.{last}".lstrip("/")))


def write_archive(reference: str, layers: Sequence[Path], settings: Settings, target: Path) -> None:
    """Write an image of these layer tars, lowest first, named `reference`, as an OCI archive."""
    digests = [_digest(layer) for layer in layers]
    config = _json(
        {
            "architecture": ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": {
                "Entrypoint": list(settings.entrypoint),
                "Env": [f"{key}={value}" for key, value in (settings.env or {}).items()],
                "User": settings.user,
                "WorkingDir": settings.workdir,
                **({"Labels": dict(settings.labels)} if settings.labels else {}),
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": _descriptor(CONFIG_TYPE, _sha256(config), len(config)),
            "layers": [
                _descriptor(LAYER_TYPE, digest, layer.stat().st_size)
                for digest, layer in zip(digests, layers, strict=True)
            ],
        }
    )
    named = _descriptor(MANIFEST_TYPE, _sha256(manifest), len(manifest))
    named["annotations"] = {"io.containerd.image.name": reference}
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as tar:
        _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(tar, "index.json", _json({"schemaVersion": 2, "manifests": [named]}))
        for blob in (manifest, config):
            _add(tar, f"blobs/sha256/{_sha256(blob)}", blob)
        for digest, layer in zip(digests, layers, strict=True):
            tar.add(layer, arcname=f"blobs/sha256/{digest}")


def _names(root: Path) -> Iterator[str]:
    """Yield every path below `root`, relative to it, folders before what they hold."""
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in sorted([*folders, *files]):
            yield os.path.relpath(Path(folder) / name, root)


def _fingerprint(path: Path) -> Fingerprint:
    """Identify one state of a file. A folder's times change with its members: its mode stands for it."""
    status = path.lstat()
    folder = stat.S_ISDIR(status.st_mode)
    return (status.st_ino, 0 if folder else status.st_ctime_ns, status.st_mode)


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": size}


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
