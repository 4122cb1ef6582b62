"""The shell around the pass: wake-ups in, passes out. It keeps keys, and no objects."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from dispatch_admission.act import Outcome, Result, readmit
from dispatch_admission.checks import activate, is_ours
from dispatch_admission.decide import Nothing, Observation, decide
from dispatch_admission.events import Recorder
from dispatch_admission.metrics import Metrics
from dispatch_admission.sharing import Sharing
from dispatch_admission.watches import WATCH_SECONDS, WatchLoop
from dispatch_admission.workqueue import WorkQueue
from dispatch_gates.cluster import Driver
from dispatch_gates.contract.names import ADMISSION_CHECKS, JOBS, JOBSET_NAME, JOBSETS, PODS, TRAINJOBS, WORKLOADS
from dispatch_gates.contract.next_execution import Reason
from dispatch_gates.contract.objects import JsonObject, MalformedError, strings
from dispatch_gates.contract.workload import parse_workload
from dispatch_gates.requests import ApiError

_log = logging.getLogger(__name__)

WORKERS: Final = 16
FIRST_LOOK_SECONDS: Final = 0.5
RESYNC_SECONDS: Final = 30.0
"""How often a waiting Workload is looked at again when nothing wakes it."""


class Key(NamedTuple):
    """A Workload, by namespace and name."""

    namespace: str
    name: str


@dataclass
class Waiting:
    """Which Workloads wait for which job's end: keys both ways."""

    jobs: dict[Key, Key] = field(default_factory=dict)
    workloads: dict[Key, set[Key]] = field(default_factory=dict)

    def put(self, workload: Key, job: str | None) -> None:
        """Have the Workload woken by whatever happens to `job`; or no more, where it is None."""
        before = self.jobs.pop(workload, None)
        if before is not None:
            self.workloads[before].discard(workload)
            if not self.workloads[before]:
                del self.workloads[before]
        if job is not None:
            of = Key(workload.namespace, job)
            self.jobs[workload] = of
            self.workloads.setdefault(of, set()).add(workload)


