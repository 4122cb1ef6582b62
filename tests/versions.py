"""The core of the tests against several releases of Kueue: `make versions`, or `python -m versions 0.17.1`.

Each release is built as it was released, and runs with its own kinds, rights and webhooks; before 0.19 with the feature
AdmissionGatedBy on, which is off there unless asked for. All else of the cluster is the same, and so are the tests:
whole files of `make test`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import click

from dispatch_local import programs

TESTS = Path(__file__).parent
CORE = (
    "guard_rails/test_attacks.py",
    "guard_rails/test_denials.py",
    "infra/test_gated_queue.py",
    "infra/test_installation.py",
    "preflight/test_cluster.py",
    "preflight/test_elsewhere.py",
    "readmission/test_kinds.py",
    "resources/test_engine.py",
    "start_gate/test_life.py",
    # All that happened in the tests above, in the terms of the model: what was proved of it counts for this Kueue, too.
    "faithful/test_transitions.py::test_the_model_can_do_what_was_recorded",
)
PLAIN = "plain mode"
AREAS = {
    "start_gate": "start gate",
    PLAIN: PLAIN,
    "readmission": "readmission",
    "preflight": "preflight",
    "guard_rails": "guard rails",
    "infra": "installation",
    "resources": "Pulumi",
    "faithful": "the model",
}


@dataclass
class Area:
    """What one release made of the tests of one area."""

    run: int = 0
    failed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.run - len(self.failed)} of {self.run}" if self.run else "not run"


def read(report: Path) -> dict[str, Area]:
    """Return the areas of a JUnit report; none has run where pytest did not come to write one."""
    areas = {name: Area() for name in AREAS}
    for case in ElementTree.parse(report).iter("testcase") if report.is_file() else ():
        name, folder = case.attrib["name"], case.attrib["classname"].split(".")[-2]
        area = areas[PLAIN if PLAIN in name else folder]
        area.run += 1
        if any(case.find(outcome) is not None for outcome in ("failure", "error", "skipped")):
            area.failed.append(name)
    return areas


def table(found: dict[str, dict[str, Area]]) -> str:
    """Return the releases by areas as Markdown, and what failed below."""
    lines = [f"| Kueue | {' | '.join(AREAS.values())} |", "|---" * (len(AREAS) + 1) + "|"]
    lines += [f"| {version} | {' | '.join(map(str, areas.values()))} |" for version, areas in found.items()]
    failed = [(version, name) for version, areas in found.items() for area in areas.values() for name in area.failed]
    return "\n".join([*lines, "", *(f"failed with {version}: {name}" for version, name in failed)])


def tried(version: str) -> dict[str, Area]:
    """Build that release, if need be, and run the core with it."""
    env = os.environ | {"DISPATCH_KUEUE": version}
    env.pop("DISPATCH_TEST_CLUSTER", None)
    subprocess.run([sys.executable, "-m", "dispatch_local", "build", "--only", "kueue"], env=env, check=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        files = [str(TESTS / file) for file in CORE]
        command = [sys.executable, "-m", "pytest", f"--junitxml={report}", *files]
        subprocess.run(command, cwd=TESTS.parent, env=env, check=False)
        return read(report)


@click.command()
@click.argument("releases", nargs=-1)
def main(releases: tuple[str, ...]) -> None:
    """Run the core of the tests with each of the RELEASES of Kueue, and print what held (root; 20 min each)."""
    every = [release.removeprefix("v") for release in releases or (programs.KUEUE, *programs.OLDER_KUEUES)]
    found: dict[str, dict[str, Area]] = {}
    for version in every:
        found[version] = tried(version)
    click.echo(table(found))
    sys.exit(any(area.failed or not area.run for areas in found.values() for area in areas.values()))


if __name__ == "__main__":
    main()
