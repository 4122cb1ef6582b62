"""The controller as a process of its own, against the model API server: how it comes, and how it goes.

Aspects: SIGTERM, and twice; nothing is set inactive; the Lease is given back, and a standby takes over; killed, it
lasts its time out; what the endpoints say; no usable configuration.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from dispatch_gates.contract.names import ADMISSION_CHECKS, CONTROLLER, CONTROLLER_NAMESPACE, LEASES, PODS, WORKLOADS
from model import objects
from model.apiserver import ApiServer
from model.http import Front, served, write_kubeconfig
from model.objects import CHECK, WORKLOAD
from model.promises import broken, our_entry
from unit.pass_checks import scene
from unit.test_controller import until
from unit.test_logs import parsed

WAIT_SECONDS = 120.0
LEASE_SECONDS = 3.0


@dataclass
class Replica:
    """One process."""

    identity: str
    process: asyncio.subprocess.Process
    port: int
    log: Path

    async def ask(self, page: str) -> int:
        """Return the status of one of its pages, 0 where it does not answer."""
        try:
            url = f"http://127.0.0.1:{self.port}/{page}"
            async with aiohttp.ClientSession() as session, session.get(url) as reply:
                return reply.status
        except aiohttp.ClientError:
            return 0

    def events(self) -> list[str]:
        """Return the events of its log, in order; every line must be understood."""
        lines = [parsed(line) for line in self.log.read_text().splitlines()]
        assert [line for line in lines if "event" not in line] == []
        return [line["event"] for line in lines]


@asynccontextmanager
async def replica(identity: str, kubeconfig: Path) -> AsyncIterator[Replica]:
    """Run one until the end of the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = kubeconfig.with_name(f"{identity}.log")
    arguments = ["--kubeconfig", str(kubeconfig), "--identity", identity, "--listen", f"127.0.0.1:{port}"]
    arguments += ["--lease-seconds", str(LEASE_SECONDS)]
    with log.open("wb") as stream:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "dispatch_admission", *arguments, stdout=stream, stderr=stream
        )
    try:
        yield Replica(identity, process, port, log)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def holder(server: ApiServer) -> str:
    """Return who holds the Lease."""
    if not server.has(LEASES, CONTROLLER, CONTROLLER_NAMESPACE):
        return ""
    return str(server.read(LEASES, CONTROLLER, CONTROLLER_NAMESPACE)["spec"]["holderIdentity"])


def waits(server: ApiServer) -> bool:
    """Whether the check says what it waits for."""
    return str(our_entry(server.read(WORKLOADS, WORKLOAD))["message"]).startswith("StillRunning")


def active(server: ApiServer) -> str:
    """Return what the AdmissionCheck says of itself."""
    return str(server.read(ADMISSION_CHECKS, CHECK, "")["status"]["conditions"][0]["status"])


def test_asked_to_stop_twice_it_leaves_everything_as_a_standby_needs_it() -> None:
    server = scene(pods=[objects.pod()], more=[objects.admission_check()])

    async def main() -> None:
        async with served(Front(server)) as found, replica("first", found.kubeconfig) as first:
            await until(lambda: waits(server) and holder(server) == "first", WAIT_SECONDS)
            assert await first.ask("readyz") == await first.ask("healthz") == await first.ask("metrics") == 200
            async with replica("second", found.kubeconfig) as second:
                while await second.ask("readyz") != 200:
                    assert second.process.returncode is None, second.log.read_text()
                    await asyncio.sleep(0.05)
                assert holder(server) == "first"
                first.process.send_signal(signal.SIGTERM)
                first.process.send_signal(signal.SIGTERM)
                assert await asyncio.wait_for(first.process.wait(), WAIT_SECONDS) == 0
                assert active(server) == "True"
                assert first.events()[-1] == "stopping"
                await until(lambda: holder(server) == "second", WAIT_SECONDS)
                server.remove(PODS, objects.pod()["metadata"]["name"])
                await until(lambda: our_entry(server.read(WORKLOADS, WORKLOAD))["state"] == "Ready", WAIT_SECONDS)
                second.process.send_signal(signal.SIGTERM)
                assert await asyncio.wait_for(second.process.wait(), WAIT_SECONDS) == 0
                assert holder(server) == ""
                assert second.events()[:2] == ["standing-by", "leading"]

    asyncio.run(main())
    assert broken(server) == []


def test_killed_its_lease_lasts_its_time_out() -> None:
    server = scene(pods=[objects.pod()], more=[objects.admission_check()])

    async def main() -> None:
        async with served(Front(server)) as found, replica("first", found.kubeconfig) as first:
            await until(lambda: waits(server) and holder(server) == "first", WAIT_SECONDS)
            first.process.kill()
            await first.process.wait()
            async with replica("second", found.kubeconfig):
                await until(lambda: holder(server) == "second", WAIT_SECONDS)
                assert active(server) == "True"
                server.remove(PODS, objects.pod()["metadata"]["name"])
                await until(lambda: our_entry(server.read(WORKLOADS, WORKLOAD))["state"] == "Ready", WAIT_SECONDS)

    asyncio.run(main())
    assert broken(server) == []


def test_without_a_configuration_it_says_so(tmp_path: Path) -> None:
    async def main() -> tuple[int | None, str]:
        command = [sys.executable, "-m", "dispatch_admission", "--kubeconfig", str(tmp_path / "none")]
        process = await asyncio.create_subprocess_exec(
            *command, stderr=asyncio.subprocess.PIPE, env={**os.environ, "KUBECONFIG": ""}
        )
        _, said = await process.communicate()
        return process.returncode, said.decode()

    code, said = asyncio.run(main())
    assert code == 3
    assert "there is no file" in said
    assert "Traceback" not in said


def test_an_address_that_cannot_be_listened_on(tmp_path: Path) -> None:
    """One line that names it, and an exit code that does not read as a lost Lease."""
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, "http://127.0.0.1:9")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for listen, code in ((f"127.0.0.1:{port}", 3), ("127.0.0.1:99999", 2), ("127.0.0.1:http", 2)):
            arguments = ["--kubeconfig", str(kubeconfig), "--listen", listen]
            done = subprocess.run(
                [sys.executable, "-m", "dispatch_admission", *arguments], capture_output=True, text=True, check=False
            )
            assert (done.returncode, listen in done.stderr, "Traceback" in done.stderr) == (code, True, False), done
