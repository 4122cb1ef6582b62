"""What no manifest can say, because only the cluster knows.

That accounts are those of the managers; that policies refuse what they must; that a ClusterQueue holds every job for
our check, which in one of somebody else's it is put into first. Dynamic resources: their creation asks the API server
and fails where the answer is not as declared; refreshing asks again, so that what somebody took away shows as drift.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, Resource, ResourceProvider, UpdateResult

from dispatch_gates.cluster import ClusterConfigError, Target, run
from dispatch_gates.contract import names
from dispatch_gates.contract.guard_rails import Level
from dispatch_gates.contract.objects import JsonObject, MalformedError, flag
from dispatch_gates.operations.guard_rails import guard_rails
from dispatch_gates.requests import ApiError, Create, Operation, Pause
from dispatch_infra import foreign_queue
from dispatch_infra.arguments import GuardRailsArgs, QueueArgs

Props = Mapping[str, Any]

TRIES: Final = 150
PAUSE_SECONDS: Final = 0.2
"""A new policy is in force within a second, and a busy API server is given half a minute."""
_ORDER: Final = list(Level)

# What each account does for a living: whoever may not is not the manager that it is taken for.
_WORK: Final = {
    "kueue": ("update", names.TRAINJOBS),
    "trainer": ("create", names.JOBSETS),
    "jobset": ("create", names.JOBS),
    "job_controller": ("create", names.PODS),
    "garbage_collector": ("delete", names.JOBSETS),
    "namespace_controller": ("deletecollection", names.JOBSETS),
}


class ProofError(Exception):
    """The cluster is not as declared; one line that says what was seen and what to do."""


# The SDK prints the whole traceback; its last line is this name and the message.
ProofError.__module__ = "dispatch_infra"


def accounts_problem(accounts: Mapping[str, str]) -> Operation[str]:
    """Return which account lacks the right that its manager lives by, and what to do, or nothing."""
    for who, (verb, resource) in _WORK.items():
        namespace, _, name = accounts[who].partition(":")
        user = f"system:serviceaccount:{namespace}:{name}"
        body: JsonObject = {
            "apiVersion": names.SUBJECT_REVIEWS.api_version,
            "kind": names.SUBJECT_REVIEWS.kind,
            "spec": {
                "user": user,
                "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
                "resourceAttributes": {"verb": verb, "group": resource.group, "resource": resource.plural},
            },
        }
        review = yield Create(names.SUBJECT_REVIEWS, body)
        if not flag(review, "status", "allowed"):
            return (
                f"{user} may not {verb} {resource} in all namespaces, so it is not the account of {who}: the guard "
                f"rails would keep the real one from its work. Set guardRailAccounts.{camel(who)} to the account that "
                "its Deployment names, as NAMESPACE:NAME."
            )
    return ""


def rails_hold(namespace: str, level: Level) -> Operation[Level]:
    """Wait, bounded, until at least this level is in force in a namespace; raise `ProofError` where it is not."""
    for _ in range(TRIES):
        found = yield from guard_rails(namespace)
        if _ORDER.index(found.level) >= _ORDER.index(level):
            return level
        yield Pause(PAUSE_SECONDS)
    raise ProofError(
        f"the guard rails are not in force in namespace {namespace}: level {level} was expected, {found.level} is "
        f"what the API server shows ({found.why}). Nothing that waits for them was created."
    )


def camel(name: str) -> str:
    """Return the name as settings spell it."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


class _Provider(ResourceProvider):
    """A resource that is nothing but what it proves: the input `wanted` becomes the output `proven`.

    Stored in states by module and name: never move it.
    """

    serialize_as_secret_always: ClassVar[bool] = False  # type: ignore[misc] # the SDK reads it from the class

    def proof(self, props: Props) -> Operation[Any]:
        """Return the operation that proves what the inputs say, and what to keep of its result."""
        raise NotImplementedError

    def diff(self, _id: str, olds: Props, news: Props) -> DiffResult:
        """Prove again what is declared in another way, or was found to be otherwise."""
        changed = any(olds.get(key) != value for key, value in news.items() if key not in ("__provider", "proven"))
        return DiffResult(changes=changed or olds.get("proven") != news.get("wanted"), delete_before_replace=True)

    def create(self, props: Props) -> CreateResult:
        """Prove it."""
        return CreateResult("proven", {**props, "proven": self.proven(props)})

    def update(self, _id: str, _olds: Props, news: Props) -> UpdateResult:
        """Prove it anew."""
        return UpdateResult({**news, "proven": self.proven(news)})

    def proven(self, props: Props) -> Any:
        """Run the proof."""
        return _run(props, self.proof(props))


def _run(props: Props, operation: Operation[Any]) -> Any:
    try:
        return run(Target(kubeconfig=props.get("kubeconfig"), context=props.get("context")), operation)
    except (ApiError, ClusterConfigError, MalformedError) as error:
        message = " ".join(str(error).split())
    raise ProofError(message)  # outside the handler, so that no second traceback is printed


def _read(id_: str, props: Props, operation: Operation[str]) -> ReadResult:
    """Tell what is found now: a problem is drift, and the next update fails or mends it."""
    problem = _run(props, operation)
    if problem:
        pulumi.log.warn(problem)
    return ReadResult(id_, {**props, "proven": problem or props.get("wanted")})


