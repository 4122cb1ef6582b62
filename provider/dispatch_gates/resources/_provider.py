"""What the providers of jobs and their openings have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pulumi.dynamic import CheckFailure, CheckResult, ConfigureRequest, ResourceProvider

from dispatch_gates.resources import _preflight
from dispatch_gates.resources._inputs import Failure, Props
from dispatch_gates.resources._running import GatesError


class Provider(ResourceProvider):
    """Translates the engine's calls to operations. What is derived from it is stored in states by module and name."""

    serialize_as_secret_always: ClassVar[bool] = False  # type: ignore[misc] # the SDK reads it from the class

    def configure(self, req: ConfigureRequest) -> None:
        """Take the settings of preflight from the stack's configuration. They are the process's, not this object's."""
        _preflight.configure(req.config.get)


def checked(news: Props, found: Sequence[Failure]) -> CheckResult:
    """Return the answer of a check."""
    return CheckResult(news, [CheckFailure(name, why) for name, why in found])


def refuse(found: Sequence[Failure]) -> None:
    """Raise what a check would have found, where the engine did not ask for one; nothing where that is nothing."""
    if found:
        raise GatesError("; ".join(f"{name}: {why}" for name, why in found))
