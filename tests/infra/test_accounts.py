"""The accounts of the managers, with the real engine on a real cluster.

One that has not its manager's right is refused, and the setting is named; one that loses it later is drift, which the
next update refuses, and which is gone once the right is back.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from pulumi import ResourceOptions

from dispatch_gates.contract import names
from dispatch_infra import GuardRailsArgs
from dispatch_infra.proofs import ProvenAccounts
from dispatch_local.cluster import Cluster
from rails import ACCOUNTS
from resources.stacks import Stack
from world import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, SERVICE_ACCOUNTS, World, await_rights

TRAINER = "trainer"
RULE = {"apiGroups": [names.JOBSETS.group], "resources": [names.JOBSETS.plural], "verbs": ["create"]}


@pytest.fixture
def world(cluster: Cluster) -> World:
    world = World(cluster)
    world.make_namespace()
    world.create(SERVICE_ACCOUNTS, TRAINER)
    world.create(CLUSTER_ROLES, world.namespace, cluster_scoped=True, rules=[RULE])
    return world


def bind(world: World) -> None:
    """Give the account what Trainer lives by."""
    world.create(
        CLUSTER_ROLE_BINDINGS,
        world.namespace,
        cluster_scoped=True,
        roleRef={"apiGroup": CLUSTER_ROLES.group, "kind": CLUSTER_ROLES.kind, "name": world.namespace},
        subjects=[{"kind": "ServiceAccount", "name": TRAINER, "namespace": world.namespace}],
    )
    await_rights(world, TRAINER, RULE)


def test_an_account_without_its_managers_right_is_refused_and_one_that_loses_it_is_drift(
    world: World, stack: Stack
) -> None:
    args = GuardRailsArgs(
        accounts=replace(ACCOUNTS, trainer=f"{world.namespace}:{TRAINER}"),
        kubeconfig=str(world.cluster.kubeconfig),
        context=world.cluster.context,
    )

    def program() -> None:
        ProvenAccounts("accounts", args, opts=ResourceOptions())

    refused = f"system:serviceaccount:{world.namespace}:{TRAINER} may not create jobsets.jobset.x-k8s.io"
    printed = stack.up_fails(program)
    assert refused in printed
    assert "Set guardRailAccounts.trainer" in printed

    bind(world)
    assert stack.up(program)["create"] == 1
    assert stack.up(program).unchanged
    assert stack.refresh().unchanged

    world.delete(CLUSTER_ROLE_BINDINGS, world.namespace, cluster_scoped=True)
    refreshed = stack.refresh()
    assert not refreshed.unchanged
    assert refused in refreshed.printed
    assert refused in stack.up_fails(program)

    bind(world)
    stack.refresh()
    assert stack.up(program).unchanged
