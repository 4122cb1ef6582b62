"""A webhook of the test's own changes one field as the TrainJob is created; everything else is real.

What is tested, in both modes: a change of what Start wrote, or of what only dispatch may write, is refused by its path,
and the object is deleted again without any pod; what others add beside it is let be, and the job runs. Also a Workload
that proves nothing: without the gate, without the check, in no queue.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dispatch_gates.contract import names
from dispatch_gates.contract.count import runtime_patch
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.operations.errors import RefusedError
from dispatch_gates.operations.status import JobState
from dispatch_gates.requests import DeniedError, InvalidError
from dispatch_local.cluster import Cluster
from start_gate.site import Site
from start_gate.webhook import Change, Webhook
from world import initializer, until

MODES = pytest.mark.parametrize("queue", ["queue", None], ids=["Kueue mode", "plain mode"])
GATE = names.ADMISSION_GATED_BY


@pytest.fixture(scope="module")
def changed(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Webhook]]:
    """Return a site whose TrainJobs are changed. What becomes of those is judged here, not by its rules."""
    # Not guarded: where the guard rails hold, the API server refuses some of these changes before Start sees them.
    site = Site(cluster, guarded=False)
    site.make()
    site.runtime("other", lambda _: None)
    site.runtime("prepared", initializer)
    with Webhook(site, tmp_path_factory.mktemp("webhook")) as webhook:
        yield site, webhook
    assert site.jobs_with_pods() == set()
    site.discard()


def label(key: str, value: str | None) -> Change:
    return _mark("labels", key, value)


def annotation(key: str, value: str | None) -> Change:
    return _mark("annotations", key, value)


def _mark(kind: str, key: str, value: str | None) -> Change:
    def change(body: JsonObject) -> None:
        marks = body["metadata"].setdefault(kind, {})
        if value is None:
            marks.pop(key, None)
        else:
            marks[key] = value

    return change


def spec(**values: object) -> Change:
    return lambda body: body["spec"].update(values)


def trainer(**values: object) -> Change:
    return lambda body: body["spec"]["trainer"].update(values)


def env(edit: Callable[[list[JsonObject]], object]) -> Change:
    return lambda body: edit(body["spec"]["trainer"]["env"])


def ours(edit: Callable[[JsonObject], object]) -> Change:
    def change(body: JsonObject) -> None:
        edit(next(patch for patch in body["spec"]["runtimePatches"] if patch["manager"] == names.PATCH_MANAGER))

    return change


def patch(body: JsonObject) -> Change:
    return lambda found: found["spec"]["runtimePatches"].append(body)


PATH = f"spec.runtimePatches[{names.PATCH_MANAGER}]"
NOTICED: dict[str, tuple[Change, str]] = {
    "gate dropped (BL-08)": (annotation(GATE, None), f"metadata.annotations[{GATE}]"),
    "gate of another instead": (annotation(GATE, "a.io/x"), f"metadata.annotations[{GATE}]"),
    "label": (label(names.ULID_LABEL, "x"), f"metadata.labels[{names.ULID_LABEL}]"),
    "label dropped": (label("team", None), "metadata.labels[team]"),
    "annotation": (annotation("note", "changed"), "metadata.annotations[note]"),
    "owner mark": (annotation(names.OWNER, "another"), f"metadata.annotations[{names.OWNER}]"),
    "hash": (annotation(names.SPEC_HASH, None), f"metadata.annotations[{names.SPEC_HASH}]"),
    "opened mark": (annotation(names.OPENED, "true"), f"metadata.annotations[{names.OPENED}]"),
    "hold mark": (annotation(names.HOLD, "true"), f"metadata.annotations[{names.HOLD}]"),
    "queue": (label(names.QUEUE_NAME, "other"), f"metadata.labels[{names.QUEUE_NAME}]"),
    "runtimeRef": (spec(runtimeRef={"kind": "TrainingRuntime", "name": "other"}), "spec.runtimeRef.name"),
    "image": (trainer(image="example.org/other:1"), "spec.trainer.image"),
    "command that was not asked for": (trainer(command=["x"]), "spec.trainer.command"),
    "nodes": (trainer(numNodes=2), "spec.trainer.numNodes"),
    "resources": (trainer(resourcesPerNode={"requests": {"cpu": "2"}}), "spec.trainer.resourcesPerNode.requests.cpu"),
    "env added": (env(lambda found: found.append({"name": "X", "value": "1"})), "spec.trainer.env"),
    "env changed": (env(lambda found: found[0].update(value="x")), "spec.trainer.env[0].value"),
    "env dropped": (env(lambda found: found.pop()), "spec.trainer.env"),
    "deadline": (spec(activeDeadlineSeconds=7), "spec.activeDeadlineSeconds"),
    "managedBy": (spec(managedBy="kueue.x-k8s.io/multikueue"), "spec.managedBy"),
    "A": (ours(lambda found: found.update(runtime_patch(1, ["node"]))), names.ADMISSION_COUNT),
    "our patch dropped": (
        lambda body: body["spec"].update(
            runtimePatches=[each for each in body["spec"]["runtimePatches"] if each["manager"] != names.PATCH_MANAGER]
        ),
        PATH,
    ),
    "more in our patch": (
        ours(lambda found: found["trainingRuntimeSpec"]["template"].update(metadata={"labels": {"a": "b"}})),
        f"{PATH}[0].trainingRuntimeSpec.template.metadata",
    ),
    "A in another's patch": (
        patch(runtime_patch(7, ["node"]) | {"manager": "a.io/x"}),
        "spec.runtimePatches[a.io/x]",
    ),
}
NOTICED_IN_PLAIN_MODE: dict[str, tuple[Change, str]] = {
    "queue label (BL-09)": (label(names.QUEUE_NAME, "queue"), f"metadata.labels[{names.QUEUE_NAME}]"),
    "administrator's gate": (annotation(GATE, f"{names.GATE},a.io/x"), f"metadata.annotations[{GATE}]"),
}
NOTICED_IN_KUEUE_MODE: dict[str, tuple[Change, str]] = {
    "queue label dropped": (label(names.QUEUE_NAME, None), f"metadata.labels[{names.QUEUE_NAME}]"),
    "priority": (label(names.PRIORITY_CLASS, "high"), f"metadata.labels[{names.PRIORITY_CLASS}]"),
}
CASES = [
    *((queue, name, *case) for name, case in NOTICED.items() for queue in ("queue", None)),
    *((None, name, *case) for name, case in NOTICED_IN_PLAIN_MODE.items()),
    *(("queue", name, *case) for name, case in NOTICED_IN_KUEUE_MODE.items()),
]


@pytest.mark.parametrize(
    ("queue", "name", "change", "path"),
    CASES,
    ids=[f"{'Kueue' if case[0] else 'plain'} mode: {case[1]}" for case in CASES],
)
def test_noticed(changed: tuple[Site, Webhook], queue: str | None, name: str, change: Change, path: str) -> None:
    site, webhook = changed
    asked = site.marked(site.asked(queue, trainer=site.trainer(image="example.org/mine:1")))
    if "not asked for" in name:
        asked = site.asked(queue)
    webhook.changes[asked.identity.name] = change
    with pytest.raises(RefusedError, match="was not started and is deleted again") as caught:
        site.begin(asked)
    assert re.search(
        rf"{re.escape(path)}[^;]*: (sent .*, found|was added|was changed|was taken away)", str(caught.value)
    )
    until("the TrainJob to be gone", lambda: site.get(names.TRAINJOBS, asked.identity.name) is None)


@MODES
def test_noticed_in_an_initializer(changed: tuple[Site, Webhook], queue: str | None) -> None:
    site, webhook = changed
    asked = site.asked(queue, runtime="prepared", initializer={"dataset": {"storageUri": "hf://a/b"}})
    webhook.changes[asked.identity.name] = lambda body: body["spec"]["initializer"]["dataset"].update(
        storageUri="hf://c/d"
    )
    with pytest.raises(RefusedError, match=r"spec.initializer.dataset.storageUri: was changed$"):
        site.begin(asked)


MINDED_NOT: dict[str, Change] = {
    "nothing": lambda _: None,
    "foreign label": label("a.io/x", "y"),
    "foreign annotation": annotation("a.io/x", "y"),
    "foreign finalizer": lambda body: body["metadata"].update(finalizers=[]),
    "foreign runtime patch": patch(
        {
            "manager": "a.io/x",
            "trainingRuntimeSpec": {
                "template": {
                    "spec": {
                        "replicatedJobs": [
                            {
                                "name": "node",
                                "template": {
                                    "spec": {
                                        "template": {"spec": {"tolerations": [{"key": "x", "operator": "Exists"}]}}
                                    }
                                },
                            }
                        ]
                    }
                }
            },
        }
    ),
}
"""What others add beside ours."""


@MODES
@pytest.mark.parametrize("change", MINDED_NOT.values(), ids=MINDED_NOT.keys())
def test_not_minded(changed: tuple[Site, Webhook], queue: str | None, change: Change) -> None:
    site, webhook = changed
    asked = site.marked(site.asked(queue))
    webhook.changes[asked.identity.name] = change
    started = site.begin(asked)
    assert (started.adopted, started.job.past_gate) == (False, False)


def test_suspend_lifted_in_plain_mode(unguarded: Site, tmp_path: Path) -> None:
    """The one change that may cost a pod: in plain mode nothing else holds the job. Start ends it at once."""
    asked = unguarded.asked(None)
    with Webhook(unguarded, tmp_path) as webhook:
        webhook.changes[asked.identity.name] = spec(suspend=False)
        with pytest.raises(RefusedError, match=r"deleted again: .*spec.suspend: sent True, found False"):
            unguarded.begin(asked)
    until("all of it to be gone", lambda: not unguarded.list(names.PODS) and not unguarded.list(names.TRAINJOBS))


def test_suspend_is_kueues_in_kueue_mode(unguarded: Site, tmp_path: Path) -> None:
    """A webhook that lifts it is not Start's affair (contract): Kueue suspends the job again, gated as it is."""
    asked = unguarded.asked("queue")
    with Webhook(unguarded, tmp_path) as webhook:
        webhook.changes[asked.identity.name] = spec(suspend=False)
        job = unguarded.begin(asked).job
    until("Kueue to suspend it again", lambda: unguarded.job(job.meta.name).suspended and not unguarded.pods_of(job))
    assert unguarded.job(job.meta.name).gates.ours
    unguarded.stands(job, JobState.GATED)


