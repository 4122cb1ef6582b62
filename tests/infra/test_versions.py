"""The README's tables of tested versions are those of the programs that the tests build and run.

Aspects: each program's version, the charts too; the Python package beside a plugin; the Go that builds the programs;
the older releases of Kueue that the core of the tests runs with, and its areas; that what did not pass, or did not run,
is not counted as passed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

import versions
from dispatch_infra import charts
from dispatch_local import golang, programs

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"
README = (INFRA / "README.md").read_text()
BESIDE = {"etcd", "kwok", "pulumi-python", "charts"}
"""What only the tests need."""
SUITE = """
import pytest

def test_passes(): pass

def test_fails(): assert False

@pytest.mark.parametrize("place", ["Kueue mode", "plain mode"])
def test_life(place): assert place == "Kueue mode"

@pytest.mark.skip
def test_skipped(): pass
"""


def _table(beginning: str) -> str:
    (table,) = re.findall(rf"\n(\| {beginning} \|.*?\n)\n", README, re.DOTALL)
    return str(table)


def test_the_table_is_what_the_tests_run() -> None:
    said = dict(re.findall(r"^\| (\S+) \| ([0-9.]+) \|", _table("program"), re.MULTILINE))
    run = {group.name: group.version.removeprefix("v") for group in programs.GROUPS}
    assert said == {name: version for name, version in run.items() if name not in BESIDE}


def test_the_python_package_of_pulumi_kubernetes_is_the_locked_one() -> None:
    (locked,) = re.findall(r"^pulumi-kubernetes==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert f"Its Python package is {locked} " in README


def test_the_readmes_name_the_oldest_go_that_is_enough() -> None:
    for readme in (ROOT / "README.md", INFRA / "local" / "README.md"):
        assert f"Go {golang.needed()} or later" in readme.read_text()


def test_the_charts_are_of_these_versions_as_the_settings_say() -> None:
    settings = yaml.safe_load((INFRA / "Pulumi.yaml").read_text())["config"]
    for (address, version), name in ((charts.KUEUE, "kueue"), (charts.TRAINER, "trainer")):
        assert programs.group(name).version == f"v{version}"
        assert f"{address} {version}" in settings[f"{name}Chart"]["description"]


def test_the_releases_of_kueue_are_those_that_make_versions_runs() -> None:
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in _table("Kueue").splitlines()]
    assert head == ["Kueue", *versions.AREAS.values()]
    assert [f"v{row[0]}" for row in rows] == [programs.KUEUE, *programs.OLDER_KUEUES]


def test_what_did_not_pass_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "start_gate"
    folder.mkdir()
    (folder / "test_it.py").write_text(SUITE)
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}", str(folder)]
    subprocess.run(command, cwd=tmp_path, check=False, capture_output=True)
    found = versions.read(report)
    assert {area: str(value) for area, value in found.items() if value.run} == {
        "start_gate": "2 of 4",
        "plain mode": "0 of 1",
    }
    assert found["start_gate"].failed == ["test_fails", "test_skipped"]
    assert found["plain mode"].failed == ["test_life[plain mode]"]
    assert {str(area) for area in versions.read(tmp_path / "absent.xml").values()} == {"not run"}
