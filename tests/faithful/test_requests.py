"""The model API server answers as the real one does: random sequences of requests, asked of both.

Aspects: every kind of request that the product sends; old, wrong and missing versions and UIDs; objects that are
gone, that end, that are made anew under the same name; finalizers; the status apart from the rest; names that are
taken; strict validation and the kinds' own rules; namespaces that do not exist; selectors, pages with writes between
them; watches from any version, what they show and in which order. Models that are wrong on purpose are noticed.

A sequence that differs is reported by its seed, in the fewest steps that show it; in tests/,
`python -m faithful requests --sequences 1 --seed N` plays it again.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Iterator
from types import ModuleType

import pytest

from dispatch_gates.cluster import Target
from faithful.bare import bare_cluster
from faithful.plan import Step
from faithful.play import play_seeds
from unit.mutants import Mutant, installed

SEQUENCES = 200


@pytest.fixture(scope="module")
def api_server() -> Iterator[Target]:
    with bare_cluster(f"test-requests-{os.getpid()}") as target:
        yield target


def test_the_model_answers_as_the_real_api_server(api_server: Target) -> None:
    reports = asyncio.run(play_seeds(api_server, range(SEQUENCES)))
    assert not reports, "\n".join(reports)


WRONG = {
    "the UID of what is replaced is not compared": (
        'in ("uid", "resourceVersion"):\n        if text(body',
        'in ("resourceVersion",):\n        if text(body',
        (Step("create", 0), Step("replace", 0, how="annotate, wrong uid")),
    ),
    "a write that changes nothing is stored": (
        "    if after == before:",
        "    if False:",
        (Step("create", 0), Step("replace", 0, how="nothing")),
    ),
    "a write of the rest changes the status": (
        '    if "status" in other:',
        "    if status:",
        (Step("create", 2), Step("replace status", 2, how="status"), Step("replace", 2, how="annotate")),
    ),
    "finalizers hold nothing": (
        '    if not metadata.get("finalizers") and',
        "    if",
        (Step("create", 0, how="finalizer"), Step("delete", 0), Step("get", 0)),
    ),
    "the end of a selection is not shown": (
        "elif before is not None and matches",
        "elif deleted and matches",
        (Step("create", 0, value=1), Step("replace", 0, how="unlabel"), Step("watch", 0, 1, "here: a=1")),
    ),
    "a name can be taken twice": (
        "    if key in state.objects:\n        raise Al",
        "    if False:\n        raise Al",
        (Step("create", 0), Step("create", 0)),
    ),
}


@pytest.mark.parametrize(("snippet", "replacement", "steps"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_model_is_noticed(api_server: Target, snippet: str, replacement: str, steps: tuple[Step, ...]) -> None:
    async def differences(found: ModuleType) -> list[str]:
        async with found.connected(api_server) as driver:
            answer: list[str] = await found.play(driver, steps)
            return answer

    assert asyncio.run(differences(importlib.import_module("faithful.play"))) == []
    with installed(Mutant("model.apiserver", snippet, replacement, "")):
        assert asyncio.run(differences(importlib.import_module("faithful.play")))
