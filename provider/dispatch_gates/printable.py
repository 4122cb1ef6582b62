"""Text for people: parts of it may come from anybody's objects, or be what somebody gave by mistake."""

from __future__ import annotations

import os
import re
from typing import Final

_CONTENT: Final = re.compile(r"[\x00-\x1f\x7f{]|apiVersion")
_MAX_PATH: Final = 4096  # Linux: PATH_MAX and NAME_MAX
_MAX_NAME: Final = 255


def printable(text: str) -> str:
    """Return the text as it can be shown: no line breaks, and nothing that a terminal would obey."""
    return "".join(c if c.isprintable() else " " if c.isspace() else repr(c)[1:-1] for c in text)


def is_path(text: str) -> bool:
    """Whether the text can be the path of a kubeconfig, or several as in KUBECONFIG, and is not the content of one."""
    paths = text.split(os.pathsep)
    short = all(len(path) < _MAX_PATH and all(len(name) <= _MAX_NAME for name in path.split("/")) for path in paths)
    return bool(text) and short and not _CONTENT.search(text)


def kubeconfig_named(given: str | None) -> str:
    """Return what a message calls a kubeconfig: its path, and never what may be its content, with the credentials."""
    if not given:
        return "the default kubeconfig"
    return f"kubeconfig {given}" if is_path(given) else "the given kubeconfig (no path; not shown)"
