"""Over the whole run nobody lacks a right: what the audit log has of the controller's account, and of the adapter's.

Comes last, when the log is whole; with a story of its own, so that there is something where nothing else ran. That they
have no right too many is said by `test_rights_used`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dispatch_gates.cluster import Target, run
from dispatch_gates.contract import names
from dispatch_gates.requests import DeniedError, find
from dispatch_local.cluster import Cluster
from logged import DECISION, refused, requests
from world import ADAPTER_ACCOUNT, SERVICE_ACCOUNTS, ControllerProcess, World, token_of, until, write_kubeconfig

CONTROLLER_ACCOUNT = f"system:serviceaccount:{names.CONTROLLER_NAMESPACE}:{names.CONTROLLER}"
REFUSED = f'"{DECISION}":"forbid"'
CLIENT = "dispatch-gates/"
"""How the product's client calls itself: attacks that a test makes with the controller's token have another."""


def test_nothing_was_refused_for_want_of_a_right(cluster: Cluster, tmp_path: Path) -> None:
    log = cluster.audit_log
    since = log.stat().st_size
    world = World(cluster).make()
    with ControllerProcess(world, tmp_path, lease=f"refused-{world.namespace}"):
        job = world.started_and_opened()
        world.running(job, 1)
        world.stop(job)
    for account in (CONTROLLER_ACCOUNT, ADAPTER_ACCOUNT):
        assert _sent(requests(log, since, account)), "nothing of it is in the log"
        assert refused(_sent(requests(log, 0, account, said=REFUSED))) == []

    # What is refused would have been found.
    until("an account without rights", lambda: world.get(SERVICE_ACCOUNTS, "default"))
    me = Target(str(write_kubeconfig(tmp_path / "nobody", world, token_of(world, "default"))), "tests")
    with pytest.raises(DeniedError):
        run(me, find(names.TRAINJOBS, world.namespace, job.meta.name))
    nobody = f"system:serviceaccount:{world.namespace}:default"
    assert [right for right, _ in refused(_sent(requests(log, since, nobody, said=REFUSED)))] == [
        (names.TRAINJOBS.group, names.TRAINJOBS.plural, "get")
    ]


def _sent(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event.get("userAgent", "").startswith(CLIENT)]
