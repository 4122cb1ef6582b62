"""A namespace of a real cluster where jobs are started in both modes, and the adapter's operations on it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ulid import ULID

from dispatch_gates.cluster import run
from dispatch_gates.contract import names
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.manifest import JobSpec, manifest
from dispatch_gates.contract.names import Resource
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.contract.trainjob import TrainJob, parse_trainjob
from dispatch_gates.operations.opening import Opened, open_job
from dispatch_gates.operations.start import Started, start
from dispatch_gates.operations.status import JobState, Status, status
from dispatch_gates.operations.stop import stop
from dispatch_gates.requests import Create, write
from world import WAIT_SECONDS, World, until

OWNER = "tests/start-gate"


@dataclass
class Site(World):
    """A `World` with room for many jobs, in Kueue mode and in plain mode."""

    pods: int = 200
    expected_executions: dict[str, int] = field(default_factory=dict)
    """How many executions the audit log must show, for each job of which a test says it; looked up once, at the end."""

    def make_plain(self) -> Site:
        """Create what a namespace needs on a cluster without Kueue."""
        self.make_namespace()
        self.runtime("kwok", lambda _: None)
        return self

    # The adapter's operations

    def asked(self, queue: str | None, *, runtime: str = "kwok", **spec: Any) -> JobSpec:
        """Return a request for a job of one pod; `spec` is added to the TrainJob's."""
        base = self.spec(Identity.of(str(ULID()), 1))
        reference = {"kind": "TrainingRuntime", "name": runtime}
        whole = {**base.spec, "runtimeRef": reference, "trainer": self.trainer(), **spec}
        return replace(base, queue=queue, priority_class="low" if queue else None, owner=OWNER, spec=whole)

    def trainer(self, **more: Any) -> JsonObject:
        """Return a trainer of one pod."""
        # Many jobs of a whole run share the two nodes.
        return {"numNodes": 1, "resourcesPerNode": {"requests": {"cpu": "10m"}}, **more}

    def called(self, asked: JobSpec, identity: Identity) -> JobSpec:
        """Return the request under another name."""
        return replace(asked, identity=identity)

    def urgent(self, asked: JobSpec) -> JobSpec:
        """Return the request with a priority that preempts others."""
        return replace(asked, priority_class="high")

    def marked(self, asked: JobSpec) -> JobSpec:
        """Return the request with a label and an annotation of the user's own."""
        return replace(asked, labels={"team": "a"}, annotations={"note": "b"})

    def begin(self, asked: JobSpec, seconds: float = WAIT_SECONDS) -> Started:
        """Start."""
        return run(self.adapter, start(asked, workload_seconds=seconds))

    def started(self, queue: str | None, **spec: Any) -> TrainJob:
        """Start a job of one pod."""
        return self.begin(self.asked(queue, **spec)).job

    def opened(self, job: TrainJob, seconds: float = WAIT_SECONDS) -> Opened:
        """Open."""
        return run(self.adapter, open_job(self.namespace, job.meta.name, job.meta.uid, seconds=seconds))

    def ran(self, queue: str | None) -> tuple[TrainJob, JsonObject]:
        """Start and open a job, and return it with its running pod."""
        job = self.started(queue)
        self.opened(job)
        return job, self.running(job, 1)

    def end(self, job: TrainJob, seconds: float = WAIT_SECONDS) -> None:
        """Stop."""
        run(self.adapter, stop(self.namespace, job.meta.name, job.meta.uid, seconds=seconds))

    def status(self, job: TrainJob) -> Status | None:
        """Status."""
        return run(self.adapter, status(self.namespace, job.meta.name, job.meta.uid))

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

    @contextlib.contextmanager
    def stopped(self, part: str) -> Iterator[None]:
        """Hold a part of the cluster up (SIGSTOP); its webhooks hang, too."""
        self.cluster.pause(part)
        try:
            yield
        finally:
            self.cluster.resume(part)

    def by_hand(self, asked: JobSpec, edit: Callable[[JsonObject], object]) -> TrainJob:
        """Create a TrainJob as Start would, but edited."""
        body = manifest(asked, ["node"])
        edit(body)
        return parse_trainjob(run(self.target, write(Create(names.TRAINJOBS, body))))

    def edit(self, job: TrainJob, edit: Callable[[JsonObject], object]) -> None:
        """Edit a TrainJob."""

        def edited(body: JsonObject) -> None:
            edit(body)

        self.change(names.TRAINJOBS, job.meta.name, edited)

    def remove(self, resource: Resource, name: str) -> None:
        """Delete an object and what keeps it, and wait until it is gone."""
        self.delete(resource, name)
        raw = self.get(resource, name)
        if raw is not None and raw["metadata"].get("finalizers"):
            self.change(resource, name, lambda body: body["metadata"].pop("finalizers"))
        until(f"{resource} {name} to be gone", lambda: self.get(resource, name) is None)

    def jobs_exist(self, job: TrainJob) -> None:
        """Wait until JobSet has made the Jobs, so that Open finds them."""
        until("its Jobs", lambda: self.list(names.JOBS, f"{names.JOBSET_NAME}={job.meta.name}"))

    # What the audit log must say

    def expect_executions(self, job: TrainJob, number: int) -> None:
        """Say how many executions the job must have had, each with a higher A, by one or, after a lost race, more."""
        self.expected_executions[job.meta.name] = number

    def jobs_with_pods(self) -> set[str]:
        """Return the jobs of this namespace that ever had a pod."""
        return {key for key, job in self.timeline().jobs.items() if job.pods}

    def assert_kept(self) -> None:
        """Assert that the audit log shows no broken promise in this namespace, and A as expected."""
        timeline = self.timeline()
        assert not timeline.violations(), list(map(str, timeline.violations()))
        jobs = {name: timeline.jobs[f"{self.namespace}/{name}"] for name in self.expected_executions}
        executions = {name: [count for count, _ in job.resumes if count] for name, job in jobs.items()}
        unexpected = {
            name: found
            for name, found in executions.items()
            if len(found) != self.expected_executions[name] or found != sorted(set(found))
        }
        assert not unexpected, unexpected
