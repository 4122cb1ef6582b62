"""Preflight on clusters that are set up otherwise: a Kueue without its gate, without TrainJobs, or none; guard rails.

One cluster of these tests' own is changed step by step, in the order of this file.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest
import yaml

from dispatch_gates.cluster import run
from dispatch_gates.contract import names
from dispatch_gates.contract.capability import Answer, Name, Verdict
from dispatch_gates.contract.guard_rails import Level
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.operations.guard_rails import guard_rails
from dispatch_gates.operations.preflight import Report
from dispatch_gates.requests import Create, select, write
from dispatch_infra import guard_rails_manifests as manifests
from dispatch_infra.policies import Accounts, policies
from dispatch_local.cluster import Cluster
from dispatch_local.layout import Layout
from preflight.model import line
from preflight.place import LEASE, Command, Place, asked_of
from start_gate.site import Site
from world import Deployment, until

WHO = Accounts(
    controller=f"{names.CONTROLLER_NAMESPACE}:tests-{LEASE}",
    jobset="jobset-system:jobset-controller-manager",
)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Return a namespace of a cluster that these tests may break, with a controller."""
    cluster = Cluster(f"test-preflight-{os.getpid()}")
    try:
        cluster.up(node=False)
        place = Place(cluster)
        place.make()
        with Deployment(place, tmp_path_factory.mktemp("elsewhere"), LEASE):
            place.add_queue("full", **place.wired(pods=0))
            place.active("full")
            yield place
    finally:
        cluster.down()


# Guard rails.


def _rails(place: Place, actions: tuple[str, ...]) -> None:
    """Install the guard rails anew, so that they deny or report; nowhere, where there are no `actions`."""
    for resource in (names.POLICY_BINDINGS, names.POLICIES):
        for raw in run(place.target, select(resource, "", names.GUARD_RAILS)).items:
            place.delete(resource, raw["metadata"]["name"], cluster_scoped=True)
    found = policies(WHO, names.ADMISSION_CHECK, Level.ADMISSIONS) if actions else []
    for policy in found:
        run(place.target, write(Create(names.POLICIES, manifests.policy(policy))))
        run(place.target, write(Create(names.POLICY_BINDINGS, manifests.binding(policy, actions))))


def _level(place: Place) -> Level:
    return run(place.target, guard_rails(place.namespace)).level


def test_guard_rails(elsewhere: Place) -> None:
    """Absent, reporting, in force; with them the probe is as closed as without. They are no part of the verdict."""
    asked = elsewhere.asks(watch_seconds=3.0)

    def guarded(body: JsonObject) -> None:
        body["metadata"]["labels"][names.GUARDED] = "true"

    elsewhere.change(names.NAMESPACES, elsewhere.namespace, guarded, cluster_scoped=True)
    for actions, level in (((), Level.NO), (manifests.AUDIT, Level.AUDIT), (manifests.DENY, Level.ADMISSIONS)):
        _rails(elsewhere, actions)
        if actions == manifests.DENY:
            until("the policies to deny", lambda: _level(elsewhere) is Level.ADMISSIONS)
        report = elsewhere.preflight(asked)
        rails = line(report, Name.GUARD_RAILS)
        assert (rails.answer is Answer.YES, rails.needed) == (level is Level.ADMISSIONS, False)
        assert rails.reason.startswith("not in force" if level is Level.NO else level)
        assert (report.verdict, report.why) == (Verdict.READY, ())
    _rails(elsewhere, ())


# An API server that stops answering, and interrupts that cannot be cleaned up after.


def test_interrupted_twice(elsewhere: Place) -> None:
    """The deletion hangs: the second Ctrl-C ends it, and the command that deletes the probe is printed."""
    command = Command(elsewhere.target, *asked_of(elsewhere.asks(watch_seconds=600.0)))
    [probe] = until("the probe", elsewhere.probes)
    elsewhere.cluster.pause("kube-apiserver")
    try:
        command.signal(signal.SIGINT)
        time.sleep(2)  # long enough that the deletion hangs; if it does not yet, one signal less is tested
        command.signal(signal.SIGTERM)
        code, _, err = command.ended(30)
    finally:
        elsewhere.cluster.resume("kube-apiserver")
    name = probe["metadata"]["name"]
    assert (code, f"kubectl -n {elsewhere.namespace} delete trainjob {name}" in err) == (130, True), err
    elsewhere.remove_probe(name)


