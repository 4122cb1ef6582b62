"""The start gate: our entry in a comma list that belongs to everybody."""

from __future__ import annotations

from dataclasses import dataclass

from dispatch_gates.contract.names import GATE


@dataclass(frozen=True)
class Gates:
    """The value of the annotation `kueue.x-k8s.io/admission-gated-by`, or None where the key is absent.

    Kueue holds a Workload for any value but the empty string, so a blank value gates without naming anybody.
    """

    value: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """The entries, trimmed as Kueue trims them; blank ones are left out."""
        return tuple(item for item in (part.strip() for part in (self.value or "").split(",")) if item)

    @property
    def closed(self) -> bool:
        """Whether anything at all holds the job."""
        return bool(self.value)

    @property
    def ours(self) -> bool:
        """Whether dispatch's own entry is on the list; only the whole name counts."""
        return GATE in self.names

    @property
    def others(self) -> tuple[str, ...]:
        """The entries of administrators."""
        return tuple(name for name in self.names if name != GATE)

    def without_ours(self) -> Gates:
        """Return the list without our entry, the others in their order; absent where none is left.

        An absent key is the one state that every reader agrees means ungated.
        """
        if not self.ours:
            return self
        return Gates(",".join(self.others) or None)
