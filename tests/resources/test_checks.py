"""What the resources refuse, replace and leave alone, without a cluster or an engine.

The provider's methods are called as the SDK calls them: numbers are floats, what is None is absent, unknown values
may be anywhere. Covered: each input's own check and the property it is reported on; what is said twice; unknowns;
opening and closing; a started job's specification; replacements; identities (BL-39); what travels in the state.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from typing import Any

import pytest
from pulumi.dynamic import Config, ConfigureRequest, ResourceProvider
from pulumi.dynamic.dynamic import serialize_provider
from pulumi.output import Unknown

from dispatch_gates.resources._inputs import canonical, job_spec
from dispatch_gates.resources._running import GatesError
from dispatch_gates.resources.gated_train_job import GatedTrainJobProvider
from dispatch_gates.resources.job_identity import JobIdentityProvider
from dispatch_gates.resources.job_opening import JobOpeningProvider
from dispatch_gates.resources.sweep_opening import SweepOpeningProvider

ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
OTHER_ULID = "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"
UNKNOWN = Unknown()  # type: ignore[no-untyped-call] # the SDK's


def inputs(**changes: Any) -> dict[str, Any]:
    """Return the inputs of a plain job as the engine sends them; None takes one out."""
    plain: dict[str, Any] = {
        "ulid": ULID,
        "submission": 1.0,
        "namespace": "team-a",
        "queue": "training",
        "runtime": "demo",
        "image": "example/trainer:1",
        "nodes": 2.0,
        "check": "dispatch",
        "workload_timeout_seconds": 30.0,
        "delete_timeout_seconds": 600.0,
        "owner": "project/stack",
        "__provider": "x",
    }
    return {key: value for key, value in {**plain, **changes}.items() if value is not None}


def outputs(**changes: Any) -> dict[str, Any]:
    """Return the outputs of a plain job that was started."""
    seen = {
        "held": False,
        "uid": "u-1",
        "name": f"dj-{ULID.lower()}-s1",
        "cluster": "c-1",
        "is_open": False,
        "state": "Gated",
    }
    return inputs(**{**seen, **changes})


def failures(olds: dict[str, Any], news: dict[str, Any]) -> dict[str, str]:
    result = GatedTrainJobProvider().check(olds, news)
    assert result.inputs == news
    return {failure.property: failure.reason for failure in result.failures}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("submission", 0.0),
        ("submission", 1.5),
        ("submission", "1"),
        ("submission", True),
        ("namespace", "Team_A"),
        ("namespace", ""),
        ("queue", ""),
        ("queue", 3.0),
        ("runtime", ""),
        ("image", ["a"]),
        ("command", "python train.py"),
        ("args", ["--epochs", 3.0]),
        ("nodes", 0.0),
        ("nodes", 1.5),
        ("nodes", True),
        ("resources_per_node", {}),
        ("resources_per_node", {"requests": "1"}),
        ("resources_per_node", {"cpu": [1.0]}),
        ("resources_per_node", {"cpu": "lots"}),
        ("resources_per_node", {"limits": {"memory": "1 Gi"}}),
        ("resources_per_node", {"cpu": float("nan")}),
        ("resources_per_node", {"cpu": -1.0}),
        ("env", {"EPOCHS": 3.0}),
        ("env", {"": "T0KEN"}),
        ("env", ["EPOCHS=3"]),
        ("env", {"DISPATCH_ADMISSION_COUNT": "7"}),
        ("labels", {"kueue.x-k8s.io/queue-name": "mine"}),
        ("annotations", {"dispatch.phpboyscout.uk/hold": "true"}),
        ("labels", {"a": 1.0}),
        ("labels", {"my team": "a"}),
        ("labels", {"a\nb": "a"}),
        ("labels", {"team": "T0KEN "}),
        ("annotations", {"": "T0KEN"}),
        ("annotations", {"a/b/c": "T0KEN"}),
        ("queue", "my queue"),
        ("priority_class", "-high"),
        ("deadline_seconds", 0.0),
        ("spec", "[]"),
        ("spec", '{"suspend":false}'),
        ("spec", '{"trainer":[]}'),
        ("spec", '{"runtimePatches":{}}'),
        ("spec", '{"trainer":{"env":null}}'),
        ("spec", '{"trainer":{"env":["T0KEN"]}}'),
        ("spec", '{"trainer":{"env":[{"name":"A","value":["T0KEN"]}]}}'),
        ("spec", '{"trainer":{"resourcesPerNode":{"requests":{"cpu":"lots"}}}}'),
        ("spec", '{"initializer":{"model":{"env":{}}}}'),
        ("runtime_kind", "Deployment"),
        ("opened", "yes"),
        ("hold", 1.0),
        ("check", ""),
        ("workload_timeout_seconds", 0.0),
        ("workload_timeout_seconds", float("inf")),
        ("release_timeout_seconds", -1.0),
        ("strict_executions", "yes"),
        ("delete_timeout_seconds", "10m"),
        ("kubeconfig", ""),
        ("kubeconfig", 3.0),
        ("kubeconfig", "apiVersion: v1\nkind: Config\nusers: [{user: {token: T0KEN}}]\n"),
        ("kubeconfig", json.dumps({"kind": "Config", "users": [{"name": "a", "user": {"token": "T0KEN"}}]})),
        ("kubeconfig", "apiVersion: v1 # T0KEN"),
        ("kubeconfig", "users:\tT0KEN"),
        ("kubeconfig", base64.b64encode(b"T0KEN" * 100).decode().replace("/", "_")),
        ("kubeconfig", "T0KEN/" * 1000),
    ],
)
def test_wrong_input_is_reported_on_its_property(name: str, value: Any) -> None:
    found = failures({}, inputs(**{name: value}))
    assert list(found) == [name]
    assert "\n" not in found[name]
    assert "T0KEN" not in found[name]
    assert base64.b64encode(b"T0KEN").decode()[:6] not in found[name]


@pytest.mark.parametrize("value", ["~/.kube/config", "/a/b c/config", "config", "/a/one:/b/other", "/ü/config"])
def test_a_path_of_a_kubeconfig_is_taken(value: str) -> None:
    assert failures({}, inputs(kubeconfig=value)) == {}


@pytest.mark.parametrize(
    "ulid",
    [
        "81ARZ3NDEKTSV4RRFFQ69G5FAV",
        "8" + "Z" * 25,
        ULID[:-1] + "I",
        ULID[:-1] + "O",
        ULID[:-1] + "U",
        ULID[:-1],
        ULID + "\n",
        " " + ULID[:-1],
        ULID.lower(),
        "",
        "\N{FULLWIDTH DIGIT ONE}" * 26,
        5.0,
    ],
)
def test_what_is_no_ulid_is_refused(ulid: Any) -> None:
    assert list(failures({}, inputs(ulid=ulid))) == ["ulid"]


@pytest.mark.parametrize("value", ['{"trainer":null}', '{"trainer":3}'])
def test_trainer_that_is_no_mapping_is_reported_where_no_input_goes_into_it(value: str) -> None:
    assert list(failures({}, inputs(image=None, nodes=None, spec=value))) == ["spec"]


def test_extreme_ulid_is_accepted() -> None:
    assert failures({}, inputs(ulid=OTHER_ULID)) == {}


@pytest.mark.parametrize("olds", [{}, inputs()], ids=["new", "started"])
@pytest.mark.parametrize("name", ["ulid", "submission", "namespace", "runtime"])
def test_missing_input_is_reported(name: str, olds: dict[str, Any]) -> None:
    assert list(failures(olds, inputs(**{name: None}))) == [name]


@pytest.mark.parametrize(
    ("name", "value", "spec"),
    [
        ("image", "other:1", {"trainer": {"image": "other:1"}}),
        ("nodes", 2.0, {"trainer": {"numNodes": 4}}),
        ("env", {"A": "1"}, {"trainer": {"env": []}}),
        ("runtime", "demo", {"runtimeRef": {"name": "demo"}}),
        ("deadline_seconds", 5.0, {"activeDeadlineSeconds": 6}),
    ],
)
def test_what_is_said_twice_is_refused(name: str, value: Any, spec: dict[str, Any]) -> None:
    plain = inputs(image=None, nodes=None)
    found = failures({}, {**plain, name: value, "spec": canonical(spec)})
    assert list(found) == [name]
    assert "leave one of them out" in found[name]


def test_inputs_and_mapping_make_one_specification() -> None:
    spec = {"trainer": {"numProcPerNode": 2.0}, "initializer": {"dataset": {"storageUri": "hf://x"}}}
    asked, wrong = job_spec(
        inputs(
            spec=canonical(spec),
            env={"B": "2", "A": "1"},
            resources_per_node={"cpu": 2.0, "memory": "1Gi"},
            command=["python"],
            deadline_seconds=60.0,
        )
    )
    assert wrong == []
    assert asked is not None
    assert json.loads(json.dumps(asked.spec)) == {
        "runtimeRef": {"name": "demo"},
        "activeDeadlineSeconds": 60,
        "initializer": {"dataset": {"storageUri": "hf://x"}},
        "trainer": {
            "numProcPerNode": 2,
            "numNodes": 2,
            "image": "example/trainer:1",
            "command": ["python"],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "resourcesPerNode": {
                "requests": {"cpu": "2", "memory": "1Gi"},
                "limits": {"cpu": "2", "memory": "1Gi"},
            },
        },
    }


def test_requests_and_limits_pass_as_they_are() -> None:
    asked, _ = job_spec(inputs(resources_per_node={"requests": {"cpu": 0.5}}))
    assert asked is not None
    assert asked.spec["trainer"]["resourcesPerNode"] == {"requests": {"cpu": "0.5"}}


@pytest.mark.parametrize("name", [name for name in inputs() if name != "__provider"])
def test_unknown_input_fails_no_check_and_hides_no_other(name: str) -> None:
    assert failures({}, inputs(**{name: UNKNOWN})) == {}
    assert failures(inputs(), inputs(**{name: UNKNOWN})) == {}
    found = failures({}, inputs(**{name: UNKNOWN, "deadline_seconds": 0.0}))
    assert list(found) == ["deadline_seconds"]


def test_unknown_deep_inside_an_input() -> None:
    news = inputs(env={"A": UNKNOWN}, command=["python", UNKNOWN], resources_per_node={"requests": {"cpu": UNKNOWN}})
    assert failures({}, news) == {}
    assert GatedTrainJobProvider().diff("id", outputs(), news).changes is True


def test_opened_job_that_is_not_recorded_is_refused_with_what_to_do() -> None:
    found = failures({}, inputs(opened=True))
    assert list(found) == ["opened"]
    assert "JobOpening" in found["opened"]
    with pytest.raises(GatesError, match="JobOpening"):
        GatedTrainJobProvider().create(inputs(opened=True))


@pytest.mark.parametrize("was", [None, False, True])
def test_recorded_job_may_be_opened(was: bool | None) -> None:
    assert failures(inputs(opened=was), inputs(opened=True)) == {}


def test_opened_job_cannot_be_closed() -> None:
    assert list(failures(inputs(opened=True), inputs(opened=False))) == ["opened"]
    assert failures(inputs(opened=True), inputs()) == {}
    assert failures(inputs(opened=True), inputs(opened=False, submission=2.0)) == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("image", "example/trainer:2"),
        ("nodes", 3.0),
        ("env", {"A": "1"}),
        ("queue", "other"),
        ("namespace", "team-b"),
        ("priority_class", "high"),
        ("labels", {"a": "b"}),
        ("spec", '{"trainer":{"numProcPerNode":2}}'),
    ],
)
def test_started_job_keeps_its_specification(name: str, value: Any) -> None:
    found = failures(inputs(), inputs(**{name: value}))
    assert list(found) == [name]
    assert "raise `submission`" in found[name]
    assert failures(inputs(), inputs(**{name: value, "submission": 2.0})) == {}
    assert failures(inputs(), inputs(**{name: value, "ulid": OTHER_ULID})) == {}


def test_same_specification_said_in_another_way() -> None:
    moved = inputs(image=None, spec=canonical({"trainer": {"image": "example/trainer:1"}}))
    assert failures(inputs(), moved) == {}


def test_strict_executions_are_settled_when_the_job_is_started() -> None:
    assert list(failures(inputs(), inputs(strict_executions=True))) == ["strict_executions"]
    assert failures(inputs(), inputs(strict_executions=False)) == {}
    assert failures(inputs(), inputs(strict_executions=UNKNOWN)) == {}
    assert failures(inputs(), inputs(strict_executions=True, submission=2.0)) == {}
    assert failures({}, inputs(strict_executions=True)) == {}


@pytest.mark.parametrize("value", ["2", "one", "", [2.0], {"a": 2.0}, True, 0.0, 1.5, float("nan")], ids=str)
def test_what_is_no_submission_is_refused_for_a_started_job_too(value: Any) -> None:
    found = failures(inputs(submission=2.0), inputs(submission=value))
    assert list(found) == ["submission"]
    assert "a whole number from 1" in found["submission"]
    assert "\n" not in found["submission"]


def test_submission_never_goes_down() -> None:
    assert list(failures(inputs(submission=2.0), inputs())) == ["submission"]
    assert failures(inputs(submission=2.0), inputs(ulid=OTHER_ULID)) == {}


@pytest.mark.parametrize("value", ["true", "1", "TRUE", "yes"])
def test_without_checkpoints_nothing_is_started_or_opened(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("PULUMI_SKIP_CHECKPOINTS", value)
    assert "PULUMI_SKIP_CHECKPOINTS" in failures({}, inputs())["opened"]
    with pytest.raises(GatesError, match="PULUMI_SKIP_CHECKPOINTS"):
        GatedTrainJobProvider().create(inputs())
    with pytest.raises(GatesError, match="PULUMI_SKIP_CHECKPOINTS"):
        JobOpeningProvider().create(opening())
    monkeypatch.setenv("PULUMI_SKIP_CHECKPOINTS", "false")
    assert failures({}, inputs()) == {}


@pytest.mark.parametrize(
    ("changes", "changed", "replaced"),
    [
        ({}, False, False),
        ({"owner": "project/renamed"}, False, False),
        ({"opened": False}, True, False),
        ({"opened": True}, True, False),
        ({"hold": True}, True, False),
        ({"hold": UNKNOWN}, True, False),
        ({"context": "other"}, True, False),
        ({"workload_timeout_seconds": 31.0}, True, False),
        ({"release_timeout_seconds": 31.0}, True, False),
        ({"strict_executions": False, "release_timeout_seconds": 300.0}, False, False),
        ({"image": UNKNOWN}, True, False),
        ({"opened": UNKNOWN}, True, False),
        ({"submission": 2.0}, True, True),
        ({"ulid": OTHER_ULID}, True, True),
        ({"ulid": UNKNOWN}, True, True),
        ({"submission": UNKNOWN}, True, True),
        ({"submission": 2.0, "image": "example/trainer:2"}, True, True),
    ],
)
def test_difference(changes: dict[str, Any], changed: bool, replaced: bool) -> None:
    result = GatedTrainJobProvider().diff("id", outputs(), inputs(**changes))
    assert result.changes is changed
    assert bool(result.replaces) is replaced
    assert result.delete_before_replace is True


def test_opening_that_is_still_owed_is_a_change() -> None:
    news = inputs(opened=True)
    assert GatedTrainJobProvider().diff("id", outputs(opened=True, is_open=False), news).changes is True
    assert GatedTrainJobProvider().diff("id", outputs(opened=True, is_open=True), news).changes is False


def test_hold_that_somebody_else_took_away_or_set_is_a_change() -> None:
    provider = GatedTrainJobProvider()
    assert provider.diff("id", outputs(hold=True, held=False), inputs(hold=True)).changes is True
    assert provider.diff("id", outputs(hold=False, held=True), inputs(hold=False)).changes is True
    assert provider.diff("id", outputs(hold=True, held=True), inputs(hold=True)).changes is False
    assert provider.diff("id", outputs(held=True), inputs()).changes is False
    assert provider.diff("id", outputs(hold=True, held=False, state="Complete"), inputs(hold=True)).changes is False


def test_plain_mode_knows_no_priority() -> None:
    assert failures({}, inputs(queue=None)) == {}
    assert list(failures({}, inputs(queue=None, priority_class="high"))) == ["priority_class"]


def opening(**changes: Any) -> dict[str, Any]:
    """Return the inputs of the opening of a plain job; its name is that of its identity."""
    keys = ("namespace", "name", "uid", "ulid", "submission", "cluster")
    props = {**{key: outputs()[key] for key in keys}, **changes}
    if "name" not in changes and UNKNOWN not in (props["ulid"], props["submission"]):
        props["name"] = f"dj-{props['ulid'].lower()}-s{props['submission']:.0f}"
    return props


def test_submission_that_was_opened_is_not_opened_for_another_object() -> None:
    provider = JobOpeningProvider()
    assert [failure.property for failure in provider.check(opening(), opening(uid="u-2")).failures] == ["submission"]
    assert provider.check(opening(), opening(uid="u-2", submission=2.0)).failures == []
    assert provider.check(opening(), opening(uid=UNKNOWN)).failures == []
    assert provider.check({}, opening(uid="u-2")).failures == []


@pytest.mark.parametrize(
    ("changes", "changed", "replaced"),
    [
        ({}, False, False),
        ({"uid": UNKNOWN, "name": UNKNOWN, "cluster": UNKNOWN}, True, False),
        ({"context": "other"}, True, False),
        ({"submission": 2.0}, True, True),
        ({"submission": 2.0, "uid": UNKNOWN}, True, True),
        ({"ulid": UNKNOWN}, True, True),
    ],
)
def test_difference_of_an_opening(changes: dict[str, Any], changed: bool, replaced: bool) -> None:
    result = JobOpeningProvider().diff("id", {**opening(), "already": False, "held_by": []}, opening(**changes))
    assert result.changes is changed
    assert bool(result.replaces) is replaced


def test_update_of_an_opening_keeps_what_was_seen_and_no_input_that_is_gone() -> None:
    seen = {"already": False, "held_by": ["a/b"]}
    result = JobOpeningProvider().update("id", {**opening(context="a"), **seen}, {**opening(), "__provider": "x"})
    assert result.outs == {**opening(), **seen}


@pytest.mark.parametrize("value", ["0", "0.05", "601", "soon", "nan", ""])
def test_wrong_configuration_of_preflight_is_reported(value: str) -> None:
    provider = GatedTrainJobProvider()
    config = Config({"dispatch:preflightSeconds": value}, "project")
    try:
        provider.configure(ConfigureRequest(config))
        assert vars(provider) == {}
        assert "dispatch:preflightSeconds" in failures({}, inputs())["check"]
    finally:
        provider.configure(ConfigureRequest(Config({}, "project")))
    assert failures({}, inputs()) == {}


def test_deleting_an_opening_does_nothing() -> None:
    JobOpeningProvider().delete("id", opening())


def test_identities_are_minted_anew_and_never_change() -> None:
    provider = JobIdentityProvider()
    one, other = provider.create({}), provider.create({})
    assert one.outs is not None
    assert one.id == one.outs["ulid"] != other.id
    assert failures({}, inputs(ulid=one.id)) == {}
    assert provider.diff(one.id, one.outs, {}).changes is False


@pytest.mark.parametrize("kind", [JobIdentityProvider, GatedTrainJobProvider, JobOpeningProvider, SweepOpeningProvider])
def test_what_the_state_keeps_of_a_provider_is_its_name(kind: type[ResourceProvider]) -> None:
    stored = serialize_provider(kind())
    assert len(stored) < 200
    assert serialize_provider(kind()) == stored
    assert kind.serialize_as_secret_always is False
    assert vars(kind()) == {}


def test_any_number_of_resources_fits_in_one_program() -> None:
    """The SDK nests one more call at each provider that it stores; ours have no state for it to descend into."""
    text = (
        "from pulumi.dynamic.dynamic import serialize_provider\n"
        "from dispatch_gates.resources.gated_train_job import GatedTrainJobProvider\n"
        "assert len({serialize_provider(GatedTrainJobProvider()) for _ in range(3000)}) == 1\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_program_does_not_load_the_client() -> None:
    text = "import sys, dispatch_gates.resources; assert not {'kubernetes', 'aiohttp'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", text], check=True)


def test_nothing_else_of_the_package_needs_pulumi() -> None:
    text = "import sys, dispatch_gates, dispatch_gates.cluster; assert 'pulumi' not in sys.modules"
    subprocess.run([sys.executable, "-c", text], check=True)
