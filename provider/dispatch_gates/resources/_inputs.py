"""From the inputs of a gated job to what Start is asked for, and what is wrong with them, input by input. Pure.

Inputs come from the engine: numbers are floats, what is None is left out, and in previews any value may be
unknown, at any depth.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from pulumi.output import Unknown

from dispatch_gates.contract.identity import Identity, IdentityError, valid_submission, valid_ulid
from dispatch_gates.contract.manifest import JobSpec, problems
from dispatch_gates.contract.objects import dig
from dispatch_gates.contract.syntax import is_dns_label

Props: TypeAlias = dict[str, Any]
"""The inputs or outputs of a resource, as the engine hands them over."""
Failure: TypeAlias = tuple[str, str]
"""An input, and what is wrong with it."""

PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    "runtime": ("runtimeRef", "name"),
    "runtime_kind": ("runtimeRef", "kind"),
    "image": ("trainer", "image"),
    "command": ("trainer", "command"),
    "args": ("trainer", "args"),
    "nodes": ("trainer", "numNodes"),
    "resources_per_node": ("trainer", "resourcesPerNode"),
    "env": ("trainer", "env"),
    "deadline_seconds": ("activeDeadlineSeconds",),
}
"""Where in the TrainJob's spec each input goes."""
ASKED: Final = (*PATHS, "spec", "queue", "namespace", "priority_class", "labels", "annotations")
"""The inputs that a started job cannot change."""


