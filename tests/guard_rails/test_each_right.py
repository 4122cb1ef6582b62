"""Each right of the controller and of the adapter, taken away: what goes wrong then, on a real API server.

Aspects: for each verb of each resource in the shipped rules, an account that has all the others; the controller's whole
process, or the adapter's operations, with its token; it is told, in the API server's words, which right is missing;
preflight foretells it; with all rights nothing of the kind is told. Who acts beside them is played: the API server is
all there is.

The verb `dispatch` is the guard rails' to ask for, and no request's: `test_rules` has accounts without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import pytest
from ulid import ULID

from dispatch_admission import events
from dispatch_admission.__main__ import Settings, _run
from dispatch_gates.cluster import Target, run
from dispatch_gates.contract import names
from dispatch_gates.contract.capability import Name
from dispatch_gates.contract.identity import Identity
from dispatch_gates.contract.names import Resource
from dispatch_gates.contract.objects import JsonObject
from dispatch_gates.operations.errors import OperationError
from dispatch_gates.operations.holding import hold, release
from dispatch_gates.operations.jobs import cluster_identity
from dispatch_gates.operations.opening import open_job
from dispatch_gates.operations.overview import overview
from dispatch_gates.operations.preflight import Asked, preflight, probe
from dispatch_gates.operations.preflight.rights import needed
from dispatch_gates.operations.start import start
from dispatch_gates.operations.stop import stop
from dispatch_gates.requests import ApiError, Operation, Request, Watch
from dispatch_infra import rights
from dispatch_infra.rights import Rule
from guard_rails import cases
from guard_rails.bare import Bare
from guard_rails.cases import annotated, edited
from logged import Right
from world import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    SERVICE_ACCOUNTS,
    WAIT_SECONDS,
    World,
    await_rights,
    runtime,
    stepped,
    token_of,
    until,
    write_kubeconfig,
)

T = TypeVar("T")
HOME = "each-right"
"""Where the accounts are, the controller's Lease, and the jobs."""
LEASE_SECONDS = 15.0
LEASE_CREATED: Right = (names.LEASES.group, names.LEASES.plural, "create")
GOODBYE_SECONDS = 0.5
"""How long the end of a TLS connection may take, which nothing tells of; usually a few milliseconds."""
STORY_SECONDS = 60.0
"""How long a right may go without being missed; usually a tenth of a second."""
CONTROLLER = [*rights.cluster_rules(cases.CHECK), *rights.namespace_rules(names.CONTROLLER)]
ADAPTER = [*rights.adapter_cluster_rules(), *rights.adapter_rules()]


def each(rules: list[Rule]) -> list[Right | None]:
    """Return rights one by one, and None for: nothing is taken away."""
    found = [(rule["apiGroups"][0], rule["resources"][0], verb) for rule in rules for verb in rule["verbs"]]
    return [*(right for right in dict.fromkeys(found) if right[2] != names.ADAPTER_VERB), None]


def less(rules: list[Rule], right: Right | None) -> list[Rule]:
    """Return rules without a right."""
    group, resource, verb = right or ("", "", "")
    found = [
        rule | {"verbs": [each for each in rule["verbs"] if each != verb]}
        if (rule["apiGroups"], rule["resources"]) == ([group], [resource])
        else rule
        for rule in rules
    ]
    return [rule for rule in found if rule["verbs"]]


def label(right: Right | None) -> str:
    return f"{right[2]}-{right[1]}" if right else "all"


def refusal(right: Right | None) -> str:
    """What the API server says to whoever lacks a right, whichever it is where that is None."""
    return f'cannot {right[2]} resource "{right[1]}" in API group "{right[0]}"' if right else "cannot "


