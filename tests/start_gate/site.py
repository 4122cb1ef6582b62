"""A namespace of a real cluster where jobs are started in both modes, and the adapter's operations on it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ulid import ULID

import judge
from dispatch_gates.cluster import run
from dispatch_gates.contract import names
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.manifest import JobSpec, manifest
from dispatch_gates.contract.names import Resource
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.contract.trainjob import TrainJob, parse_trainjob
from dispatch_gates.operations.holding import hold, release
from dispatch_gates.operations.opening import Opened, open_job
from dispatch_gates.operations.start import Started, start
from dispatch_gates.operations.status import JobState, Status, status
from dispatch_gates.operations.stop import stop
from dispatch_gates.requests import Create, write
from world import WAIT_SECONDS, World, until

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
OWNER = "tests/start-gate"


@dataclass
class Site(World):
    """A `World` with room for many jobs, in Kueue mode and in plain mode."""

    pods: int = 50

    def make_plain(self) -> Site:
        """Create what a namespace needs on a cluster without Kueue."""
        self.create(names.NAMESPACES, self.namespace, cluster_scoped=True)
        self.runtime("kwok", lambda _: None)
        return self

    def runtime(self, name: str, edit: Callable[[JsonObject], object], like: Callable[[], JsonObject] = dict) -> None:
        """Create a runtime like the one of `World`, edited."""
        from world import _runtime

        body = _runtime() | like()
        edit(body)
        self.create(names.TRAINING_RUNTIMES, name, **body)

    # The adapter's operations

    def asked(self, queue: str | None, *, runtime: str = "kwok", **spec: Any) -> JobSpec:
        """Return a request for a job of one pod; `spec` is added to the TrainJob's."""
        base = self.spec(Identity.of(str(ULID()), 1))
        whole = copy.deepcopy(dict(base.spec)) | {"runtimeRef": {"kind": "TrainingRuntime", "name": runtime}} | spec
        return replace(base, queue=queue, priority_class="low" if queue else None, owner=OWNER, spec=whole)

    def begin(self, asked: JobSpec, seconds: float = WAIT_SECONDS) -> Started:
        """Start."""
        return run(self.target, start(asked, workload_seconds=seconds))

    def started(self, queue: str | None, **spec: Any) -> TrainJob:
        """Start a job of one pod."""
        return self.begin(self.asked(queue, **spec)).job

    def opened(self, job: TrainJob) -> Opened:
        """Open."""
        return run(self.target, open_job(self.namespace, job.meta.name, job.meta.uid, seconds=WAIT_SECONDS))

    def ran(self, queue: str | None) -> tuple[TrainJob, JsonObject]:
        """Start and open a job, and return it with its running pod."""
        job = self.started(queue)
        self.opened(job)
        return job, self.running(job, 1)

    def hold(self, job: TrainJob) -> TrainJob:
        """Hold."""
        return run(self.target, hold(self.namespace, job.meta.name, job.meta.uid))

    def release(self, job: TrainJob, seconds: float = WAIT_SECONDS) -> TrainJob:
        """Release."""
        return run(self.target, release(self.namespace, job.meta.name, job.meta.uid, seconds=seconds))

    def end(self, job: TrainJob, seconds: float = WAIT_SECONDS) -> None:
        """Stop."""
        run(self.target, stop(self.namespace, job.meta.name, job.meta.uid, seconds=seconds))

    def status(self, job: TrainJob) -> Status | None:
        """Status."""
        return run(self.target, status(self.namespace, job.meta.name, job.meta.uid))

    def stands(self, job: TrainJob, state: JobState, why: str = "") -> Status:
        """Wait until Status says this state, for this reason."""
        seen: list[str] = []

        def found() -> Status | None:
            now = self.status(job)
            seen[:] = [f"{now.state}: {now.why}" if now else "no job"]
            return now if now and now.state is state and why in now.why else None

        try:
            return until(f"{job.meta.name} to be {state} ({why})", found)
        except AssertionError as error:
            raise AssertionError(f"{error}; Status: {seen}") from None

    # What others do

    def by_hand(self, asked: JobSpec, edit: Callable[[JsonObject], object]) -> TrainJob:
        """Create a TrainJob as Start would, but edited."""
        body = manifest(asked, ["node"])
        edit(body)
        return parse_trainjob(run(self.target, write(Create(names.TRAINJOBS, body))))

    def edit(self, job: TrainJob, edit: Callable[[JsonObject], object]) -> None:
        """Edit a TrainJob."""
        self.change(names.TRAINJOBS, job.meta.name, lambda body: None if edit(body) is None else None)

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

    # What the audit log says

    def violations(self) -> list[str]:
        """Every promise that was broken for a job of this namespace."""
        return [line for line in judge.read(self.cluster.audit_log).violations() if self.namespace in line]

    def judged(self, job: TrainJob) -> judge.Job:
        """The history of a job."""
        return judge.read(self.cluster.audit_log).jobs[f"{self.namespace}/{job.meta.name}"]
