"""The demo on a cluster that the user has, at length (`make soak-local`).

Aspects: it plays to the end in Kueue mode, with a `pulumi` of its own where the user's will not do; Ctrl-C at random
moments; neither leaves an object or a file on the node behind.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from infra.guest import User, check_story
from interrupting import SEED, interrupted

pytestmark = pytest.mark.usefixtures("unchanged")
MOMENTS = int(os.environ.get("DISPATCH_MOMENTS", "10"))
STORY_SECONDS = 60.0


def test_in_kueue_mode_with_its_own_pulumi(user: User, tmp_path: Path) -> None:
    picture = tmp_path / "picture.svg"
    old = tmp_path / "bin"
    old.mkdir()
    (old / "pulumi").write_text("#!/bin/sh\necho v3.100.0\n")
    (old / "pulumi").chmod(0o755)
    path = f"{old}:{os.environ['PATH']}"
    code, text = user.demo("--yes", "--svg", str(picture), PATH=path)
    assert code == 0, text
    check_story(text)
    for said in (
        "yours is 3.100.0",
        "Kueue: workloads.kueue.x-k8s.io",
        "evicted, Preempted",
        "waiting for the old pods",
    ):
        assert said in text
    for planned in ("Deployment dispatch-admission in dispatch-system", "ClusterQueue dispatch-demo", "AdmissionCheck"):
        assert planned in text
    assert "waiting for the old pods" in picture.read_text()


def test_ctrl_c_at_random_moments_takes_everything_away_again(user: User) -> None:
    print(f"DISPATCH_SEED={SEED}")
    moments = random.Random(SEED)
    before = user.objects()
    for _ in range(MOMENTS):
        moment = moments.uniform(0, STORY_SECONDS)
        with user.start("--yes") as process:
            said = interrupted(process, moment, f"seed {SEED}, {moment:.2f} s")
        assert sorted(user.objects() - before) == [], said
        assert not user.on_the_node(), said
