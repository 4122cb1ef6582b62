"""The order of the installation: what is registered, and after what.

Aspects: rights before the Deployment, the Deployment before the check, the check before the ClusterQueue, that before
the LocalQueues; every object is created after all that it needs to work, and, since destroy goes against the same
arrows, removed before it; everything through the stack's own provider; the outputs; a preview.

The engine's side of the protocol is answered here, and nothing is created; tests/infra/test_installation.py does it
for real.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pulumi
import pytest
from google.protobuf import json_format  # type: ignore[import-untyped]  # ships no types
from pulumi.runtime import mocks
from pulumi.runtime.proto import resource_pb2
from pulumi.runtime.stack import run_pulumi_func

from dispatch_gates.contract import names
from dispatch_gates.contract.guard_rails import POLICIES, Level
from dispatch_infra import (
    AdmissionController,
    Chart,
    ControllerArgs,
    GatedQueue,
    GuardRails,
    GuardRailsArgs,
    LocalQueue,
    ManagersArgs,
    PriorityClass,
    QueueArgs,
    stack,
)
from dispatch_infra.settings import Settings

IMAGE = "registry.example.com/dispatch-admission@sha256:" + "0a" * 32
SETTINGS = Settings(
    kubeconfig=None,
    context="here",
    managers=ManagersArgs(),
    controller=ControllerArgs(image=IMAGE),
    guard_rails=GuardRailsArgs(level=Level.EXECUTIONS),
    queue=QueueArgs(
        local_queues=[LocalQueue(), LocalQueue(namespace="team", create_namespace=True)],
        priority_classes=[PriorityClass(name="urgent", value=1000)],
    ),
)


@dataclass
class Registered:
    kind: str
    name: str
    inputs: dict[str, Any]
    dependencies: set[str]
    provider: str
    timeouts: dict[str, str]


class Unasked(mocks.Mocks):
    """What `Recorder` is never to reach: it answers all that these programs ask."""

    def new_resource(self, args: mocks.MockResourceArgs) -> Any:
        raise AssertionError(args.name)

    def call(self, args: mocks.MockCallArgs) -> Any:
        raise AssertionError(args.token)


@dataclass
class Recorder(mocks.MockMonitor):
    """Answers each registration with its own inputs and keeps it, with what the engine would have to wait for."""

    registered: dict[str, Registered] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)
    """What has to be there already: urn and name."""

    def __post_init__(self) -> None:
        super().__init__(Unasked())

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 (the protocol's name)
        urn = self.make_urn(request.parent, request.type, request.name)
        if request.type != "pulumi:pulumi:Stack":
            self.registered[urn] = Registered(
                kind=request.type.rpartition(":")[2],
                name=request.name,
                inputs=json_format.MessageToDict(request.object),
                dependencies=set(request.dependencies),
                provider=request.provider,
                timeouts=json_format.MessageToDict(request.customTimeouts),
            )
        return resource_pb2.RegisterResourceResponse(
            urn=urn, id=request.name if request.custom else "", object=request.object
        )

    def ReadResource(self, request: Any) -> Any:  # noqa: N802 (the protocol's name)
        urn = self.make_urn(request.parent, request.type, request.name)
        self.read[urn] = request.id
        return resource_pb2.ReadResourceResponse(urn=urn, properties=request.properties)

    def of_kind(self, kind: str) -> list[Registered]:
        return [resource for resource in self.registered.values() if resource.kind == kind]

    def before(self, resource: Registered) -> set[str]:
        """Return the kinds of all that this one waits for, directly or not, and the names of what is only read."""
        waited: set[str] = set()
        todo = list(resource.dependencies)
        while todo:
            urn = todo.pop()
            if urn in self.read:
                waited.add(self.read[urn])
                continue
            other = self.registered[urn]
            waited.add(other.kind)
            todo.extend(other.dependencies)
        return waited


def run(program: Any, *, preview: bool = False) -> Recorder:
    """Run a Pulumi program to its end, in a loop and a context of its own."""
    recorder = Recorder()

    async def whole() -> None:
        mocks.set_mocks(Unasked(), project="dispatch-infra", stack="test", monitor=recorder, preview=preview)
        await run_pulumi_func(program)

    asyncio.run(whole())
    return recorder


@pytest.fixture(scope="module")
def installed() -> Recorder:
    return run(lambda: stack.install(SETTINGS) and None)


KUEUE = "admissionchecks.kueue.x-k8s.io"
RIGHTS = {KUEUE, "Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


def test_without_kueue_nothing_is_created(installed: Recorder) -> None:
    for resource in installed.registered.values():
        if "apiVersion" in resource.inputs:
            assert KUEUE in installed.before(resource), resource.name


def test_the_controller_starts_with_its_rights(installed: Recorder) -> None:
    (deployment,) = installed.of_kind("Deployment")
    assert installed.before(deployment) == RIGHTS


def test_the_check_comes_after_the_deployment_and_loses_its_rights_after_it(installed: Recorder) -> None:
    (check,) = installed.of_kind("AdmissionCheck")
    assert installed.before(check) == RIGHTS | {"Deployment"}


def test_the_cluster_queue_comes_after_the_check_and_its_flavors(installed: Recorder) -> None:
    (queue,) = installed.of_kind("ClusterQueue")
    assert installed.before(queue) == RIGHTS | {"Deployment", "AdmissionCheck", "ResourceFlavor"}
    assert queue.inputs["spec"]["admissionChecksStrategy"] == {"admissionChecks": [{"name": "dispatch"}]}


def test_the_local_queues_come_last(installed: Recorder) -> None:
    local_queues = installed.of_kind("LocalQueue")
    assert len(local_queues) == 2
    for local_queue in local_queues:
        assert installed.before(local_queue) >= {"ProvenClusterQueue", "ClusterQueue", "AdmissionCheck", "Deployment"}
    # Nothing may still stand on a LocalQueue when it goes, so that it can go first.
    assert not any("LocalQueue" in installed.before(resource) for resource in installed.registered.values())


def test_a_created_namespace_comes_before_its_local_queue(installed: Recorder) -> None:
    (created,) = [queue for queue in installed.of_kind("LocalQueue") if "team" in queue.name]
    assert {urn.rpartition("::")[2] for urn in created.dependencies} >= {"queue-namespace-team", "queue-gated"}


def test_each_policy_comes_before_its_binding_and_the_accounts_before_all_bindings(installed: Recorder) -> None:
    policies, bindings = installed.of_kind(names.POLICIES.kind), installed.of_kind(names.POLICY_BINDINGS.kind)
    wanted = {name for found in POLICIES.values() for name in found}
    assert {policy.inputs["metadata"]["name"] for policy in policies} == wanted
    assert {binding.inputs["spec"]["policyName"] for binding in bindings} == wanted
    for binding in bindings:
        needed = {urn.rpartition("::")[2] for urn in binding.dependencies}
        assert needed >= {binding.name.removesuffix("-binding"), "guard-rails-accounts"}


def test_a_queue_is_there_once_the_guard_rails_are_proven_in_its_namespace(installed: Recorder) -> None:
    for namespace, label in (("default", "queue-label-default"), ("team", "queue-namespace-team")):
        (local,) = [queue for queue in installed.of_kind("LocalQueue") if namespace in queue.name]
        assert f"queue-guarded-{namespace}" in {urn.rpartition("::")[2] for urn in local.dependencies}
        (proof,) = [found for found in installed.of_kind("ProvenGuardRails") if namespace in found.name]
        needed = {urn.rpartition("::")[2] for urn in proof.dependencies}
        assert needed >= {label, *(binding.name for binding in installed.of_kind(names.POLICY_BINDINGS.kind))}
        (labelled,) = [found for found in installed.registered.values() if found.name == label]
        assert labelled.inputs["metadata"]["labels"][names.GUARDED] == "true"


def test_a_namespace_of_somebody_else_is_only_labelled(installed: Recorder) -> None:
    (patch,) = installed.of_kind("NamespacePatch")
    assert patch.inputs["metadata"] == {"name": "default", "labels": {names.GUARDED: "true"}}


@pytest.mark.parametrize(
    ("level", "policies", "actions"),
    [
        (Level.NO, 0, []),
        (Level.AUDIT, 10, ["Warn", "Audit"]),
        (Level.ADMISSIONS, 8, ["Deny"]),
        (Level.EXECUTIONS, 10, ["Deny"]),
    ],
)
def test_what_a_level_installs(level: Level, policies: int, actions: list[str]) -> None:
    def program() -> None:
        GatedQueue("queue", QueueArgs(), guard_rails=GuardRails("rails", GuardRailsArgs(level=level)))

    recorder = run(program)
    assert len(recorder.of_kind(names.POLICIES.kind)) == policies
    for binding in recorder.of_kind(names.POLICY_BINDINGS.kind):
        assert binding.inputs["spec"]["validationActions"] == actions
    assert len(recorder.of_kind("ProvenGuardRails")) == (level is not Level.NO)
    roles = [role.inputs["metadata"]["name"] for role in recorder.of_kind("ClusterRole")]
    assert sorted(roles) == ["dispatch-adapter", "dispatch-adapter-cluster"]


def test_each_object_goes_through_the_stacks_provider(installed: Recorder) -> None:
    (provider,) = installed.of_kind("kubernetes")
    assert provider.inputs["context"] == "here"
    for resource in installed.registered.values():
        if "apiVersion" in resource.inputs:
            assert "providers:kubernetes::cluster::" in resource.provider, resource.name


def test_each_object_is_named(installed: Recorder) -> None:
    for resource in installed.registered.values():
        if "apiVersion" in resource.inputs:
            assert resource.inputs["metadata"]["name"], resource.name


def test_nothing_waits_without_a_limit(installed: Recorder) -> None:
    for resource in installed.registered.values():
        if "apiVersion" in resource.inputs:
            assert resource.timeouts["delete"] == "2m", resource.name
    assert installed.of_kind("Deployment")[0].timeouts["create"] == "5m"
    for kind in ("AdmissionCheck", "ClusterQueue", "LocalQueue"):
        assert installed.of_kind(kind)[0].timeouts["create"] == "2m"


def test_the_outputs_are_the_names_that_programs_need() -> None:
    outputs: dict[str, Any] = {}
    run(lambda: outputs.update(stack.install(SETTINGS)))
    assert isinstance(outputs.pop("ready"), pulumi.Output)
    assert outputs == {
        "controllerNamespace": "dispatch-system",
        "lease": "dispatch-admission",
        "serviceAccount": "dispatch-admission",
        "admissionCheck": "dispatch",
        "clusterQueue": "dispatch",
        "localQueues": [
            {"name": "dispatch", "namespace": "default"},
            {"name": "dispatch", "namespace": "team"},
        ],
        "priorityClasses": ["urgent"],
        "guardRails": "executions",
    }


def test_a_preview_declares_the_same(installed: Recorder) -> None:
    preview = run(lambda: stack.install(SETTINGS) and None, preview=True)
    assert preview.registered.keys() == installed.registered.keys()


def test_kueue_and_trainer_come_first_where_they_are_asked_for(installed: Recorder) -> None:
    chart = Chart(chart="oci://registry.example.com/chart", version="1")
    managers = ManagersArgs(kueue=chart, trainer=chart)
    recorder = run(lambda: stack.install(replace(SETTINGS, managers=managers)) and None)
    trainer, kueue = sorted(recorder.of_kind("Chart"), key=lambda found: "Chart" in recorder.before(found))
    assert (trainer.inputs["name"], trainer.inputs["namespace"]) == ("kubeflow-trainer", "kubeflow-system")
    assert (kueue.inputs["name"], kueue.inputs["namespace"]) == ("kueue", "kueue-system")
    # Nothing has to be there already, and whatever waited for that waits for a chart.
    assert installed.read
    assert not recorder.read
    waiting = [
        found for found in installed.registered.values() if installed.before(found) & set(installed.read.values())
    ]
    assert waiting
    for found in waiting:
        (same,) = [each for each in recorder.registered.values() if each.name == found.name]
        assert "Chart" in recorder.before(same), found.name


def test_kueue_alone_leaves_trainer_to_others() -> None:
    managers = ManagersArgs(kueue=Chart(chart="oci://registry.example.com/chart", version="1"))
    recorder = run(lambda: stack.install(replace(SETTINGS, managers=managers)) and None)
    assert len(recorder.of_kind("Chart")) == 1
    assert set(recorder.read.values()) == {str(names.TRAINJOBS)}


def test_a_queue_can_stand_behind_a_check_that_another_program_installed() -> None:
    def program() -> None:
        GatedQueue("queue", QueueArgs(admission_check="theirs"))

    (queue,) = run(program).of_kind("ClusterQueue")
    assert queue.inputs["spec"]["admissionChecksStrategy"] == {"admissionChecks": [{"name": "theirs"}]}


def test_of_a_queue_of_somebody_elses_only_our_entry_is_ours() -> None:
    def program() -> None:
        controller = AdmissionController("admission", ControllerArgs(image=IMAGE))
        GatedQueue("queue", QueueArgs(cluster_queue="theirs", existing=True), controller=controller)

    recorder = run(program)
    assert recorder.of_kind("ClusterQueue") == recorder.of_kind("ResourceFlavor") == []
    (wired,) = recorder.of_kind("WiredClusterQueue")
    assert (wired.inputs["cluster_queue"], wired.inputs["wanted"]) == ("theirs", "dispatch")
    assert "AdmissionCheck" in recorder.before(wired)
    (local,) = recorder.of_kind("LocalQueue")
    assert "WiredClusterQueue" in recorder.before(local)


@pytest.mark.parametrize(
    ("args", "kind"),
    [
        (ControllerArgs(image=IMAGE, service_monitor=True), "ServiceMonitor"),
        (ControllerArgs(image=IMAGE, prometheus_rule=True), "PrometheusRule"),
    ],
)
def test_what_the_prometheus_operator_is_told_comes_where_its_kinds_are(args: ControllerArgs, kind: str) -> None:
    recorder = run(lambda: AdmissionController("admission", args))
    (found,) = recorder.of_kind(kind)
    assert f"{kind.lower()}s.monitoring.coreos.com" in recorder.before(found)
    others = {"ServiceMonitor", "PrometheusRule"} - {kind}
    assert not [found for other in others for found in recorder.of_kind(other)]


def test_a_queue_takes_the_name_of_the_check_from_its_controller() -> None:
    def program() -> None:
        controller = AdmissionController("admission", ControllerArgs(image=IMAGE, admission_check="renamed"))
        GatedQueue("queue", QueueArgs(), controller=controller)

    recorder = run(program)
    (queue,) = recorder.of_kind("ClusterQueue")
    assert queue.inputs["spec"]["admissionChecksStrategy"] == {"admissionChecks": [{"name": "renamed"}]}
    assert "AdmissionCheck" in recorder.before(queue)


def test_an_image_that_is_built_in_the_same_program_is_checked_when_it_is_known() -> None:
    def program(image: str) -> None:
        AdmissionController("admission", ControllerArgs(image=pulumi.Output.from_input(image)))

    deployment = run(lambda: program(IMAGE)).of_kind("Deployment")[0]
    assert deployment.inputs["spec"]["template"]["spec"]["containers"][0]["image"] == IMAGE
    with pytest.raises(ValueError, match="names no digest"):
        run(lambda: program("name:tag"))