@dataclass
class Place(World):
    """A namespace of a bare API server, and accounts that lack one right each."""

    namespace: str = HOME
    guarded: bool = False
    accounts: dict[tuple[str, Right | None], Target] = field(default_factory=dict)

    def prepare(self, folder: Path) -> Place:
        """Make the accounts, and what all stories share; return when the API server knows everybody's rights."""
        self.make_namespace()
        self.create(SERVICE_ACCOUNTS, "default")  # which pods need
        self.make_check(cases.CHECK)
        self.create(names.TRAINING_RUNTIMES, "kwok", **runtime())
        strategy = {"admissionChecks": [{"name": cases.CHECK}]}
        self.create(names.CLUSTER_QUEUES, "queue", cluster_scoped=True, spec={"admissionChecksStrategy": strategy})
        self.create(names.LOCAL_QUEUES, "queue", spec={"clusterQueue": "queue"})
        for who, rules in (("controller", CONTROLLER), ("adapter", ADAPTER)):
            for right in each(rules):
                name = f"{who}-{label(right)}".replace("/", "-")
                self.accounts[who, right] = self._account(name, less(rules, right), folder)
            # The API server learns of them in this order; the last one has all rights.
            await_rights(self, name, rules[-1])
        return self

    def _account(self, name: str, rules: list[Rule], folder: Path) -> Target:
        self.create(SERVICE_ACCOUNTS, name)
        self.create(CLUSTER_ROLES, f"{HOME}-{name}", cluster_scoped=True, rules=rules)
        self.create(
            CLUSTER_ROLE_BINDINGS,
            f"{HOME}-{name}",
            cluster_scoped=True,
            roleRef={"apiGroup": CLUSTER_ROLES.group, "kind": CLUSTER_ROLES.kind, "name": f"{HOME}-{name}"},
            subjects=[{"kind": "ServiceAccount", "name": name, "namespace": HOME}],
        )
        return Target(str(write_kubeconfig(folder / name, self, token_of(self, name))), "tests")

    def put(self, resource: Resource, body: JsonObject, job: str, owner: JsonObject | None = None) -> JsonObject:
        """Create an object of the builders of `cases` for a job of this name, with its owner and its status."""
        body = json.loads(json.dumps(body).replace(cases.JOB, job))
        metadata = {key: value for key, value in body["metadata"].items() if key in ("labels", "annotations")}
        if owner is not None:
            found = {key: owner[key] for key in ("apiVersion", "kind")}
            found |= {key: owner["metadata"][key] for key in ("name", "uid")}
            metadata["ownerReferences"] = [found | {"controller": True}]
        made = self.create(resource, body["metadata"]["name"], metadata=metadata, spec=body["spec"])
        if "status" not in body:
            return made
        return self.change(
            resource, body["metadata"]["name"], lambda raw: raw.update(status=body["status"]), status=True
        )


@pytest.fixture(scope="module")
def place(api_server: Bare, tmp_path_factory: pytest.TempPathFactory) -> Place:
    api_server.rest()
    return Place(api_server.cluster).prepare(tmp_path_factory.mktemp("accounts"))


