"""Running preflight: with a fresh probe, which is deleted or named on every way out; and once for each process.

Start, Open and Release are refused where the gate is not proven: a process asks `require` before its first of them.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from ulid import ULID

from dispatch_gates.cluster.blocking import run
from dispatch_gates.cluster.connection import ClusterConfigError, Target
from dispatch_gates.contract import names
from dispatch_gates.contract.capability import Verdict
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.objects import MalformedError
from dispatch_gates.operations.errors import OperationError, RefusedError
from dispatch_gates.operations.preflight import Asked, Probe, Report, Stands, Tell, preflight, remove_probe
from dispatch_gates.printable import is_path
from dispatch_gates.requests import ApiError

LIMIT_SECONDS: Final = 60.0
"""How much longer than it watches a preflight may take before it is given up."""
CLEANUP_SECONDS: Final = 15.0


def run_preflight(
    target: Target,
    asked: Asked,
    *,
    tell: Tell = lambda _: None,
    warn: Callable[[str], None] = lambda _: None,
    limit_seconds: float = LIMIT_SECONDS,
) -> Report:
    """Run preflight and return its report; raises what `run` raises.

    Where it is cut off (an interrupt, an error, the limit), its probe is deleted; where that fails, or is cut off too,
    `warn` is given the command that deletes it.
    """
    probe: list[Probe] = []

    def note(news: object) -> None:
        if isinstance(news, Probe):
            probe[:] = [news]

    def both(news: object) -> None:
        note(news)
        tell(news)  # type: ignore[arg-type]  # what is told is what `tell` takes

    try:
        operation = preflight(asked, Identity(str(ULID()), 0), clock=time.monotonic, tell=both)
        return run(target, operation, asked.watch_seconds + limit_seconds)
    except BaseException:
        if probe and probe[0].stands is not Stands.GONE:
            _clean_up(target, probe[0], warn)
        raise


def _clean_up(target: Target, probe: Probe, warn: Callable[[str], None]) -> None:
    """Delete the probe, or have it named; what kept that from being done is not raised over what came before."""
    gone = False
    try:
        with suppress(ApiError, ClusterConfigError, MalformedError, OperationError):
            gone = run(target, remove_probe(probe), CLEANUP_SECONDS)
    finally:
        if not gone:
            warn(f"The probe of preflight may still be there, closed. This deletes it: {probe.delete_command}")


@dataclass
class _Once:
    """One preflight of this process, run by whoever asks first."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    report: Report | None = None


_once: Final[dict[tuple[Target, Asked], _Once]] = {}
"""By cluster and by what was asked, whatever the runtime: it is the queue's gate that is proven."""
_once_lock: Final = threading.Lock()


def prove(
    target: Target, asked: Asked, *, tell: Tell = lambda _: None, warn: Callable[[str], None] = lambda _: None
) -> Report:
    """Return the report of this process's one preflight for this cluster, namespace, queue and mode; run it if need be.

    Others who ask for the same meanwhile wait for it. A report that could not tell is not kept: the next one asks anew.
    Safe to call from any number of threads.
    """
    with _once_lock:
        once = _once.setdefault((target, replace(asked, runtime=None)), _Once())
    with once.lock:
        if once.report is None:
            report = run_preflight(target, asked, tell=tell, warn=warn)
            if report.verdict is Verdict.OBSERVE_ONLY and report.cannot_tell:
                return report
            once.report = report
        return once.report


def require(
    target: Target, asked: Asked, *, tell: Tell = lambda _: None, warn: Callable[[str], None] = lambda _: None
) -> Report:
    """Return what `prove` returns; raise `RefusedError`, with the reasons and remedies, where it is observe-only.

    To be called before the first Start, Open or Release of a process.
    """
    report = prove(target, asked, tell=tell, warn=warn)
    if report.verdict is Verdict.OBSERVE_ONLY:
        where = f"queue {asked.namespace}/{asked.queue}" if asked.queue else f"namespace {asked.namespace}, plain mode"
        raise RefusedError(
            f"observe-only: the gate of {where} is not proven, and nothing is started, opened or released. "
            f"{'; '.join(report.why)}. `{_command(target, asked)}` shows it line by line."
        )
    return report


def _command(target: Target, asked: Asked) -> str:
    """Return what a person types to see the same preflight."""
    given = {
        "-n": (asked.namespace, None),
        "-q": (asked.queue, None),
        "-r": ("/".join(asked.runtime) if asked.runtime else None, None),
        "--check": (asked.check, names.ADMISSION_CHECK),
        "--controller-namespace": (asked.controller_namespace, names.CONTROLLER_NAMESPACE),
        "--lease": (asked.lease, names.CONTROLLER),
        "--context": (target.context, None),
        "--kubeconfig": (target.kubeconfig if is_path(target.kubeconfig or "") else None, None),  # never its content
    }
    options = [
        f"{option} {shlex.quote(value)}"
        for option, (value, usual) in given.items()
        if value is not None and value != usual
    ]
    return " ".join(["dispatch-gates preflight", *options])
