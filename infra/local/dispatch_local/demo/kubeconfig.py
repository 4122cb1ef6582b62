"""One context out of the user's kubeconfigs, as a file of its own that every program of the demo reads.

The provider of Pulumi takes KUBECONFIG for one file, and paths in it for relative to where it runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from dispatch_local.errors import LocalError, MissingError

FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
Entry = dict[str, Any]


def sources(environment: Mapping[str, str]) -> list[Path]:
    """Return the kubeconfigs as kubectl finds them: those of KUBECONFIG, else the usual one."""
    named = [Path(each) for each in environment.get("KUBECONFIG", "").split(os.pathsep) if each]
    return named or [Path.home() / ".kube" / "config"]


def select(files: list[Path], context: str) -> dict[str, Any]:
    """Return a kubeconfig with `context` alone; MissingError names the contexts that are there if it is not.

    As with kubectl the first file that has an entry wins, and paths are relative to the file they stand in.
    """
    read = [_read(file) for file in files if file.exists()]
    if not read:
        raise MissingError(f"there is no kubeconfig ({', '.join(map(str, files))}); set KUBECONFIG to yours")
    found = _find(read, "contexts", context)
    if found is None:
        known = ", ".join(dict.fromkeys(str(each.get("name")) for each in _entries(read, "contexts"))) or "none"
        raise MissingError(f"there is no context {context!r} in {', '.join(map(str, files))}; there are: {known}")
    chosen = found.get("context") or {}
    parts: dict[str, Entry] = {}
    for kind in ("cluster", "user"):
        part = _find(read, f"{kind}s", str(chosen.get(kind)))
        if part is None:
            raise MissingError(f"context {context!r} names {kind} {chosen.get(kind)!r}, which the kubeconfig lacks")
        parts[kind] = part
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [parts["cluster"]],
        "users": [parts["user"]],
        "contexts": [found],
        "current-context": context,
    }


def _read(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise LocalError(f"kubeconfig {file} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise LocalError(f"kubeconfig {file} is not one: a mapping was expected")
    for kind in ("cluster", "user"):
        for entry in content.get(f"{kind}s") or []:
            part = entry.get(kind) or {}
            for key in FILES:
                if part.get(key):
                    part[key] = str(file.absolute().parent / part[key])
            command = (part.get("exec") or {}).get("command", "")
            if "/" in command:
                part["exec"]["command"] = str(file.absolute().parent / command)
    return content


def _entries(read: list[dict[str, Any]], kind: str) -> Iterator[Entry]:
    for content in read:
        yield from content.get(kind) or []


def _find(read: list[dict[str, Any]], kind: str, name: str) -> Entry | None:
    return next((entry for entry in _entries(read, kind) if entry.get("name") == name), None)
