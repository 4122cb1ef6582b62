"""States of every release: what the current code makes of them.

Covered: the names that states hold, as the README lists them, as the code has them and as the kept states have them;
kept states checked and compared offline, a state without the inputs that came later, and a kept state imported,
run, refreshed and destroyed by the real engine on a real cluster.

A release's state is kept by `DISPATCH_KEEP_STATE=<version> pytest tests/resources/test_compatibility.py`.
"""

from __future__ import annotations

import base64
import copy
import importlib
import json
import os
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from pulumi import automation as auto
from pulumi.dynamic import Resource

from dispatch_gates.contract.names import TRAINJOBS
from dispatch_gates.resources import GatedJob, GatedTrainJob, JobIdentity, JobOpening, SweepOpening, _life
from dispatch_gates.resources.gated_train_job import _OUTPUTS
from dispatch_gates.resources.job_identity import JobIdentityProvider
from dispatch_gates.resources.job_inputs import DEFAULTS, JobInputs
from dispatch_gates.resources.job_opening import _SEEN
from dispatch_gates.resources.sweep_opening import SweepOpeningProvider
from resources import test_life_on_a_model as model
from resources.requests_log import RequestsLog
from resources.stacks import Stack
from world import World

STATES: Final = Path(__file__).parent / "states"
README: Final = Path(JobIdentity.__init__.__code__.co_filename).parent / "README.md"
RELEASES: Final = sorted(path.stem for path in STATES.glob("*.json"))
STACK: Final = "kept"
ULIDS: Final = ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "01BX5ZZKBKACTAV9WEVGEMMVRZ", "01BX5ZZKBKACTAV9WEVGEMMVS0")


def kept(release: str) -> list[dict[str, Any]]:
    """Return the dynamic resources of a release's state."""
    state: dict[str, Any] = json.loads((STATES / f"{release}.json").read_text())
    return [resource for resource in state["resources"] if "__provider" in resource.get("inputs", {})]


def listed(what: str) -> set[str]:
    """Return the names in a row of the README's table."""
    (row,) = re.findall(rf"^\| {what} \| (.*) \|$", README.read_text(), re.MULTILINE)
    return set(re.findall(r"`([^`]+)`", row))


def kind_of(resource: Mapping[str, Any]) -> str:
    return str(resource["type"]).rpartition(":")[2]


def test_there_is_a_state_of_this_release() -> None:
    assert RELEASES


KINDS: Final = (JobIdentity, GatedTrainJob, JobOpening, SweepOpening)


def test_the_list_is_what_the_code_has() -> None:
    assert listed("type tokens") == {f"pulumi-python:{kind._resource_type_name}" for kind in KINDS} | {
        "dispatch:index:GatedJob"
    }
    for path in listed("providers"):
        module, _, name = path.rpartition(".")
        assert getattr(importlib.import_module(module), name)


