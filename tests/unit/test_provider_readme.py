"""provider/README.md has a row for every state and every error that an operation can answer with."""

from __future__ import annotations

from pathlib import Path

import pytest

import dispatch_gates
from dispatch_gates import requests
from dispatch_gates.operations import errors
from dispatch_gates.operations.status import JobState

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (Path(dispatch_gates.__file__).parents[1] / "README.md").read_text().splitlines()
    if line.startswith("|")
]
FIRST_CELLS = {name.strip(" `") for row in ROWS for name in row[0].split(",")}
ERRORS = {
    kind.__name__
    for module in (errors, requests)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Exception) and kind.__module__ == module.__name__
} - {"OperationError", "ApiError"}


@pytest.mark.parametrize("name", sorted({*map(str, JobState), *ERRORS}))
def test_has_a_row(name: str) -> None:
    assert name in FIRST_CELLS


def test_every_row_is_full() -> None:
    assert [row for row in ROWS if not all(row)] == []
