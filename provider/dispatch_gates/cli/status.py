"""`status`: where one job, all jobs of a namespace, or those of a queue stand; and the controller."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from dispatch_gates.cli.common import (
    Printer,
    check_option,
    cluster_options,
    job_name,
    lease_options,
    namespace_option,
    output_option,
    run,
    warn,
)
from dispatch_gates.cli.exits import Exit, Failure, failure

if TYPE_CHECKING:
    from dispatch_gates.cli.terminal import Terminal
    from dispatch_gates.cluster import Target
    from dispatch_gates.operations.overview import Controller, Queue
    from dispatch_gates.operations.status import Status

_WAKE_SECONDS: Final = 2.0
"""How long a change that no TrainJob shows (of a pod, of a Workload) may go unnoticed while watching."""
_LABEL: Final = 12


@dataclass(frozen=True)
class _Asked:
    """What status was asked."""

    target: Target
    namespace: str
    name: str | None
    queue: str | None
    check: str
    controller_namespace: str
    lease: str


@dataclass(frozen=True)
class _Seen:
    """What status read."""

    jobs: tuple[Status, ...]
    queue: Queue | None
    controller: Controller
    version: str


@click.command("status")
@click.argument("name", required=False, callback=job_name)
@namespace_option
@click.option("-q", "--queue", help="Only the jobs of this LocalQueue.")
@click.option("-w", "--watch", "follow", is_flag=True, help="Go on: a line for each change, until Ctrl-C.")
@check_option
@lease_options
@output_option
@cluster_options
def command(
    name: str | None,
    namespace: str,
    queue: str | None,
    follow: bool,
    check: str,
    controller_namespace: str,
    lease: str,
    output: str,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Say where the job NAME stands, and why; without NAME, where all jobs of the namespace stand.

    \b
    Examples:
      dispatch-gates status dj-01arz3ndektsv4rrffq69g5fav-s1 -n training
      dispatch-gates status -n training -q gpus
      dispatch-gates status -n training --watch
    """  # noqa: D301  # click reads the escape
    from dispatch_gates.cluster import Target

    asked = _Asked(Target(kubeconfig, context), namespace, name, queue, check, controller_namespace, lease)
    printer = Printer(output)
    seen = _read(asked)
    if name is not None and not seen.jobs:
        raise failure(Exit.NO, f"there is no TrainJob {namespace}/{name}.")
    if printer.for_people:
        from dispatch_gates.cli.terminal import Terminal

        terminal = Terminal()
        _show(terminal, asked, seen)
        if follow:
            for status in _changes(asked, seen):
                _show_change(terminal, status)
        return
    printer.document(_document(asked, seen), compact=follow)
    if follow:
        for status in _changes(asked, seen):
            printer.document({"jobs": [_job(status)]}, compact=True)


def _read(asked: _Asked) -> _Seen:
    from dispatch_gates.operations import overview
    from dispatch_gates.operations.status import status

    controller = run(asked.target, overview.controller(asked.controller_namespace, asked.lease))
    if asked.name is not None:
        found = run(asked.target, status(asked.namespace, asked.name, check=asked.check))
        jobs = () if found is None else (found,)
        return _Seen(jobs, None, controller, jobs[0].job.meta.resource_version if jobs else "")
    queue = run(asked.target, overview.queue_state(asked.namespace, asked.queue)) if asked.queue else None
    whole = run(asked.target, overview.overview(asked.namespace, asked.queue, check=asked.check))
    return _Seen(whole.jobs, queue, controller, whole.version)


def _changes(asked: _Asked, seen: _Seen) -> Iterator[Status]:
    """Yield each job whose state, reason or A changed; ends where the one job asked for is gone."""
    from dispatch_gates.operations.overview import await_change

    last = {status.job.meta.uid: _key(status) for status in seen.jobs}
    while seen.jobs or asked.name is None:
        try:
            run(asked.target, await_change(asked.namespace, seen.version, _WAKE_SECONDS, asked.name or ""))
            seen = _read(asked)
        except Failure as error:
            warn(f"{error.message}; still looking")
            time.sleep(_WAKE_SECONDS)
            continue
        for status in seen.jobs:
            if last.get(status.job.meta.uid) != _key(status):
                yield status
        last = {status.job.meta.uid: _key(status) for status in seen.jobs}
    warn(f"TrainJob {asked.namespace}/{asked.name} is gone.")


def _key(status: Status) -> tuple[object, ...]:
    return status.state, status.why, status.admission_count


def _count(status: Status) -> str:
    return "?" if status.admission_count is None else str(status.admission_count)


