"""What rules and policies are, and the pieces of CEL that they share. No piece fails where a field is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dispatch_gates.contract import names
from dispatch_gates.contract.guard_rails import Level
from dispatch_gates.contract.identity import NAME_PATTERN
from dispatch_gates.contract.names import Resource

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"

OURS: Final = NAME_PATTERN.replace("(", "", 1).partition(")-s")[0] + "-"
"""What every name of ours begins with, as a regular expression."""
COUNT: Final = "^(0|[1-9][0-9]{0,17})$"
RAISED: Final = "^[1-9][0-9]{0,17}$"

ADAPTER: Final = (
    f"authorizer.group('{names.TRAINJOBS.group}').resource('{names.TRAINJOBS.plural}')"
    f".namespace(request.namespace).check('{names.ADAPTER_VERB}').allowed()"
)
ASK_FOR_VERB: Final = (
    f"who may is whoever has the RBAC verb '{names.ADAPTER_VERB}' on {names.TRAINJOBS.plural} in this namespace, as "
    "ClusterRole dispatch-adapter grants it"
)


@dataclass(frozen=True)
class Rule:
    """One sentence that must be true of a change.

    `message` says what was refused and what to do; people see it behind the rule's name.
    """

    name: str
    holds: str
    message: str


@dataclass(frozen=True)
class Policy:
    """The rules of one kind of object.

    `about` says in CEL whether they apply to a change at all; `variables` are there for `rules` alone.
    `everywhere`: in all namespaces, not only in guarded ones.
    """

    name: str
    resource: Resource
    operations: Sequence[str]
    about: str
    variables: Mapping[str, str]
    rules: Sequence[Rule]
    level: Level = Level.ADMISSIONS
    subresource: str = ""
    everywhere: bool = False


def annotation(at: str, key: str) -> str:
    """Return CEL: an annotation of the object, empty where it is missing."""
    return f"{at}.metadata.?annotations[?'{key}'].orValue('')"


def label(at: str, key: str) -> str:
    """Return CEL: a label of the object, empty where it is missing."""
    return f"{at}.metadata.?labels[?'{key}'].orValue('')"


def same(*paths: str) -> str:
    """Return CEL: these fields are as they were. A path begins with a dot."""
    return " && ".join(f"object{path} == oldObject{path}" for path in paths)


def same_keys(kind: str, *keys: str) -> str:
    """Return CEL: these labels or annotations are as they were."""
    return same(*(f".metadata.?{kind}[?'{key}']" for key in keys))


def gated(at: str) -> str:
    """Return CEL: our entry stands in the list of gates."""
    return f"{annotation(at, names.ADMISSION_GATED_BY)}.split(',').exists(gate, gate.trim() == '{names.GATE}')"


def named_ours(at: str) -> str:
    """Return CEL: the object is named as ours are, or may be given such a name."""
    return f"{at}.metadata.?name.orValue({at}.metadata.?generateName.orValue('')).matches('{OURS}')"


def labelled_ours(at: str) -> str:
    """Return CEL: JobSet's label says that the object is of a job of ours."""
    return f"{label(at, names.JOBSET_NAME)}.matches('{OURS}')"


def count_of(pod: str) -> str:
    """Return CEL: A as a pod or a pod template carries it, empty where it does not."""
    return f"{pod}.?metadata.?annotations[?'{names.ADMISSION_COUNT}'].orValue('')"


def higher(new: str, old: str) -> str:
    """Return CEL: the count `new` is valid and higher than `old`; one that is not valid is lower than all."""
    return f"{new}.matches('{COUNT}') && (!{old}.matches('{COUNT}') || int({new}) > int({old}))"
