"""The init process of one cluster: PID 1 of its namespaces, parent of all its parts.

When it ends, however it ends, the kernel ends every process of the cluster and takes its mounts and its
network along: nothing has to be found and killed. It starts parts when told, starts them again when they
die, and reaps whatever is orphaned. Run as `python -m dispatch_local.init NAME [rootless]` by `startup.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dispatch_local import mounts
from dispatch_local.control import Part
from dispatch_local.layout import Layout

FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 30.0
# The API server waits a minute for its watchers to leave; a crash is nearer to what tests want.
STOP_SECONDS = 5.0


@dataclass
class Running:
    """What is known of one part."""

    part: Part
    pid: int = 0
    since: float = 0.0
    starts: int = 0
    failures: int = 0
    exit: str = ""
    start_at: float | None = None


class Init:
    """The loop. One thread; nothing in it blocks, apart from starting a program."""

    def __init__(self, layout: Layout) -> None:
        self._parts: dict[str, Running] = {}
        self._stopping: dict[int, float] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(layout.control))
        layout.control.chmod(0o600)
        self._listener.listen()
        self._selector.register(self._listener, selectors.EVENT_READ, "listen")
        # Signals arrive as bytes in a pipe that the selector watches.
        self._woken, waker = socket.socketpair()
        self._woken.setblocking(False)
        waker.setblocking(False)
        self._waker = waker
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._woken, selectors.EVENT_READ, "woken")

    def run(self) -> None:
        """Serve until told to end."""
        while True:
            for key, _ in self._selector.select(self._pause()):
                if key.data == "woken":
                    with contextlib.suppress(BlockingIOError):
                        self._woken.recv(4096)
                else:
                    self._serve()
            self._reap()
            self._due()

    def _pause(self) -> float | None:
        times = [each.start_at for each in self._parts.values() if each.start_at is not None]
        times += self._stopping.values()
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _due(self) -> None:
        now = time.monotonic()
        for running in self._parts.values():
            if running.start_at is not None and running.start_at <= now:
                self._start(running)
        for pid, deadline in list(self._stopping.items()):
            if deadline <= now:
                del self._stopping[pid]
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _start(self, running: Running) -> None:
        part = running.part
        log = os.open(part.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        null = os.open("/dev/null", os.O_RDONLY)
        try:
            running.pid = os.posix_spawn(
                part.argv[0],
                part.argv,
                part.environment,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, null, 0),
                    (os.POSIX_SPAWN_DUP2, log, 1),
                    (os.POSIX_SPAWN_DUP2, log, 2),
                ],
                setsid=True,
                setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD],
            )
        finally:
            os.close(log)
            os.close(null)
        running.since = time.time()
        running.starts += 1
        running.start_at = None
        _say(f"{part.name}: started as process {running.pid}")

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            asked = self._stopping.pop(pid, None) is not None
            for running in self._parts.values():
                if running.pid == pid:
                    self._ended(running, status, asked)

    def _ended(self, running: Running, status: int, asked: bool) -> None:
        code = os.waitstatus_to_exitcode(status)
        running.exit = f"signal {-code}" if code < 0 else f"exit code {code}"
        lived = time.time() - running.since
        running.pid = 0
        # A program that ran for long starts again at once; one that cannot start is tried less and less.
        running.failures = 0 if asked or lived > LONGEST_BACKOFF_SECONDS else running.failures + 1
        wait = 0.0
        if running.failures:
            wait = min(FIRST_BACKOFF_SECONDS * 2 ** (running.failures - 1), LONGEST_BACKOFF_SECONDS)
        running.start_at = time.monotonic() + wait
        again = "again at once" if asked else f"again in {wait:.0f} s"
        _say(f"{running.part.name}: ended with {running.exit} after {lived:.1f} s, {again}")

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            # Only root can connect, and says one line at once.
            connection.settimeout(5)
            try:
                with connection.makefile("rb") as stream:
                    line = stream.readline()
                if not line:
                    return  # somebody only looked whether we live
                request = json.loads(line)
                try:
                    answer = self._answer(request.pop("operation"), request)
                except (KeyError, ValueError, OSError) as error:
                    answer = {"error": f"{type(error).__name__}: {error}"}
                connection.sendall(json.dumps(answer).encode() + b"\n")
            except (OSError, ValueError) as error:
                _say(f"a request was not understood: {error}")

    def _answer(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if operation == "start":
            part = Part.from_json(arguments["part"])
            if part.name in self._parts:
                return {"error": f"{part.name} has been started before"}
            running = self._parts[part.name] = Running(part)
            self._start(running)
        elif operation == "signal":
            running = self._alive(arguments["part"])
            os.kill(running.pid, arguments["signal"])
        elif operation == "restart":
            running = self._alive(arguments["part"])
            os.kill(running.pid, signal.SIGTERM)
            # A stopped process takes the signal only once it continues.
            os.kill(running.pid, signal.SIGCONT)
            self._stopping[running.pid] = time.monotonic() + STOP_SECONDS
        elif operation == "status":
            return {"parts": {name: _status(running) for name, running in self._parts.items()}}
        else:
            return {"error": f"no such operation: {operation}"}
        return {"parts": {running.part.name: _status(running)}}

    def _alive(self, name: str) -> Running:
        running = self._parts[name]
        if not running.pid:
            raise ValueError(f"{name} is not running: it ended with {running.exit}")
        return running


def _status(running: Running) -> dict[str, Any]:
    return {
        "pid": running.pid,
        "since": running.since,
        "starts": running.starts,
        "exit": running.exit,
        "paused": _is_held(running.pid),
    }


def _is_held(pid: int) -> bool:
    """Whether every thread of a program has stopped, which on a busy machine takes a while after SIGSTOP."""
    try:
        states = {stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")}
    except OSError:  # a thread, or all of it, has ended meanwhile
        return False
    return "T" in states and states <= {"T", "Z"}


def _say(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, flush=True)


def main() -> None:
    """Prepare the namespaces, then serve."""
    layout = Layout(sys.argv[1])
    # The other side ends us with SIGKILL; a stray SIGTERM or a Ctrl-C at the terminal must not.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert os.getpid() == 1, "must be PID 1 of a PID namespace"
    if "rootless" in sys.argv:
        mounts.prepare_rootless(layout)
    else:
        mounts.prepare(layout)
    os.chdir("/")
    Init(layout).run()


if __name__ == "__main__":
    main()