def test_the_list_is_what_the_resources_declare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs and outputs: what the engine is handed of each, and what programs may ask each for."""
    declared: dict[str, Mapping[str, Any]] = {}

    def registered(self: Resource, _provider: object, _name: str, props: Mapping[str, Any], _opts: object) -> None:
        declared[type(self).__name__] = props
        vars(self).update(dict.fromkeys(props, "given"))

    monkeypatch.setattr(Resource, "__init__", registered)
    JobIdentity("identity")
    job = GatedTrainJob("job", ulid=ULIDS[0], namespace="team-a", queue="queue", kubeconfig="/a", context="b")
    JobOpening("opening", job=job)
    SweepOpening("sweep", jobs=[job])
    engine = {kind: set(props) for kind, props in declared.items()}
    (swept,) = declared["SweepOpening"]["jobs"]
    assert set(swept) == listed("properties of each of its `jobs`") == engine["JobOpening"] - {*_SEEN}
    engine["GatedTrainJob"] |= set(JobInputs.__annotations__)  # those that were not given
    for kind in KINDS:
        names = listed(f"properties of `{kind.__name__}`")
        assert engine[kind.__name__] == names
        ours = [base for base in kind.__mro__ if base.__module__.startswith("dispatch_gates")]
        assert {name for base in ours for name in vars(base).get("__annotations__", {})} <= names


def test_the_list_is_what_the_providers_answer() -> None:
    job = model.outputs()
    opening = {key: job[key] for key in ("namespace", "name", "uid", "ulid", "submission", "cluster")}
    swept = {"jobs": [opening], "opened": {f"{job['namespace']}/{job['name']}": job["uid"]}}
    answers = {
        "JobIdentity": JobIdentityProvider().create({}).outs or {},
        "GatedTrainJob": model.cluster().run(_life.refreshed(job)) or {},
        "JobOpening": model.cluster().run(_life.opened(opening)),
        "SweepOpening": SweepOpeningProvider().update("id", swept, {"jobs": [opening]}).outs or {},
    }
    for kind, answer in answers.items():
        assert set(answer) <= listed(f"properties of `{kind}`"), kind
    assert {*_OUTPUTS} <= set(answers["GatedTrainJob"])
    assert {*_SEEN} <= set(answers["JobOpening"])


@pytest.mark.parametrize("release", RELEASES)
def test_the_list_is_what_states_have(release: str) -> None:
    seen: dict[str, set[str]] = {}
    for resource in kept(release):
        names = {*resource["inputs"], *resource["outputs"]} - {"__provider"}
        seen.setdefault(kind_of(resource), set()).update(names)
        provider = pickle.loads(base64.b64decode(resource["inputs"]["__provider"]))
        assert f"{type(provider).__module__}.{type(provider).__name__}" in listed("providers")
        assert resource["type"] in listed("type tokens")
    assert sorted(seen) == ["GatedTrainJob", "JobIdentity", "JobOpening", "SweepOpening"]
    for kind, names in seen.items():
        assert names <= listed(f"properties of `{kind}`"), kind


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("without", ["nothing", "what came later"])
def test_a_kept_state_is_valid_and_unchanged(release: str, without: str) -> None:
    for resource in kept(release):
        provider = pickle.loads(base64.b64decode(resource["inputs"]["__provider"]))
        inputs, outputs = copy.deepcopy(resource["inputs"]), copy.deepcopy(resource["outputs"])
        olds = copy.deepcopy(inputs)
        if without == "what came later":  # as if none of the inputs with a default had existed
            for name in DEFAULTS.keys() - {"submission"}:
                if inputs.get(name) == DEFAULTS[name]:
                    olds.pop(name, None)
                    outputs.pop(name, None)
        assert provider.check(olds, inputs).failures == []
        difference = provider.diff(resource["id"], outputs, inputs)
        assert (difference.changes, list(difference.replaces or [])) == (False, [])


def program(world: World) -> None:
    """Declare each kind of resource, and between them every input."""
    common: dict[str, Any] = {"namespace": world.namespace, "runtime": "kwok", "runtime_kind": "TrainingRuntime"}
    GatedJob("usual", **common, queue="queue", resources_per_node={"cpu": "50m"}, env={"B": "2", "A": "1"})
    GatedTrainJob(
        "all",
        ulid=ULIDS[0],
        opened=False,
        **common,
        submission=3,
        queue="queue",
        image="example/trainer:1",
        command=["python"],
        args=["-v", "train.py"],
        nodes=1,
        resources_per_node={"requests": {"cpu": 0.05, "memory": "64Mi"}},
        env={"EPOCHS": "3"},
        priority_class="low",
        deadline_seconds=3600,
        spec={"trainer": {"numProcPerNode": 1}},
        labels={"team": "a"},
        annotations={"note": "b"},
        hold=True,
        strict_executions=False,
        check="dispatch",
        kubeconfig=os.environ.get("KEPT_KUBECONFIG"),
        context=os.environ.get("KEPT_CONTEXT"),
        workload_timeout_seconds=300,
        release_timeout_seconds=60.5,
        delete_timeout_seconds=300,
    )
    GatedTrainJob("plain", ulid=ULIDS[1], opened=True if os.environ.get("KEPT_OPENED") else None, **common)
    SweepOpening("sweep", jobs=[GatedTrainJob("swept", ulid=ULIDS[2], **common, queue="queue")])


def test_a_kept_state_is_run_by_the_current_code(
    served: World, engine: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(served.cluster, pods=0).make()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(Path(str(world.adapter.kubeconfig)).read_text())
    monkeypatch.setenv("KEPT_KUBECONFIG", str(kubeconfig))
    monkeypatch.setenv("KEPT_CONTEXT", str(world.adapter.context))
    backend = tmp_path / "backend"
    backend.mkdir()
    stack = Stack(STACK, tmp_path, {**engine, "PULUMI_BACKEND_URL": f"file://{backend}"})
    stack.up(lambda: program(world))
    monkeypatch.setenv("KEPT_OPENED", "1")
    stack.up(lambda: program(world))
    assert stack.up(lambda: program(world)).unchanged
    now = stack.exported()
    assert now.deployment is not None
    if version := os.environ.get("DISPATCH_KEEP_STATE"):
        keep(version, json.dumps(now.deployment, indent=1, sort_keys=True).replace(str(kubeconfig), "/a/kubeconfig"))

    for release in RELEASES:
        stack.imported(auto.Deployment(version=now.version, deployment=_as_if_kept(release, now.deployment)))
        log = RequestsLog(world)
        assert stack.up(lambda: program(world)).unchanged, release
        stack.refresh()
        assert stack.up(lambda: program(world)).unchanged, release
        assert log.writes() == []
        assert stack.resources("GatedTrainJob")
    stack.destroy()
    assert world.list(TRAINJOBS) == ()


def keep(version: str, state: str) -> None:
    """Keep a release's state without what is only of this machine; there are no secrets in it."""
    STATES.mkdir(exist_ok=True)
    whole = {key: value for key, value in json.loads(state).items() if key != "secrets_providers"}
    for resource in whole["resources"]:
        for key in ("sourcePosition", "stackTrace"):
            resource.pop(key, None)
    (STATES / f"{version}.json").write_text(json.dumps(whole, indent=1, sort_keys=True) + "\n")
    RELEASES[:] = sorted({*RELEASES, version})


def _as_if_kept(release: str, now: Mapping[str, Any]) -> dict[str, Any]:
    """Return a release's state with the jobs of now in it: what a cluster gives by chance is replaced in its text."""
    text = (STATES / f"{release}.json").read_text()
    then = {resource["urn"]: resource for resource in json.loads(text)["resources"]}
    for resource in now["resources"]:
        for name in ("uid", "cluster", "namespace", "ulid", "kubeconfig", "context"):
            old = then[resource["urn"]].get("outputs", {}).get(name)
            new = resource.get("outputs", {}).get(name)
            if old and new and old != new:
                text = text.replace(old, new).replace(old.lower(), new.lower())
    state: dict[str, Any] = json.loads(text)
    return {**state, "secrets_providers": now["secrets_providers"]}
