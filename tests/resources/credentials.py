"""Looking for credentials in all that the engine, its providers and the SDK wrote."""

from __future__ import annotations

import base64
import binascii
import gzip
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml


def of_kubeconfig(path: Path) -> set[str]:
    """Return the credentials in a kubeconfig, each also as it reads decoded."""
    users = yaml.safe_load(path.read_text())["users"]
    given = {value for user in users for value in user["user"].values() if isinstance(value, str)}
    found = {secret for secret in given | {_decoded(value) for value in given} if len(secret) > 15}
    assert found, f"{path} holds no credential: there is nothing to look for"
    return found


def written(folder: Path, secrets: Iterable[str]) -> Iterator[str]:
    """Name the files below a folder that hold one of the secrets, plain, compressed or in base64 at any place."""
    wanted = tuple(secrets)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and any(secret in text for text in _readings(path) for secret in wanted):
            yield str(path)


def _readings(path: Path) -> Iterator[str]:
    content = path.read_bytes()
    if content.startswith(b"\x1f\x8b"):
        content = gzip.decompress(content)
    text = content.decode(errors="replace")
    yield text
    for blob in re.findall(r"[A-Za-z0-9+/_-]{24,}", text):
        # A secret in the middle of a longer text may begin at any of the three places of an encoded group.
        for skipped in range(4):
            yield _decoded(blob[skipped:])


def _decoded(text: str) -> str:
    text = text.replace("-", "+").replace("_", "/")
    if len(text) % 4 == 1:  # no base64 is so long: its last character belongs to something else
        text = text[:-1]
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4)).decode(errors="replace")
    except binascii.Error:
        return ""
