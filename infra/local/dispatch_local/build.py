"""Builds the programs of the table into the cache: each group as a whole or not at all, once per machine.

An entry of the cache names the SHA-256 of each of its files, and they are checked whenever it is used: what a
full disk, a power cut or somebody's editor has spoilt is noticed and built again.
"""

from __future__ import annotations

import errno
import hashlib
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
from dispatch_local.progress import Report, report

# Compiling keeps all processors busy by itself; two at a time fill the gaps while one of them links.
WORKERS = 2
RECORD = "build.json"
# Ends what it starts, compilers included, once nobody holds the other end of its standard input: also if we are
# killed before we can do so.
LEASH = 'exec 3<&0; (read -r _ <&3; kill -KILL 0) & exec 3<&- "$@" </dev/null'
FULL = "no space left on device"


class _StoppedError(LocalError):
    """A build was ended by us."""


@dataclass
class Builder:
    """One run of the build. `say` gets one line at a time and may be called from any thread."""

    say: Callable[[str], None]
    _running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def build(self, groups: Sequence[Group], force: bool = False) -> None:
        """Build those of the groups that are not in the cache, or not as they were built; at once if all are.

        Whatever ends it, no build is left running and no half-filled entry appears in the cache. What was
        built until then stays, so that the next try goes on there.
        """
        with ThreadPoolExecutor(WORKERS) as pool:
            damages = list(pool.map(damage, groups))
        wanted = [group for group, wrong in zip(groups, damages, strict=True) if force or wrong is not None]
        if not wanted:
            return
        for wrong in filter(None, damages):
            self.say(f"{wrong}; building it again")
        go = golang.find()
        self.say(
            f"building {', '.join(group.name for group in wanted)} with {go.version} "
            f"into {paths.cache() / 'programs'} (once per machine; programs.py lists the versions)"
        )
        # Threads, since each only waits for a Go process.
        with report(wanted, self.say) as told, ThreadPoolExecutor(WORKERS) as pool:
            futures: list[Future[None]] = [pool.submit(self._one, go, group, force, told) for group in wanted]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                if not all(future.done() and not future.exception() for future in futures):
                    self._stop()
                    pool.shutdown(cancel_futures=True)
        errors = [error for future in futures if not future.cancelled() and (error := future.exception())]
        # What went wrong, rather than what was stopped because of it.
        for error in sorted(errors, key=lambda each: isinstance(each, _StoppedError)):
            raise error

    def _stop(self) -> None:
        self._stopped.set()
        for process in list(self._running):
            _end(process)

    def _one(self, go: golang.Go, group: Group, force: bool, told: Report) -> None:
        # The lock lies beside the entry, which appears by a rename.
        with directory_lock(paths.cache() / "programs" / ".locks" / group.key) as waited:
            # Another build may have been faster.
            if self._stopped.is_set() or (damage(group) is None and (waited or not force)):
                return
            # Whoever holds the lock is alone with it: what a killed build left is nobody's.
            for left in (paths.cache() / "programs").glob(f".{group.key}-*"):
                shutil.rmtree(left)
            told.begins(group)
            started = time.monotonic()
            with tempfile.TemporaryDirectory(prefix=f".{group.key}-", dir=paths.cache() / "programs") as temp:
                entry = Path(temp) / "entry"
                (entry / "bin").mkdir(parents=True)
                if group.packages:
                    self._compile(go, group, entry)
                self._add(go, group, entry)
                seconds = time.monotonic() - started
                size = sum(file.stat().st_size for file in (entry / "bin").iterdir())
                record = {"go": go.version, "seconds": round(seconds, 1), "bytes": size, "files": hashes(entry)}
                (entry / RECORD).write_text(json.dumps(record) + "\n")
                if group.path.exists():
                    shutil.rmtree(group.path)
                entry.rename(group.path)
            told.done(group, seconds, size)

    def _compile(self, go: golang.Go, group: Group, entry: Path) -> None:
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
        # Beside the entry, so that it goes with it, however the build ends.
        scratch = entry.parent / "scratch"
        scratch.mkdir()
        self._run([go.command, *flags, "-o", str(output), *packages], where, go, group, scratch)

    def _add(self, go: golang.Go, group: Group, entry: Path) -> None:
        for copy in group.copies:
            _copy(go.module_directory(copy.module, copy.version) / copy.source, entry / copy.target)
        for target, text in group.scripts:
            (entry / target).parent.mkdir(parents=True, exist_ok=True)
            (entry / target).write_text(text)
        for file in (entry / "bin").iterdir():
            file.chmod(0o755)

    def _run(self, command: list[str], where: Path, go: golang.Go, group: Group, scratch: Path) -> None:
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                ["sh", "-c", LEASH, "sh", *command],
                cwd=where,
                env=go.environment() | {"GOTMPDIR": str(scratch)},
                stdin=subprocess.PIPE,
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
                process.wait()
                assert process.stdin is not None
                process.stdin.close()
            finally:
                self._running.discard(process)
            if process.returncode and not self._stopped.is_set():
                output.seek(0)
                said = output.read().decode(errors="replace").strip()
                failure = f"building {group.name} {group.version} failed (exit {process.returncode})"
                if FULL in said.lower():
                    raise full(failure, go.folders())
                raise LocalError(f"{failure}:\n  " + "\n  ".join(said.splitlines()[-20:]))
        if process.returncode:
            raise _StoppedError(f"building {group.name} was interrupted; what was built so far is kept")


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


def hashes(entry: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a cache entry but its record, by its path in there."""
    found = {}
    for path in sorted(entry.rglob("*")):
        if path.is_file() and path != entry / RECORD:
            with path.open("rb") as file:
                found[str(path.relative_to(entry))] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def damage(group: Group) -> str | None:
    """Say what is wrong with a group's entry in the cache; empty if it is not there, None if nothing is wrong."""
    if not group.path.exists():
        return ""
    try:
        recorded = json.loads((group.path / RECORD).read_text())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return f"{group.path} is only half there"
    found = hashes(group.path)
    for name in recorded.keys() | found.keys():
        if recorded.get(name) != found.get(name):
            return f"{group.path / name} is not what was built"
    return None


def full(what: str, folders: Sequence[Path]) -> LocalError:
    """Return the error for a full disk: which folders, and how much room each has."""
    room = ", ".join(f"{folder} ({shutil.disk_usage(folder).free / 1e6:.0f} MB free)" for folder in folders)
    return LocalError(
        f"{what}: {FULL}. It writes to {room}. A build of everything takes 15 GB, most of it in Go's own cache. "
        "Make room there, or choose other folders (XDG_CACHE_HOME, GOCACHE); then run the same again."
    )


def ensure(names: Sequence[str], say: Callable[[str], None], force: bool = False) -> None:
    """Make sure that the named groups are in the cache, as they were built."""
    folder = paths.cache() / "programs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        Builder(say).build([programs.group(name) for name in names], force)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        raise full("the build could not write", [folder if folder.exists() else Path("/")]) from error


def table(groups: Sequence[Group]) -> str:
    """Return a Markdown table of what is in the cache: versions, sizes, and the seconds the build took."""
    lines = ["| programs | version | size | build |", "|---|---|---|---|"]
    for group in filter(lambda each: each.packages, groups):
        record = json.loads((group.path / RECORD).read_text())
        names = ", ".join(group.binaries)
        size, seconds = record["bytes"] / 1e6, record["seconds"]
        lines.append(f"| {names} | {group.version} | {size:.0f} MB | {seconds:.0f} s |")
    return "\n".join(lines)