class Controller:
    """Serves our check while it leads. One instance for one period of leadership."""

    def __init__(
        self, driver: Driver, recorder: Recorder, metrics: Metrics, *, resync_seconds: float = RESYNC_SECONDS
    ) -> None:
        self._driver = driver
        self._sharing = Sharing(driver)
        self._recorder = recorder
        self._metrics = metrics
        self._resync = resync_seconds
        self._queue: WorkQueue[Key] = WorkQueue()
        self._waiting = Waiting()
        self._checks: frozenset[str] = frozenset()
        self._tasks: set[asyncio.Task[None]] = set()
        self._workloads = self._loop_for_workloads()
        self._checks_loop = WatchLoop(driver, ADMISSION_CHECKS, self._check_changed, listed=self._check_changed)
        metrics.queue_depth.set_function(lambda: len(self._queue))
        metrics.waiting.set_function(lambda: len(self._waiting.jobs))

    @property
    def synced(self) -> bool:
        """Whether every Workload was listed, and is watched since."""
        return self._workloads.synced.is_set()

    def progressing(self) -> bool:
        """Whether the watches are alive: what the Lease and liveness rest on."""
        oldest = min(self._workloads.alive_at, self._checks_loop.alive_at)
        return time.monotonic() - oldest < 2 * WATCH_SECONDS

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._checks_loop.run())
            await self._checks_loop.synced.wait()
            for resource, selector in ((PODS, JOBSET_NAME), (JOBS, JOBSET_NAME), (JOBSETS, ""), (TRAINJOBS, "")):
                wake = WatchLoop(
                    self._driver,
                    resource,
                    self._job_changed,
                    gap=self._wake_all,
                    selector=selector,
                    metadata_only=True,
                )
                group.create_task(wake.run())
            group.create_task(self._workloads.run())
            for _ in range(WORKERS):
                group.create_task(self._work())

    # Wake-ups

    def _loop_for_workloads(self) -> WatchLoop:
        return WatchLoop(self._driver, WORKLOADS, self._workload_changed, listed=self._workload_changed)

    def _workload_changed(self, raw: JsonObject) -> None:
        """Look at a Workload if its own content does not rule it out: the rule itself says so."""
        try:
            workload = parse_workload(raw)
        except MalformedError as error:
            _log.warning("workload not understood: %s", error)
            return
        key = Key(workload.meta.namespace, workload.meta.name)
        if isinstance(decide(Observation(self._checks, workload)), Nothing):
            self._waiting.put(key, None)
        else:
            self._queue.add(key)

    def _job_changed(self, raw: JsonObject) -> None:
        """Wake what waits for the job that this pod, Job, JobSet or TrainJob belongs to."""
        metadata = raw["metadata"]
        name = strings(metadata, "labels").get(JOBSET_NAME) or str(metadata.get("name"))
        for key in self._waiting.workloads.get(Key(str(metadata.get("namespace")), name), ()):
            self._queue.add(key)

    def _wake_all(self) -> None:
        for key in self._waiting.jobs:
            self._queue.add(key)

    def _check_changed(self, raw: JsonObject) -> None:
        name = str(raw["metadata"]["name"])
        if not is_ours(raw):
            self._checks -= {name}
            return
        fresh = name not in self._checks
        self._checks |= {name}
        task = asyncio.ensure_future(self._activate(name, fresh=fresh and self.synced))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _activate(self, name: str, *, fresh: bool) -> None:
        """Set the check Active; a `fresh` one may stand on Workloads that were passed over before it was known."""
        try:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            if await self._driver.run(activate(name, now)):
                _log.info("admission check set active: check=%s", name)
            if fresh:
                await self._workloads.list_once()
        except ApiError as error:
            # The next event or list of the AdmissionCheck brings the next try.
            _log.error("admission check not set active: check=%s error=%s", name, error)

    # Passes

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                await self._look_at(key)
            except Exception:
                # One Workload that is not understood must not end the work on all others.
                self._metrics.passes.labels("failed").inc()
                _log.exception("pass failed; again in %.1f s: workload=%s/%s", self._queue.retry(key), *key)
            finally:
                self._queue.done(key)

    async def _look_at(self, key: Key) -> None:
        began = time.monotonic()
        try:
            outcome = await self._sharing.run(readmit(*key, self._checks))
        except ApiError as error:
            seconds = self._queue.retry(key)
            self._metrics.passes.labels("error").inc()
            _log.warning("pass failed; again in %.1f s: workload=%s/%s error=%s", seconds, *key, error)
            return
        self._metrics.passes.labels(outcome.result.value).inc()
        self._metrics.pass_seconds.observe(time.monotonic() - began)
        self._follow(key, outcome)
        await self._recorder.record(key.namespace, outcome)

    def _follow(self, key: Key, outcome: Outcome) -> None:
        """Say what became of the pass, and see to it that the Workload is looked at again if it must be."""
        fresh = outcome.job is not None and key not in self._waiting.jobs
        self._waiting.put(key, outcome.job if outcome.result is Result.WAITING else None)
        level = logging.DEBUG if outcome.result is Result.NOTHING else logging.INFO
        _log.log(
            level,
            "workload=%s/%s result=%s job=%s count=%s detail=%s",
            *key,
            outcome.result.value,
            outcome.job,
            outcome.count,
            outcome.detail,
        )
        if outcome.reason is not None:
            self._metrics.waits.labels(outcome.reason.value).inc()
        if outcome.result is Result.CONFLICT or outcome.reason is Reason.OWNER_UNREADABLE:
            # Nothing wakes what waits for an owner that could not be read; it may be readable in a moment, or never.
            self._queue.retry(key)
            return
        self._queue.forget(key)
        if outcome.result is Result.WAITING:
            # What happened between the first pass's reads and now woke nobody.
            self._queue.add_after(key, FIRST_LOOK_SECONDS if fresh else self._resync)


async def serve_while_leading(controller: Controller, lost: asyncio.Event) -> None:
    """Run the controller until leadership is lost or this is cancelled; work in flight is dropped between requests."""
    serving = asyncio.create_task(controller.run())
    losing = asyncio.create_task(lost.wait())
    try:
        done, _ = await asyncio.wait({serving, losing}, return_when=asyncio.FIRST_COMPLETED)
        if serving in done:
            serving.result()
    finally:
        for task in (serving, losing):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
