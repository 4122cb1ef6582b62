"""A namespace of a real cluster with queues that are right and wrong, and preflights of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dispatch_gates.cluster import Target
from dispatch_gates.cluster.preflight import run_preflight
from dispatch_gates.contract import names
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.operations.preflight import Asked, Report
from dispatch_infra.rights import adapter_cluster_rules, adapter_rules
from dispatch_local.cluster import Cluster
from start_gate.site import Site
from world import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    WAIT_SECONDS,
    Deployment,
    let_adapter_read_leases,
    token_of,
    until,
    write_kubeconfig,
)

LEASE = "preflight"
KWOK = ("TrainingRuntime", "kwok")


@dataclass
class Place(Site):
    """A `Site` that makes more queues, and runs preflight in them, in this process or as people do."""

    def asks(self, queue: str | None = "queue", **more: Any) -> Asked:
        """Return what preflight is asked about a queue."""
        return Asked(self.namespace, queue, **{"runtime": KWOK, "lease": LEASE, **more})

    def preflight(self, asked: Asked, target: Target | None = None, **more: Any) -> Report:
        """Run preflight; it has to leave no probe behind."""
        report = run_preflight(target or self.target, asked, **more)
        assert report.left_behind == ""
        return report

    def add_queue(self, name: str, *, local: JsonObject | None = None, **spec: Any) -> str:
        """Create a LocalQueue `name` and a ClusterQueue of its own, whose spec is as given where it is.

        What is None is left out.
        """
        cluster_queue = f"{self.namespace}-{name}"
        whole = {key: value for key, value in {**self.wired(), **spec}.items() if value is not None}
        self.create(names.CLUSTER_QUEUES, cluster_queue, cluster_scoped=True, spec=whole)
        self.create(names.LOCAL_QUEUES, name, spec={"clusterQueue": cluster_queue, **(local or {})})
        return name

    def wired(self, pods: int = 10) -> JsonObject:
        """Return the spec of a ClusterQueue as it should be."""
        quotas = [{"name": "cpu", "nominalQuota": "100"}, {"name": "pods", "nominalQuota": str(pods)}]
        flavors = [{"name": self.namespace, "resources": quotas}]
        return {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
            "resourceGroups": [{"coveredResources": ["cpu", "pods"], "flavors": flavors}],
            "admissionChecksStrategy": {"admissionChecks": [{"name": names.ADMISSION_CHECK}]},
        }

    def active(self, name: str) -> None:
        """Wait until a queue is active."""

        def seen() -> bool:
            raw = self.get(names.CLUSTER_QUEUES, f"{self.namespace}-{name}", cluster_scoped=True) or {}
            found = (raw.get("status") or {}).get("conditions") or []
            return any((each["type"], each["status"]) == ("Active", "True") for each in found)

        until(f"queue {name} to be active", seen)

    def probes(self) -> list[JsonObject]:
        """Return the probes that are there."""
        jobs = self.list(names.TRAINJOBS)
        return [job for job in jobs if (found := Identity.parse(job["metadata"]["name"])) and found.submission == 0]

    def remove_probe(self, name: str) -> None:
        """Delete a probe."""
        self.delete(names.TRAINJOBS, name)

    def account(self, name: str, folder: Path, *, without: tuple[str, str] | None = None, bare: bool = False) -> Target:
        """Return the cluster as a ServiceAccount sees it that has the adapter's rights, all but one, or none at all."""
        namespaced = [] if bare else [_less(rule, without) for rule in adapter_rules()]
        everywhere = [] if bare else [_less(rule, without) for rule in adapter_cluster_rules()]
        account = f"{self.namespace}-{name}"
        subject = {"kind": "ServiceAccount", "name": name, "namespace": self.namespace}
        self.create(SERVICE_ACCOUNTS, name)
        for kind, scope, rules in (("ClusterRole", True, everywhere), ("Role", False, namespaced)):
            roles, bindings = (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS) if scope else (ROLES, ROLE_BINDINGS)
            called = account if scope else name
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": called}
            self.create(roles, called, cluster_scoped=scope, rules=rules)
            self.create(bindings, called, cluster_scoped=scope, roleRef=role, subjects=[subject])
        path = write_kubeconfig(folder / name, self, token_of(self, name))
        return Target(str(path), "tests")


def _less(rule: JsonObject, without: tuple[str, str] | None) -> JsonObject:
    if without is None or without[1] not in rule["resources"]:
        # The Lease of these tests has a name of its own.
        return {**rule, "resourceNames": [LEASE]} if "leases" in rule["resources"] else rule
    return {**rule, "verbs": [verb for verb in rule["verbs"] if verb != without[0]]}


class Command:
    """`dispatch-gates` as a process of its own, as a person starts it."""

    def __init__(self, target: Target, *words: str, **environment: str) -> None:
        where = [] if words[0] in ("completion", "--help") else _cluster(target)
        self.process = subprocess.Popen(
            [str(Path(sys.executable).parent / "dispatch-gates"), *words, *where],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
            text=True,
        )

    def ended(self, seconds: float = WAIT_SECONDS) -> tuple[int, str, str]:
        """Wait for its end; return its exit code, what it wrote, and what it wrote as errors."""
        out, err = self.process.communicate(timeout=seconds)
        assert "Traceback" not in err, err
        return self.process.returncode, out, err

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)


def _cluster(target: Target) -> list[str]:
    found = []
    for option, value in (("--kubeconfig", target.kubeconfig), ("--context", target.context)):
        found += [option, value] if value else []
    return found


def asked_of(asked: Asked) -> list[str]:
    """Return the words of a command line that ask the same."""
    words = ["preflight", "-n", asked.namespace, "--lease", asked.lease, "--check", asked.check]
    words += ["-q", asked.queue] if asked.queue else []
    words += ["-r", "/".join(asked.runtime)] if asked.runtime else []
    return [*words, "--watch-seconds", str(asked.watch_seconds)]


def document(output: str) -> Any:
    """Read a JSON document."""
    return json.loads(output)


@contextmanager
def served(cluster: Cluster, folder: Path) -> Iterator[Place]:
    """Make a place with a queue and a controller at work; at the end nothing serves the check any more.

    The guard rails do not hold there: they refuse before anything is stored what preflight has to notice.
    """
    place = Place(cluster, guarded=False)
    place.make()
    let_adapter_read_leases(place)
    with Deployment(place, folder, LEASE):
        yield place
    assert place.probes() == []
    place.discard()
