"""What the local cluster does to the machine that it runs on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from dispatch_local.host import run_to_its_end

PROGRAM = """
import os, sys
from dispatch_local.host import run_to_its_end
begun, go_on, mark = sys.argv[1:]
run_to_its_end(["sh", "-c", f"echo > {begun}; read _ < {go_on}; echo done > {mark}"], dict(os.environ))
print("went on")
"""


def test_an_interrupt_waits_for_what_must_not_be_cut_off(tmp_path: Path) -> None:
    """As the terminal sends it, to the whole process group, and twice: people are impatient."""
    begun, go_on, mark = tmp_path / "begun", tmp_path / "go-on", tmp_path / "mark"
    os.mkfifo(begun)
    os.mkfifo(go_on)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(begun), str(go_on), str(mark)],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    begun.read_text()
    for _ in range(2):
        os.killpg(process.pid, signal.SIGINT)
    go_on.write_text("\n")
    out, errors = process.communicate(timeout=300)
    assert mark.read_text() == "done\n"
    assert out == "", "the interrupt came after it"
    assert "KeyboardInterrupt" in errors


def test_its_exit_code_and_its_errors_are_told() -> None:
    assert run_to_its_end(["sh", "-c", "echo no >&2; exit 3"], {"PATH": os.environ["PATH"]}) == (3, "no\n")
