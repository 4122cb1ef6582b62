"""The model API server with Kueue, Trainer and a controller that play the part a probe meets; time passes by itself."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from dispatch_gates.contract import names
from dispatch_gates.contract.capability import Answer, Capability, Name
from dispatch_gates.contract.guard_rails import POLICIES, TRAINJOBS_POLICY, Level
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.names import Resource
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.operations.preflight import Asked, Probe, Report, Stands, preflight
from dispatch_gates.requests import Changes, Create, DeniedError, NotServedError, Pause, Request, Watch
from model import objects
from model.apiserver import ApiServer

PROBE = Identity("01JDQM3ZK0TB6Q8E8M2A9V4C5E", 0)
KUEUE = Asked("team", "training", runtime=("ClusterTrainingRuntime", objects.RUNTIME))
PLAIN = Asked("team", None, runtime=KUEUE.runtime)
RENEWALS = 3.0
ALL_VERBS = ["get", "list", "watch", "create", "update", "delete"]
ALL_RULES = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]


def lease(**spec: Any) -> JsonObject:
    """The controller's Lease."""
    said = {"holderIdentity": "a", "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15, **spec}
    return {
        "apiVersion": names.LEASES.api_version,
        "kind": "Lease",
        "metadata": {"name": names.CONTROLLER, "namespace": names.CONTROLLER_NAMESPACE, "uid": "uid-lease"},
        "spec": said,
    }


def local_queue(**spec: Any) -> JsonObject:
    """The LocalQueue."""
    return {
        "kind": "LocalQueue",
        "metadata": {"name": "training", "namespace": "team", "uid": "uid-lq"},
        "spec": {"clusterQueue": "dispatch", **spec},
    }


def cluster_queue(*, active: bool | None = True, status: Any = None, **spec: Any) -> JsonObject:
    """The ClusterQueue, wired as infra/ does."""
    whole = {
        "resourceGroups": [{"coveredResources": ["cpu", "pods"], "flavors": [{"name": "a"}, {"name": "b"}]}],
        "admissionChecksStrategy": {"admissionChecks": [{"name": names.ADMISSION_CHECK}]},
        "stopPolicy": "None",
        **spec,
    }
    said = status if status is not None else {"conditions": [objects.condition("Active", bool(active))]}
    return {
        "kind": "ClusterQueue",
        "metadata": {"name": "dispatch", "uid": "uid-cq"},
        "spec": whole,
        "status": said if active is not None else {},
    }


def active_check(**more: Any) -> JsonObject:
    """Our AdmissionCheck, Active."""
    return objects.admission_check(conditions=[objects.condition("Active", True)], **more)


def sound_runtime(**jobset: Any) -> JsonObject:
    """A runtime without any hazard; `jobset` is added to its JobSet's spec."""
    found = objects.runtime("node")
    template = {"spec": {"backoffLimit": 0, "podReplacementPolicy": "Failed"}}
    found["spec"]["template"]["spec"] = {
        "replicatedJobs": [{"name": "node", "replicas": 1, "template": template}],
        **jobset,
    }
    return found


def crd(resource: Resource, versions: dict[str, JsonObject]) -> JsonObject:
    """A CustomResourceDefinition; by version, the fields of its spec."""
    served = [
        {"name": name, "served": True, "schema": {"openAPIV3Schema": {"properties": {"spec": {"properties": spec}}}}}
        for name, spec in versions.items()
    ]
    return {
        "kind": "CustomResourceDefinition",
        "metadata": {"name": str(resource), "uid": f"uid-{resource}"},
        "spec": {"versions": served},
    }


class Stage(ApiServer):
    """A cluster in which all is well, until a test changes that."""

    def __init__(self) -> None:
        super().__init__(sound_runtime(), local_queue(), cluster_queue(), active_check(), lease())
        self.put(crd(names.TRAINJOBS, {"v1alpha1": {"runtimePatches": {}}}))
        self.put(crd(names.WORKLOADS, {"v1beta1": {}, "v1beta2": {}}))
        self.now = 0.0
        self.rules: list[JsonObject] = ALL_RULES
        self.allowed: Callable[[JsonObject], bool] = lambda _: False
        self.absent: Collection[Resource] = ()
        self.kueue: Callable[[Stage, JsonObject], None] = manage
        self.trainer: Callable[[Stage, JsonObject], None] = suspend
        self.guarded = False
        self.webhook: Callable[[JsonObject], object] = lambda _: None
        self.at: dict[float, Callable[[], None]] = {}
        self.renews = True
        self.told: list[Capability | Probe] = []
        self.sent: list[Request] = []
        self.idle = self._wait
        self._renewed = self._until = 0.0

    def clock(self) -> float:
        """The time of the model."""
        return self.now

    def send(self, request: Request) -> Any:
        """Answer reviews; time passes with each request, and while a watch waits."""
        self._pass(0.01)
        self.sent.append(request)
        resource = getattr(request, "resource", None)
        if resource in self.absent:
            self.before(request)
            raise NotServedError("the server could not find the requested resource", status=404)
        if isinstance(request, Create) and resource in (names.RULES_REVIEWS, names.ACCESS_REVIEWS):
            return self._review(request)
        if isinstance(request, Pause):
            self._pass(request.seconds)
        if isinstance(request, Watch):
            self._until = self.now + request.seconds
            return self._settled(request) if request.settle else super().send(request)
        if isinstance(request, Create) and request.dry_run and self.guarded:
            raise DeniedError(f"ValidatingAdmissionPolicy '{TRAINJOBS_POLICY}' denied request", status=403)
        if isinstance(request, Create):
            self.webhook(body := copy.deepcopy(request.body))
            request = replace(request, body=body)
        reply = super().send(request)
        if isinstance(request, Create) and not request.dry_run:
            self.trainer(self, reply)
            if names.QUEUE_NAME in reply["metadata"]["labels"] and names.WORKLOADS not in self.absent:
                self.kueue(self, reply)
        return reply

    def _wait(self, _: Watch) -> bool:
        left = self._until - self.now
        self._pass(max(min(left, 0.1), 0.0))
        return left > 0

    def _review(self, request: Create) -> JsonObject:
        self.before(request)
        asked = request.body["spec"]
        if request.resource is names.RULES_REVIEWS:
            found: JsonObject = {"status": {"resourceRules": self.rules}}
        else:
            found = {"status": {"allowed": self.allowed(asked["resourceAttributes"])}}
        self.after(request, found)
        return copy.deepcopy(found)

    def _settled(self, request: Watch) -> Changes:
        """Answer a watch with all changes that come together."""
        events: list[tuple[JsonObject, bool]] = []
        while (changes := super().send(_since(request, events))).events:
            events += changes.events
            self._until = min(self._until, self.now + request.settle)
        return Changes(tuple(events), 0.0 if not events else 1.0)

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        if self.renews and self.now - self._renewed > RENEWALS and self.has(names.LEASES, names.CONTROLLER, _HOME):
            self._renewed = self.now
            said = f"2026-01-01T00:00:{self.now:09.6f}Z"
            self.edit(names.LEASES, names.CONTROLLER, lambda body: body["spec"].update(renewTime=said), _HOME)
        for moment in sorted(moment for moment in self.at if moment <= self.now):
            self.at.pop(moment)()

    # What a test does

    def preflight(self, asked: Asked = KUEUE) -> Report:
        """Run preflight to its end."""
        return self.run(preflight(asked, PROBE, clock=self.clock, tell=self.told.append))

    @property
    def probe_is_there(self) -> bool:
        """Whether the probe still exists."""
        return self.has(names.TRAINJOBS, PROBE.name)

    @property
    def last_news(self) -> Stands | None:
        """Where the probe stands, as last told."""
        news = [told for told in self.told if isinstance(told, Probe)]
        return news[-1].stands if news else None


_HOME = names.CONTROLLER_NAMESPACE


def _since(request: Watch, events: list[tuple[JsonObject, bool]]) -> Watch:
    return replace(request, resource_version=events[-1][0]["metadata"]["resourceVersion"]) if events else request


def line(report: Report, name: Name) -> Capability:
    """Return one capability of a report."""
    return next(capability for capability in report.capabilities if capability.name is name)


def answers(report: Report) -> dict[Name, Answer]:
    """Return all answers of a report."""
    return {capability.name: capability.answer for capability in report.capabilities}


def workload_of(job: JsonObject, *, gates: str | None = names.GATE, **more: Any) -> JsonObject:
    """The Workload that Kueue makes for a TrainJob."""
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    return objects.workload(
        name=f"trainjob-{name}",
        uid=f"uid-of-{name}",
        job_uid=uid,
        gates=gates,
        owned_by=objects.owner("TrainJob", name, uid),
        **more,
    )


def said(workload: JsonObject, reason: str, message: str = "said Kueue") -> JsonObject:
    """Have the Workload's QuotaReserved say False for a reason."""
    workload["status"]["conditions"] = [objects.condition("QuotaReserved", False, reason=reason, message=message)]
    return workload


def manage(stage: Stage, job: JsonObject) -> None:
    """Play Kueue: a Workload, first without status, then gated."""
    stage.put(workload_of(job, status={}, checks=()))
    stage.put(said(workload_of(job, status={}), names.ADMISSION_GATED))


def suspend(stage: Stage, job: JsonObject) -> None:
    """Play Trainer: it has seen that the job is suspended."""

    def seen(body: JsonObject) -> None:
        body["status"] = {"conditions": [objects.condition("Suspended", True)]}

    stage.edit(names.TRAINJOBS, job["metadata"]["name"], seen)


def guard(stage: Stage, level: Level) -> None:
    """Install guard rails of a level."""
    order = [Level.ADMISSIONS, Level.EXECUTIONS]
    installed = order if level is Level.AUDIT else order[: order.index(level) + 1] if level in order else []
    actions = ["Warn", "Audit"] if level is Level.AUDIT else ["Deny"]
    for name in (name for found in installed for name in POLICIES[found]):
        metadata = {"name": name, "uid": f"uid-{name}", "labels": {names.GUARD_RAILS: "a-level"}}
        stage.put({"kind": names.POLICIES.kind, "metadata": metadata})
        binding = {"policyName": name, "validationActions": actions}
        stage.put({"kind": names.POLICY_BINDINGS.kind, "metadata": metadata, "spec": binding})
    stage.guarded = bool(installed) and level is not Level.AUDIT


def pod_appears(stage: Stage, *, gone: bool) -> None:
    """Have a pod of the probe appear, and perhaps vanish at once."""
    body = objects.pod("Pending", name=f"{PROBE.name}-node-0-0-aaaaa", of=PROBE.name, node=None)
    stage.put(body)
    if gone:
        stage.remove(names.PODS, body["metadata"]["name"])
