"""Scenarios from public bug reports (BL-…), as far as they are about real systems.

What is tested: the comma list of gates on the real webhooks (BL-13), runtimes that run ended jobs again (BL-14), names
at their limits against the real JobSet (BL-16), runtimes that restart inside an admission (BL-17), whose containers the
real Trainer gives A, and other writers between our read and our write (BL-21, BL-22).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from ulid import ULID

from dispatch_gates.contract import names
from dispatch_gates.contract.hazards import FORCED_DELETION
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.contract.trainjob import TrainJob
from dispatch_gates.operations.errors import RefusedError, TimedOutError
from dispatch_gates.operations.holding import hold
from dispatch_gates.operations.opening import Opened, open_job
from dispatch_gates.operations.tries import CONFLICTS
from dispatch_gates.requests import DeniedError, InvalidError, Replace, Request
from start_gate.site import Site
from world import ADAPTER_ACCOUNT, initializer, stepped, until

G = names.GATE


# BL-13


@pytest.mark.parametrize(
    ("value", "left", "held_by"),
    [
        (G, None, ()),
        (f"a.io/x,{G}", "a.io/x", ("a.io/x",)),
        (f" a.io/x , {G} ", "a.io/x", ("a.io/x",)),
        (f"{G},a.io/x", "a.io/x", ("a.io/x",)),
        (f"b.io/y,{G},a.io/x", "b.io/y,a.io/x", ("b.io/y", "a.io/x")),
    ],
    ids=repr,
)
def test_our_entry_leaves_the_list(site: Site, value: str, left: str | None, held_by: tuple[str, ...]) -> None:
    job = _with_gates(site, value)
    opened = site.opened(job)
    assert (opened.already, opened.held_by) == (False, held_by)
    assert site.job(job.meta.name).gates.value == left
    assert site.opened(job).already


@pytest.mark.parametrize("value", ["a.io/x", f"a.io/x,x{G}", "a.io/x,dispatch.phpboyscout.uk/gates"], ids=repr)
def test_only_whole_names_are_ours(site: Site, value: str) -> None:
    job = _with_gates(site, value, f"{G},{value}")
    site.opened(job)
    before = site.job(job.meta.name).raw["metadata"]["annotations"]
    opened = site.opened(job)
    assert (opened.already, opened.held_by) == (True, tuple(value.split(",")))
    assert site.job(job.meta.name).raw["metadata"]["annotations"] == before
    assert before[names.ADMISSION_GATED_BY] == value


def _with_gates(site: Site, value: str, whole: str | None = None) -> TrainJob:
    gates = {names.ADMISSION_GATED_BY: whole or value}
    return site.by_hand(site.asked("queue"), lambda body: body["metadata"]["annotations"].update(gates))


# BL-14, BL-17


def _jobset(**fields: Any) -> Callable[[JsonObject], object]:
    return lambda jobset: jobset.update(fields)


def _job(**fields: Any) -> Callable[[JsonObject], object]:
    return lambda jobset: jobset["replicatedJobs"][0]["template"]["spec"].update(fields)


def _pod(**annotations: str) -> Callable[[JsonObject], object]:
    def edit(jobset: JsonObject) -> None:
        jobset["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"] = {"annotations": annotations}

    return edit


@pytest.mark.parametrize("queue", ["queue", None], ids=["Kueue mode", "plain mode"])
@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (_jobset(ttlSecondsAfterFinished=60), "spec.template.spec.ttlSecondsAfterFinished"),
        (_job(ttlSecondsAfterFinished=60), "replicatedJobs[node].template.spec.ttlSecondsAfterFinished"),
        (_pod(**{FORCED_DELETION: "true"}), FORCED_DELETION),
    ],
    ids=["JobSet's time to live", "Job's time to live", "forced deletion"],
)
def test_a_runtime_that_is_refused(
    site: Site, queue: str | None, edit: Callable[[JsonObject], object], field: str
) -> None:
    name = f"refused-{str(ULID()).lower()}"
    site.runtime(name, edit)
    asked = site.asked(queue, runtime=name)
    with pytest.raises(RefusedError, match="cannot be used for a gated job") as caught:
        site.begin(asked)
    assert field in str(caught.value)
    assert site.get(names.TRAINJOBS, asked.identity.name) is None


@pytest.mark.parametrize(
    ("edit", "fields"),
    [
        (_jobset(), []),
        (_jobset(failurePolicy={"maxRestarts": 3, "restartStrategy": "BlockingRecreate"}), []),
        (_jobset(failurePolicy={"maxRestarts": 3}), ["failurePolicy.maxRestarts"]),
        (_job(backoffLimit=6), ["backoffLimit"]),
        (_job(podReplacementPolicy="TerminatingOrFailed"), ["podReplacementPolicy"]),
    ],
    ids=["none", "blocking restarts", "restarts", "backoff", "early replacement"],
)
def test_a_runtime_that_is_warned_of(site: Site, edit: Callable[[JsonObject], object], fields: list[str]) -> None:
    name = f"warned-{str(ULID()).lower()}"
    site.runtime(name, edit)
    warnings = site.begin(site.asked(None, runtime=name)).warnings
    assert len(warnings) == len(fields)
    assert [field for field, warning in zip(fields, warnings, strict=True) if field not in warning] == []


def test_replicated_jobs_whose_containers_are_not_given_a_are_named(site: Site) -> None:
    """Seen in the JobSet that Trainer makes: each of the others has the variable, these have not."""

    def add_launcher(jobset: JsonObject) -> None:
        launcher = copy.deepcopy(jobset["replicatedJobs"][0])
        launcher["name"] = "launcher"
        del launcher["template"]["metadata"]
        jobset["replicatedJobs"].append(launcher)

    name = f"launcher-{str(ULID()).lower()}"
    site.runtime(name, add_launcher)
    started = site.begin(site.asked(None, runtime=name))
    assert started.annotation_only == ("launcher",)
    until("the JobSet", lambda: site.get(names.JOBSETS, started.job.meta.name))
    jobset = site.get(names.JOBSETS, started.job.meta.name)
    assert jobset is not None
    without = [
        job["name"]
        for job in jobset["spec"]["replicatedJobs"]
        for container in job["template"]["spec"]["template"]["spec"]["containers"]
        if names.ENV_ADMISSION_COUNT not in {env["name"] for env in container.get("env", [])}
    ]
    assert tuple(without) == started.annotation_only
    site.end(started.job)


# BL-16


@pytest.fixture(scope="module")
def named(site: Site) -> Site:
    """Return a site with runtimes that make long names."""
    site.runtime("initialized", initializer)

    def rename(jobset: JsonObject) -> None:
        jobset["replicatedJobs"][0]["name"] = "n" * 30

    site.runtime("long", rename)
    return site


def _identity(submission: int) -> Identity:
    return Identity.of(str(ULID()), submission)


DATASET = {"dataset": {"storageUri": "hf://a/b"}}


@pytest.mark.parametrize(
    ("submission", "spec"),
    [
        (1, {}),
        (1, {"trainer": {"numNodes": 200}}),
        (99, {"runtime": "initialized", "initializer": DATASET}),
    ],
    ids=["one pod", "200 pods", "at the limit with an initializer"],
)
def test_a_name_that_the_real_jobset_takes(named: Site, submission: int, spec: dict[str, Any]) -> None:
    job = named.begin(named.called(named.asked(None, **spec), _identity(submission))).job
    assert job.meta.labels[names.ULID_LABEL].lower() in job.meta.name
    named.jobs_exist(job)


def test_a_name_that_is_too_long(named: Site) -> None:
    """Start refuses what the real JobSet would never make anything of."""
    asked = named.called(named.asked(None, runtime="initialized", initializer=DATASET), _identity(100))
    with pytest.raises(RefusedError, match="would be 1 characters longer than the 63 that Kubernetes allows"):
        named.begin(asked)
    assert named.get(names.TRAINJOBS, asked.identity.name) is None
    with pytest.raises(RefusedError, match=r"replicated job 'n{30}' .* characters longer than the 63"):
        named.begin(named.asked(None, runtime="long"))
    job = named.by_hand(asked, lambda _: None)
    until("Trainer to say that it cannot", lambda: _complains(named, job))
    assert named.get(names.JOBSETS, job.meta.name) is None
    named.end(job)


def _complains(site: Site, job: TrainJob) -> bool:
    """Whether an event of Trainer's quotes JobSet's refusal of the name."""
    said = [event["message"] for event in site.list(names.EVENTS) if event["involvedObject"].get("uid") == job.meta.uid]
    return any("pod names generated for this JobSet will exceed 63 characters" in message for message in said)


# BL-21, BL-22


class Meddler:
    """Edits the TrainJob before the first `times` writes, so that they are conflicts."""

    def __init__(self, site: Site, job: TrainJob, times: int) -> None:
        self._site, self._job, self._times = site, job, times
        self.seen = 0

    def __call__(self, request: Request) -> None:
        if isinstance(request, Replace) and request.resource == names.TRAINJOBS and self.seen < self._times:
            self.seen += 1
            note = {"tests.dispatch.local/note": str(self.seen)}
            self._site.edit(self._job, lambda body: body["metadata"]["annotations"].update(note))


@pytest.mark.parametrize("queue", ["queue", None], ids=["Kueue mode", "plain mode"])
def test_somebody_writes_between_our_read_and_our_write(site: Site, queue: str | None) -> None:
    job = site.started(queue)
    site.jobs_exist(job)
    where = (site.namespace, job.meta.name, job.meta.uid)
    meddler = Meddler(site, job, 3)
    opened: Opened = stepped(site.adapter, open_job(*where), meddler)
    assert (opened.already, meddler.seen) == (False, 3)
    assert opened.job.meta.annotations["tests.dispatch.local/note"] == "3"
    site.running(job, 1)
    meddler = Meddler(site, job, 3)
    held: TrainJob = stepped(site.adapter, hold(*where), meddler)
    assert (held.held, meddler.seen) == (True, 3)
    assert held.meta.annotations["tests.dispatch.local/note"] == "3"
    site.expect_executions(job, 1)


def test_somebody_writes_again_and_again(site: Site) -> None:
    job = site.started("queue")
    meddler = Meddler(site, job, 100)
    with pytest.raises(TimedOutError, match=f"was not opened: it changed {CONFLICTS} times in a row"):
        stepped(site.adapter, open_job(site.namespace, job.meta.name, job.meta.uid), meddler)
    assert meddler.seen == CONFLICTS
    assert not site.job(job.meta.name).past_gate


def test_the_api_server_says_no(apart: Site) -> None:
    """A refusal is no race: it is told at once, in the API server's words."""
    job = apart.started("queue")
    writes: list[Request] = []
    with (
        apart.only(names.TRAINJOBS, f'request.userInfo.username != "{ADAPTER_ACCOUNT}"'),
        pytest.raises((DeniedError, InvalidError), match="held up by a test"),
    ):
        stepped(
            apart.adapter,
            open_job(apart.namespace, job.meta.name, job.meta.uid),
            lambda request: writes.append(request) if isinstance(request, Replace) else None,
        )
    assert len(writes) == 1
    assert not apart.job(job.meta.name).past_gate
