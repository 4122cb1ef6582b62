"""Behavioural checks that are run twice: on the code as it is, where they hold, and on mutants, where one must fail."""

from __future__ import annotations

from collections.abc import Callable

Check = Callable[[], None]


class Checks(dict[str, Check]):
    """Checks by name, in the order in which they were added."""

    def add(self, name: str, check: Check) -> None:
        """Add one under a name that is not taken."""
        assert name not in self, f"two checks are named {name!r}"
        self[name] = check

    def __call__(self, check: Check) -> Check:
        """Add a function under its own name, as a decorator."""
        self.add(check.__name__, check)
        return check
