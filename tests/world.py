"""One namespace with a queue on a real cluster, for tests: what people and other controllers would do there.

Requests go through the product's own driver; what a test expects is read from the API server or the audit log.
"""

from __future__ import annotations

import copy
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import yaml
from ulid import ULID

from dispatch_gates.audit import Timeline, read
from dispatch_gates.cluster import Target, run
from dispatch_gates.contract import names
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.manifest import JobSpec
from dispatch_gates.contract.names import Resource
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.contract.trainjob import TrainJob, parse_trainjob
from dispatch_gates.operations.holding import hold, release
from dispatch_gates.operations.opening import open_job
from dispatch_gates.operations.start import start
from dispatch_gates.operations.stop import stop
from dispatch_gates.requests import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    Create,
    Delete,
    DeniedError,
    InvalidError,
    Operation,
    Replace,
    ReplaceStatus,
    Request,
    find,
    select,
    write,
)
from dispatch_infra.guard_rails_manifests import adapter_roles
from dispatch_infra.rights import cluster_rules, namespace_rules
from dispatch_local.cluster import Cluster
from dispatch_local.layout import HOLD_ANNOTATION

T = TypeVar("T")

WAIT_SECONDS = 300.0
"""How long a condition may take; usually a second or two."""
LEASE_SECONDS = 3.0
KEEPER_SECONDS = 0.5
"""How often a `Deployment` looks whether its process has ended."""
FLAVORS = Resource("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor")
PRIORITIES = Resource("kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass")
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole")
CLUSTER_ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
POLICIES = Resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy")
POLICY_BINDINGS = Resource(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"
)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
ADAPTER, ADAPTER_HOME = "adapter", "dispatch-tests"
"""The adapter's account, and its namespace, in which nobody else is."""
ADAPTER_ACCOUNT = f"system:serviceaccount:{ADAPTER_HOME}:{ADAPTER}"
_accounts = threading.Lock()
_known: set[Path] = set()
"""The kubeconfigs that this process has written: their tokens are fresh."""


def until(what: str, condition: Callable[[], T | None], seconds: float = WAIT_SECONDS, *, pause: float = 0.05) -> T:
    """Wait until `condition` returns something true, and return it; fail with what was waited for.

    It is asked every `pause` seconds at first.
    """
    end, longest = time.monotonic() + seconds, max(pause, 0.3)
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"waited {seconds:g} s for {what}; last seen: {found!r}"
        time.sleep(pause)
        pause = min(pause * 1.2, longest)  # what takes longer is asked for less often


def count_of(pod: JsonObject) -> int:
    """Return the A that a pod was given; -1 where it has none."""
    return int((pod["metadata"].get("annotations") or {}).get(names.ADMISSION_COUNT, -1))


