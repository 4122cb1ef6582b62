"""Preflight's look at the runtimes: what they can do behind the gates' back, and whether started jobs differ."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dispatch_gates.contract import names
from dispatch_gates.contract.capability import Answer, Capability, Name
from dispatch_gates.contract.hazards import Hazard, hazards
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.manifest import Runtime, name_problem, parse_runtime
from dispatch_gates.contract.objects import JsonObject, dig, listed, parse_meta
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_gates.operations.preflight.values import Asked
from dispatch_gates.requests import DeniedError, Operation, find, select

_KINDS: Final = (names.TRAINING_RUNTIMES, names.CLUSTER_TRAINING_RUNTIMES)
_USABLE_REMEDY: Final = "take the setting out of the runtime"


def read_runtimes(asked: Asked) -> Operation[tuple[Runtime, ...]]:
    """Read the runtime that was asked for, or all that jobs of the namespace can use; those of the namespace first."""
    found: list[Runtime] = []
    for resource in _KINDS:
        namespace = asked.namespace if resource is names.TRAINING_RUNTIMES else ""
        if asked.runtime is None:
            raws: Iterable[JsonObject] = (yield from select(resource, namespace, "")).items
        elif asked.runtime[0] == resource.kind:
            raw = yield from find(resource, namespace, asked.runtime[1])
            raws = () if raw is None else (raw,)
        else:
            continue
        # Items of a list do not always say their kind.
        found += sorted((parse_runtime({**raw, "kind": resource.kind}) for raw in raws), key=lambda each: each.name)
    return tuple(found)


def suited(runtimes: Iterable[Runtime], probe: Identity) -> Runtime | None:
    """Return the first runtime that a job, and so the probe, can use."""
    for runtime in runtimes:
        if not any(hazard.fatal for hazard in hazards(runtime)) and name_problem(probe, runtime, 1) is None:
            return runtime
    return None


def judge_runtimes(asked: Asked, runtimes: tuple[Runtime, ...]) -> Capability:
    """Say which runtimes a gated job can use, and which begin executions again inside one admission."""
    if not runtimes:
        what = " ".join(asked.runtime) + " does not exist" if asked.runtime else "there is no runtime"
        return Capability(Name.RUNTIMES, Answer.NO, what, "kubectl get clustertrainingruntimes,trainingruntimes -A")
    fatal = [line for runtime in runtimes for line in _lines(runtime, fatal=True)]
    restarts = [line for runtime in runtimes for line in _lines(runtime, fatal=False)]
    possible = f"in-admission restarts: possible ({'; '.join(restarts)})" if restarts else "no in-admission restarts"
    usable = [runtime for runtime in runtimes if not any(hazard.fatal for hazard in hazards(runtime))]
    if not fatal:
        what = listed([f"{runtime.kind} {runtime.name}" for runtime in runtimes], len(runtimes))
        remedy = "compare (A, restart attempt) in the containers, or change the runtime" if restarts else ""
        return Capability(Name.RUNTIMES, Answer.YES, f"{what}: {possible}", remedy)
    # Start refuses these; with another one that can be used, jobs can be gated here all the same.
    needed = not usable
    return Capability(
        Name.RUNTIMES, Answer.NO, f"cannot be used: {'; '.join(fatal)}; {possible}", _USABLE_REMEDY, needed
    )


def _lines(runtime: Runtime, *, fatal: bool) -> list[str]:
    found = [hazard for hazard in hazards(runtime) if hazard.fatal is fatal]
    return [f"{runtime.kind} {runtime.name}: {', '.join(map(str, found))}"] if found else []


def read_started(asked: Asked, jobs: Iterable[TrainJob], runtimes: tuple[Runtime, ...]) -> Operation[Capability]:
    """Say whether jobs that were started earlier restart in other ways than their runtime does now.

    A job keeps the runtime that it was started with; what it really does is in its JobSet.
    """
    live = {job.meta.name: job for job in jobs if _is_live(job)}
    if not live:
        return Capability(Name.STARTED_JOBS, Answer.YES, "none that has not ended", needed=False)
    known = {(runtime.kind, runtime.name): runtime for runtime in runtimes}
    try:
        listing = yield from select(names.JOBSETS, asked.namespace, "")
    except DeniedError as error:
        return Capability(Name.STARTED_JOBS, Answer.UNKNOWN, str(error), "see Rights", needed=False)
    return judge_started(live, known, listing.items)


def _is_live(job: TrainJob) -> bool:
    identity = Identity.parse(job.meta.name)
    return identity is not None and identity.submission > 0 and not job.ended and not job.meta.deleting


def judge_started(
    live: dict[str, TrainJob], known: dict[tuple[str, str], Runtime], jobsets: Iterable[JsonObject]
) -> Capability:
    """Compare the JobSets of live jobs with their runtimes as they are now."""
    changed: list[str] = []
    for raw in jobsets:
        job = live.get(parse_meta(raw).name)
        runtime = known.get(job.runtime) if job is not None else None
        if job is None or runtime is None:
            continue
        as_started = Runtime(runtime.kind, runtime.name, (), 1, {"spec": {"template": {"spec": dig(raw, "spec")}}})
        now, then = _all(runtime), _all(as_started)
        if now != then:
            differing = ", ".join(sorted(now ^ then))
            changed.append(f"{job.meta.name} ({runtime.kind} {runtime.name}: {differing})")
    if not changed:
        return Capability(
            Name.STARTED_JOBS, Answer.YES, f"{len(live)} that restart as their runtimes say", needed=False
        )
    return Capability(
        Name.STARTED_JOBS,
        Answer.NO,
        f"restart otherwise than their runtimes say now: {listed(sorted(changed), len(changed))}",
        "nothing, if (A, restart attempt) is compared; else start the next submission",
        needed=False,
    )


def _all(runtime: Runtime) -> set[str]:
    return {_short(hazard) for hazard in hazards(runtime)}


def _short(hazard: Hazard) -> str:
    return hazard.field.removeprefix("spec.template.spec.")
