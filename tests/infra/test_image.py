"""The controller's image, as the Dockerfile's own steps make it.

Aspects: nothing in it depends on when it was built, so that the same sources give the same image.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from typing import IO, Any

from dispatch_local import images, paths

UNCHECKED_HASH = (1).to_bytes(4, "little")
"""PEP 552: this bytecode carries a hash of its source, and no time."""


def path(descriptor: dict[str, Any]) -> str:
    """Return where the archive has a blob."""
    return f"blobs/{descriptor['digest'].replace(':', '/')}"


def bytecode() -> Iterator[tuple[str, bytes]]:
    """Yield each compiled file of the layer on top of the base image, with its flags."""
    archive = images.build(paths.cache() / "images", ["controller"], print)["controller"]
    with tarfile.open(archive) as image:

        def blob(name: str) -> IO[bytes]:
            found = image.extractfile(name)
            assert found is not None, name
            return found

        (described,) = json.load(blob("index.json"))["manifests"]
        layers = json.load(blob(path(described)))["layers"]
        layer = blob(path(layers[-1]))
        with tarfile.open(fileobj=layer) as files:
            for entry in files:
                if entry.name.endswith(".pyc"):
                    content = files.extractfile(entry)
                    assert content is not None
                    yield entry.name, content.read(8)[4:]


def test_no_bytecode_carries_the_time_of_the_build() -> None:
    found = dict(bytecode())
    assert any("dispatch_admission" in name for name in found)
    assert [name for name, flags in found.items() if flags != UNCHECKED_HASH] == []