@dataclass
class World:
    """A namespace of its own, with a LocalQueue and a ClusterQueue in which `pods` pods of KWOK's run at a time."""

    cluster: Cluster
    namespace: str = field(default_factory=lambda: f"t-{secrets.token_hex(4)}")
    pods: int = 1
    checks: tuple[str, ...] = (names.ADMISSION_CHECK,)
    ours: str = names.ADMISSION_CHECK
    """The check that stands for dispatch's. One of another name is not served by any controller process."""
    guarded: bool = True
    """Whether the guard rails hold here. Where they do not, `ControllerProcess` is nobody they know."""
    _executions: dict[str, list[int]] = field(default_factory=dict)

    @property
    def target(self) -> Target:
        """The cluster, as its administrator."""
        return Target(str(self.cluster.kubeconfig), self.cluster.context)

    @cached_property
    def adapter(self) -> Target:
        """The cluster, as the adapter: an account that holds the roles that infra/ ships, in this namespace."""
        return adapter(self)

    @cached_property
    def controller(self) -> Target:
        """The cluster, as the controller's account."""
        with _accounts:
            path = self.cluster.kubeconfig.with_name(_controller_of(self))
            if path not in _known:
                _known.add(controller_kubeconfig(self, path))
        return Target(str(path), "tests")

    # Objects

    def get(self, resource: Resource, name: str, *, cluster_scoped: bool = False) -> JsonObject | None:
        """Read an object, None where there is none."""
        return run(self.target, find(resource, "" if cluster_scoped else self.namespace, name))

    def list(self, resource: Resource, selector: str = "") -> tuple[JsonObject, ...]:
        """Read the objects of the namespace."""
        return run(self.target, select(resource, self.namespace, selector)).items

    def create(self, resource: Resource, name: str, *, cluster_scoped: bool = False, **body: Any) -> JsonObject:
        """Create an object; `metadata` in `body` is kept."""
        metadata = {"name": name, **body.pop("metadata", {})}
        if not cluster_scoped:
            metadata["namespace"] = self.namespace
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **body}
        return run(self.target, write(Create(resource, whole)))

    def change(
        self,
        resource: Resource,
        name: str,
        edit: Callable[[JsonObject], None],
        *,
        status: bool = False,
        cluster_scoped: bool = False,
    ) -> JsonObject:
        """Edit an object, again and again where others write first."""
        while True:
            raw = self.get(resource, name, cluster_scoped=cluster_scoped)
            assert raw is not None, f"{resource} {name} is gone"
            body = copy.deepcopy(raw)
            edit(body)
            try:
                return run(self.target, write((ReplaceStatus if status else Replace)(resource, body)))
            except ConflictError:
                continue

    def delete(self, resource: Resource, name: str, *, cluster_scoped: bool = False) -> None:
        """Delete an object, again and again where others write first; do not wait until it is gone."""

        def delete() -> Operation[None]:
            raw = yield from find(resource, namespace, name)
            if raw is not None:
                yield Delete(resource, namespace, name, raw["metadata"]["uid"], raw["metadata"]["resourceVersion"])

        namespace = "" if cluster_scoped else self.namespace
        while True:
            try:
                return run(self.target, delete())
            except ConflictError:
                continue

    # Set-up

    def make(self) -> World:
        """Create what a namespace needs: flavor, queues, priorities, a runtime on KWOK's nodes, our check."""
        name = self.namespace
        self.make_namespace()
        self.create(FLAVORS, name, cluster_scoped=True, spec={})
        for check in self.checks:
            self.make_check(check)
        quotas = [{"name": "cpu", "nominalQuota": "100"}, {"name": "pods", "nominalQuota": str(self.pods)}]
        self.create(
            names.CLUSTER_QUEUES,
            name,
            cluster_scoped=True,
            spec={
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
                "resourceGroups": [
                    {"coveredResources": ["cpu", "pods"], "flavors": [{"name": name, "resources": quotas}]}
                ],
                "preemption": {"withinClusterQueue": "LowerPriority"},
                "admissionChecksStrategy": {"admissionChecks": [{"name": check} for check in self.checks]},
            },
        )
        self.create(names.LOCAL_QUEUES, "queue", spec={"clusterQueue": name})
        for priority, value in (("low", 1), ("high", 1000)):
            if self.get(PRIORITIES, priority, cluster_scoped=True) is None:
                self.create(PRIORITIES, priority, cluster_scoped=True, value=value)
        self.runtime("kwok", lambda _: None)
        return self

    def runtime(self, name: str, edit: Callable[[JsonObject], object]) -> None:
        """Create a runtime like the one of `World`, its JobSet's spec edited, and wait until Trainer knows it."""
        body = runtime()
        edit(body["spec"]["template"]["spec"])
        self.create(names.TRAINING_RUNTIMES, name, **body)
        # Trainer reads runtimes from a cache, which is late by seconds after the API server started again.
        until(f"Trainer to know the runtime {name}", lambda: self._known(name))

    def _known(self, runtime: str) -> bool:
        probe = {
            "apiVersion": names.TRAINJOBS.api_version,
            "kind": names.TRAINJOBS.kind,
            "metadata": {"name": "probe", "namespace": self.namespace},
            "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": runtime}},
        }
        try:
            run(self.target, write(Create(names.TRAINJOBS, probe, dry_run=True)))
        except DeniedError as error:
            if f"runtime '{runtime}' not found" not in str(error):
                raise
            return False
        return True

    def make_namespace(self) -> None:
        """Create the namespace alone."""
        labels = {names.GUARDED: "true"} if self.guarded else {}
        self.create(names.NAMESPACES, self.namespace, cluster_scoped=True, metadata={"labels": labels})

    @contextmanager
    def only(
        self, resource: Resource, expression: str, *, subresource: str = "", operation: str = "UPDATE"
    ) -> Iterator[None]:
        """Have the API server refuse writes in this namespace for which the CEL `expression` is not true.

        This holds up one write of one controller, whose other work and webhooks go on.
        """
        path = f"{resource.plural}/{subresource}" if subresource else resource.plural
        rules = [
            {"apiGroups": [resource.group], "apiVersions": ["*"], "operations": [operation], "resources": [path]},
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]},
        ]
        probes = 'object.kind == "ConfigMap" ? !object.metadata.name.startsWith("probe-") : '
        here = {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}
        spec = {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules, "namespaceSelector": here},
            "validations": [{"expression": probes + expression, "message": "held up by a test"}],
        }
        binding = {"policyName": self.namespace, "validationActions": ["Deny"]}
        self.create(POLICIES, self.namespace, cluster_scoped=True, spec=spec)
        self.create(POLICY_BINDINGS, self.namespace, cluster_scoped=True, spec=binding)
        try:
            until("the policy to be in force", self._refuses)
            yield
        finally:
            for kind in (POLICY_BINDINGS, POLICIES):
                self.delete(kind, self.namespace, cluster_scoped=True)

    def _refuses(self) -> bool:
        try:
            self.create(CONFIG_MAPS, f"probe-{secrets.token_hex(4)}")
        except InvalidError:
            return True
        return False

    def make_check(self, check: str) -> None:
        """Create an AdmissionCheck where there is none: dispatch's by its name, others served by tests, Active."""
        controller = names.CONTROLLER_NAME if check == names.ADMISSION_CHECK else "dispatch.local/tests"
        found = self.get(names.ADMISSION_CHECKS, check, cluster_scoped=True)
        if found is None:
            with suppress(AlreadyExistsError):  # by another test's thread
                self.create(names.ADMISSION_CHECKS, check, cluster_scoped=True, spec={"controllerName": controller})
        else:
            controller = found["spec"]["controllerName"]
        if controller != names.CONTROLLER_NAME:
            self.activate(check)

    def activate(self, check: str) -> None:
        """Play the controller of another check: set it Active."""
        condition = {
            "type": "Active",
            "status": "True",
            "reason": "Tests",
            "message": "played by a test",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        self.change(
            names.ADMISSION_CHECKS,
            check,
            lambda body: body.setdefault("status", {}).update(conditions=[condition]),
            status=True,
            cluster_scoped=True,
        )

    def discard(self) -> None:
        """Delete the namespace, what is in it, and its ClusterQueue and flavor; do not wait.

        Other tests then have nothing to do with it, and nothing of it keeps a check or flavor in use.
        """
        for pod in self.list(names.PODS):
            if HOLD_ANNOTATION in (pod["metadata"].get("annotations") or {}):
                self.let_go(pod)
        self.delete(names.NAMESPACES, self.namespace, cluster_scoped=True)
        for kind in (names.CLUSTER_QUEUES, FLAVORS):
            self.delete(kind, self.namespace, cluster_scoped=True)

    # Jobs

    def spec(
        self, identity: Identity | None = None, *, priority: str = "low", runtime: str = "kwok", **trainer: Any
    ) -> JobSpec:
        """Return a request for a job of one pod on KWOK's nodes; `trainer` is added to the TrainJob's."""
        return JobSpec(
            identity=identity or Identity.of(str(ULID()), 1),
            namespace=self.namespace,
            queue="queue",
            spec={
                "runtimeRef": {"kind": "TrainingRuntime", "name": runtime},
                "trainer": {"numNodes": 1, "resourcesPerNode": {"requests": {"cpu": "1"}}, **trainer},
            },
            owner="tests/world",
            priority_class=priority,
        )

    def start(self, asked: JobSpec | None = None, *, priority: str = "low") -> TrainJob:
        """Start a job, closed."""
        asked = asked or self.spec(priority=priority)
        return run(self.adapter, start(asked, check=self.ours, workload_seconds=WAIT_SECONDS)).job

    def open(self, job: TrainJob) -> None:
        """Open a job."""
        run(self.adapter, open_job(self.namespace, job.meta.name, job.meta.uid))

    def hold(self, job: TrainJob) -> TrainJob:
        """Hold a job."""
        return run(self.adapter, hold(self.namespace, job.meta.name, job.meta.uid))

    def release(self, job: TrainJob, seconds: float = WAIT_SECONDS) -> TrainJob:
        """Release a job."""
        return run(self.adapter, release(self.namespace, job.meta.name, job.meta.uid, seconds=seconds))

    def started_and_opened(self, asked: JobSpec | None = None, *, priority: str = "low") -> TrainJob:
        """Start a job and open it."""
        job = self.start(asked, priority=priority)
        self.open(job)
        return job

    def stop(self, job: TrainJob) -> None:
        """Delete a job and wait until nothing of it is left."""
        run(self.adapter, stop(self.namespace, job.meta.name, job.meta.uid, seconds=WAIT_SECONDS))

    def job(self, name: str) -> TrainJob:
        """Read a TrainJob."""
        raw = self.get(names.TRAINJOBS, name)
        assert raw is not None, f"TrainJob {name} is gone"
        return parse_trainjob(raw)

    def count(self, job: TrainJob) -> int:
        """Read the job's A."""
        count = self.job(job.meta.name).count
        assert isinstance(count, int), count
        return count

    def workload(self, job: TrainJob) -> JsonObject | None:
        """Read the Workload of a job."""
        found = self.list(names.WORKLOADS, f"{names.JOB_UID}={job.meta.uid}")
        return found[0] if found else None

    def check(self, job: TrainJob, name: str = "") -> JsonObject:
        """Read an entry of the Workload's admission checks, ours by default; empty where there is none."""
        name = name or self.ours
        entries = ((self.workload(job) or {}).get("status") or {}).get("admissionChecks") or []
        return next((entry for entry in entries if entry["name"] == name), {})

    def condition(self, job: TrainJob, kind: str) -> str:
        """Read the status of a condition of the Workload; empty where there is none."""
        conditions = ((self.workload(job) or {}).get("status") or {}).get("conditions") or []
        return next((str(entry["status"]) for entry in conditions if entry["type"] == kind), "")

    def pods_of(self, job: TrainJob) -> tuple[JsonObject, ...]:
        """Read the pods of a job."""
        return self.list(names.PODS, f"{names.JOBSET_NAME}={job.meta.name}")

    def told(self, job: TrainJob) -> str:
        """Return what a reader of a failed test wants to know of a job: the states of all that belongs to it."""
        found = [("TrainJob", self.get(names.TRAINJOBS, job.meta.name)), ("Workload", self.workload(job))]
        found.append(("JobSet", self.get(names.JOBSETS, job.meta.name)))
        for resource in (names.JOBS, names.PODS):
            found += [(resource.kind, raw) for raw in self.list(resource, f"{names.JOBSET_NAME}={job.meta.name}")]
        return "\n".join(f"{kind}: {json.dumps((raw or {}).get('status'))}" for kind, raw in found)

    def running(self, job: TrainJob, execution: int) -> JsonObject:
        """Wait until a pod of the job's first, second, ... execution runs, and return it.

        Executions are told apart by their A. It is higher each time, and not always by one: a raise that lost a
        race is not used.
        """
        seen = self._executions.setdefault(job.meta.uid, [])
        if execution <= len(seen):
            return self.running_as(job, seen[execution - 1])
        least = max(execution, *seen[-1:], 0) if len(seen) < execution - 1 else max([0, *seen]) + 1
        pod = until(
            f"a running pod of {job.meta.name} with A of at least {least}",
            lambda: self._running(job, lambda count: count >= least),
        )
        seen += [count_of(pod)] * (execution - len(seen))
        return pod

    def running_as(self, job: TrainJob, count: int) -> JsonObject:
        """Wait until a pod of the job runs with this A, and return it."""
        return until(
            f"a running pod of {job.meta.name} with A={count}", lambda: self._running(job, lambda found: found == count)
        )

    def _running(self, job: TrainJob, fits: Callable[[int], bool]) -> JsonObject | None:
        found = (pod for pod in self.pods_of(job) if pod["status"].get("phase") == "Running" and fits(count_of(pod)))
        return next(found, None)

    def preempt(self) -> None:
        """Have a job of higher priority run in place of those that run, and end."""
        rival = self.started_and_opened(priority="high")
        self.running(rival, 1)
        self.stop(rival)

    def linger(self, pod: JsonObject) -> None:
        """Have a pod run on, when it is deleted, until `let_go`: KWOK leaves it alone, as a slow process would be."""

        def hold(body: JsonObject) -> None:
            body["metadata"].setdefault("annotations", {})[HOLD_ANNOTATION] = "true"

        self.change(names.PODS, pod["metadata"]["name"], hold)

    def let_go(self, pod: JsonObject) -> None:
        """Let a lingering pod end."""
        self.change(
            names.PODS, pod["metadata"]["name"], lambda body: body["metadata"]["annotations"].pop(HOLD_ANNOTATION)
        )

    def pod_ends(self, pod: JsonObject, phase: str) -> None:
        """Have a pod's process end, as the kubelet would report it."""
        self.linger(pod)  # from here on KWOK leaves it alone

        def ended(body: JsonObject) -> None:
            code = 0 if phase == "Succeeded" else 1
            body["status"]["phase"] = phase
            for container in body["status"].get("containerStatuses", []):
                state = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
                container.update(ready=False, started=False, state={"terminated": state})
            for condition in body["status"].get("conditions", []):
                if condition["type"] in ("Ready", "ContainersReady"):
                    condition.update(status="False", reason="PodCompleted")

        self.change(names.PODS, pod["metadata"]["name"], ended, status=True)

    def set_active(self, job: TrainJob, active: bool) -> None:
        """Deactivate or activate a job's Workload, as people do."""
        workload = self.workload(job)
        assert workload is not None
        self.change(names.WORKLOADS, workload["metadata"]["name"], lambda body: body["spec"].update(active=active))

    # What people and other controllers do to queues

    def evict(self, job: TrainJob) -> None:
        """Deactivate the job's Workload, wait until its quota is given back, and activate it again."""
        self.set_active(job, False)
        until("the quota to be given back", lambda: self.condition(job, "QuotaReserved") == "False")
        self.set_active(job, True)

    def waits(self, job: TrainJob, reason: str) -> str:
        """Wait until the check waits for this reason, and return its message."""
        return until(
            f"the check to wait for {reason}",
            lambda: found if (found := str(self.check(job).get("message", ""))).startswith(f"{reason}: ") else None,
        )

    def queue(self, edit: Callable[[JsonObject], object]) -> None:
        """Edit the spec of the ClusterQueue."""

        def edited(body: JsonObject) -> None:
            edit(body["spec"])

        self.change(names.CLUSTER_QUEUES, self.namespace, edited, cluster_scoped=True)

    def list_checks(self, *checks: str) -> None:
        """Set which checks the ClusterQueue names."""
        listed = [{"name": check} for check in checks]

        def edit(spec: JsonObject) -> None:
            spec.pop("admissionChecksStrategy", None)
            if listed:
                spec["admissionChecksStrategy"] = {"admissionChecks": listed}

        self.queue(edit)

    def set_check(self, job: TrainJob, check: str, state: str) -> None:
        """Play the controller of another check."""
        until(f"the check {check} to be listed", lambda: self.check(job, check))
        workload = self.workload(job)
        assert workload is not None

        def edit(body: JsonObject) -> None:
            for entry in body["status"]["admissionChecks"]:
                if entry["name"] == check:
                    entry.update(state=state, message="played by a test", lastTransitionTime="2026-01-01T00:00:00Z")

        self.change(names.WORKLOADS, workload["metadata"]["name"], edit, status=True)

    def give_room(self, pods: int) -> None:
        """Set how many pods the ClusterQueue lets run at a time."""

        def edit(spec: JsonObject) -> None:
            for resource in spec["resourceGroups"][0]["flavors"][0]["resources"]:
                if resource["name"] == "pods":
                    resource["nominalQuota"] = str(pods)

        self.queue(edit)

    # What the audit log says

    def timeline(self) -> Timeline:
        """What the audit log says about this namespace, by a judge that shares no code with the rules."""
        return read([self.cluster.audit_log], checks=[self.ours], namespaces=[self.namespace])

    def violations(self) -> tuple[str, ...]:
        """Every promise that was broken for a job of this namespace."""
        return tuple(str(violation) for violation in self.timeline().violations())

    def judged(self, job: TrainJob) -> tuple[int, ...]:
        """Return the A of each execution that the audit log shows; fail on any violation, or where A does not rise."""
        timeline = self.timeline()
        assert not timeline.violations(), list(map(str, timeline.violations()))
        assert not timeline.gaps(), timeline.gaps()
        executions = [count for count, _ in timeline.jobs[f"{self.namespace}/{job.meta.name}"].resumes if count]
        assert executions == sorted(set(executions))
        return tuple(executions)


def runtime() -> dict[str, Any]:
    """A runtime without restarts, whose pods go to KWOK's nodes."""
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {"dispatch.local/node": "kwok"},
        "tolerations": [{"key": "dispatch.local/kwok", "operator": "Exists"}],
        "containers": [{"name": "node", "image": "dispatch.local/pause:1"}],
    }
    job = {"template": {"spec": pod}, "backoffLimit": 0, "podReplacementPolicy": "Failed"}
    label = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    replicated = [{"name": "node", "template": {"metadata": label, "spec": job}}]
    return {
        "metadata": {"labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": replicated}}},
    }


