"""A team's namespace for the tests of the adapter's operations: a runtime, and Kueue at work."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.manifest import JobSpec
from dispatch_gates.contract.names import ADMISSION_GATED_BY, TRAINJOBS, WORKLOADS
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.requests import Create, Request
from model import objects
from model.apiserver import ApiServer
from model.objects import NAME, QUEUE, TEAM, ULID, WORKLOAD, check_state

OWNER = "project/stack"
Change = Callable[[JsonObject], object]


def asked(**more: Any) -> JobSpec:
    """What Start is asked for."""
    parts: dict[str, Any] = {
        "identity": Identity(ULID, 1),
        "namespace": TEAM,
        "queue": QUEUE,
        "spec": {
            "runtimeRef": {"name": objects.RUNTIME},
            "trainer": {"image": "example.org/training:1", "numNodes": 2},
        },
        "owner": OWNER,
    }
    return JobSpec(**(parts | more))


def kueue(server: ApiServer, *, gated: bool = True, checks: tuple[str, ...] = (objects.CHECK,)) -> bool:
    """Have Kueue make the Workload of the TrainJob, if it has none; return whether it did."""
    if server.has(WORKLOADS, WORKLOAD) or not server.has(TRAINJOBS, NAME):
        return False
    metadata = server.read(TRAINJOBS, NAME)["metadata"]
    server.put(
        objects.workload(
            {"QuotaReserved": False},
            checks=[check_state(name) for name in checks],
            owned_by=objects.owner("TrainJob", NAME, metadata["uid"]),
            job_uid=metadata["uid"],
            gates=metadata["annotations"].get(ADMISSION_GATED_BY) if gated else None,
        )
    )
    return True


def team(*more: JsonObject, gated: bool = True, checks: tuple[str, ...] = (objects.CHECK,)) -> ApiServer:
    """A model API server with a runtime, and Kueue that makes Workloads."""
    server = ApiServer(objects.runtime("node"), *more)
    server.idle = lambda _: kueue(server, gated=gated, checks=checks)
    return server


def webhook(server: ApiServer, change: Change) -> None:
    """Have somebody change each TrainJob as soon as it is created."""

    def after(request: Request, _: object) -> None:
        if isinstance(request, Create):
            server.edit(TRAINJOBS, NAME, change)

    server.after = after


def trainjobs(server: ApiServer) -> list[JsonObject]:
    """Return all TrainJobs, of any namespace."""
    return [copy.deepcopy(body) for key, body in server.state.objects.items() if key.resource == TRAINJOBS]
