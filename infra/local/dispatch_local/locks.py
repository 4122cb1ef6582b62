"""Locks between processes, released by the kernel whatever happens to their holder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def directory_lock(directory: Path) -> Iterator[bool]:
    """Hold `directory`, made if absent, for this process alone; yields whether it had to be waited for.

    The holder may remove the directory: whoever waited for it then makes and locks a new one, so that a
    removed cluster leaves no lock file behind.
    """
    waited = False
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waited = True
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not _is_still(descriptor, directory):
                continue
            yield waited
            return
        finally:
            os.close(descriptor)


def _is_still(descriptor: int, directory: Path) -> bool:
    try:
        now = directory.stat()
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (now.st_dev, now.st_ino) == (held.st_dev, held.st_ino)
