"""Running preflight for callers that block: once for each process, cut off, and what an interrupt leaves.

Over HTTP against the model API server, with the driver, the background loop and the clock that ship.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from dispatch_gates.cluster import Target, run
from dispatch_gates.cluster.preflight import prove, require, run_preflight
from dispatch_gates.contract import names
from dispatch_gates.contract.capability import Verdict
from dispatch_gates.operations.errors import RefusedError
from dispatch_gates.operations.preflight import Asked
from dispatch_gates.requests import Changes, Create, Operation, Pause, Request, UnreachableError, Watch, select
from model import objects
from model.apiserver import ApiServer
from model.http import Front, Served, served
from preflight.model import KUEUE, Stage, lease

T = TypeVar("T")
ASKED = replace(KUEUE, watch_seconds=0.5)


class Timed(Stage):
    """A stage whose time is the real one."""

    def __init__(self) -> None:
        super().__init__()
        self.began = time.monotonic()
        self.put(lease(leaseDurationSeconds=1))

    def _pass(self, seconds: float) -> None:
        del seconds
        super()._pass(0.0)
        self.now = time.monotonic() - self.began
        said = f"2026-01-01T00:00:{self.now:09.6f}Z"
        self.edit(
            names.LEASES, names.CONTROLLER, lambda body: body["spec"].update(renewTime=said), names.CONTROLLER_NAMESPACE
        )

    @property
    def probes(self) -> int:
        """How many probes were created."""
        return sum(isinstance(request, Create) and request.resource == names.TRAINJOBS for request in self.sent)


def against(stage: ApiServer, work: Callable[[Target], T]) -> T:
    """Do blocking work against a stage that is served over HTTP."""

    async def main() -> T:
        async with served(Front(stage)) as server:
            return await asyncio.to_thread(work, _target(server))

    return asyncio.run(main())


def _target(server: Served) -> Target:
    return Target(str(server.kubeconfig))


def test_once_for_each_process() -> None:
    """Whoever asks meanwhile waits; another runtime is the same queue; another queue is another preflight."""
    stage = Timed()

    def work(target: Target) -> None:
        asked = [ASKED, ASKED, replace(ASKED, runtime=("TrainingRuntime", "x")), ASKED]
        with ThreadPoolExecutor(4) as pool:
            reports = list(pool.map(lambda each: prove(target, each), asked))
        assert {id(report) for report in reports} == {id(reports[0])}
        assert reports[0].verdict is Verdict.READY, reports[0]
        assert require(target, ASKED) is reports[0]
        assert stage.probes == 1
        assert prove(target, replace(ASKED, queue=None)).verdict is Verdict.READY
        assert stage.probes == 2

    against(stage, work)


def test_observe_only_is_kept_and_refuses() -> None:
    stage = Timed()
    stage.remove(names.LOCAL_QUEUES, "training")

    def work(target: Target) -> None:
        for _ in range(2):
            with pytest.raises(
                RefusedError, match=r"^observe-only: .*team/training does not exist.*preflight -n team -q"
            ):
                require(target, ASKED)
        assert stage.probes == 1
        others = replace(ASKED, runtime=("A", "b"), check="its own", controller_namespace="gates", lease="l")
        with pytest.raises(
            RefusedError, match="-q training -r A/b --check 'its own' --controller-namespace gates --lease l "
        ):
            require(target, others)

    against(stage, work)


def test_what_could_not_be_told_is_asked_again() -> None:
    stage = Timed()

    def silent(request: Request) -> None:
        if getattr(request, "resource", None) == names.LOCAL_QUEUES:
            raise UnreachableError("no answer", status=503)

    def work(target: Target) -> None:
        stage.before = silent
        assert prove(target, ASKED).cannot_tell
        stage.before = lambda _: None
        assert prove(target, ASKED).verdict is Verdict.READY

    against(stage, work)


def test_given_up_after_its_limit() -> None:
    """Nobody renews the Lease, which is waited for; the probe is gone all the same."""
    stage = Stage()
    warned: list[str] = []

    def work(target: Target) -> None:
        with pytest.raises(UnreachableError, match="given up after 1 s"):
            run_preflight(target, replace(ASKED, watch_seconds=0.5), warn=warned.append, limit_seconds=0.5)

    stage.renews = False
    stage.put(lease(leaseDurationSeconds=60))
    against(stage, work)
    assert [key.name for key in stage.state.objects if key.resource == names.TRAINJOBS] == []
    assert warned == []


def test_an_operation_that_is_cut_off_is_over() -> None:
    """When `run` is left, nothing more of the operation is sent."""
    ended = threading.Event()

    def operation() -> Operation[None]:
        try:
            yield Pause(60)
        finally:
            ended.set()

    def work(target: Target) -> None:
        run(target, select(names.TRAINJOBS, "team", ""))  # the connection is open, and the operation begins at once
        with pytest.raises(UnreachableError):
            run(target, operation(), 1.0)
        assert ended.is_set()

    against(ApiServer(), work)


def test_changes_that_come_together() -> None:
    """With `settle` one reply holds them all; without, the first."""
    server = ApiServer(objects.trainjob())

    def watched(settle: float) -> Changes:
        def operation() -> Operation[Any]:
            return (yield Watch(names.TRAINJOBS, "team", "100", 10, settle=settle))

        began = time.monotonic()
        changes: Changes = against(server, lambda target: run(target, operation()))
        assert time.monotonic() - began < 8
        return changes

    for note in ("a", "b"):
        server.put(objects.trainjob(annotations={"note": note}))
    assert len(watched(0.0).events) == 1
    notes = [body["metadata"].get("annotations", {}).get("note") for body, _ in watched(0.5).events]
    assert notes == [None, "a", "b"]


def test_nothing_changes() -> None:
    def operation() -> Operation[Any]:
        return (yield Watch(names.TRAINJOBS, "team", "100", 0.3, settle=0.1))

    assert against(ApiServer(), lambda target: run(target, operation())) == Changes((), 0.0)


def test_plain_mode_names_no_queue() -> None:
    stage = Timed()
    stage.remove(names.CLUSTER_TRAINING_RUNTIMES, objects.RUNTIME, "")
    asked: Asked = replace(ASKED, queue=None)

    def work(target: Target) -> None:
        command = rf"`dispatch-gates preflight -n team -r \S+/{objects.RUNTIME} --kubeconfig /\S+`"
        with pytest.raises(RefusedError, match=f"namespace team, plain mode.*{command}"):
            require(target, asked)

    against(stage, work)
