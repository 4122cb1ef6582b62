"""The two that are compared, each a process of its own: the controller as it ships, and the raw driver."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bench.site import Filled, Site
from dispatch_gates.contract import names

_TICKS = os.sysconf("SC_CLK_TCK")
FEW = 5
"""Workloads that are to be looked at now or later where none but the resync brings any."""


@dataclass(frozen=True)
class Used:
    """What a process has used so far: seconds of processor time, requests and conflicts."""

    seconds: float
    requests: float
    conflicts: float

    def __sub__(self, other: Used) -> Used:
        return Used(self.seconds - other.seconds, self.requests - other.requests, self.conflicts - other.conflicts)


class Driven:
    """A process under measurement."""

    name = ""

    def __init__(self, site: Site, folder: Path) -> None:
        self._site = site
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    @property
    def process(self) -> subprocess.Popen[str]:
        """The process; it must have been started."""
        assert self._process is not None
        return self._process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def start(self, filled: Filled, *, follow: bool) -> None:
        """Start it and return when it is at work. `follow`: Workloads get their quota later, one by one."""
        raise NotImplementedError

    def used(self) -> Used:
        """Return what it has used so far."""
        raise NotImplementedError

    def _processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def peak_bytes(self) -> int:
        """Return the most memory that it had at any time."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024


class Controller(Driven):
    """The admission controller as it ships."""

    name = "controller"

    def start(self, _: Filled, *, follow: bool) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        command = [sys.executable, "-m", "dispatch_admission", "--kubeconfig", str(self._site.cluster.kubeconfig)]
        command += ["--namespace", names.CONTROLLER_NAMESPACE, "--lease-name", f"bench-{secrets.token_hex(4)}"]
        command += ["--listen", f"127.0.0.1:{self._port}"]
        profile = os.environ.get("DISPATCH_BENCH_PROFILE")
        if profile:
            command[1:1] = ["-m", "cProfile", "-o", f"{profile}-{self._port}"]
        with (self._folder / "controller.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, text=True)
        end = time.monotonic() + 120
        while follow and not self._ready():
            assert time.monotonic() < end, "the controller does not get ready"
            assert self.process.poll() is None, (self._folder / "controller.log").read_text()[-3000:]
            time.sleep(0.05)

    def _ready(self) -> bool:
        try:
            self._metrics("readyz")
            return b"dispatch_admission_leading 1.0" in self._metrics("metrics")
        except (urllib.error.URLError, OSError):
            return False

    def _metrics(self, page: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/{page}", timeout=30) as reply:
            content: bytes = reply.read()
        return content

    def used(self) -> Used:
        found = self._metrics("metrics").decode()
        calls = re.findall(r"^dispatch_admission_api_requests_total\{(.*)\} ([0-9.e+]+)$", found, re.MULTILINE)
        return Used(
            self._processor_seconds(),
            sum(float(value) for _, value in calls),
            sum(float(value) for labels, value in calls if 'code="409"' in labels),
        )

    def waiting(self) -> tuple[int, bool]:
        """Return how many Workloads wait, and whether hardly any is to be looked at."""
        found = self._metrics("metrics").decode()
        numbers = re.findall(r"^dispatch_admission_waiting_workloads\{.*\} ([0-9.e+]+)$", found, re.MULTILINE)
        depth = re.search(r"^dispatch_admission_queue_depth ([0-9.e+]+)$", found, re.MULTILINE)
        assert depth is not None, "there is no dispatch_admission_queue_depth"
        return int(sum(map(float, numbers))), float(depth[1]) <= FEW


class Raw(Driven):
    """The raw driver."""

    name = "raw"

    def start(self, filled: Filled, *, follow: bool) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.raw"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)},
        )
        told = {
            "server": json.loads(self._site.server.to_json()),
            "namespace": filled.copies.namespace,
            "jobs": len(filled.versions),
            "follow": follow,
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "ready\n", "the raw driver does not get ready"

    def used(self) -> Used:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the raw driver has ended: what it failed at stands above"
        said = json.loads(answer)
        return Used(self._processor_seconds(), said["requests"], said["conflicts"])
