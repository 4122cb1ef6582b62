"""Hazards of training runtimes (BL-14, BL-17): what is fatal, what is warned of, what strict executions refuse."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dispatch_gates.contract.hazards import FORCED_DELETION, hazards
from dispatch_gates.contract.manifest import parse_runtime
from dispatch_gates.operations.errors import RefusedError
from dispatch_gates.operations.start import start
from model import objects
from model.apiserver import ApiServer
from unit.adapter import asked

JOBSET = "spec.template.spec"
JOB = f"{JOBSET}.replicatedJobs[node].template"


def runtime(jobset: dict[str, Any] | None = None, job: dict[str, Any] | None = None) -> dict[str, Any]:
    """A runtime that restarts nothing, with changes."""
    raw = copy.deepcopy(objects.runtime("node"))
    spec = raw["spec"]["template"]["spec"]
    spec["replicatedJobs"][0].setdefault("template", {}).setdefault("spec", {}).update(
        {"backoffLimit": 0, "podReplacementPolicy": "Failed"} | (job or {})
    )
    spec.update(jobset or {})
    return raw


@pytest.mark.parametrize(
    ("jobset", "job", "fatal", "warned"),
    [
        ({}, {}, [], []),
        ({"failurePolicy": {"maxRestarts": 3}}, {}, [], [f"{JOBSET}.failurePolicy.maxRestarts"]),
        (
            {"failurePolicy": {"maxRestarts": 3, "restartStrategy": "Recreate"}},
            {},
            [],
            [f"{JOBSET}.failurePolicy.maxRestarts"],
        ),
        ({"failurePolicy": {"maxRestarts": 3, "restartStrategy": "BlockingRecreate"}}, {}, [], []),
        (
            {},
            {"backoffLimit": 6, "podReplacementPolicy": None},
            [],
            [f"{JOB}.spec.backoffLimit", f"{JOB}.spec.podReplacementPolicy"],
        ),
        ({}, {"backoffLimit": None}, [], [f"{JOB}.spec.backoffLimit"]),
        ({"ttlSecondsAfterFinished": 0}, {}, [f"{JOBSET}.ttlSecondsAfterFinished"], []),
        ({}, {"ttlSecondsAfterFinished": 60}, [f"{JOB}.spec.ttlSecondsAfterFinished"], []),
        (
            {},
            {"template": {"metadata": {"annotations": {FORCED_DELETION: "true"}}}},
            [f"{JOB}.spec.template.metadata.annotations"],
            [],
        ),
    ],
    ids=[
        "no restarts",
        "restarts, strategy unset",
        "restarts that recreate",
        "restarts that wait",
        "backoff and no replacement policy",
        "backoff unset",
        "JobSet removed at once",
        "Jobs removed",
        "forced deletion",
    ],
)
def test_hazards(jobset: dict[str, Any], job: dict[str, Any], fatal: list[str], warned: list[str]) -> None:
    found = hazards(parse_runtime(runtime(jobset, job)))
    assert [hazard.field for hazard in found if hazard.fatal] == fatal
    assert [hazard.field for hazard in found if not hazard.fatal] == warned


def test_a_warning_names_field_and_runtime_only_where_there_is_one() -> None:
    assert hazards(parse_runtime(runtime())) == ()
    (hazard,) = hazards(parse_runtime(runtime(job={"backoffLimit": 2})))
    assert str(hazard).startswith(f"{JOB}.spec.backoffLimit: 2: ")


@pytest.mark.parametrize(
    ("job", "says"),
    [({"backoffLimit": 2}, "may restart under the same A"), ({}, "needs the guard rails at level `executions`")],
    ids=["a runtime that restarts", "no guard rails"],
)
def test_strict_executions_are_refused_before_a_write(job: dict[str, Any], says: str) -> None:
    server = ApiServer(runtime(job=job))
    with pytest.raises(RefusedError, match=says):
        server.run(start(asked(), strict_executions=True))
    assert server.writes == []
