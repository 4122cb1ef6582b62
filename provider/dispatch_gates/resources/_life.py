"""What a resource does in the cluster at each call of the engine: the project's operations, put together.

Generators of requests, like the operations themselves. Each first makes sure that it talks to the cluster that
the job is in, so that a wrong context is an error and never "the job is gone".
"""

from __future__ import annotations

from typing import Any

from dispatch_gates.contract.manifest import JobSpec
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_gates.operations.errors import RefusedError
from dispatch_gates.operations.holding import hold, release
from dispatch_gates.operations.jobs import read_job
from dispatch_gates.operations.opening import open_job, read_openable
from dispatch_gates.operations.start import Started, start
from dispatch_gates.operations.status import JobState, left_behind, status
from dispatch_gates.operations.stop import stop
from dispatch_gates.requests import Operation
from dispatch_gates.resources._inputs import Props, name_of
from dispatch_gates.resources._running import in_cluster
from dispatch_gates.resources.job_inputs import setting


def started(asked: JobSpec, props: Props) -> Operation[tuple[Props, Started]]:
    """Start the job; return the outputs and what Start answered."""
    cluster = yield from in_cluster(None, props)
    done = yield from start(
        asked,
        check=setting(props, "check"),
        workload_seconds=setting(props, "workload_timeout_seconds"),
        strict_executions=setting(props, "strict_executions"),
    )
    outs = {**_inputs(props), "cluster": cluster, "uid": done.job.meta.uid, "name": done.job.meta.name}
    if props.get("hold") is None and not done.job.past_gate:
        return outs | _seen(done.job, JobState.GATED, "not opened yet"), done
    # To be held from the start, or taken over from an interrupted run and opened meanwhile.
    yield from _held_or_released(props, outs)
    return outs | (yield from _status(outs)), done


def to_prove(olds: Props, news: Props) -> Operation[TrainJob | None]:
    """Return the job if it is to be opened or released, which takes a proven gate; None if not."""
    yield from in_cluster(olds["cluster"], news)
    job = yield from read_job(olds["namespace"], olds["name"], olds["uid"])
    if job is None:
        return None  # what is done next says so
    opens = not job.past_gate and news.get("opened") is True
    return job if opens or (job.held and news.get("hold") is False) else None


def updated(olds: Props, news: Props) -> Operation[Props]:
    """Open, hold or release the job where that is asked for; return the outputs. Nothing else is ever written."""
    cluster = yield from in_cluster(olds["cluster"], news)
    outs = {**_inputs(news), "owner": olds["owner"], "cluster": cluster, "uid": olds["uid"], "name": olds["name"]}
    if news.get("hold") is True:
        yield from _held_or_released(news, outs)  # before it is opened, so that it does not run in between
    if news.get("opened") is True:
        seconds = setting(news, "workload_timeout_seconds")
        yield from open_job(outs["namespace"], outs["name"], outs["uid"], seconds=seconds)
    if news.get("hold") is False:
        yield from _held_or_released(news, outs)
    outs |= yield from _status(outs)
    if news.get("opened") is False and outs["is_open"]:
        raise RefusedError(
            f"TrainJob {outs['namespace']}/{outs['name']} is open, and what was opened cannot be closed again: leave "
            "`opened` out, or raise `submission`."
        )
    return outs


def refreshed(props: Props) -> Operation[Props | None]:
    """Read where the job stands; return the outputs, or None where it and its pods are gone."""
    yield from in_cluster(props["cluster"], props)
    namespace, name = props["namespace"], props["name"]
    seen = yield from status(namespace, name, props["uid"], check=setting(props, "check"))
    if seen is not None:
        return {**_inputs(props), **_kept(props), **_seen(seen.job, seen.state, seen.why)}
    if left := (yield from left_behind(namespace, name)):
        # Kept, so that the next submission waits for it: one that was dropped would be started anew beside it.
        why = f"its TrainJob is gone; left: {left}"
        return {**_inputs(props), "state": str(JobState.DELETING), "reason": why}
    return None


def deleted(props: Props) -> Operation[None]:
    """Delete the job and wait until it and its pods are gone."""
    yield from in_cluster(props["cluster"], props)
    seconds = setting(props, "delete_timeout_seconds")
    yield from stop(props["namespace"], props["name"], props["uid"], seconds=seconds)


def openable(props: Props) -> Operation[TrainJob]:
    """Read a job that is open, or could be opened now; raise what `opened` would where it is neither."""
    yield from in_cluster(props["cluster"], props)
    return (yield from read_openable(props["namespace"], props["name"], props["uid"]))


def opened(props: Props) -> Operation[Props]:
    """Open a recorded job; return the outputs of its opening."""
    yield from in_cluster(props["cluster"], props)
    name = name_of(props)
    assert name == props["name"], f"{props['name']} is not the name of {props['ulid']}, {props['submission']}"
    seconds = setting(props, "workload_timeout_seconds")
    done = yield from open_job(props["namespace"], name, props["uid"], seconds=seconds)
    return {**_inputs(props), "already": done.already, "held_by": list(done.held_by)}


def _held_or_released(props: Props, outs: Props) -> Operation[None]:
    """Do what `hold` asks for, where it asks for anything that is not so. An ended job runs no more, held or not."""
    where = (outs["namespace"], outs["name"], outs["uid"])
    wanted = props.get("hold")
    job = None if wanted is None else (yield from read_job(*where))
    if job is None or job.ended or (not wanted and not job.held):
        return
    if wanted:
        yield from hold(*where)
    else:
        yield from release(*where, seconds=setting(props, "release_timeout_seconds"))


def _status(outs: Props) -> Operation[dict[str, Any]]:
    seen = yield from status(outs["namespace"], outs["name"], outs["uid"], check=setting(outs, "check"))
    if seen is None:
        raise _gone(outs)
    return _seen(seen.job, seen.state, seen.why)


def _gone(outs: Props) -> RefusedError:
    return RefusedError(
        f"TrainJob {outs['namespace']}/{outs['name']} (uid {outs['uid']}) is gone: run `pulumi refresh`, then raise "
        "`submission` to start it anew."
    )


def _seen(job: TrainJob, state: JobState, why: str) -> dict[str, Any]:
    return {
        "mode": "kueue" if job.kueue_mode else "plain",
        "state": str(state),
        "reason": why,
        "is_open": job.past_gate,
        "held": job.held,
        "held_by": list(job.gates.others),
        "admission_count": job.count if isinstance(job.count, int) else None,
    }


def _inputs(props: Props) -> Props:
    return {key: value for key, value in props.items() if key != "__provider"}


def _kept(props: Props) -> Props:
    return {key: props[key] for key in ("cluster", "uid", "name", "owner")}
