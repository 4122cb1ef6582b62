"""Waiting for a condition, and the failure of that."""

from __future__ import annotations

import http
import http.client
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from dispatch_local import control
from dispatch_local.errors import LocalError


class NotInTimeError(LocalError):
    """A condition did not come true in time."""


# Ten times what a slow machine needs.
TIMEOUT_SECONDS = 300.0
INTERVAL_SECONDS = 0.05
REQUEST_SECONDS = 10.0


def until(
    what: str,
    check: Callable[[], bool | str],
    still: Callable[[], None] = lambda: None,
    timeout: float | None = None,
) -> None:
    """Return once `check` is True; a text says why not yet. `still` may raise when waiting is pointless.

    NotInTimeError names `what` and the last reason if the time is over first.
    """
    timeout = TIMEOUT_SECONDS if timeout is None else timeout
    deadline = time.monotonic() + timeout
    while (answer := check()) is not True:
        still()
        if time.monotonic() > deadline:
            reason = f" ({answer})" if answer else ""
            raise NotInTimeError(f"{what}: not within {timeout:.0f} s{reason}")
        time.sleep(INTERVAL_SECONDS)


def answers(url: str, ca: Path) -> bool | str:
    """Return True if a GET of `url` is answered with 200, what else was seen if not.

    Of "unix:PATH" it is enough that somebody listens there.
    """
    if url.startswith("unix:"):
        return control.listens(Path(url.removeprefix("unix:")))
    address = urlsplit(url)
    assert address.hostname
    connection: http.client.HTTPConnection
    if address.scheme == "https":
        context = ssl.create_default_context(cafile=str(ca))
        connection = http.client.HTTPSConnection(
            address.hostname, address.port, context=context, timeout=REQUEST_SECONDS
        )
    else:
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=REQUEST_SECONDS)
    try:
        connection.request("GET", address.path)
        status = connection.getresponse().status
        return True if status == http.HTTPStatus.OK else f"{url} answers {status}"
    except (OSError, http.client.HTTPException) as error:
        return f"{url}: {error}"
    finally:
        connection.close()
