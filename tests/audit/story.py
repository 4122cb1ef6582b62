"""Hand-written audit logs: each call is one write, one version later than the last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dispatch_gates.audit import Timeline, read

# Spelled out, not imported: what the vocabulary says wrong must not go unseen here.
GATED_BY, GATE = "kueue.x-k8s.io/admission-gated-by", "dispatch.phpboyscout.uk/gate"
MANAGER, COUNT = "dispatch.phpboyscout.uk/adapter", "dispatch.phpboyscout.uk/admission-count"
JOBSET = "jobset.sigs.k8s.io/jobset-name"
GROUPS = {"trainjobs": "trainer.kubeflow.org", "workloads": "kueue.x-k8s.io", "jobs": "batch", "pods": ""}
NAME = "dj-01jdqm3zk0tb6q8e8m2a9v4c5d-s1"
KEY = f"team/{NAME}"
OTHER = "kueue.x-k8s.io/other"


class Log:
    """Writes audit lines."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.version = 100
        self.generation = 0

    def write(self, verb: str, resource: str, body: dict[str, Any], **event: Any) -> None:
        self.version += 1
        body = json.loads(json.dumps(body))
        body["metadata"]["resourceVersion"] = str(self.version)
        self.events.append(
            {
                "level": "RequestResponse",
                "auditID": f"audit-{len(self.events)}",
                "stage": "ResponseComplete",
                "verb": verb,
                "requestURI": f"/apis/x/{resource}",
                "user": {"username": "someone"},
                "objectRef": {
                    "resource": resource,
                    "namespace": "team",
                    "name": body["metadata"]["name"],
                    **({"apiGroup": GROUPS[resource]} if GROUPS[resource] else {}),
                },
                "responseStatus": {"code": 200},
                "stageTimestamp": f"2026-01-01T00:00:{self.version % 60:02d}.000000Z",
                "responseObject": body,
                **event,
            }
        )

    def job(self, verb: str = "update", a: int | None = 0, gate: str | None = None, suspend: bool = True) -> None:
        patch = {"metadata": {"annotations": {COUNT: str(a)} if a is not None else {}}}
        replicated = [{"name": "node", "template": {"spec": {"template": patch}}}]
        runtime = {"template": {"spec": {"replicatedJobs": replicated}}}
        annotations = {GATED_BY: gate} if gate else {}
        self.generation = 1 if verb == "create" else self.generation + 1
        self.write(
            verb,
            "trainjobs",
            {
                "metadata": {
                    "name": NAME,
                    "namespace": "team",
                    "uid": "job",
                    "generation": self.generation,
                    "labels": {"kueue.x-k8s.io/queue-name": "queue"},
                    "annotations": annotations,
                },
                "spec": {
                    "suspend": suspend,
                    "runtimePatches": [{"manager": MANAGER, "trainingRuntimeSpec": runtime}],
                },
            },
        )

    def workload(self, *true: str, check: str = "Pending", active: bool = True, **meta: Any) -> None:
        owner = {"kind": "TrainJob", "name": NAME, "uid": "job", "controller": True}
        status = {
            "conditions": [{"type": each, "status": "True"} for each in true],
            "admissionChecks": [{"name": "dispatch", "state": check}],
        }
        about = {"name": "w", "namespace": "team", "uid": "w", "ownerReferences": [owner], **meta}
        self.write("patch", "workloads", {"metadata": about, "spec": {"active": active}, "status": status})

    def batch(self, verb: str, a: int, suspend: bool, *true: str, uid: str = "b1") -> None:
        """Write a batch Job of the JobSet."""
        self.write(
            verb,
            "jobs",
            {
                "metadata": {"name": f"{NAME}-node-0", "namespace": "team", "uid": uid, "labels": {JOBSET: NAME}},
                "spec": {"suspend": suspend, "template": {"metadata": {"annotations": {COUNT: str(a)}}}},
                "status": {"conditions": [{"type": each, "status": "True"} for each in true]},
            },
        )

    def pod(self, verb: str, name: str, a: int, phase: str = "Pending", live: bool = False, **meta: Any) -> None:
        about = {
            "name": name,
            "namespace": "team",
            "uid": name,
            "labels": {JOBSET: NAME},
            "annotations": {COUNT: str(a)},
            **meta,
        }
        state: dict[str, Any] = {"running": {}} if live else {"terminated": {}}
        self.write(
            verb,
            "pods",
            {"metadata": about, "status": {"phase": phase, "containerStatuses": [{"state": state}]}},
        )

    def started(self) -> None:
        self.job("create", gate=GATE)

    def opened(self) -> None:
        self.started()
        self.job()

    def first_execution(self) -> None:
        self.opened()
        self.workload("QuotaReserved")
        self.job(a=1)
        self.workload("QuotaReserved", check="Ready")
        self.workload("QuotaReserved", "Admitted", check="Ready")
        self.job(a=1, suspend=False)
        self.pod("create", "p1", 1)
        self.pod("patch", "p1", 1, "Running", live=True)

    def evicted(self) -> None:
        self.first_execution()
        self.workload("QuotaReserved", "Admitted", "Evicted")
        self.job(a=1, suspend=True)
        self.workload("Evicted")

    def old_pod_ends(self) -> None:
        self.pod("patch", "p1", 1, "Failed")
        self.pod("delete", "p1", 1, "Failed")

    def bodiless(self, resource: str, name: str, verb: str = "delete") -> None:
        """A write whose answer carries no object: of a deletion, most kinds answer with a Status."""
        self.write(verb, resource, {"metadata": {"name": name}})
        self.events[-1]["responseObject"] = {"kind": "Status", "metadata": {}, "status": "Success"}

    def collected(self, resource: str, name: str, uid: str, **meta: Any) -> None:
        """What the garbage collector writes: answered with metadata alone."""
        stamps = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}
        about = {"name": name, "namespace": "team", "uid": uid, **stamps, **meta}
        self.write("patch", resource, {"kind": "PartialObjectMetadata", "metadata": about})

    def lines(self) -> str:
        return "".join(json.dumps(event) + "\n" for event in self.events)

    def read(self, folder: Path) -> Timeline:
        path = folder / "audit.log"
        path.write_text(self.lines())
        return read([path])


def good(log: Log) -> None:
    log.evicted()
    log.workload("QuotaReserved")
    log.old_pod_ends()
    log.job(a=2)
    log.workload("QuotaReserved", check="Ready")
    log.workload("QuotaReserved", "Admitted", check="Ready")
    log.job(a=2, suspend=False)
    log.pod("create", "p2", 2)
