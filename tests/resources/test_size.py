"""Many jobs in one program: how long `up` takes beside plain TrainJobs, and that the SDK's limit is not ours.

`python -m resources.size 200` measures; here it is a smaller number, and what must not happen, on a busy machine too.
"""

from __future__ import annotations

from pathlib import Path

from dispatch_gates.resources import JobIdentity
from resources.size import measure
from resources.stacks import Stack
from world import World


def test_ten_jobs(world: World, engine: dict[str, str], tmp_path: Path) -> None:
    env = {**engine, "KUBECONFIG": str(world.cluster.kubeconfig)}  # pulumi-kubernetes patches: the adapter may not
    figures = measure(World(world.cluster, pods=0).make(), lambda name: Stack(name, tmp_path, env), 10, rest=0.5)
    print(figures)
    # On a busy machine anything may take several times as long: what these find is an `up` that waits for a time-out.
    for ups in (figures.gated, figures.one_by_one):
        assert ups.first < 30 * figures.plain.first, figures
        assert ups.again < 10 * figures.plain.again, figures


def test_more_dynamic_resources_than_the_sdk_stands_of_others(stack: Stack) -> None:
    def program() -> None:
        for number in range(1000):
            JobIdentity(f"identity-{number}")

    assert stack.preview(program) == {"create": 1001}