def test_an_api_server_that_stops_answering(elsewhere: Place) -> None:
    command = Command(elsewhere.target, *asked_of(elsewhere.asks(watch_seconds=20.0)), "--timeout", "5")
    [probe] = until("the probe", elsewhere.probes)
    elsewhere.cluster.pause("kube-apiserver")
    try:
        code, _, err = command.ended()
    finally:
        elsewhere.cluster.resume("kube-apiserver")
    name = probe["metadata"]["name"]
    assert (code, f"delete trainjob {name}" in err, "given up after 25 s" in err) == (4, True, True), err
    elsewhere.remove_probe(name)


# Kueue, set up otherwise.


def _kueue(place: Place, edit: Callable[[JsonObject], object]) -> None:
    """Start Kueue again with another configuration."""
    path = Layout(place.cluster.name).configuration / "kueue.yaml"
    configuration = yaml.safe_load(path.read_text())
    edit(configuration)
    path.write_text(yaml.safe_dump(configuration))
    place.cluster.restart("kueue")


def test_the_feature_gate_is_off(elsewhere: Place) -> None:
    """With quota it leaks; without, the probe is held, but not by the gate: a full queue proves nothing."""
    _kueue(elsewhere, lambda body: body["featureGates"].update(AdmissionGatedBy=False))
    leaks = line(elsewhere.preflight(elsewhere.asks(watch_seconds=60.0)), Name.START_GATE)
    assert (leaks.answer, "leaks: Kueue reserved quota" in leaks.reason) == (Answer.NO, True), leaks
    assert "AdmissionGatedBy" in leaks.remedy
    full = line(elsewhere.preflight(elsewhere.asks("full", watch_seconds=5.0)), Name.START_GATE)
    assert (full.answer, "does not carry the gate" in full.reason) == (Answer.NO, True), full


def test_the_integration_is_off(elsewhere: Place) -> None:
    _kueue(elsewhere, lambda body: body["integrations"].update(frameworks=["batch/job"]))
    gate = line(elsewhere.preflight(elsewhere.asks(watch_seconds=5.0)), Name.START_GATE)
    assert (gate.answer, "no Workload seen in 5 s" in gate.reason) == (Answer.NO, True), gate
    assert "integrations.frameworks" in gate.remedy


def test_a_trainjob_without_runtime_patches(elsewhere: Place) -> None:
    def older(body: JsonObject) -> None:
        for version in body["spec"]["versions"]:
            schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
            del schema["properties"]["runtimePatches"]

    elsewhere.change(names.CRDS, str(names.TRAINJOBS), older, cluster_scoped=True)

    def told() -> Report | None:
        report = elsewhere.preflight(elsewhere.asks(watch_seconds=0.5))
        return report if line(report, Name.KINDS).answer is Answer.NO else None

    report = until("the API server to refuse the field", told)
    assert "lacks spec.runtimePatches" in line(report, Name.KINDS).reason
    assert (report.verdict, report.cannot_tell) == (Verdict.OBSERVE_ONLY, False)


# No Kueue at all.


def test_no_kueue(without_kueue: Site) -> None:
    place = Place(without_kueue.cluster, without_kueue.namespace)
    report = place.preflight(place.asks(watch_seconds=1.0))
    assert (report.verdict, report.cannot_tell) == (Verdict.OBSERVE_ONLY, False)
    kinds = line(report, Name.KINDS)
    assert (kinds.answer, kinds.reason) == (Answer.NO, "CRD workloads.kueue.x-k8s.io is not installed")
    assert place.preflight(place.asks(None, watch_seconds=5.0)).verdict is Verdict.READY