def initializer(jobset: JsonObject) -> None:
    """Edit a runtime: give it a dataset initializer, which `node` waits for."""
    first = copy.deepcopy(jobset["replicatedJobs"][0])
    first["name"] = "dataset-initializer"
    first["template"]["metadata"]["labels"]["trainer.kubeflow.org/trainjob-ancestor-step"] = "dataset-initializer"
    pod = first["template"]["spec"]["template"]["spec"]
    pod["containers"][0] |= {
        "name": "dataset-initializer",
        "volumeMounts": [{"name": "initializer", "mountPath": "/workspace"}],
    }
    pod["volumes"] = [{"name": "initializer", "emptyDir": {}}]
    jobset["replicatedJobs"][0]["dependsOn"] = [{"name": "dataset-initializer", "status": "Complete"}]
    jobset["replicatedJobs"].insert(0, first)


class ControllerProcess:
    """The admission controller as a process of its own on this machine, with the rights that infra/ gives it.

    `mutations` are (module, text, replacement): the process then runs a copy of the source that says the
    replacement instead, so that a test can show what the text is good for.
    """

    def __init__(
        self,
        world: World,
        folder: Path,
        *,
        mutations: Iterable[tuple[str, str, str]] = (),
        lease: str = "tests",
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._world = world
        self._folder = folder / f"controller-{secrets.token_hex(3)}"
        self._mutations = tuple(mutations)
        self._lease = lease
        self._lease_seconds = lease_seconds
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        kubeconfig = controller_kubeconfig(self._world, self._folder / "kubeconfig", self._lease)
        environment = {**os.environ, "PYTHONPATH": self._mutated(), "PYTHONWARNINGS": "default"}
        command = [sys.executable, "-m", "dispatch_admission", "--kubeconfig", str(kubeconfig), "--namespace"]
        command += [names.CONTROLLER_NAMESPACE, "--lease-name", self._lease]
        command += [
            "--lease-seconds",
            str(self._lease_seconds),
            "--listen",
            f"127.0.0.1:{port}",
            "--log-level",
            "DEBUG",
        ]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=self._folder)
        try:
            until("the controller to lead and to have listed all Workloads", lambda: self._leads(port))
        except BaseException:
            print(self.log.read_text())
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.signal(signal.SIGCONT)
            self._process.terminate()
            self._process.wait(WAIT_SECONDS)
        if kind is not None:
            print(self.log.read_text()[-20000:])

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> Path:
        """What the controller logged."""
        return self._folder / "log"

    def signal(self, number: int) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(WAIT_SECONDS)

    def _leads(self, port: int) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the controller ended:\n{self.log.read_text()}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
                leading = b"dispatch_admission_leading 1.0" in reply.read()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30) as reply:
                return leading and reply.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def _mutated(self) -> str:
        """Copy the two source packages, with the mutations in them; empty where there are none."""
        if not self._mutations:
            return ""
        import shutil

        import dispatch_admission
        import dispatch_gates

        for package in (dispatch_admission, dispatch_gates):
            source = Path(str(package.__file__)).parent
            shutil.copytree(source, self._folder / "source" / source.name, ignore=shutil.ignore_patterns("__pycache__"))
        for module, text, replacement in self._mutations:
            path = self._folder / "source" / Path(*module.split(".")).with_suffix(".py")
            content = path.read_text()
            assert content.count(text) == 1, f"{module}: {text!r} stands there {content.count(text)} times, not once"
            path.write_text(content.replace(text, replacement))
        return str(self._folder / "source")