def _show(terminal: Terminal, asked: _Asked, seen: _Seen) -> None:
    if asked.name is not None:
        _show_one(terminal, seen.jobs[0])
    else:
        _show_all(terminal, asked, seen)
    if seen.queue is not None:
        queue = seen.queue
        counts = f"{queue.pending} pending, {queue.reserving} with quota, {queue.admitted} admitted"
        said = queue.problem or f"ClusterQueue {queue.cluster_queue}, active; {counts}"
        terminal.row(("queue", _LABEL, "bold"), (f"{queue.name}: {said}", 0, "red" if queue.problem else ""))
    controller = seen.controller
    said = controller.problem or f"led by {controller.holder}, last renewed {controller.renewed}"
    terminal.row(
        ("controller", _LABEL, "bold"), (f"Lease {controller.lease} {said}", 0, "red" if controller.problem else "")
    )


def _show_all(terminal: Terminal, asked: _Asked, seen: _Seen) -> None:
    if not seen.jobs:
        where = f"queue {asked.queue} of namespace {asked.namespace}" if asked.queue else f"namespace {asked.namespace}"
        terminal.line(f"no jobs in {where}")
        return
    if terminal.wide:
        rows = [(each.job.meta.name, str(each.state), _count(each), each.verdict.since, each.why) for each in seen.jobs]
        terminal.table(("JOB", "STATE", "A", "SINCE", "WHY"), rows)
        return
    for each in seen.jobs:
        since = f", since {each.verdict.since}" if each.verdict.since else ""
        terminal.line(each.job.meta.name, "bold")
        terminal.row(("", 4, ""), (f"{each.state}, A={_count(each)}{since}", 0, ""))
        terminal.row(("", 4, ""), (each.why, 0, ""))


def _show_one(terminal: Terminal, status: Status) -> None:
    job = status.job
    mode = f"Kueue mode, queue {job.queue}" if job.kueue_mode else "plain mode"
    lines = [
        ("state", f"{status.state}, A={_count(status)}"),
        ("why", status.why),
        ("since", status.verdict.since or "not told"),
        ("mode", mode),
        *(("pod", f"{pod}, A={pod.count}") for pod in status.evidence.pods),
        *(
            ("check", f"{check.name}: {check.state}{f', {check.message}' if check.message else ''}")
            for check in (status.workload.checks if status.workload else ())
        ),
        *(("gate", name) for name in job.gates.names),
    ]
    terminal.line(job.meta.name, "bold")
    for label, text in lines:
        terminal.row((label, _LABEL, "bold"), (text, 0, ""))


def _show_change(terminal: Terminal, status: Status) -> None:
    now = time.strftime("%H:%M:%S")
    said = f"{status.state}, A={_count(status)}"
    if terminal.wide or not terminal.is_terminal:
        terminal.row((now, 10, "dim"), (status.job.meta.name, 34, ""), (said, 28, "bold"), (status.why, 0, ""))
        return
    terminal.row((now, 10, "dim"), (f"{status.job.meta.name}: {said}", 0, "bold"))
    terminal.row(("", 10, ""), (status.why, 0, ""))


def _document(asked: _Asked, seen: _Seen) -> dict[str, Any]:
    controller = seen.controller
    found: dict[str, Any] = {
        "namespace": asked.namespace,
        "jobs": [_job(status) for status in seen.jobs],
        "controller": {
            "lease": controller.lease,
            "holder": controller.holder,
            "renewed": controller.renewed,
            "problem": controller.problem,
        },
    }
    if seen.queue is not None:
        queue = seen.queue
        found["queue"] = {
            "name": queue.name,
            "clusterQueue": queue.cluster_queue,
            "pending": queue.pending,
            "reserving": queue.reserving,
            "admitted": queue.admitted,
            "problem": queue.problem,
        }
    return found


def _job(status: Status) -> dict[str, Any]:
    job = status.job
    return {
        "name": job.meta.name,
        "namespace": job.meta.namespace,
        "uid": job.meta.uid,
        "mode": "kueue" if job.kueue_mode else "plain",
        "queue": job.queue,
        "state": str(status.state),
        "why": status.why,
        "since": status.verdict.since,
        "admissionCount": status.admission_count,
        "held": job.held,
        "opened": job.past_gate,
        "heldBy": list(job.gates.others),
        "pods": [
            {"name": pod.meta.name, "phase": pod.phase, "node": pod.node, "deleting": pod.meta.deleting}
            for pod in status.evidence.pods
        ],
        "checks": [
            {"name": check.name, "state": check.state, "message": check.message}
            for check in (status.workload.checks if status.workload else ())
        ],
    }
