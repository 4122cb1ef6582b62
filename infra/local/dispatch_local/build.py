"""Builds the programs of the table into the cache: each group as a whole or not at all, once per machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from dispatch_local import golang, paths, programs
from dispatch_local.errors import LocalError
from dispatch_local.locks import directory_lock
from dispatch_local.programs import Group

# Compiling keeps all processors busy by itself; two at a time fill the gaps while one of them links.
WORKERS = 2
STILL_BUILDING_SECONDS = 60.0


@dataclass
class Builder:
    """One run of the build. `say` gets one line at a time and may be called from any thread."""

    say: Callable[[str], None]
    _running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def build(self, groups: Sequence[Group], force: bool = False) -> None:
        """Build those of the groups that are not in the cache; at once if all are.

        Whatever ends it, no build is left running and no half-filled entry appears in the cache.
        """
        wanted = [group for group in groups if force or not group.is_built]
        if not wanted:
            return
        go = golang.find()
        self.say(
            f"building {', '.join(group.name for group in wanted)} with {go.version} "
            f"into {paths.cache() / 'programs'} (once per machine; programs.py lists the versions)"
        )
        # Threads, since each only waits for a Go process.
        with ThreadPoolExecutor(WORKERS) as pool:
            futures: list[Future[None]] = [pool.submit(self._one, go, group, force) for group in wanted]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                if not all(future.done() and not future.exception() for future in futures):
                    self._stop()
                    pool.shutdown(cancel_futures=True)
        for future in futures:
            if not future.cancelled():
                future.result()

    def _stop(self) -> None:
        self._stopped.set()
        for process in list(self._running):
            _end(process)

    def _one(self, go: golang.Go, group: Group, force: bool) -> None:
        # The lock lies beside the entry, which appears by a rename.
        with directory_lock(paths.cache() / "programs" / ".locks" / group.key):
            if self._stopped.is_set() or (group.is_built and not force):
                return
            started = time.monotonic()
            with tempfile.TemporaryDirectory(prefix=f".{group.key}-", dir=paths.cache() / "programs") as temp:
                entry = Path(temp) / "entry"
                (entry / "bin").mkdir(parents=True)
                self._fill(go, group, entry)
                seconds = time.monotonic() - started
                size = sum(file.stat().st_size for file in (entry / "bin").iterdir())
                (entry / "build.json").write_text(
                    json.dumps({"go": go.version, "seconds": round(seconds, 1), "bytes": size}) + "\n"
                )
                if group.path.exists():
                    shutil.rmtree(group.path)
                entry.rename(group.path)
            self.say(f"built {group.name} {group.version}: {seconds:.0f} s, {size / 1e6:.0f} MB")

    def _fill(self, go: golang.Go, group: Group, entry: Path) -> None:
        flags = ["build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", group.ldflags]
        if group.directory is not None:
            where = paths.MODULES / group.directory
        else:
            assert group.module is not None, group
            where = go.module_directory(group.module, group.version)
        output = entry / "bin"
        if len(group.packages) == 1:
            output /= group.packages[0][0]
        packages = [package for _, package in group.packages]
        self._run([go.command, *flags, "-o", str(output), *packages], where, go, group)
        for copy in group.copies:
            _copy(go.module_directory(copy.module, copy.version) / copy.source, entry / copy.target)
        for target, text in group.scripts:
            (entry / target).write_text(text)
        for file in (entry / "bin").iterdir():
            file.chmod(0o755)

    def _run(self, command: list[str], where: Path, go: golang.Go, group: Group) -> None:
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command,
                cwd=where,
                env=go.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # A group of its own: Ctrl-C reaches us alone, and we end it with its compilers.
                start_new_session=True,
            )
            self._running.add(process)
            try:
                # Between the check in _one and the line above, _stop may have run.
                if self._stopped.is_set():
                    _end(process)
                self._wait(process, group)
            finally:
                self._running.discard(process)
            if process.returncode and not self._stopped.is_set():
                output.seek(0)
                tail = output.read().decode(errors="replace").strip().splitlines()[-20:]
                raise LocalError(
                    f"building {group.name} {group.version} failed (exit {process.returncode}):\n  " + "\n  ".join(tail)
                )
        if process.returncode:
            raise LocalError(f"building {group.name} was interrupted; what was built so far is kept")

    def _wait(self, process: subprocess.Popen[bytes], group: Group) -> None:
        started = time.monotonic()
        while True:
            try:
                process.wait(STILL_BUILDING_SECONDS)
                return
            except subprocess.TimeoutExpired:
                self.say(f"  still building {group.name}: {time.monotonic() - started:.0f} s")


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _copy(source: Path, target: Path) -> None:
    """Copy out of the read-only module cache, writable, so that the cache can be deleted as usual."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
        for path in (target, *target.rglob("*")):
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
    else:
        shutil.copyfile(source, target)


def ensure(names: Sequence[str], say: Callable[[str], None], force: bool = False) -> None:
    """Make sure that the named groups are in the cache."""
    (paths.cache() / "programs").mkdir(parents=True, exist_ok=True)
    Builder(say).build([programs.group(name) for name in names], force)


def table(groups: Sequence[Group]) -> str:
    """Return a Markdown table of what is in the cache: versions, sizes, and the seconds the build took."""
    lines = ["| programs | version | size | build |", "|---|---|---|---|"]
    for group in groups:
        record = json.loads((group.path / "build.json").read_text())
        names = ", ".join(group.binaries)
        size, seconds = record["bytes"] / 1e6, record["seconds"]
        lines.append(f"| {names} | {group.version} | {size:.0f} MB | {seconds:.0f} s |")
    return "\n".join(lines)