def controller_kubeconfig(world: World, path: Path, lease: str = "tests") -> Path:
    """Write a kubeconfig for the controller's account, with a real token and exactly the controller's rights.

    Where the guard rails do not hold, it is an account of another name, which they do not know.
    """
    home = _controllers_home(world)
    name = _controller_of(world)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": home.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    if home.get(SERVICE_ACCOUNTS, name) is None:
        home.create(SERVICE_ACCOUNTS, name)
        home.create(CLUSTER_ROLES, name, cluster_scoped=True, rules=cluster_rules(names.ADMISSION_CHECK))
        home.create(CLUSTER_ROLE_BINDINGS, name, cluster_scoped=True, roleRef=role, subjects=[subject])
    at_home = f"{name}-{lease}"
    if home.get(ROLES, at_home) is None:
        role = role | {"kind": "Role", "name": at_home}
        home.create(ROLES, at_home, rules=namespace_rules(lease))
        home.create(ROLE_BINDINGS, at_home, roleRef=role, subjects=[subject])
    await_rights(home, name, cluster_rules(names.ADMISSION_CHECK)[-1])
    await_rights(home, name, namespace_rules(lease)[-1], home.namespace)
    return write_kubeconfig(path, home, token_of(home, name))


def _controllers_home(world: World) -> World:
    """Return the namespace of the controllers; make it where infra/ has not."""
    home = World(world.cluster, names.CONTROLLER_NAMESPACE)
    if home.get(names.NAMESPACES, home.namespace, cluster_scoped=True) is None:
        home.create(names.NAMESPACES, home.namespace, cluster_scoped=True)
    return home


