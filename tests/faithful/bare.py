"""A cluster that is an API server and nothing else: no controller and no webhook changes what a sequence stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from dispatch_gates.cluster import Target, run
from dispatch_gates.contract.names import CRDS, Resource
from dispatch_gates.contract.objects import entries
from dispatch_gates.requests import Create, ExpiredError, NotServedError, Operation, Pause, Watch, find, write
from dispatch_local import manifests
from dispatch_local.cluster import Cluster
from dispatch_local.parts import MANAGERS

_KINDS: Final = {"TrainJob", "Workload", "AdmissionCheck", "JobSet"}
_OTHERS: Final = ("kube-controller-manager", "kube-scheduler")
_TRIES: Final = 600


@contextmanager
def bare_cluster(name: str) -> Iterator[Target]:
    """Bring up etcd and the API server, with the released CRDs of the kinds that are asked about."""
    cluster = Cluster(name)
    try:
        cluster.up(node=False, kwok_nodes=0, without=set(MANAGERS))
        for part in _OTHERS:
            cluster.pause(part)
        target = Target(str(cluster.kubeconfig), cluster.context)
        run(target, _install())
        yield target
    finally:
        cluster.down()


def _install() -> Operation[None]:
    """Create the CRDs and wait until the API server serves them. Objects of the stored version need no conversion."""
    found = [crd for release in manifests.RELEASES for crd in manifests.crds(release, "")]
    wanted = [crd for crd in found if crd["spec"]["names"]["kind"] in _KINDS]
    assert len(wanted) == len(_KINDS), [crd["metadata"]["name"] for crd in wanted]
    for crd in wanted:
        crd["spec"].pop("conversion", None)
        yield from write(Create(CRDS, crd))
    for crd in wanted:
        yield from _served(crd["metadata"]["name"])


def _served(name: str) -> Operation[None]:
    """Wait until a kind is served as it stays: what is kept for its watches begins after the last change of its CRD.

    Each change of a CRD has the API server begin anew with what it keeps, and a watch of a sequence that is under way
    would then find that its version is too old.
    """
    for _ in range(_TRIES):
        raw = yield from find(CRDS, "", name)
        conditions = entries(raw or {}, "status", "conditions")
        if raw and any(entry.get("type") == "Established" and entry.get("status") == "True" for entry in conditions):
            (version,) = [found["name"] for found in raw["spec"]["versions"] if found["storage"]]
            kind = Resource(raw["spec"]["group"], version, raw["spec"]["names"]["plural"], raw["spec"]["names"]["kind"])
            before = str(int(raw["metadata"]["resourceVersion"]) - 1)
            try:
                yield Watch(kind, "", before, 0.1)
            except ExpiredError:
                return
            except NotServedError:
                pass
        yield Pause(0.1)
    raise AssertionError(f"{name} is not served")
