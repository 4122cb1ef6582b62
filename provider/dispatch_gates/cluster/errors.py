"""Mapping HTTP answers to the errors that operations know. The HTTP library's own never leave this package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from dispatch_gates.contract.objects import dig, text
from dispatch_gates.requests import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    DeniedError,
    ExpiredError,
    InvalidError,
    NotFoundError,
    NotServedError,
    ThrottledError,
    UnreachableError,
)

_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    400: InvalidError,
    401: DeniedError,
    403: DeniedError,
    404: NotFoundError,
    409: ConflictError,
    410: ExpiredError,
    422: InvalidError,
    429: ThrottledError,
}


def from_status(request: str, status: int, headers: Mapping[str, str], content: bytes) -> ApiError:
    """Return the error for an answer that is not a success; `request` is named in its message.

    5xx and whatever is unknown count as unreachable: a write may have been applied.
    """
    reason, message, named = _status_object(content)
    kind = _BY_STATUS.get(status, UnreachableError)
    if status == 409 and reason == "AlreadyExists":
        kind = AlreadyExistsError
    if status == 404 and not named:
        kind = NotServedError
        message += ": this kind of object is not served there; is it installed, in this version?"
    return kind(f"{request}: {status} {message}", status=status, retry_after=_seconds(headers.get("Retry-After")))


def from_event(request: str, event: object) -> ApiError:
    """Return the error for an ERROR event of a watch."""
    code = dig(event, "code")
    content = json.dumps(event).encode()
    return from_status(request, code if isinstance(code, int) else 500, {}, content)


def _status_object(content: bytes) -> tuple[str, str, bool]:
    """Read the API server's Status object: reason, message, and whether it names the object that it speaks of.

    A proxy in between may answer with HTML instead.
    """
    try:
        parsed = json.loads(content)
    except ValueError:
        return "", content[:200].decode(errors="replace").strip() or "without a body", False
    named = bool(text(parsed, "details", "name"))
    return text(parsed, "reason") or "", (text(parsed, "message") or "")[:1000], named


def _seconds(retry_after: str | None) -> float | None:
    return float(retry_after) if retry_after and retry_after.isdecimal() else None
