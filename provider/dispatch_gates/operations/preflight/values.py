"""What preflight is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias, TypeVar

from dispatch_gates.contract import names
from dispatch_gates.contract.capability import Answer, Capability, Name, Verdict, cannot_tell, in_order
from dispatch_gates.contract.objects import MalformedError
from dispatch_gates.requests import ApiError, BadReplyError, NotServedError, Operation, UnreachableError

T = TypeVar("T")

WATCH_SECONDS: Final = 10.0
"""How long the probe is watched."""
OLD_PROBE_SECONDS: Final = 600.0
"""From which age on, by the server's clock, a probe is left over and not somebody's."""
PROBE_OWNER: Final = "preflight"


@dataclass(frozen=True)
class Asked:
    """What preflight is to prove: jobs in this namespace, in this LocalQueue (Kueue mode) or in none (plain mode).

    `runtime` (kind and name) is the one that jobs will use; None looks at all that they could use, which takes the
    right to list runtimes. `check`, `controller_namespace` and `lease` are the names that `infra/` gave.
    """

    namespace: str
    queue: str | None
    runtime: tuple[str, str] | None = None
    check: str = names.ADMISSION_CHECK
    controller_namespace: str = names.CONTROLLER_NAMESPACE
    lease: str = names.CONTROLLER
    watch_seconds: float = WATCH_SECONDS

    @property
    def mode(self) -> str:
        """`kueue` or `plain`."""
        return "plain" if self.queue is None else "kueue"


class Stands(StrEnum):
    """Where a probe stands: its create is about to be sent, it is there, or it is gone (or never came)."""

    SENT = "sent"
    THERE = "there"
    GONE = "gone"


@dataclass(frozen=True)
class Probe:
    """News of the probe."""

    namespace: str
    name: str
    stands: Stands

    @property
    def delete_command(self) -> str:
        """What a person types to delete it."""
        return f"kubectl -n {self.namespace} delete trainjob {self.name} --ignore-not-found"


@dataclass(frozen=True)
class Report:
    """What preflight found. `left_behind` is the command that deletes the probe, where that did not succeed."""

    asked: Asked
    capabilities: tuple[Capability, ...]
    removed: tuple[str, ...] = ()
    left_behind: str = ""

    @property
    def verdict(self) -> Verdict:
        """Ready only where nothing blocks and nothing was left behind."""
        return Verdict.OBSERVE_ONLY if self.why else Verdict.READY

    @property
    def why(self) -> tuple[str, ...]:
        """What makes it observe-only, in words; empty where it is ready."""
        found = [f"{line.name}: {line.reason}" for line in in_order(self.capabilities) if line.blocks]
        if self.left_behind:
            found.append(f"the probe could not be deleted: {self.left_behind}")
        return tuple(found)

    @property
    def cannot_tell(self) -> bool:
        """Whether it is observe-only for want of an answer: no connection, or no right to look."""
        return cannot_tell(self.capabilities)


Tell: TypeAlias = Callable[[Capability | Probe], None]
"""Is told each capability as it is known, and where the probe stands."""


@dataclass(frozen=True)
class Problem:
    """What kept a part of preflight from being read, and which line of the report says what to do about it, if any."""

    message: str
    see: Name | None = Name.RIGHTS
    unanswered: bool = False


def attempt(operation: Operation[T]) -> Operation[T | Problem]:
    """Run a part of preflight; return what kept it from its end, if anything did."""
    try:
        return (yield from operation)
    except (ApiError, MalformedError) as error:
        if isinstance(error, UnreachableError | BadReplyError):
            return Problem(str(error), None, unanswered=True)
        # A kind that is not served: the message itself asks whether it is installed.
        return Problem(str(error), None if isinstance(error, NotServedError) else Name.RIGHTS)


def untold(name: Name, problem: Problem, needed: bool = True) -> Capability:
    """Return the capability that could not be told because of a problem."""
    todo = f"see {problem.see}" if problem.see else ""
    return Capability(name, Answer.UNKNOWN, problem.message, todo, needed)
