"""The place that is measured: etcd and an API server alone, filled with many copies of one recorded job.

Copies are written into etcd, not through the API server: 10,000 jobs and 50,000 pods take seconds, and the API server
serves them as if they had been created one by one.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlsplit

from bench.record import RECORDED
from bench.wire import Server, Wire
from dispatch_gates.cluster.connection import path_of
from dispatch_gates.contract import names
from dispatch_gates.contract.names import Resource
from dispatch_local.cluster import Cluster

# A ULID of which the last six characters count the copies.
PREFIX: Final = "dj-01jdqm3zk0tb6q8e8m2a"
INDEX: Final = re.compile(PREFIX.encode() + rb"(\d{6})-s1")
VERSION: Final = re.compile(rb'"resourceVersion":"(\d+)"')
_PLACEHOLDER: Final = "987654321987654321"
_KINDS: Final = {
    "Workload": names.WORKLOADS,
    "TrainJob": names.TRAINJOBS,
    "JobSet": names.JOBSETS,
    "Job": names.JOBS,
    "Pod": names.PODS,
}


def job_name(index: int) -> str:
    """Name of a copy's TrainJob."""
    return f"{PREFIX}{index:06d}-s1"


class Copies:
    """Copies of the recorded job in one namespace, as JSON; each differs by name and UIDs."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._recorded: dict[str, Any] = json.loads(RECORDED.read_text())
        self._name = str(self._recorded["TrainJob"]["metadata"]["name"])
        self._was = str(self._recorded["TrainJob"]["metadata"]["namespace"])
        text = json.dumps(self._recorded)
        self._uids = sorted({body["metadata"]["uid"] for body in self._recorded.values()} & set(_uids(text)))
        annotations = self._recorded["Job"]["spec"]["template"]["metadata"]["annotations"]
        self.count = int(annotations[names.ADMISSION_COUNT])

    def name(self, kind: str, index: int) -> str:
        """Name of a copy's object."""
        return str(self._recorded[kind]["metadata"]["name"]).replace(self._name, job_name(index))

    def path(self, kind: str, index: int, sub: str = "") -> str:
        """Path of a copy's object."""
        return path_of(_KINDS[kind], self.namespace, self.name(kind, index), sub)

    def listing(self, kind: str, selector: str) -> str:
        """Path of a list of this kind."""
        return path_of(_KINDS[kind], self.namespace, labelSelector=selector, limit="500")

    def stored(self, kind: str, index: int, *, reserved: bool = True) -> bytes:
        """Return what etcd holds of an object: without a version, which is etcd's."""
        body = self._reserved if kind == "Workload" and reserved else self._plain[kind]
        return self._copy(body, index).encode()

    def write(self, kind: str, index: int, version: bytes | int, *, state: str = "Pending", count: int = 0) -> bytes:
        """Return a ready-made body: a Workload with quota and our check in `state`, or one that carries `count`."""
        text = self._states[state] if kind == "Workload" else self._counted(kind, count)
        number = version.decode() if isinstance(version, bytes) else str(version)
        return self._copy(text, index).replace(_PLACEHOLDER, number).encode()

    def _copy(self, text: str, index: int) -> str:
        text = text.replace(self._name, job_name(index)).replace(f'"{self._was}"', f'"{self.namespace}"')
        for uid in self._uids:
            text = text.replace(uid, f"{uid[:24]}{index:012x}")
        return text

    @cached_property
    def _plain(self) -> dict[str, str]:
        bodies = {kind: _versioned(body, None) for kind, body in self._recorded.items()}
        workload = json.loads(bodies["Workload"])
        del workload["status"]["admission"]
        for condition in workload["status"]["conditions"]:
            if condition["type"] == "QuotaReserved":
                condition["status"] = "False"
        return bodies | {"Workload": json.dumps(workload)}

    @cached_property
    def _reserved(self) -> str:
        return _versioned(self._recorded["Workload"], None)

    @cached_property
    def _states(self) -> dict[str, str]:
        found = {}
        for state in ("Pending", "Ready"):
            workload = json.loads(_versioned(self._recorded["Workload"], _PLACEHOLDER))
            for check in workload["status"]["admissionChecks"]:
                check.update(state=state, message="A=2; the previous execution is over")
            found[state] = json.dumps(workload)
        return found

    def _counted(self, kind: str, count: int) -> str:
        found = self._counts.get((kind, count))
        if found is None:
            text = _versioned(self._recorded[kind], _PLACEHOLDER)
            key = json.dumps(names.ADMISSION_COUNT)
            found = self._counts[kind, count] = re.sub(rf'{re.escape(key)}: "\d+"', f'{key}: "{count}"', text)
        return found

    @cached_property
    def _counts(self) -> dict[tuple[str, int], str]:
        return {}


