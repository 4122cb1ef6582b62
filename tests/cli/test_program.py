"""The program itself, without a cluster: help, completion, versions, exit codes, errors of usage, and what it imports.

A person's mistake never ends in a stack trace; `--help` and completion are quick and import neither client nor Pulumi.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

import dispatch_gates
from cli.screens import PROGRAM
from dispatch_gates.cli import COMMANDS
from dispatch_gates.cli.exits import Exit
from dispatch_gates.cli.preflight import as_document
from dispatch_gates.contract.capability import Name
from dispatch_gates.printable import printable
from preflight.model import KUEUE, Stage

PLUGIN = PROGRAM.with_name("kubectl-dispatch_gates")
JOB = "dj-01arz3ndektsv4rrffq69g5fav-s1"
README = (Path(dispatch_gates.__file__).parents[1] / "README.md").read_text()
COMPLETE = {
    "_DISPATCH_GATES_COMPLETE": "bash_complete",
    "COMP_WORDS": "dispatch-gates preflight --wa",
    "COMP_CWORD": "2",
}


def program(
    *words: str, called: Path = PROGRAM, environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        [str(called), *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
        check=False,
    )
    assert "Traceback" not in ended.stderr
    return ended


@pytest.mark.parametrize("words", [["--help"], *([name, "-h"] for name in COMMANDS)], ids=lambda words: words[0])
def test_help(words: list[str]) -> None:
    ended = program(*words)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert re.search("Examples?:\n", ended.stdout)
    assert max(map(len, ended.stdout.splitlines())) <= 80


def test_help_names_every_command_and_every_exit_code() -> None:
    said = program("--help").stdout
    for name in COMMANDS:
        assert re.search(rf"^  {name} ", said, re.MULTILINE)
    for code in Exit:
        assert re.search(rf"^ +{code.value}  {re.escape(code.meaning[:20])}", said, re.MULTILINE)


def test_version() -> None:
    assert re.fullmatch(r"dispatch-gates, version \d+\.\d+\.\d+\n", program("--version").stdout)


def test_as_a_plugin_of_kubectl() -> None:
    assert program("--help", called=PLUGIN).stdout.startswith("Usage: kubectl dispatch-gates ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    ended = program("completion", shell)
    assert ended.returncode == 0
    assert "_DISPATCH_GATES_COMPLETE" in ended.stdout


def test_completion_completes() -> None:
    assert program(environment=COMPLETE).stdout.split() == ["plain,--watch-seconds"]
    commands = program(environment={**COMPLETE, "COMP_WORDS": "dispatch-gates ", "COMP_CWORD": "1"}).stdout.split()
    assert commands == [f"plain,{name}" for name in COMMANDS]


@pytest.mark.parametrize("words", [["--help"], ["preflight", "--help"], []], ids=["help", "of a command", "completion"])
def test_processor_time(words: list[str]) -> None:
    """At most 0.15 s. What a busy machine adds is no property of the program: the least of several runs counts."""
    environment = {} if words else COMPLETE
    spent = []
    for _ in range(10):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        program(*words, environment=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if spent[-1] <= 0.15:
            break
    assert min(spent) <= 0.15


@pytest.mark.parametrize("words", ['["--help"]', '["preflight", "--help"]', '["status", "--help"]', '["open", "-h"]'])
def test_help_imports_nothing_heavy(words: str) -> None:
    source = (
        "import sys\nfrom dispatch_gates.cli import main\n"
        f"try:\n    main({words})\nexcept SystemExit:\n    pass\n"
        "heavy = {'kubernetes', 'pulumi', 'aiohttp', 'rich', 'yaml', 'ulid'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["status", "my-job"], "'my-job' is not the name of a job"),
        (["open", "dj-1"], "'dj-1' is not the name of a job"),
        (["open"], "Missing argument 'NAME'"),
        (["opne", JOB], "No such command 'opne'"),
        (["preflight", "--watch-seconds", "0"], "--watch-seconds"),
        (["preflight", "-o", "xml"], "'xml' is not one of"),
        (["preflight", "-r", "JobSet/x"], "TrainingRuntime/NAME or ClusterTrainingRuntime/NAME was expected"),
        (["completion", "powershell"], "'powershell' is not one of"),
        (["--no-such"], "No such option"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_wrong_usage(words: list[str], says: str) -> None:
    ended = program(*words)
    assert (ended.returncode, ended.stdout) == (Exit.USAGE, "")
    assert says in ended.stderr


@pytest.mark.parametrize("command", [["preflight"], ["status"], ["hold", JOB, "-y"], ["stop", JOB, "-y"]], ids=" ".join)
@pytest.mark.parametrize("content", [None, "", "not: [valid", "clusters: []"], ids=["none", "empty", "broken", "bare"])
def test_no_usable_kubeconfig(command: list[str], content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    ended = program(*command, "--kubeconfig", str(path))
    assert (ended.returncode, ended.stdout.count("\n") <= 1) == (Exit.CANNOT_TELL, True)
    assert "cannot be used" in ended.stderr


def test_the_content_of_a_kubeconfig_is_not_repeated() -> None:
    ended = program("status", "--kubeconfig", '{"users": [{"user": {"token": "T0KEN"}}]}')
    assert ended.returncode == Exit.CANNOT_TELL
    assert "a path was expected" in ended.stderr
    assert "T0KEN" not in ended.stdout + ended.stderr


def test_what_a_terminal_would_obey_is_not_printed() -> None:
    assert printable("a\nb\x1b[31mc\u202e\tü") == "a b\\x1b[31mc\\u202e ü"


# provider/README.md.

ROWS = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in README.splitlines() if line[:1] == "|"]


@pytest.mark.parametrize("name", list(Name))
def test_readme_has_every_capability(name: Name) -> None:
    assert str(name) in {row[0] for row in ROWS}


def test_readme_has_every_exit_code() -> None:
    found = {row[0]: row[1] for row in ROWS if row[0].isdigit() and len(row) == 2}
    assert found == {str(code.value): code.meaning for code in Exit}


def documented(document: str) -> set[str]:
    """Return the fields that provider/README.md has for a document."""
    rows = [row for row in ROWS if len(row) == 3 and document in row[0].split(", ")]
    return {field.strip(" `") for row in rows for field in row[1].split(",")}


def documented_inside(document: str, field: str) -> set[str]:
    """Return what provider/README.md names as parts of a field."""
    (said,) = [row[2] for row in ROWS if row[:2] == [document, field]]
    return set(re.findall(r"`(\w+)`", f"`{said}`"))


def test_readme_has_every_field_of_a_report() -> None:
    found = as_document(Stage().preflight(KUEUE))
    assert documented("preflight") == set(found)
    row = next(row for row in ROWS if row[:2] == ["preflight", "capabilities"])
    assert re.findall(r"`(\w+)`(?=[, ]| \()", row[2])[0] == "name"
    assert set(found["capabilities"][0]) <= documented_inside("preflight", "capabilities")