def _controller_of(world: World) -> str:
    return names.CONTROLLER if world.guarded else f"{names.CONTROLLER}-unguarded"


def adapter(world: World) -> Target:
    """Return the cluster as the adapter: bound to the roles as they are shipped, in this namespace; a real token."""
    home = World(world.cluster, ADAPTER_HOME)
    in_namespace, in_cluster = adapter_roles()
    path = world.cluster.kubeconfig.with_name(ADAPTER)
    with _accounts:
        if path not in _known:
            if home.get(SERVICE_ACCOUNTS, ADAPTER) is None:
                home.make_namespace()
                home.create(SERVICE_ACCOUNTS, ADAPTER)
            _bind(home, in_cluster, cluster_scoped=True)
            _known.add(write_kubeconfig(path, home, token_of(home, ADAPTER)))
        _bind(world, in_namespace, cluster_scoped=False)
    return Target(str(path), "tests")


def let_adapter_read_leases(world: World) -> None:
    """Let the adapter's account read every Lease beside the controller's: those of tests have names of their own."""
    home, name = _controllers_home(world), "tests-adapter-leases"
    rule = {"apiGroups": [names.LEASES.group], "resources": [names.LEASES.plural], "verbs": ["get"]}
    subject = {"kind": "ServiceAccount", "name": ADAPTER, "namespace": ADAPTER_HOME}
    if home.get(ROLES, name) is None:
        home.create(ROLES, name, rules=[rule])
        reference = {"apiGroup": ROLES.group, "kind": ROLES.kind, "name": name}
        home.create(ROLE_BINDINGS, name, roleRef=reference, subjects=[subject])
    await_rights(World(world.cluster, ADAPTER_HOME), ADAPTER, rule, home.namespace)