def rights_of(rules: list[Rule]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("right", each(rules), ids=label)


# The controller


class Readmission:
    """Three Workloads that wait at the check: of a job of dispatch's, of a batch Job, of a TrainJob that is gone."""

    def __init__(self, place: Place) -> None:
        self.place, self.job = place, Identity.of(str(ULID()), 1).name
        opened = edited(cases.trainjob(), annotated(names.ADMISSION_GATED_BY, None))
        trainjob = place.put(names.TRAINJOBS, opened, self.job)
        jobset = place.put(names.JOBSETS, cases.jobset(), self.job, trainjob)
        place.put(names.JOBS, cases.job("0"), self.job, jobset)
        foreign = place.create(names.JOBS, f"foreign-{self.job}", spec=cases.job()["spec"])
        gone = copy.deepcopy(trainjob)
        gone["metadata"]["name"] = "gone"
        self.workloads = {
            kind: self._workload(f"{kind}-{self.job}", owner)
            for kind, owner in {"ours": trainjob, "foreign": foreign, "orphan": gone}.items()
        }

    def _workload(self, name: str, owner: JsonObject) -> str:
        body = cases.workload(entries=[cases.entry(cases.CHECK)], QuotaReserved=True)
        body["metadata"] = {"name": name}
        self.place.put(names.WORKLOADS, body, self.job, owner)
        return name

    def entry(self, kind: str) -> JsonObject:
        """Our entry of a Workload."""
        found: JsonObject = (self.place.get(names.WORKLOADS, self.workloads[kind]) or {})["status"]["admissionChecks"][
            0
        ]
        return found

    def trainer(self) -> None:
        """Play Trainer: carry A to the JobSet."""
        count = str(self.place.job(self.job).count)

        def carry(body: JsonObject) -> None:
            template = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
            template["metadata"]["annotations"][names.ADMISSION_COUNT] = count

        self.place.change(names.JOBSETS, self.job, carry)

    def told(self) -> str:
        """What the checks say, each with its state."""
        return "\n".join(f"{self.entry(kind)['state']}: {self.entry(kind)['message']}" for kind in self.workloads)

    def over(self) -> bool:
        """Whether all is done that there is to do, and an Event was told a second time."""
        states = [self.entry(kind)["state"] for kind in ("ours", "foreign")]
        return states == ["Ready", "Ready"] and any(event["count"] > 1 for event in self.place.list(names.EVENTS))

    def end(self) -> None:
        """Delete what the next controller would work on."""
        for name in self.workloads.values():
            self.place.delete(names.WORKLOADS, name)


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    """An event loop that sees the end of each story's connections."""
    with asyncio.Runner() as runner:
        yield runner
        runner.run(asyncio.sleep(GOODBYE_SECONDS))


@rights_of(CONTROLLER)
def test_the_controller_without(
    place: Place,
    loop: asyncio.Runner,
    right: Right | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(events, "REPEAT_SECONDS", 0.0)
    caplog.set_level(logging.DEBUG, "dispatch_admission")
    # A Lease that is there is not created, and a check that is Active already is not written.
    if right in (LEASE_CREATED, None):
        place.delete(names.LEASES, names.CONTROLLER)
    place.change(
        names.ADMISSION_CHECKS, cases.CHECK, lambda raw: raw.update(status={}), status=True, cluster_scoped=True
    )
    story = Readmission(place)

    def told() -> str:
        return caplog.text.replace('\\"', '"') + story.told()

    def missed() -> bool:
        story.trainer()
        return refusal(right) in told() if right else story.over()

    me = place.accounts["controller", right]
    settings = Settings(me, HOME, names.CONTROLLER, LEASE_SECONDS, label(right), "127.0.0.1", 0)
    loop.run(serve_until(missed, settings))
    if right is None:
        assert refusal(right) not in told()
    story.end()


async def serve_until(condition: Callable[[], bool], settings: Settings) -> None:
    """Run the controller as a process does, until a condition holds."""
    serving = asyncio.create_task(_run(settings))
    try:
        await asyncio.to_thread(until, "the end of the story", condition, STORY_SECONDS, pause=0.02)
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


# The adapter


class Lifetime:
    """The operations of one job's life by an account, one after the other, whatever becomes of each."""

    def __init__(self, place: Place, me: Target) -> None:
        self.place, self.me = place, me
        self.errors: list[str] = []
        self.name = Identity.of(str(ULID()), 1).name
        self.foretold = ""

    def play(self) -> None:
        place, asked = self.place, self.place.spec(Identity.parse(self.name))
        self._try(cluster_identity())
        absent = {"runtimeRef": {"kind": names.CLUSTER_TRAINING_RUNTIMES.kind, "name": "absent"}}
        self._try(start(replace(asked, spec=absent)))
        started = self._try(start(asked), self._kueue)
        # Where it could not, an administrator starts it, or takes it over.
        job = (started or stepped(place.target, start(asked), self._kueue)).job
        where = place.namespace, job.meta.name, job.meta.uid
        jobset = place.put(names.JOBSETS, cases.jobset(), self.name, job.raw)
        place.put(names.JOBS, cases.job("0"), self.name, jobset)
        place.put(names.PODS, cases.pod("0"), self.name)
        question = Asked(place.namespace, "queue", watch_seconds=0.1)
        report = run(self.me, preflight(question, Identity(str(ULID()), 0), clock=time.monotonic))
        reasons = {line.name: line.reason for line in report.capabilities}
        self.foretold = reasons.pop(Name.RIGHTS)
        self.errors += reasons.values()
        self._try(open_job(*where))
        self._try(hold(*where))
        self._try(release(*where))
        self._try(overview(place.namespace))
        place.change(names.TRAINJOBS, self.name, lambda raw: raw["metadata"].update(finalizers=["dispatch.local/kept"]))
        self._try(stop(*where, seconds=WAIT_SECONDS), self._goes)

    def _try(self, operation: Operation[T], before: Callable[[Request], object] = lambda _: None) -> T | None:
        try:
            return stepped(self.me, operation, before)
        except (ApiError, OperationError) as error:
            self.errors.append(str(error))
            return None

    def _kueue(self, request: Request) -> None:
        """Play Kueue: make the Workload once it is waited for."""
        if isinstance(request, Watch) and request.resource == names.WORKLOADS:
            body = cases.workload(entries=[cases.entry(cases.CHECK)], QuotaReserved=False)
            owner = self.place.get(names.TRAINJOBS, self.name)
            assert owner is not None
            body["metadata"]["labels"] = {names.JOB_UID: owner["metadata"]["uid"]}
            if self.place.get(names.WORKLOADS, f"trainjob-{self.name}-0a1b2") is None:
                self.place.put(names.WORKLOADS, body, self.name, owner)

    def _goes(self, request: Request) -> None:
        """Let go what is waited for, as the garbage collector does."""
        gone = {names.JOBSETS: self.name, names.JOBS: f"{self.name}-node-0", names.PODS: f"{self.name}-node-0-0-abcde"}
        if isinstance(request, Watch) and request.resource == names.TRAINJOBS:
            self.place.change(names.TRAINJOBS, self.name, lambda raw: raw["metadata"].pop("finalizers"))
        elif isinstance(request, Watch):
            self.place.delete(request.resource, gone[request.resource])


FORETOLD = {
    (right.resource.group, right.resource.plural, right.verb): str(right)
    for right in needed(Asked(HOME, "queue"), guarded=False)
}


@rights_of(ADAPTER)
def test_the_adapter_without(place: Place, right: Right | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_REPLAY_SECONDS", 0.1)  # nothing comes that the probe could wait for
    life = Lifetime(place, place.accounts["adapter", right])
    life.play()
    assert any(refusal(right) in error for error in life.errors) is (right is not None), life.errors
    assert (FORETOLD[right] in life.foretold) if right in FORETOLD else ("you may not" not in life.foretold)