@MODES
def test_what_a_webhook_opens_is_refused_under_the_guard_rails(apart: Site, tmp_path: Path, queue: str | None) -> None:
    """The API server looks after the webhook: nothing is ever stored."""
    asked = apart.asked(queue)
    with Webhook(apart, tmp_path) as webhook:
        webhook.changes[asked.identity.name] = spec(suspend=False)
        with pytest.raises(DeniedError, match="created-closed: "):
            apart.begin(asked)
    assert apart.get(names.TRAINJOBS, asked.identity.name) is None


@pytest.mark.parametrize(
    "resources",
    [
        {"requests": {"cpu": "1000m", "memory": "1024Mi"}},
        {"requests": {"cpu": 1}, "limits": {"cpu": "1.0", "memory": "0.5Gi"}},
    ],
    ids=["milli and mebi", "a number, fractions"],
)
def test_quantities_in_any_spelling(site: Site, resources: JsonObject) -> None:
    """The managers' own webhooks write them in the canonical form."""
    started = site.begin(site.asked(None, trainer={"resourcesPerNode": resources}))
    assert started.job.raw["spec"]["trainer"]["resourcesPerNode"] != resources


def test_a_local_queue_called_default(apart: Site) -> None:
    """BL-09, with the real Kueue: it labels every job of such a namespace, and would lift suspend."""
    apart.create(names.LOCAL_QUEUES, "default", spec={"clusterQueue": apart.namespace})
    asked = apart.asked(None)

    def refused() -> str:
        try:
            apart.begin(asked)
        except RefusedError as error:
            return str(error)
        # Kueue learns of the LocalQueue a moment after it was created.
        apart.end(apart.job(asked.identity.name))
        return ""

    said = until("Start in plain mode to be refused", refused)
    assert f"metadata.labels[{names.QUEUE_NAME}]: sent None, found 'default'" in said
    assert apart.jobs_with_pods() == set()
    assert apart.violations() == ()


