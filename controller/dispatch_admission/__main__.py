"""`dispatch-admission`: serves dispatch's AdmissionCheck."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from dataclasses import dataclass
from typing import NoReturn

import click
from aiohttp import web

from dispatch_admission.controller import Controller, serve_while_leading
from dispatch_admission.events import Recorder
from dispatch_admission.health import application
from dispatch_admission.lease import Lease
from dispatch_admission.logs import fields, set_up
from dispatch_admission.metrics import Metrics
from dispatch_gates.cluster import ClusterConfigError, Connection, Driver, Target
from dispatch_gates.contract.names import CONTROLLER, CONTROLLER_NAMESPACE

_log = logging.getLogger("dispatch_admission")  # as a program this module is __main__

EXIT_LOST = 1
EXIT_CONFIG = 3
GARBAGE_OBJECTS = 50_000
"""After so many objects more than before the garbage collector looks for cycles."""


class ListenError(Exception):
    """The address for /healthz, /readyz and /metrics cannot be listened on."""


@dataclass(frozen=True)
class Settings:
    """What the command line and the environment say."""

    target: Target
    namespace: str
    lease_name: str
    lease_seconds: float
    identity: str
    host: str
    port: int


@click.command(context_settings={"auto_envvar_prefix": "DISPATCH_ADMISSION", "show_default": True})
@click.option("--kubeconfig", help="Path of a kubeconfig. Without one: in a cluster the pod's account, else the usual.")
@click.option("--context", help="Context of the kubeconfig.")
@click.option(
    "--in-cluster/--out-of-cluster",
    default=None,
    help="Default: in one where Kubernetes says so and no kubeconfig is given.",
)
@click.option("--namespace", default=CONTROLLER_NAMESPACE, help="Namespace of the Lease.")
@click.option("--lease-name", default=CONTROLLER, help="Name of the Lease.")
@click.option("--lease-seconds", default=15.0, type=click.FloatRange(min=1), help="How long a Lease lasts unrenewed.")
@click.option("--identity", default=lambda: f"{socket.gethostname()}-{os.getpid()}", show_default="host and pid")
@click.option("--listen", default="0.0.0.0:8080", help="Address of /healthz, /readyz and /metrics.")
@click.option("--log-level", default="INFO", type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]))
@click.version_option(package_name="dispatch-gates")
def main(
    kubeconfig: str | None,
    context: str | None,
    in_cluster: bool | None,
    namespace: str,
    lease_name: str,
    lease_seconds: float,
    identity: str,
    listen: str,
    log_level: str,
) -> NoReturn:
    """Serve dispatch's AdmissionCheck: raise A before every execution, never while the previous one may still run.

    Exit codes: 0 asked to stop; 1 leadership lost, start again; 2 usage; 3 no usable configuration.
    """
    set_up(log_level)
    host, _, port = listen.rpartition(":")
    if not (port.isdecimal() and int(port) < 2**16):
        raise click.BadParameter(f"{listen!r} is not HOST:PORT", param_hint="--listen")
    inside = in_cluster if in_cluster is not None else kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ
    settings = Settings(
        target=Target(kubeconfig, context, in_cluster=inside),
        namespace=namespace,
        lease_name=lease_name,
        lease_seconds=lease_seconds,
        identity=identity,
        host=host,
        port=int(port),
    )
    try:
        # What answers are parsed into is gone soon and in no cycle: to look for cycles among it all the time is waste.
        gc.freeze()
        gc.set_threshold(GARBAGE_OBJECTS)
        sys.exit(asyncio.run(_run(settings)))
    except (ClusterConfigError, ListenError) as error:
        click.echo(f"dispatch-admission: {error}", err=True)
        sys.exit(EXIT_CONFIG)


async def _run(settings: Settings) -> int:
    """Take part in the election, and serve while leading; return the exit code."""
    metrics = Metrics()
    connection = await Connection.open(settings.target, metrics.answered)
    # One attempt: the work queue repeats whole passes, and a pass begins with new reads.
    driver = Driver(connection, attempts=1)
    controller = Controller(driver, Recorder(connection, settings.identity, metrics), metrics)
    lease = Lease(
        driver,
        settings.namespace,
        settings.lease_name,
        settings.identity,
        settings.lease_seconds,
        may_renew=controller.progressing,
    )
    metrics.leading.set_function(lease.leading.is_set)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def answered() -> bool:
        return loop.time() - lease.answered_at < 4 * settings.lease_seconds

    def alive() -> bool:
        return answered() and (not lease.leading.is_set() or controller.progressing())

    def ready() -> bool:
        return answered() and (not lease.leading.is_set() or controller.synced)

    runner = web.AppRunner(application(metrics.registry, alive, ready), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, settings.host, settings.port).start()
    except OSError as error:
        await runner.cleanup()
        await connection.close()
        raise ListenError(f"--listen {settings.host}:{settings.port} cannot be used: {error}") from error
    lease_name = f"{settings.namespace}/{settings.lease_name}"
    _log.info(fields(event="standing-by", identity=settings.identity, lease=lease_name))
    work = asyncio.create_task(_lead(lease, controller))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
            return EXIT_LOST
        _log.info(fields(event="stopping", identity=settings.identity))
        return 0
    finally:
        for task in (work, stopping):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await lease.release()
        await runner.cleanup()
        await connection.close()


async def _lead(lease: Lease, controller: Controller) -> None:
    """Wait for the Lease, and serve until it is lost."""
    electing = asyncio.create_task(lease.run())
    try:
        await lease.leading.wait()
        _log.info(fields(event="leading", identity=lease.identity))
        await serve_while_leading(controller, lease.lost)
    finally:
        electing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await electing


if __name__ == "__main__":
    main()
