"""The shell around the pass: wake-ups in, passes out. It keeps keys, and no objects."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from datetime import UTC, datetime
from typing import Final

from dispatch_admission.act import Outcome, Result, readmit
from dispatch_admission.checks import activate, is_ours
from dispatch_admission.decide import Nothing, Observation, decide
from dispatch_admission.events import Recorder
from dispatch_admission.logs import fields
from dispatch_admission.metrics import Metrics
from dispatch_admission.sharing import Sharing
from dispatch_admission.waiting import Key, Waiting
from dispatch_admission.watches import WATCH_SECONDS, WatchLoop
from dispatch_admission.workqueue import Lane, WorkQueue
from dispatch_gates.cluster import Driver
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.names import ADMISSION_CHECKS, JOBS, JOBSET_NAME, JOBSETS, PODS, TRAINJOBS, WORKLOADS
from dispatch_gates.contract.next_execution import Reason
from dispatch_gates.contract.objects import JsonObject, MalformedError, strings
from dispatch_gates.contract.workload import Workload, parse_workload
from dispatch_gates.requests import ApiError

_log = logging.getLogger(__name__)

WORKERS: Final = 64
"""Passes at a time. They wait for the API server most of the time, and the more of them do, the more share a list."""
FIRST_LOOK_SECONDS: Final = 0.5
RESYNC_SECONDS: Final = 30.0
"""How often a waiting Workload is looked at again when nothing wakes it."""
RESYNC_APART_SECONDS: Final = 0.1
"""Least time between two such looks: with thousands that wait they come round less often, and cost no more."""
OWNER_TRIES: Final = 7
"""How often, in half a minute, an owner that cannot be read is looked for before that is left to the resync."""
STALLED_SECONDS: Final = 2 * WATCH_SECONDS
"""How long no pass may end while there is work. A pass takes a second; its longest request 30."""


class Controller:
    """Serves our check while it leads. One instance for one period of leadership."""

    def __init__(
        self, driver: Driver, recorder: Recorder, metrics: Metrics, *, resync_seconds: float = RESYNC_SECONDS
    ) -> None:
        self._driver = driver
        self._sharing = Sharing(driver)
        self._recorder = recorder
        self._metrics = metrics
        self._resync_seconds = resync_seconds
        self._queue: WorkQueue[Key] = WorkQueue()
        self._waiting = Waiting()
        self._since: dict[Key, float] = {}
        self._checks: frozenset[str] = frozenset()
        self._tasks: set[asyncio.Task[None]] = set()
        self._moved_at = time.monotonic()
        self._workloads = self._loop_for_workloads()
        self._checks_loop = WatchLoop(
            driver,
            ADMISSION_CHECKS,
            lambda raw, _: self._check_changed(raw),
            listed=self._check_changed,
            restarted=metrics.watch_restarts.labels(ADMISSION_CHECKS.plural).inc,
        )
        metrics.follow(self._queue.__len__, self._waiting)

    @property
    def synced(self) -> bool:
        """Whether every Workload was listed, and is watched since."""
        return self._workloads.synced.is_set()

    def progressing(self) -> bool:
        """Whether the watches are alive and passes come to an end: what the Lease and liveness rest on."""
        now = time.monotonic()
        oldest = min(self._workloads.alive_at, self._checks_loop.alive_at)
        stalled = self._queue.pending and now - self._moved_at > STALLED_SECONDS
        return now - oldest < 2 * WATCH_SECONDS and not stalled

    async def run(self) -> None:
        """Serve until cancelled; what was sent by then has been answered, and nothing more is sent."""
        # Progress is asked for from now on: a standby may have waited for days.
        self._moved_at = self._workloads.alive_at = self._checks_loop.alive_at = time.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._checks_loop.run())
                await self._checks_loop.synced.wait()
                for loop in self._loops_for_jobs():
                    group.create_task(loop.run())
                group.create_task(self._workloads.run())
                group.create_task(self._recorder.run())
                group.create_task(self._resync())
                for _ in range(WORKERS):
                    group.create_task(self._work())
        finally:
            await self._sharing.close()

    # Wake-ups

    def _loop_for_workloads(self) -> WatchLoop:
        return WatchLoop(
            self._driver,
            WORKLOADS,
            lambda raw, _: self._workload_changed(raw),
            listed=self._workload_changed,
            restarted=self._metrics.watch_restarts.labels(WORKLOADS.plural).inc,
        )

    def _loops_for_jobs(self) -> list[WatchLoop]:
        """Watch what wakes a Workload that waits for its job; JobSets whole, for passes that wait for one to change."""
        return [
            WatchLoop(
                self._driver,
                resource,
                self._jobset_changed if resource == JOBSETS else lambda raw, _: self._job_changed(raw),
                gap=self._jobsets_listed if resource == JOBSETS else self._wake_all,
                selector=selector,
                metadata_only=resource != JOBSETS,
                restarted=self._metrics.watch_restarts.labels(resource.plural).inc,
            )
            for resource, selector in ((PODS, JOBSET_NAME), (JOBS, JOBSET_NAME), (JOBSETS, ""), (TRAINJOBS, ""))
        ]

    def _workload_changed(self, raw: JsonObject) -> None:
        """Look at a Workload if its own content does not rule it out: the rule itself says so."""
        try:
            workload = parse_workload(raw)
        except MalformedError as error:
            _log.warning(fields(event="workload-not-understood", error=error))
            return
        key = Key(workload.meta.namespace, workload.meta.name)
        if isinstance(decide(Observation(self._checks, workload)), Nothing):
            self._waiting.drop(key)
            self._since.pop(key, None)
        else:
            self._since.setdefault(key, time.monotonic())
            waits = self._waiting.get(key) is not None
            self._queue.add(key, Lane.USUAL if waits or _looks_ours(workload) else Lane.QUICK)

    def _job_changed(self, raw: JsonObject) -> None:
        """Wake what waits for the job that this pod, Job, JobSet or TrainJob belongs to."""
        metadata = raw["metadata"]
        name = strings(metadata, "labels").get(JOBSET_NAME) or str(metadata.get("name"))
        for key in self._waiting.for_job(Key(str(metadata.get("namespace")), name)):
            self._queue.add(key)

    def _jobset_changed(self, raw: JsonObject, deleted: bool) -> None:
        self._sharing.jobset_changed(raw, deleted)
        self._job_changed(raw)

    def _jobsets_listed(self) -> None:
        self._sharing.jobsets_missed()
        self._wake_all()

    def _wake_all(self) -> None:
        """Look at all that wait, after what is known to have changed."""
        for key in self._waiting:
            self._queue.add(key, Lane.BACKGROUND)

    async def _resync(self) -> None:
        """Look at each Workload that waits from time to time, though nothing woke it."""
        while True:
            now = time.monotonic()
            found = self._waiting.longest_unseen()
            due = (found[1] if found is not None else now) + self._resync_seconds
            if found is None or due > now:
                await asyncio.sleep(due - now)
            else:
                self._waiting.seen(found[0], now)
                self._queue.add(found[0], Lane.BACKGROUND)
                await asyncio.sleep(RESYNC_APART_SECONDS)

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
            if await self._sharing.run(activate(name, now)):
                _log.info(fields(event="check-active", check=name))
            if fresh:
                await self._workloads.list_once()
        except ApiError as error:
            # The next event or list of the AdmissionCheck brings the next try.
            _log.error(fields(event="check-not-active", check=name, error=error))

    # Passes

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                await self._look_at(key)
            except Exception:
                # One Workload that is not understood must not end the work on all others.
                self._metrics.passes.labels("failed").inc()
                _log.exception(
                    fields(event="pass-failed", workload="/".join(key), again=f"{self._queue.retry(key):.1f}s")
                )
            finally:
                self._moved_at = time.monotonic()
                self._queue.done(key)

    async def _look_at(self, key: Key) -> None:
        began = time.monotonic()
        try:
            outcome = await self._sharing.run(readmit(*key, self._checks))
        except ApiError as error:
            seconds = self._queue.retry(key, error.retry_after)
            self._metrics.passes.labels("error").inc()
            _log.warning(fields(event="pass-failed", workload="/".join(key), again=f"{seconds:.1f}s", error=error))
            return
        now = time.monotonic()
        self._metrics.passes.labels(outcome.result.value).inc()
        self._metrics.pass_seconds.observe(now - began)
        self._follow(key, outcome, now)

    def _follow(self, key: Key, outcome: Outcome, now: float) -> None:
        """Say what became of the pass, and see to it that the Workload is looked at again if it must be."""
        if outcome.result is Result.CONFLICT:
            self._metrics.conflicts.inc()
            self._say(logging.INFO, key, outcome)
            self._queue.retry(key)
            return
        if outcome.result is Result.WAITING:
            self._wait(key, outcome, now)
            return
        self._queue.forget(key)
        self._waiting.drop(key)
        since = self._since.pop(key, None)
        if outcome.result in (Result.ADMITTED, Result.FOREIGN) and since is not None:
            self._metrics.reserved_seconds.labels(outcome.result.value).observe(now - since)
        self._say(logging.DEBUG if outcome.result is Result.NOTHING else logging.INFO, key, outcome)
        self._recorder.note(key, outcome)

    def _wait(self, key: Key, outcome: Outcome, now: float) -> None:
        assert outcome.reason is not None, "every wait has a reason"
        fresh = self._waiting.get(key) is None
        news = self._waiting.put(key, outcome.reason, outcome.detail, outcome.job, now)
        self._metrics.waits.labels(outcome.reason.value).inc()
        # A wait that goes on as it was is no news.
        self._say(logging.INFO if news else logging.DEBUG, key, outcome)
        self._recorder.note(key, outcome)
        if outcome.reason is Reason.OWNER_UNREADABLE:
            # Nothing wakes what waits for an owner that could not be read. It may be readable in a moment; later on
            # the resync is often enough.
            if self._queue.failures(key) < OWNER_TRIES:
                self._queue.retry(key)
            return
        self._queue.forget(key)
        if fresh:
            # What happened between the first pass's reads and now woke nobody.
            self._queue.add_after(key, FIRST_LOOK_SECONDS)

    def _say(self, level: int, key: Key, outcome: Outcome) -> None:
        if _log.isEnabledFor(level):
            _log.log(
                level,
                fields(
                    event="decision",
                    workload="/".join(key),
                    uid=outcome.workload,
                    result=outcome.result.value,
                    reason=outcome.reason,
                    job=outcome.job,
                    count=outcome.count,
                    detail=outcome.detail,
                ),
            )


def _looks_ours(workload: Workload) -> bool:
    """Whether it seems to be dispatch's: only to look at others first, who wait for nothing.

    Where it is dispatch's by a longer chain of owners, the first pass finds that out, and then it waits.
    """
    owner = workload.meta.owner
    return owner is not None and Identity.parse(owner.name) is not None


async def serve_while_leading(controller: Controller, lost: asyncio.Event) -> None:
    """Run the controller until leadership is lost or this is cancelled; passes under way end between two requests."""
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
