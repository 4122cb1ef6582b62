"""Preflight, once in a process, before the first Start, Open or Release for a namespace, queue and mode.

Where the gate is not proven, that first one is refused before anything of it is sent: observe-only. What a process is
told by the stack's configuration says where the controller is and how long the probe is watched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dispatch_gates.contract import names
from dispatch_gates.contract.capability import Capability
from dispatch_gates.operations.preflight import WATCH_SECONDS, Asked, Probe, Stands
from dispatch_gates.resources._inputs import Failure, Props
from dispatch_gates.resources._running import target, without_traceback
from dispatch_gates.resources._telling import say
from dispatch_gates.resources.job_inputs import setting

SECONDS: Final = "dispatch:preflightSeconds"
NAMESPACE: Final = "dispatch:controllerNamespace"
LEASE: Final = "dispatch:lease"


@dataclass(frozen=True)
class Settings:
    """What the stack's configuration says; `wrong` is what is wrong with it."""

    watch_seconds: float = WATCH_SECONDS
    controller_namespace: str = names.CONTROLLER_NAMESPACE
    lease: str = names.CONTROLLER
    wrong: tuple[Failure, ...] = ()


_settings = Settings()


def configure(get: Callable[[str], Any]) -> None:
    """Take the settings from the stack's configuration, which is the same for the whole process."""
    global _settings
    seconds = WATCH_SECONDS
    wrong: tuple[Failure, ...] = ()
    given = get(SECONDS)
    try:
        seconds = WATCH_SECONDS if given is None else float(given)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0.1 <= seconds <= 600.0:
        wrong = (("check", f"configuration {SECONDS} is {given!r}: 0.1 to 600 seconds were expected"),)
    _settings = Settings(
        seconds, str(get(NAMESPACE) or names.CONTROLLER_NAMESPACE), str(get(LEASE) or names.CONTROLLER), wrong
    )


def settings_failures() -> list[Failure]:
    """Return what is wrong with the configuration."""
    return list(_settings.wrong)


def is_proven(props: Props) -> bool:
    """Whether this process has proven the gate that these inputs name."""
    return _key(props, props.get("queue")) in _proven


_proven: Final[set[tuple[object, ...]]] = set()


def _key(props: Props, queue: str | None) -> tuple[object, ...]:
    return target(props), props["namespace"], queue, setting(props, "check")


def prove(props: Props, queue: str | None, runtime: tuple[str, str]) -> None:
    """Make sure that the gate is proven; raise `GatesError` with the reasons, and what mends them, where it is not."""
    from dispatch_gates.cluster.preflight import require

    asked = Asked(
        namespace=props["namespace"],
        queue=queue,
        runtime=runtime,
        check=setting(props, "check"),
        controller_namespace=_settings.controller_namespace,
        lease=_settings.lease,
        watch_seconds=_settings.watch_seconds,
    )
    gate = f"queue {asked.namespace}/{queue}" if queue else f"namespace {asked.namespace} in plain mode"

    def tell(news: Capability | Probe) -> None:
        if isinstance(news, Probe) and news.stands is Stands.SENT:
            say("info", f"proving the gate of {gate}, once for this run: {asked.watch_seconds:g} s")

    without_traceback(lambda: require(target(props), asked, tell=tell, warn=lambda text: say("warning", text)))
    _proven.add(_key(props, queue))
