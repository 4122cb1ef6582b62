"""The README's table of tested versions is that of the programs that the tests build and run."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from dispatch_infra import charts
from dispatch_local import programs

INFRA = Path(__file__).parents[2] / "infra"
README = (INFRA / "README.md").read_text()
BESIDE = {"etcd", "kwok", "pulumi-python", "charts"}
"""What only the tests need."""


def test_the_table_is_what_the_tests_run() -> None:
    (table,) = re.findall(r"\n\| program \| version .*?\n\n", README, re.DOTALL)
    said = dict(re.findall(r"^\| (\S+) \| ([0-9.]+) \|", table, re.MULTILINE))
    run = {group.name: group.version.removeprefix("v") for group in programs.GROUPS}
    assert said == {name: version for name, version in run.items() if name not in BESIDE}


def test_the_charts_are_of_these_versions_as_the_settings_say() -> None:
    settings = yaml.safe_load((INFRA / "Pulumi.yaml").read_text())["config"]
    for (address, version), name in ((charts.KUEUE, "kueue"), (charts.TRAINER, "trainer")):
        assert programs.group(name).version == f"v{version}"
        assert f"{address} {version}" in settings[f"{name}Chart"]["description"]
