"""The README's table of tested versions is that of the programs that the tests build and run."""

from __future__ import annotations

import re
from pathlib import Path

from dispatch_local import programs

README = (Path(__file__).parents[2] / "infra" / "README.md").read_text()
BESIDE = {"etcd", "kwok", "pulumi-python"}
"""What only the tests need."""


def test_the_table_is_what_the_tests_run() -> None:
    (table,) = re.findall(r"\n\| program \| version .*?\n\n", README, re.DOTALL)
    said = dict(re.findall(r"^\| (\S+) \| ([0-9.]+) \|", table, re.MULTILINE))
    run = {group.name: group.version.removeprefix("v") for group in programs.GROUPS}
    assert said == {name: version for name, version in run.items() if name not in BESIDE}