class ProvenAccountsProvider(_Provider):
    """Asks whether the accounts are those of the managers."""

    def proof(self, props: Props) -> Operation[Any]:
        """Return the questions."""
        return _no_problem(accounts_problem(props["accounts"]), None)

    def read(self, id_: str, props: Props) -> ReadResult:
        """Tell whether they still are."""
        return _read(id_, props, accounts_problem(props["accounts"]))


class ProvenGuardRailsProvider(_Provider):
    """Asks which level is in force."""

    def proof(self, props: Props) -> Operation[Any]:
        """Return the questions."""
        return rails_hold(props["namespace"], Level(props["wanted"]))

    def read(self, id_: str, props: Props) -> ReadResult:
        """Tell what is in force now: less than declared is drift, and the next update fails or mends it."""
        declared = Level(props["wanted"])
        found = _run(props, guard_rails(props["namespace"]))
        holds = _ORDER.index(found.level) >= _ORDER.index(declared)
        if not holds:
            pulumi.log.warn(f"namespace {props['namespace']}: guard rails {declared} are declared; {found.why}")
        return ReadResult(id_, {**props, "proven": str(declared if holds else found.level)})


class ProvenClusterQueueProvider(_Provider):
    """Asks whether a ClusterQueue holds every job for our check.

    Of a queue of our own, too: pulumi-kubernetes looks at the fields that it wrote, and onFlavors, by which somebody
    narrows our check, is none of them.
    """

    def proof(self, props: Props) -> Operation[Any]:
        """Return the question."""
        return _no_problem(foreign_queue.problem(props["cluster_queue"], props["wanted"]), props["wanted"])

    def read(self, id_: str, props: Props) -> ReadResult:
        """Tell whether it still does."""
        return _read(id_, props, foreign_queue.problem(props["cluster_queue"], props["wanted"]))


class WiredClusterQueueProvider(ProvenClusterQueueProvider):
    """Puts our check into somebody else's ClusterQueue, where every job is then held for it."""

    def proof(self, props: Props) -> Operation[Any]:
        """Return what puts it there."""
        return _no_problem(foreign_queue.wire(props["cluster_queue"], props["wanted"]), props["wanted"])

    def diff(self, _id: str, olds: Props, news: Props) -> DiffResult:
        """Go to another queue before the check leaves this one."""
        found = super().diff(_id, olds, news)
        moved = ["cluster_queue"] if olds.get("cluster_queue") != news.get("cluster_queue") else []
        return DiffResult(changes=found.changes, replaces=moved, delete_before_replace=False)

    def update(self, _id: str, olds: Props, news: Props) -> UpdateResult:
        """Put it there again, or another in its place."""
        wired = foreign_queue.wire(news["cluster_queue"], news["wanted"], instead_of=olds["wanted"])
        return UpdateResult({**news, "proven": _run(news, _no_problem(wired, news["wanted"]))})

    def delete(self, _id: str, props: Props) -> None:
        """Take it out, once no job can start for that."""
        _run(props, _no_problem(foreign_queue.unwire(props["cluster_queue"], props["wanted"]), None))


def _no_problem(operation: Operation[str], result: Any) -> Operation[Any]:
    if problem := (yield from operation):
        raise ProofError(problem)
    return result


class ProvenAccounts(Resource, module="dispatch", name="ProvenAccounts"):
    """The accounts of the managers, seen to have the rights of managers."""

    def __init__(self, resource_name: str, args: GuardRailsArgs, *, opts: pulumi.ResourceOptions) -> None:
        """Declare it."""
        props = {"accounts": dict(vars(args.accounts)), "wanted": None, "proven": None, **_where(args)}
        super().__init__(ProvenAccountsProvider(), resource_name, props, opts)


class ProvenGuardRails(Resource, module="dispatch", name="ProvenGuardRails"):
    """A level of the guard rails in a namespace, seen to refuse what it must."""

    def __init__(
        self,
        resource_name: str,
        args: GuardRailsArgs,
        *,
        namespace: str,
        digest: str,
        opts: pulumi.ResourceOptions,
    ) -> None:
        """Declare it; `digest` stands for the policies, so that others are proven anew."""
        props = {"namespace": namespace, "wanted": str(args.level), "digest": digest, "proven": None, **_where(args)}
        super().__init__(ProvenGuardRailsProvider(), resource_name, props, opts)


class ProvenClusterQueue(Resource, module="dispatch", name="ProvenClusterQueue"):
    """A ClusterQueue, seen to hold every job for our check."""

    def __init__(self, resource_name: str, args: QueueArgs, *, opts: pulumi.ResourceOptions) -> None:
        """Declare it."""
        super().__init__(ProvenClusterQueueProvider(), resource_name, _queue(args), opts)


class WiredClusterQueue(Resource, module="dispatch", name="WiredClusterQueue"):
    """Somebody else's ClusterQueue with our check in it, seen to hold every job for it."""

    def __init__(self, resource_name: str, args: QueueArgs, *, opts: pulumi.ResourceOptions) -> None:
        """Declare it."""
        super().__init__(WiredClusterQueueProvider(), resource_name, _queue(args), opts)


def _queue(args: QueueArgs) -> dict[str, Any]:
    return {"cluster_queue": args.cluster_queue, "wanted": args.admission_check, "proven": None, **_where(args)}


def _where(args: GuardRailsArgs | QueueArgs) -> dict[str, Any]:
    return {"kubeconfig": args.kubeconfig, "context": args.context}
