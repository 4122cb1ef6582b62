"""What the engine's own state file held while a run was under way, and since when."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Self

from resources.stacks import Stack

Deployment = dict[str, Any]


class Records:
    """Every state that the file was in, with the time of its writing; seen by looking, again and again."""

    def __init__(self, stack: Stack) -> None:
        self._path = stack.path
        self._seen: list[tuple[int, Deployment]] = []
        self._stopped = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._stopped.wait(0.002):
            try:
                written, text = self._path.stat().st_mtime_ns, ""
                if not self._seen or written != self._seen[-1][0]:
                    text = self._path.read_text()
                if text:
                    self._seen.append((written, json.loads(text)["checkpoint"]["latest"] or {}))
            except (OSError, ValueError, KeyError):
                continue  # not there yet, or being replaced: the next look sees it

    def first(self, condition: Callable[[Deployment], bool]) -> datetime:
        """Return when the file first held what is asked for."""
        found = [written for written, deployment in self._seen if condition(deployment)]
        assert found, f"the state was never so, in {len(self._seen)} states"
        return datetime.fromtimestamp(found[0] / 1e9, UTC)


def has(kind: str, **outputs: Any) -> Callable[[Deployment], bool]:
    """Whether a resource of this kind is recorded with these outputs."""
    return lambda deployment: any(
        resource["type"].endswith(f":{kind}") and outputs.items() <= resource.get("outputs", {}).items()
        for resource in deployment.get("resources") or []
    )


def begins(operation: str, kind: str) -> Callable[[Deployment], bool]:
    """Whether an operation on a resource of this kind is recorded as begun."""
    return lambda deployment: any(
        pending["type"] == operation and pending["resource"]["type"].endswith(f":{kind}")
        for pending in deployment.get("pending_operations") or []
    )
