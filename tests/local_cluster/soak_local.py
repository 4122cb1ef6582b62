"""Three clusters at once, each playing the demo (`make soak-local`): too long for every run.

Aspect: side by side each plays the whole story, and the judge of the audit log finds nothing in any.
"""

from __future__ import annotations

from contextlib import ExitStack

from dispatch_gates.audit import read
from dispatch_local.cluster import Cluster
from dispatch_local.demo.stage import NAMESPACE
from local_cluster.surroundings import started

NAMES = ("soak-one", "soak-two", "soak-three")
# Three clusters share the processors, and images may have to be made first.
SECONDS = 1800


def test_three_clusters_play_the_demo_at_once() -> None:
    try:
        with ExitStack() as running:
            processes = [running.enter_context(started(name, "demo")) for name in NAMES]
            texts = [process.communicate(timeout=SECONDS)[0] for process in processes]
        for name, process, text in zip(NAMES, processes, texts, strict=True):
            assert process.returncode == 0, f"{name}: {text}"
            timeline = read([Cluster(name).audit_log])
            assert timeline.violations() == [], name
            # Those of submission 0 are probes of preflight.
            jobs = [
                job
                for job in timeline.jobs.values()
                if job.key.startswith(f"{NAMESPACE}/") and not job.key.endswith("-s0")
            ]
            assert sorted(len(job.resumes) for job in jobs) == [1, 2], name
            for job in jobs:
                assert job.created_closed, name
                assert job.opened is not None, name
                assert all(pod.created > job.opened for pod in job.pods.values()), name
                counts = [a for a, _ in job.resumes]
                assert counts == sorted({a for a in counts if a}), name
    finally:
        for name in NAMES:
            Cluster(name).down()