def _uids(text: str) -> list[str]:
    return re.findall(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", text)


def _versioned(body: Any, version: str | None) -> str:
    copied = json.loads(json.dumps(body))
    del copied["metadata"]["resourceVersion"]
    if version is not None:
        copied["metadata"]["resourceVersion"] = version
    return json.dumps(copied)


@dataclass(frozen=True)
class Filled:
    """A namespace that was filled: its copies, and the version of each job's objects."""

    copies: Copies
    versions: tuple[int, ...]


class Site:
    """A bare cluster, up."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.server = Server.of(cluster.kubeconfig)
        self.wire = Wire(self.server)
        self._etcd = urlsplit(cluster.etcd)
        self._own = threading.local()
        self._rounds = 0

    def prepare(self) -> None:
        """Create our AdmissionCheck, Active as Kueue would need it."""
        check = {
            "apiVersion": names.ADMISSION_CHECKS.api_version,
            "kind": "AdmissionCheck",
            "metadata": {"name": names.ADMISSION_CHECK},
            "spec": {"controllerName": names.CONTROLLER_NAME},
        }
        self.wire.json("POST", path_of(names.ADMISSION_CHECKS, ""), check)
        self.namespace(names.CONTROLLER_NAMESPACE)

    def namespace(self, name: str) -> None:
        """Create a namespace."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.wire.json("POST", path_of(names.NAMESPACES, ""), body)

    def fill(
        self,
        jobs: int,
        *,
        reserved: bool,
        other_pods: int = 0,
        own_pods: bool = False,
        progress: Callable[[int], object] = lambda _: None,
    ) -> Filled:
        """Fill a namespace of its own with jobs, with pods of theirs that run, and with pods of others."""
        self._rounds += 1
        copies = Copies(f"bench-{self._rounds}")
        self.namespace(copies.namespace)
        kinds = ("TrainJob", "JobSet", "Job", "Workload", *(("Pod",) if own_pods else ()))

        def put(index: int) -> int:
            found = self._put(
                (self._key(copies, kind, index), copies.stored(kind, index, reserved=reserved)) for kind in kinds
            )
            progress(1)
            return found

        def others(begin: int) -> int:
            found = self._put(
                (self._key(copies, "Pod", index), copies.stored("Pod", index))
                for index in range(begin, min(begin + 50, 500_000 + other_pods))
            )
            progress(50)
            return found

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(others, range(500_000, 500_000 + other_pods, 50)))
            versions = tuple(pool.map(put, range(jobs)))
        # A consistent list is answered once the API server has seen all of it.
        for kind in kinds:
            self.wire.get(path_of(_KINDS[kind], copies.namespace, limit="1"))
        return Filled(copies, versions)

    def empty(self, filled: Filled) -> None:
        """Remove what a namespace was filled with."""
        for resource in _KINDS.values():
            prefix = _prefix(resource, filled.copies.namespace)
            self._ask("deleterange", {"key": _b64(prefix), "range_end": _b64(prefix[:-1] + "0")})

    def _key(self, copies: Copies, kind: str, index: int) -> str:
        return _prefix(_KINDS[kind], copies.namespace) + copies.name(kind, index)

    def _put(self, pairs: Iterable[tuple[str, bytes]]) -> int:
        operations = [
            {"request_put": {"key": _b64(key), "value": base64.b64encode(value).decode()}} for key, value in pairs
        ]
        return int(self._ask("txn", {"success": operations})["header"]["revision"])

    def _ask(self, what: str, body: Any) -> Any:
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = http.client.HTTPConnection(str(self._etcd.hostname), self._etcd.port or 2379, timeout=600)
            self._own.connection = connection
        connection.request("POST", f"/v3/kv/{what}", json.dumps(body))
        reply = connection.getresponse()
        content = reply.read()
        assert reply.status == 200, f"etcd: {what}: {reply.status} {content[:300]!r}"
        return json.loads(content)

    def processor_seconds(self) -> dict[str, float]:
        """Return what API server and etcd have used of the processors, by their own account."""
        found = {"API server": self.wire.get("/metrics")}
        connection = http.client.HTTPConnection(str(self._etcd.hostname), 2381, timeout=600)
        connection.request("GET", "/metrics")
        found["etcd"] = connection.getresponse().read()
        pattern = re.compile(rb"^process_cpu_seconds_total ([0-9.e+]+)$", re.MULTILINE)
        return {name: float(pattern.findall(content)[0]) for name, content in found.items()}


def _prefix(resource: Resource, namespace: str) -> str:
    """Return the beginning of the keys under which the API server keeps a kind; built-in groups have no group in it."""
    group = f"{resource.group}/" if "." in resource.group else ""
    return f"/registry/{group}{resource.plural}/{namespace}/"


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
