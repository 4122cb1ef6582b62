"""Log lines: one for each record, of fields that a program can take apart, whatever is in them."""

from __future__ import annotations

import json
import logging
import re
import sys

import pytest

from dispatch_admission import logs

_FIELD = re.compile(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|\S+)(?: |$)')
NASTY = [
    "",
    "two words",
    'a "quote"',
    "line\nlevel=ERROR event=forged",
    "\x1b[31mred",
    "k=v",
    "\u2028",
    "é",
    "-1.5",
    "a\\",
]


def parsed(line: str) -> dict[str, str]:
    """Take a line apart, all of it."""
    found = _FIELD.findall(line)
    assert "".join(match[0] for match in _FIELD.finditer(line)) == line, line
    return {key: json.loads(value) if value.startswith('"') else value for key, value in found}


@pytest.mark.parametrize("value", NASTY)
def test_any_value_comes_back(value: str) -> None:
    line = logs.fields(event="decision", detail=value, left_out=None, count=3)
    assert parsed(line) == {"event": "decision", "detail": value, "count": "3"}
    assert line.isprintable()
    assert line.isascii()


def test_a_record_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        logs.set_up("INFO")
        logging.getLogger("dispatch_admission.x").info(logs.fields(event="leading", identity="a b"))
        logging.getLogger("dispatch_admission.x").debug(logs.fields(event="too-quiet"))
        logging.getLogger("aiohttp.access").warning("not\nours")
        try:
            raise ValueError("odd\nthing")
        except ValueError:
            logging.getLogger("dispatch_admission.x").exception(logs.fields(event="pass-failed"))
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    lines = capsys.readouterr().err.splitlines()
    first, second, third = (parsed(line) for line in lines)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"])
    assert (first["level"], first["event"], first["identity"]) == ("INFO", "leading", "a b")
    assert (second["level"], second["logger"], second["msg"]) == ("WARNING", "aiohttp.access", "not\nours")
    assert third["event"] == "pass-failed"
    assert third["traceback"].endswith("ValueError: odd\nthing")
    assert sys.stderr is not None
