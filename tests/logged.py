"""What an account asked the API server for, as the audit log has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dispatch_gates.contract import names

Right = tuple[str, str, str]
"""Group, resource, verb."""


DECISION = "authorization.k8s.io/decision"


def requests(log: Path, since: int, account: str, *, said: str = "") -> list[dict[str, Any]]:
    """What an account asked for, from a place in the audit log on; not what everybody may ask about himself.

    With `said`, of the events that have this text in them.
    """
    wanted = [text.encode() for text in (account, said)]
    with log.open("rb") as lines:
        lines.seek(since)
        events = [json.loads(line) for line in lines if line.endswith(b"\n") and all(text in line for text in wanted)]
    return [
        event
        for event in events
        if event["user"]["username"] == account
        and event.get("objectRef", {}).get("apiGroup") != names.ACCESS_REVIEWS.group
        and "objectRef" in event
    ]


def refused(found: list[dict[str, Any]], check: str = names.ADMISSION_CHECK) -> list[tuple[Right, str]]:
    """What the API server refused for want of a right.

    The controller has the right to one AdmissionCheck alone, `check`; others that name it as theirs are made by tests.
    """
    other = (names.ADMISSION_CHECKS.group, f"{names.ADMISSION_CHECKS.plural}/status", "update")
    return [
        (right(event), event["requestURI"])
        for event in found
        if event["annotations"].get(DECISION) != "allow"
        and not (right(event) == other and event["objectRef"]["name"] != check)
    ]


def right(event: dict[str, Any]) -> Right:
    of = event["objectRef"]
    resource = of["resource"] + (f"/{of['subresource']}" if of.get("subresource") else "")
    return of.get("apiGroup", ""), resource, event["verb"]
