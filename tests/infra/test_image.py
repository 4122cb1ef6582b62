"""The controller's image, as the Dockerfile's own steps make it.

Aspects: nothing in it depends on when it was built, so that the same sources give the same image; its labels say what
it is; its bill of materials names each wheel that it was made of, by version and hash.
"""

from __future__ import annotations

import json
import re
import tarfile
import tomllib
from dataclasses import dataclass
from typing import IO, Any

import pytest

from dispatch_local import images, paths, sbom, wheels

UNCHECKED_HASH = (1).to_bytes(4, "little")
"""PEP 552: this bytecode carries a hash of its source, and no time."""
PROJECT = tomllib.loads((wheels.PROJECT / "pyproject.toml").read_text())["project"]


@dataclass(frozen=True)
class Image:
    """What is looked at of the image."""

    labels: dict[str, str]
    bytecode: dict[str, bytes]
    """Each compiled file of the layer on top of the base image, with its flags."""
    bill: dict[str, Any]


@pytest.fixture(scope="module")
def image() -> Image:
    archive = images.build(paths.cache() / "images", ["controller"], print)["controller"]
    with tarfile.open(archive) as whole:

        def blob(descriptor: dict[str, Any]) -> IO[bytes]:
            return content(whole, f"blobs/{descriptor['digest'].replace(':', '/')}")

        (described,) = json.load(content(whole, "index.json"))["manifests"]
        manifest = json.load(blob(described))
        config = json.load(blob(manifest["config"]))["config"]
        with tarfile.open(fileobj=blob(manifest["layers"][-1])) as files:
            bytecode = {name: content(files, name).read(8)[4:] for name in files.getnames() if name.endswith(".pyc")}
            bill = json.load(content(files, f"opt/dispatch/{sbom.FILE}"))
    return Image(config["Labels"], bytecode, bill)


def content(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    found = archive.extractfile(name)
    assert found is not None, name
    return found


def test_no_bytecode_carries_the_time_of_the_build(image: Image) -> None:
    assert any("dispatch_admission" in name for name in image.bytecode)
    assert [name for name, flags in image.bytecode.items() if flags != UNCHECKED_HASH] == []


def test_the_labels_say_what_it_is(image: Image) -> None:
    said = {name.removeprefix("org.opencontainers.image."): value for name, value in image.labels.items()}
    assert said.keys() == {"title", "description", "version", "licenses"}
    assert (said["title"], said["version"], said["licenses"]) == (wheels.IMAGE, PROJECT["version"], PROJECT["license"])


def test_the_bill_names_all_that_the_lock_has_the_controller_need(image: Image) -> None:
    lock = (wheels.PROJECT / "requirements.lock").read_text()
    needed = wheels.closure(wheels.requirements())
    found = {part["purl"]: {entry["content"] for entry in part["hashes"]} for part in image.bill["components"]}
    own = f"pkg:pypi/{PROJECT['name']}@{PROJECT['version']}"
    assert {re.sub("@.*", "", url) for url in found} == {f"pkg:pypi/{name}" for name in needed | {PROJECT["name"]}}
    for url, hashes in found.items():
        pinned = re.sub(r"pkg:pypi/(.*)@(.*)", r"\1==\2 ", url)
        assert url == own or pinned in lock, url
        assert url == own or all(f"sha256:{each}" in lock for each in hashes), url
    assert image.bill["bomFormat"] == "CycloneDX"
    assert "timestamp" not in image.bill["metadata"]