def whole(value: Any) -> Any:
    """Return `value` with every integral float turned back into the integer that it was, at any depth."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: whole(item) for key, item in value.items()}
    return [whole(item) for item in value] if isinstance(value, list | tuple) else value


def canonical(value: Any) -> str:
    """Return the one JSON text of a value: sorted keys, no blanks, whole numbers as integers."""
    return json.dumps(whole(value), sort_keys=True, separators=(",", ":"))


def known(value: Any) -> bool:
    """Whether nothing in the value is still to be computed."""
    if isinstance(value, Unknown):
        return False
    if isinstance(value, Mapping):
        return all(known(item) for item in value.values())
    return all(known(item) for item in value) if isinstance(value, list | tuple) else True


def name_of(props: Props) -> str:
    """Return the name of the TrainJob that a resource is about: its identity must be known, and valid."""
    return Identity.of(props["ulid"], props["submission"]).name


def job_spec(props: Props) -> tuple[JobSpec | None, list[Failure]]:
    """Return what Start is asked for, and what is wrong with the inputs.

    None where anything is wrong, or not known yet.
    """
    wrong = [failure for name, test in _TESTS.items() for failure in _test(name, test, props)]
    if wrong or not known([props.get(name) for name in (*ASKED, "ulid", "submission", "owner")]):
        return None, wrong
    spec, wrong = _spec(props)
    if wrong:
        return None, wrong
    asked = JobSpec(
        identity=Identity.of(props["ulid"], props["submission"]),
        namespace=props["namespace"],
        queue=props.get("queue"),
        spec=spec,
        owner=props.get("owner", ""),
        priority_class=props.get("priority_class"),
        labels=props.get("labels", {}),
        annotations=props.get("annotations", {}),
    )
    wrong = [(_input_of(path, props), f"{path}: {why}") for path, why in problems(asked)]
    return (None, wrong) if wrong else (asked, [])


def _spec(props: Props) -> tuple[dict[str, Any], list[Failure]]:
    """Merge the inputs into the mapping; what is said twice is wrong."""
    spec: dict[str, Any] = json.loads(props.get("spec", "{}"))
    wrong: list[Failure] = []
    for name, path in PATHS.items():
        if name not in props:
            continue
        *parents, last = path
        at = spec
        for key in parents:
            at = at.setdefault(key, {}) if isinstance(at, dict) else {}
        if not isinstance(at, dict):
            wrong.append(("spec", f"spec.{'.'.join(parents)}: a mapping was expected"))
        elif last in at:
            wrong.append((name, f"is given here and as spec.{'.'.join(path)}; leave one of them out"))
        else:
            at[last] = _API_FORM.get(name, whole)(props[name])
    return spec, wrong


def _resources(value: Mapping[str, Any]) -> Mapping[str, Any]:
    quantities = whole(value)
    if set(value) <= {"requests", "limits"}:
        return {kind: _quantities(of) for kind, of in quantities.items()}
    return {"requests": _quantities(quantities), "limits": _quantities(quantities)}


def _quantities(value: Any) -> Any:
    """Return quantities as text, the form in which every reader leaves them."""
    return {key: str(item) for key, item in value.items()} if isinstance(value, Mapping) else value


_API_FORM: Final[Mapping[str, Callable[[Any], Any]]] = {
    "resources_per_node": _resources,
    # Sorted: the engine keeps no order of keys, and the same program must give the same job.
    "env": lambda env: [{"name": key, "value": env[key]} for key in sorted(env)],
}


def _input_of(path: str, props: Props) -> str:
    """Return the input that a path of the TrainJob was given by."""
    if not path.startswith("spec"):
        return path
    where = tuple(path.split(".")[1:])
    return next((name for name, goes in PATHS.items() if goes == where and name in props), _fallback(where, props))


def _fallback(where: tuple[str, ...], props: Props) -> str:
    # A runtime that nobody named is missing where most programs would name it.
    return "runtime" if where == PATHS["runtime"] and not dig(json.loads(props.get("spec", "{}")), *where) else "spec"


Test: TypeAlias = Callable[[Any], str | None]
"""Says what is wrong with a value that is known, or None."""


def _test(name: str, test: Test, props: Props) -> Iterator[Failure]:
    if name not in props:
        if name in ("ulid", "submission", "namespace"):
            yield name, "is missing"
    elif known(props[name]) and (why := test(props[name])):
        yield name, why


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) and value else f"a text was expected, not {_kind(value)}"


def _dns_label(value: Any) -> str | None:
    if is_dns_label(value):
        return None
    return f"{value!r}: at most 63 of a-z, 0-9 and '-' were expected, a letter or digit first and last"


def _texts(value: Any) -> str | None:
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return None
    return "a list of texts was expected; quote numbers"


def _text_by_key(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return f"a mapping of texts was expected, not {_kind(value)}"
    # The value is not shown: it may be a secret.
    bad = sorted(key for key, item in value.items() if not isinstance(item, str))
    return f"{bad[0]}: a text was expected, not {_kind(value[bad[0]])}; quote it" if bad else None


def _count(value: Any) -> str | None:
    number = whole(value)
    if isinstance(number, int) and not isinstance(number, bool) and 1 <= number < 2**31:
        return None
    return f"{value!r}: a whole number of at least 1 was expected"


def _quantity_mapping(value: Any) -> str | None:
    if not isinstance(value, Mapping) or not value:
        return "quantities by resource were expected, as in {'cpu': '2', 'nvidia.com/gpu': 1}"
    parts = value.values() if set(value) <= {"requests", "limits"} else [value]
    for part in parts:
        good = isinstance(part, Mapping) and all(
            isinstance(item, str | int | float) and not isinstance(item, bool) for item in part.values()
        )
        if not good:
            return "quantities by resource were expected, as texts or numbers, perhaps below 'requests' and 'limits'"
    return None


def _json_mapping(value: Any) -> str | None:
    try:
        parsed = json.loads(value)
    except (TypeError, ValueError):
        parsed = None
    return None if isinstance(parsed, dict) else "a mapping in the shape of a TrainJob's spec was expected"


def _identity_part(valid: Callable[[object], object]) -> Test:
    def test(value: Any) -> str | None:
        try:
            valid(value)
        except IdentityError as error:
            return str(error)
        return None

    return test


def _kind(value: Any) -> str:
    kinds = {str: "an empty text", float: "a number", int: "a number", bool: "a boolean", list: "a list"}
    return kinds.get(type(value), "a mapping" if isinstance(value, Mapping) else type(value).__name__)


_TESTS: Final[Mapping[str, Test]] = {
    "ulid": _identity_part(valid_ulid),
    "submission": _identity_part(valid_submission),
    "namespace": _dns_label,
    "queue": _text,
    "runtime": _text,
    "runtime_kind": _text,
    "image": _text,
    "command": _texts,
    "args": _texts,
    "nodes": _count,
    "resources_per_node": _quantity_mapping,
    "env": _text_by_key,
    "priority_class": _text,
    "deadline_seconds": _count,
    "spec": _json_mapping,
    "labels": _text_by_key,
    "annotations": _text_by_key,
}