def _bind(world: World, role: JsonObject, *, cluster_scoped: bool) -> None:
    """Bind the adapter's account to a role, and wait until it has the last of its rights."""
    name, binding = role["metadata"]["name"], CLUSTER_ROLE_BINDINGS if cluster_scoped else ROLE_BINDINGS
    if world.get(CLUSTER_ROLES, name, cluster_scoped=True) is None:
        name = f"tests-{name}"  # infra/ is not installed here, or not yet: a role like the one that it brings
        if world.get(CLUSTER_ROLES, name, cluster_scoped=True) is None:
            world.create(CLUSTER_ROLES, name, cluster_scoped=True, rules=role["rules"])
    if world.get(binding, name, cluster_scoped=cluster_scoped) is None:
        world.create(
            binding,
            name,
            cluster_scoped=cluster_scoped,
            roleRef={"apiGroup": CLUSTER_ROLES.group, "kind": CLUSTER_ROLES.kind, "name": name},
            subjects=[{"kind": "ServiceAccount", "name": ADAPTER, "namespace": ADAPTER_HOME}],
        )
    home = World(world.cluster, ADAPTER_HOME)
    await_rights(home, ADAPTER, role["rules"][-1], "" if cluster_scoped else world.namespace)


def await_rights(home: World, account: str, rule: JsonObject, namespace: str = "") -> None:
    """Wait until the API server knows of the last right of a rule, in a namespace or everywhere."""
    review = names.SUBJECT_REVIEWS
    asked = {"group": rule["apiGroups"][0], "resource": rule["resources"][0], "verb": rule["verbs"][-1]}
    spec = {
        "user": f"system:serviceaccount:{home.namespace}:{account}",
        "resourceAttributes": asked | ({"namespace": namespace} if namespace else {}),
    }
    body = {"apiVersion": review.api_version, "kind": review.kind, "spec": spec}

    def allowed() -> bool:
        return bool(run(home.target, write(Create(review, body)))["status"]["allowed"])

    until(f"the rights of {account}", allowed, pause=0.005)


