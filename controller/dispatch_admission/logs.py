"""Log lines that people and programs can read: `key=value`, quoted where a value would not be one word."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from typing import Final

_PLAIN: Final = re.compile(r"[\w./:@+\-]+", re.ASCII)


def fields(**values: object) -> str:
    """Join fields for one line. None is left out; no value, whatever it holds, ends the line or forges a field."""
    return " ".join(f"{key}={_quoted(str(value))}" for key, value in values.items() if value is not None)


def _quoted(value: str) -> str:
    return value if _PLAIN.fullmatch(value) else json.dumps(value)


class _Lines(logging.Formatter):
    """One line for a record: time, level, and the message, which is fields already; a traceback as one field."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        line = f"time={self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z level={record.levelname}"
        message = record.getMessage()
        ours = record.name.startswith("dispatch_admission")
        line += f" {message}" if ours else f" {fields(logger=record.name, msg=message)}"
        if record.exc_info:
            line += f" {fields(traceback=self.formatException(record.exc_info))}"
        return line


def set_up(level: str) -> None:
    """Log to standard error, in UTC, from this level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
