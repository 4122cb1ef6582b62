"""What a terminal shows: rows that fit, wrapped under themselves; progress that ends; no colour without one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli import screens

ROWS = """
import time
from dispatch_gates.cli.terminal import Terminal
terminal = Terminal()
with terminal.progress("watching", 1.0):
    time.sleep(0.3)
    terminal.row(("no", 13, "bold red"), ("ReadmissionGate", 17, "bold"), ("word " * 30 + "\\x1b[31mred", 0, ""))
terminal.line("ready", "green")
"""


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_row(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screens, "PROGRAM", Path(sys.executable))
    code, written = screens.screen(["-c", ROWS], columns)
    shown = screens.lines(written)
    assert code == 0
    assert max(map(len, shown)) <= columns
    assert shown[0].startswith("no           ReadmissionGate  word word")
    assert [line for line in shown[1:-2] if not line.startswith(" " * 30)] == []
    assert shown[-2:] == ["ready", ""]
    assert " ".join(" ".join(shown).split()).count("word") == 30
    assert "\\x1b[31mred" in " ".join(shown)  # shown, not obeyed
    assert "watching" in written
    assert not any("watching" in line for line in shown)


def test_without_a_terminal() -> None:
    """Nothing is coloured, wrapped, padded or shown as progress."""
    ended = subprocess.run([sys.executable, "-c", ROWS], capture_output=True, text=True, check=True)
    first, last = ended.stdout.splitlines()
    assert first == "no           ReadmissionGate  " + "word " * 30 + "\\x1b[31mred"
    assert last == "ready"


def test_a_picture() -> None:
    drawn = screens.picture("\x1b[1mhead\x1b[0m\r\n    indented\r\n", 80, "a title")
    assert drawn.startswith("<svg")
    for word in ("head", "indented", "a&#160;title"):
        assert word in drawn
