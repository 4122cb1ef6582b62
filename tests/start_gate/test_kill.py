"""Kill -9 of the process that runs Start or Open, between any two of its requests; then a second try.

What is tested, in both modes: whatever was reached, there is one TrainJob at the most, and it is closed until Open; a
second Start takes it over, or creates it; a second Open finishes what the first began, and A is raised once.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from dispatch_gates.contract import names
from dispatch_gates.contract.trainjob import TrainJob, parse_trainjob
from start_gate.cut_off import When, run_cut_off
from start_gate.site import Site
from start_gate.webhook import Webhook

KILLED = -signal.SIGKILL
# Start: the runtime, the create, the read-back and, in Kueue mode, the Workload.
STARTS = [("queue", at) for at in (1, 2, 3, 4)] + [(None, at) for at in (1, 2, 3)]
# Open: the job and the write; plain mode reads JobSet, Jobs and pods in between.
OPENS = [("queue", at) for at in (1, 2)] + [(None, at) for at in (1, 2, 3, 4, 5)]
WHEN = pytest.mark.parametrize("when", ["before", "after"])


def _name(value: object) -> str:
    return "plain" if value is None else str(value)


def _closed(job: TrainJob) -> tuple[object, ...]:
    return job.gates.value, job.suspended, job.count, job.past_gate


CLOSED = (names.GATE, True, 0, False)


@pytest.mark.parametrize(("queue", "at"), STARTS, ids=_name)
@WHEN
def test_start(site: Site, queue: str | None, at: int, when: When) -> None:
    asked = site.asked(queue)
    name = asked.identity.name
    assert run_cut_off(site.adapter, asked, at, when) == KILLED
    left = site.get(names.TRAINJOBS, name)
    assert (left is not None) is (at > 2 or (at == 2 and when == "after"))
    if left is not None:
        assert _closed(parse_trainjob(left)) == CLOSED
    again = site.begin(asked)
    assert again.adopted is (left is not None)
    assert _closed(again.job) == CLOSED
    assert left is None or again.job.meta.uid == left["metadata"]["uid"]
    assert not site.begin(replace(asked)).job.past_gate
    assert site.pods_of(again.job) == ()
    site.opened(again.job)
    site.expect_executions(again.job, 1)


@pytest.mark.parametrize(("queue", "at"), OPENS, ids=_name)
@WHEN
def test_open(site: Site, queue: str | None, at: int, when: When) -> None:
    job = site.started(queue)
    site.jobs_exist(job)  # so that Open need not wait
    written = (at, when) == (max(number for mode, number in OPENS if mode == queue), "after")
    assert run_cut_off(site.adapter, (site.namespace, job.meta.name, job.meta.uid), at, when) == KILLED
    left = site.job(job.meta.name)
    if not left.past_gate:
        assert _closed(left) == CLOSED
        assert site.pods_of(job) == ()
    # The write may have lost a race against Trainer, who counts the Jobs: then it is decided anew.
    assert written or not left.past_gate
    assert site.opened(job).already is left.past_gate
    site.running(job, 1)
    site.expect_executions(job, 1)


@pytest.mark.parametrize("queue", ["queue", None], ids=_name)
def test_start_while_the_api_server_works_on_the_create(apart: Site, tmp_path: Path, queue: str | None) -> None:
    """Killed between the request and its answer: the object may be there or not, and the second try knows which.

    (Seen: an API server that said 504 to the dead client, and created it.)
    """
    asked = apart.asked(queue)
    known = threading.Event()
    process: list[int] = []

    def meet(pid: int) -> None:
        process.append(pid)
        known.set()

    with Webhook(apart, tmp_path) as webhook:

        def kill(_: object) -> None:
            assert known.wait(60)
            os.kill(process[0], signal.SIGKILL)

        webhook.changes[asked.identity.name] = kill
        assert run_cut_off(apart.adapter, asked, 0, "before", meet) == KILLED
        webhook.changes.clear()
        again = apart.begin(asked)
        assert _closed(again.job) == CLOSED
        assert apart.begin(asked).job.meta.uid == again.job.meta.uid
    apart.opened(again.job)
    apart.running(again.job, 1)
