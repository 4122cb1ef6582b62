"""Which level is in force, as preflight and Start tell it: on a real API server, for the adapter's account.

Aspects: nothing installed; a policy without its binding; reporting only; a namespace without the label; both levels;
rights that are missing; an API server that starts again; Start of a job that asks for strict executions.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from dispatch_gates.cluster import Target, run
from dispatch_gates.contract import names
from dispatch_gates.contract.guard_rails import POLICIES, GuardRails, Level
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.manifest import JobSpec
from dispatch_gates.contract.objects import listed
from dispatch_gates.operations.errors import RefusedError
from dispatch_gates.operations.guard_rails import guard_rails
from dispatch_gates.operations.start import start
from dispatch_infra import guard_rails_manifests as manifests
from dispatch_infra.policies import policies
from dispatch_local import waiting
from guard_rails.bare import ACCOUNTS, GUARDED, OPEN, OTHERS, Answer, Bare

ALL = policies(ACCOUNTS, "dispatch", Level.EXECUTIONS)
FIRST, STRICT = POLICIES[Level.ADMISSIONS], POLICIES[Level.EXECUTIONS]


@pytest.fixture
def server(api_server: Bare) -> Iterator[Bare]:
    yield api_server
    api_server.remove()
    waiting.until("the end of the policies", lambda: not refuses(api_server, "adapter"))


@pytest.fixture
def adapter(api_server: Bare, tmp_path: Path) -> Target:
    return target(api_server, tmp_path, "adapter")


def target(server: Bare, folder: Path, who: str) -> Target:
    """Return the cluster as an account sees it."""
    config = yaml.safe_load(server.cluster.kubeconfig.read_text())
    namespace, _, name = OTHERS[who].partition(":")
    config["users"][0]["user"] = {"token": server.token(namespace, name)}
    path = folder / who
    path.write_text(json.dumps(config))
    return Target(str(path), config["current-context"])


def refuses(server: Bare, who: str) -> bool:
    """Whether the policies are in force, as far as the last one bound shows."""
    return "ValidatingAdmissionPolicy" in forbidden(server, who).message


def forbidden(server: Bare, who: str) -> Answer:
    """Try, in a dry run, to make a Job of dispatch's by hand."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    metadata = {"name": "probe", "labels": {names.JOBSET_NAME: "dj-01arz3ndektsv4rrffq69g5fav-s1"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
    return server.ask(who, "POST", f"/apis/batch/v1/namespaces/{GUARDED}/jobs", job)


def bound(server: Bare, *found: str, actions: tuple[str, ...] = manifests.DENY) -> None:
    """Install and bind policies; those of Jobs last, so that one of them tells that all are in force."""
    chosen = [policy for policy in ALL if policy.name in found]
    server.put(manifests.policy(policy) for policy in chosen)
    server.put(manifests.binding(policy, actions) for policy in chosen)
    if actions == manifests.DENY and "dispatch-jobs" in found:
        waiting.until("the policies to deny", lambda: refuses(server, "admin"))


def level(target: Target, namespace: str = GUARDED) -> GuardRails:
    return run(target, guard_rails(namespace))


def settled(target: Target, wanted: Level) -> GuardRails:
    """Wait until a level is told: the API server takes up a new policy within a second."""
    waiting.until(f"level {wanted}", lambda: level(target).level is wanted)
    return level(target)


@pytest.mark.usefixtures("server")
def test_nothing_installed(adapter: Target) -> None:
    found = level(adapter)
    assert found.level is Level.NO
    assert found.why == f"not installed: {listed(FIRST, len(FIRST))}"


def test_a_policy_without_its_binding_is_none(server: Bare, adapter: Target) -> None:
    bound(server, *FIRST)
    assert settled(adapter, Level.ADMISSIONS).level is Level.ADMISSIONS
    path = f"/apis/{names.POLICY_BINDINGS.api_version}/{names.POLICY_BINDINGS.plural}/dispatch-pods"
    assert server.admin.request("DELETE", path)[0] == 200
    assert level(adapter) == GuardRails(Level.NO, "not installed: dispatch-pods")


def test_reporting_only(server: Bare, adapter: Target) -> None:
    bound(server, *FIRST)
    bound(server, "dispatch-pods", "dispatch-jobs", actions=manifests.AUDIT)
    assert level(adapter) == GuardRails(Level.AUDIT, "only reported: dispatch-jobs, dispatch-pods")


def test_a_namespace_without_the_label(server: Bare) -> None:
    bound(server, *FIRST)
    administrator = Target(str(server.cluster.kubeconfig), server.cluster.context)
    found = level(administrator, OPEN)
    assert found.level is Level.NO
    assert f"does namespace {OPEN} have the label {names.GUARDED}=true?" in found.why


def test_both_levels(server: Bare, adapter: Target) -> None:
    bound(server, *FIRST)
    assert settled(adapter, Level.ADMISSIONS).why == f"for executions, not in force: {', '.join(STRICT)}"
    bound(server, *STRICT, actions=manifests.AUDIT)
    assert level(adapter).level is Level.ADMISSIONS
    bound(server, *STRICT)
    assert level(adapter) == GuardRails(Level.EXECUTIONS)


def test_rights_that_are_missing(server: Bare, tmp_path: Path) -> None:
    bound(server, *FIRST)
    found = level(target(server, tmp_path, "tenant"))
    assert found.level is Level.NO
    assert found.why.startswith("whether they are installed could not be read: ")
    assert "validatingadmissionpolicies" in found.why


def test_an_api_server_that_starts_again_lets_nothing_through_meanwhile(server: Bare) -> None:
    bound(server, *FIRST)
    answers: list[Answer | None] = []
    with ThreadPoolExecutor(1) as pool:
        restart = pool.submit(server.cluster.restart, "kube-apiserver")
        while not restart.done():
            try:
                answers.append(forbidden(server, "admin"))
            except (OSError, http.client.HTTPException):
                answers.append(None)
        restart.result()
    answers.append(forbidden(server, "admin"))
    assert None in answers, "it was never away"
    assert answers[-1] is not None
    assert [answer for answer in answers if answer and answer.accepted] == []


def test_strict_executions_need_the_second_level(server: Bare, adapter: Target) -> None:
    runtime = {
        "apiVersion": names.TRAINING_RUNTIMES.api_version,
        "kind": names.TRAINING_RUNTIMES.kind,
        "metadata": {"name": "strict", "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {
            "mlPolicy": {"numNodes": 1},
            "template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": JOB}}]}},
        },
    }
    path = f"/apis/{names.TRAINING_RUNTIMES.api_version}/namespaces/{GUARDED}/{names.TRAINING_RUNTIMES.plural}"
    assert server.admin.request("POST", path, runtime)[0] == 201
    asked = JobSpec(
        identity=Identity.of("01ARZ3NDEKTSV4RRFFQ69G5FAV", 7),
        namespace=GUARDED,
        queue=None,
        spec={"runtimeRef": {"kind": "TrainingRuntime", "name": "strict"}},
        owner="tests",
    )
    bound(server, *FIRST)
    with pytest.raises(RefusedError, match=r"strict_executions needs .* not in force: dispatch-executions-jobsets"):
        run(adapter, start(asked, strict_executions=True))
    bound(server, *STRICT)
    started = run(adapter, start(asked, strict_executions=True))
    assert started.job.meta.name == asked.identity.name


JOB = {
    "backoffLimit": 0,
    "podReplacementPolicy": "Failed",
    "template": {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "node", "image": "i"}]},
    },
}