def stepped(who: Target, operation: Operation[T], before: Callable[[Request], object]) -> T:
    """Run an operation with something else happening before each of its requests."""

    def one(request: Request) -> Operation[Any]:
        return (yield request)

    try:
        request = next(operation)
        while True:
            before(request)
            try:
                reply = run(who, one(request))
            except ApiError as error:
                request = operation.throw(error)
            else:
                request = operation.send(reply)
    except StopIteration as end:
        found: T = end.value
        return found


class Deployment:
    """One controller process, started again whenever it ended, as a Deployment would. May be entered again.

    Without its Lease a controller ends: on a machine that is busy enough, or whose API server starts again.
    """

    def __init__(
        self,
        world: World,
        folder: Path,
        lease: str = "tests",
        *,
        mutations: Iterable[tuple[str, str, str]] = (),
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._world = world
        self._folder = folder
        self._lease = lease
        self._mutations = tuple(mutations)
        self._lease_seconds = lease_seconds
        self._process: ControllerProcess | None = None
        self._turn = threading.Lock()
        self._ending = threading.Event()
        self._keeper = threading.Thread()

    def __enter__(self) -> Self:
        self._start()
        self._ending.clear()
        self._keeper = threading.Thread(target=self._keep, name=f"keeper of {self._lease}", daemon=True)
        self._keeper.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._keeper.join()
        if self._process is not None:
            self._process.__exit__(kind, value, trace)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Kill -9, and start anew at the end."""
        with self._turn:
            if self._process is not None:
                self._process.kill()
            try:
                yield
            finally:
                self._start()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        with self._turn:
            if self._process is not None and self._process.alive:
                self._process.signal(number)

    def _start(self) -> None:
        process = ControllerProcess(
            self._world,
            self._folder,
            mutations=self._mutations,
            lease=self._lease,
            lease_seconds=self._lease_seconds,
        )
        self._process = process.__enter__()

    def _keep(self) -> None:
        while not self._ending.wait(KEEPER_SECONDS):
            with self._turn:
                if self._process is not None and not self._process.alive:
                    # While the API server is away it ends again: the next look tries once more.
                    with suppress(Exception):
                        self._start()


def token_of(world: World, account: str) -> str:
    """Ask for a token of a ServiceAccount, as the kubelet does for a pod."""
    import asyncio

    from dispatch_gates.cluster.connection import Connection

    async def ask() -> str:
        connection = await Connection.open(world.target)
        try:
            body = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": 7200},
            }
            path = f"/api/v1/namespaces/{world.namespace}/serviceaccounts/{account}/token"
            reply = await connection.call("POST", path, body=body)
        finally:
            await connection.close()
        return str(reply["status"]["token"])

    return asyncio.run(ask())


def write_kubeconfig(path: Path, world: World, token: str) -> Path:
    """Write a kubeconfig with the cluster of the administrator's and a token."""
    config = yaml.safe_load(world.cluster.kubeconfig.read_text())
    context = next(entry for entry in config["contexts"] if entry["name"] == world.cluster.context)
    config["users"] = [{"name": "tests", "user": {"token": token}}]
    config["contexts"] = [{"name": "tests", "context": {"cluster": context["context"]["cluster"], "user": "tests"}}]
    config["current-context"] = "tests"
    path.write_text(json.dumps(config))
    return path
