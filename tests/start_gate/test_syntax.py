"""A real API server takes the quantities and keys that the inputs' checks take, and refuses those that they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from dispatch_gates.cluster import run
from dispatch_gates.contract import names
from dispatch_gates.contract.manifest import manifest
from dispatch_gates.contract.names import Resource
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.requests import Create, InvalidError, write
from start_gate.site import Site
from unit.test_syntax import ANNOTATION_KEYS, LABEL_KEYS, LABEL_VALUES, QUANTITIES
from world import CONFIG_MAPS


def taken(site: Site, resource: Resource, body: JsonObject) -> bool:
    """Say whether the API server would create it."""
    try:
        run(site.target, write(Create(resource, body, dry_run=True)))
    except InvalidError:
        return False
    return True


@pytest.mark.parametrize(
    ("kind", "cases"),
    [
        ("labels", {(key, "x"): valid for key, valid in LABEL_KEYS.items()}),
        ("labels", {("x", value): valid for value, valid in LABEL_VALUES.items()}),
        ("annotations", {(key, "x"): valid for key, valid in ANNOTATION_KEYS.items()}),
    ],
    ids=["keys of labels", "values of labels", "keys of annotations"],
)
def test_keys_and_values(site: Site, kind: str, cases: dict[tuple[str, str], bool]) -> None:
    def body(key: str, value: str) -> JsonObject:
        metadata = {"name": "x", "namespace": site.namespace, kind: {key: value}}
        return {"apiVersion": CONFIG_MAPS.api_version, "kind": CONFIG_MAPS.kind, "metadata": metadata}

    assert {case: taken(site, CONFIG_MAPS, body(*case)) for case in cases} == cases


def test_quantities(site: Site) -> None:
    def body(value: Any) -> JsonObject:
        job = manifest(site.asked(None), ["node"])
        job["spec"]["trainer"]["resourcesPerNode"] = {"requests": {"cpu": value}}
        return job

    seen = {value: taken(site, names.TRAINJOBS, body(value)) for value in QUANTITIES}
    assert seen == {value: amount is not None for value, amount in QUANTITIES.items()}
