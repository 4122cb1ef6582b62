"""Start: create the TrainJob closed, read it back, prove that it is closed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dispatch_gates.contract import names
from dispatch_gates.contract.execution import alive, parse_pod
from dispatch_gates.contract.guard_rails import Level
from dispatch_gates.contract.hazards import hazards
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.manifest import (
    JobSpec,
    Runtime,
    annotation_only,
    manifest,
    name_problem,
    parse_runtime,
    problems,
)
from dispatch_gates.contract.objects import JsonObject, listed, number, parse_meta
from dispatch_gates.contract.readback import differences
from dispatch_gates.contract.trainjob import TrainJob, parse_trainjob
from dispatch_gates.contract.workload import Workload
from dispatch_gates.operations.errors import MayExistError, OperationError, RefusedError
from dispatch_gates.operations.guard_rails import guard_rails
from dispatch_gates.operations.jobs import await_workload, read_job
from dispatch_gates.operations.stop import delete_job
from dispatch_gates.requests import (
    AlreadyExistsError,
    ApiError,
    BadReplyError,
    Create,
    NotServedError,
    Operation,
    UnreachableError,
    find,
    select,
    write,
)

WORKLOAD_SECONDS: Final = 30.0
"""`timeouts.workload`: how long Kueue may take to make the Workload, in seconds."""


_EARLIER: Final = 20
"""Pods of how many earlier submissions are looked for: submissions go up by one."""


@dataclass(frozen=True)
class Started:
    """A job that is recorded by the API server; closed, unless it was taken over open.

    `warnings` are for people: what the runtime may do inside one admission. `annotation_only` are the replicated jobs
    whose containers are not given A: their pods carry it as an annotation.
    """

    job: TrainJob
    adopted: bool
    warnings: tuple[str, ...] = ()
    annotation_only: tuple[str, ...] = ()


def start(
    asked: JobSpec,
    *,
    check: str = names.ADMISSION_CHECK,
    workload_seconds: float = WORKLOAD_SECONDS,
    strict_executions: bool = False,
) -> Operation[Started]:
    """Create the TrainJob closed and prove it, or take over the one that an earlier try created.

    `check` is the AdmissionCheck that the Workload must list (Kueue mode). `strict_executions` asks that every
    execution has an A of its own, restarts too. Raises `RefusedError` with nothing
    left behind that could run, `MayExistError` where the API server did not say what became of the create, and
    `ApiError` where nothing was created.
    """
    runtime = yield from _runtime(asked)
    if strict_executions:
        yield from _refuse_restarts(asked.namespace, runtime)
    body = manifest(asked, [name for name, *_ in runtime.replicated_jobs])
    job, adopted = yield from _create(asked, body)
    started = Started(
        job, adopted, tuple(str(hazard) for hazard in hazards(runtime)), annotation_only(runtime, asked.spec)
    )
    if adopted and job.past_gate:
        return started
    if changed := differences(body, job.raw, adopted=adopted):
        what = "; ".join(str(difference) for difference in changed)
        yield from _stop_and_refuse(job, f"the API server holds something else than was sent: {what}")
    try:
        why = (yield from _another_submission(asked)) or (yield from _unproven(asked, job, check, workload_seconds))
    except ApiError as error:
        raise MayExistError(
            f"TrainJob {asked.namespace}/{asked.identity.name} exists, closed, but its gate could not be proven: "
            f"{error}. It cannot run before it is opened. Repeat this: the same job is then taken over."
        ) from error
    if why:
        yield from _stop_and_refuse(job, why)
    return started


def _runtime(asked: JobSpec) -> Operation[Runtime]:
    """Check all that can be checked before the first write; return the runtime."""
    if wrong := problems(asked):
        raise RefusedError("; ".join(f"{path}: {message}" for path, message in wrong))
    kind, name = asked.runtime
    namespaced = kind == names.TRAINING_RUNTIMES.kind
    resource = names.TRAINING_RUNTIMES if namespaced else names.CLUSTER_TRAINING_RUNTIMES
    raw = yield from find(resource, asked.namespace if namespaced else "", name)
    if raw is None:
        raise RefusedError(f"{kind} {name} does not exist; create it, or name one that `kubectl get {resource}` lists.")
    runtime = parse_runtime(raw)
    if problem := name_problem(asked.identity, runtime, number(asked.spec, "trainer", "numNodes")):
        raise RefusedError(problem)
    if fatal := [str(hazard) for hazard in hazards(runtime) if hazard.fatal]:
        raise RefusedError(f"{kind} {name} cannot be used for a gated job: {'; '.join(fatal)}. Remove the setting.")
    return runtime


def _refuse_restarts(namespace: str, runtime: Runtime) -> Operation[None]:
    """Refuse a runtime that restarts inside one admission, and any where the API server does not keep it from that."""
    found = hazards(runtime)
    if found:
        what = "; ".join(str(hazard) for hazard in found)
        raise RefusedError(f"strict_executions: {runtime.kind} {runtime.name} may restart under the same A: {what}.")
    rails = yield from guard_rails(namespace)
    if rails.level is not Level.EXECUTIONS:
        raise RefusedError(
            f"strict_executions needs the guard rails at level `executions`, which are not in force in namespace "
            f"{namespace} ({rails.why}): install them, or leave it out and let containers compare "
            "DISPATCH_RESTART_ATTEMPT beside A."
        )


def _create(asked: JobSpec, body: JsonObject) -> Operation[tuple[TrainJob, bool]]:
    """Create the TrainJob and read it back, or find the one that is there already."""
    name, lost = asked.identity.name, ""
    try:
        stored = yield from write(Create(names.TRAINJOBS, body))
        uid, adopted = parse_trainjob(stored).meta.uid, False
    except (AlreadyExistsError, UnreachableError, BadReplyError) as error:
        uid, adopted, lost = None, True, "" if isinstance(error, AlreadyExistsError) else str(error)
    try:
        job = yield from read_job(asked.namespace, name, uid)
    except ApiError as error:
        raise MayExistError(
            f"TrainJob {asked.namespace}/{name} may exist, closed: the API server did not answer ({error}). "
            "It cannot run. Repeat this when the API server answers: the same job is then taken over."
        ) from error
    if job is None:
        if lost:
            raise MayExistError(
                f"TrainJob {asked.namespace}/{name} was not created, as far as can be seen: {lost}. Should it appear "
                "after all, it is closed. Repeat this: it is then taken over."
            )
        raise RefusedError(f"TrainJob {asked.namespace}/{name} was deleted by somebody while it was started.")
    if adopted:
        _assert_ours(asked, job)
    return job, adopted


def _another_submission(asked: JobSpec) -> Operation[str]:
    """Say which other submission of this ULID is there, or still runs; empty if none.

    Asked once our own is there, so that of two which start at once at least one sees the other.
    """
    name, ulid = asked.identity.name, asked.identity.ulid
    remedy = "Submissions of one job do not run beside each other: stop that one first (`dispatch-gates stop`)."
    jobs = yield from select(names.TRAINJOBS, asked.namespace, f"{names.ULID_LABEL}={ulid}")
    others = sorted({parse_meta(raw).name for raw in jobs.items} - {name})
    if others:
        return f"TrainJob {listed(others, len(others))} of the same ULID is there. {remedy}"
    last = asked.identity.submission - 1
    if last > 0:  # pods of one that was deleted by hand
        earlier = [Identity(ulid, number).name for number in range(max(last - _EARLIER, 0) + 1, last + 1)]
        pods = yield from select(names.PODS, asked.namespace, f"{names.JOBSET_NAME} in ({','.join(earlier)})")
        left = alive(map(parse_pod, pods.items))
        if left:
            return (
                f"pods of an earlier submission may still run: {listed(left, len(left))}. Wait until they are gone, "
                "and repeat this."
            )
    return ""


def _assert_ours(asked: JobSpec, job: TrainJob) -> None:
    """Refuse to take over a TrainJob that is not what this request would have created."""
    seen = f"TrainJob {job.meta.namespace}/{job.meta.name} exists already (uid {job.meta.uid})"
    if job.meta.deleting:
        raise RefusedError(f"{seen} and is being deleted; wait until it is gone, then raise `submission`.")
    if job.owner_mark != asked.owner:
        raise RefusedError(
            f"{seen} and belongs to {job.owner_mark!r}, not to {asked.owner!r}; it was not touched. Take another "
            "identity; a resource that was only renamed takes `aliases`."
        )
    if job.spec_hash != asked.digest():
        command = f"`dispatch-gates stop {job.meta.name} -n {job.meta.namespace}`"
        raise RefusedError(
            f"{seen} with another specification; it was not touched. "
            + (
                f"It was opened: stop it ({command}), then raise `submission`."
                if job.past_gate
                else f"It was never opened: put the specification back, or delete it ({command}), and repeat this."
            )
        )


def _unproven(asked: JobSpec, job: TrainJob, check: str, seconds: float) -> Operation[str]:
    """Wait for the Workload, in Kueue mode; say what the proof that the job is closed lacks, empty if nothing."""
    if asked.queue is None:
        return ""
    try:
        workload = yield from await_workload(job, seconds, lambda seen: _proof(seen, check) is None)
    except NotServedError:
        return "the cluster has no kind Workload: is Kueue installed? Without a queue, Start needs no Kueue."
    return _no_proof(workload, check, asked.queue, seconds)


def _proof(workload: Workload, check: str) -> str | None:
    """Return what this Workload lacks to prove that the job is closed and will stay checked."""
    # Kueue copies the gate to a Workload while that is active, and admits none that is not.
    if workload.active and not workload.gates.ours:
        return f"its Workload {workload.meta.name} does not carry the gate: is Kueue's AdmissionGatedBy off?"
    if workload.entry({check}) is None:
        return f"its Workload {workload.meta.name} does not list AdmissionCheck {check}"
    return None


def _no_proof(workload: Workload | None, check: str, queue: str, seconds: float) -> str:
    if workload is None:
        return (
            f"Kueue made no Workload within {seconds:g} s: it does not manage this TrainJob. Is Kueue running, with "
            "the integration trainer.kubeflow.org/trainjob on?"
        )
    if why := _proof(workload, check):
        reserved = workload.conditions.get("QuotaReserved")
        said = f" (Kueue says: {reserved.message})" if reserved and reserved.message else ""
        return f"{why}{said}. Does LocalQueue {queue} exist, and does its ClusterQueue name the check?"
    return ""


def _stop_and_refuse(job: TrainJob, why: str) -> Operation[None]:
    """Delete what was created, so that nothing unproven is left, and refuse."""
    where = f"TrainJob {job.meta.namespace}/{job.meta.name}"
    try:
        yield from delete_job(job.meta.namespace, job.meta.name, job.meta.uid)
    except (ApiError, OperationError) as error:
        raise RefusedError(
            f"{where} was not started: {why} It could not be deleted ({error}): "
            f"kubectl -n {job.meta.namespace} delete trainjob {job.meta.name}"
        ) from error
    raise RefusedError(f"{where} was not started and is deleted again: {why}")