# The Workload, as the proof of Kueue mode.


def _fails(site: Site, queue: str, webhook: Webhook | None = None, change: Change | None = None) -> str:
    asked = site.asked(queue)
    if webhook is not None and change is not None:
        webhook.workload_changes[asked.identity.name] = change
    with pytest.raises(RefusedError, match="was not started and is deleted again") as caught:
        site.begin(asked, 3)
    until("the TrainJob to be gone", lambda: site.get(names.TRAINJOBS, asked.identity.name) is None)
    return str(caught.value)


def test_a_workload_without_the_gate(changed: tuple[Site, Webhook]) -> None:
    """BL-08 (3): as with Kueue's feature AdmissionGatedBy off."""
    site, webhook = changed
    said = _fails(site, "queue", webhook, annotation(GATE, None))
    assert "does not carry the gate: is Kueue's AdmissionGatedBy off?" in said


def test_a_workload_without_the_check(changed: tuple[Site, Webhook]) -> None:
    site, _ = changed
    name = f"{site.namespace}-unchecked"
    queue = site.get(names.CLUSTER_QUEUES, site.namespace, cluster_scoped=True)
    assert queue is not None
    unchecked = {key: value for key, value in queue["spec"].items() if key != "admissionChecksStrategy"}
    site.create(names.CLUSTER_QUEUES, name, cluster_scoped=True, spec=unchecked)
    site.create(names.LOCAL_QUEUES, "unchecked", spec={"clusterQueue": name})
    said = _fails(site, "unchecked")
    assert "does not list AdmissionCheck dispatch" in said
    assert "LocalQueue unchecked" in said


def test_a_queue_that_does_not_exist(changed: tuple[Site, Webhook]) -> None:
    said = _fails(changed[0], "nowhere")
    assert "LocalQueue nowhere" in said


def test_refused_by_another_controllers_webhook(site: Site) -> None:
    """Nothing was created, and the API server's own words say why."""
    asked = site.asked(None, initializer={"dataset": {"storageUri": "hf://a/b"}})
    with pytest.raises((DeniedError, InvalidError), match="must have dataset-initializer job"):
        site.begin(asked)
    assert site.get(names.TRAINJOBS, asked.identity.name) is None
