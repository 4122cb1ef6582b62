"""What the guard rails cost: each guarded write with them and without, in turns, on one API server.

`make bench-guard-rails`. Nothing is stored: dry runs pass through all of admission, and leave the objects as they
are for the next one. The figures are in infra/README.md.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections import defaultdict
from functools import partial

from dispatch_gates.contract.guard_rails import Level
from dispatch_local import waiting
from guard_rails import bare
from guard_rails.bare import Bare
from guard_rails.cases import CASES, CHECK
from guard_rails.changes import change, named, store

ROUNDS, REQUESTS = 6, 50
LIMIT_MS = 2.0
WRITES = {
    "TrainJob, created by the adapter": ("dispatch-trainjobs/created-by-the-adapter", "create", "adapter"),
    "TrainJob, A raised by the controller": (
        "dispatch-trainjobs/count-by-who-owns-it",
        "raised in Kueue mode",
        "controller",
    ),
    "TrainJob, started by Kueue": ("dispatch-trainjobs/suspend-by-who-owns-it", "lifted in Kueue mode", "kueue"),
    "Workload, created by Kueue": ("dispatch-workloads/created-by-kueue", "create", "kueue"),
    "Workload status, set Ready by the controller": (
        "dispatch-workload-status/ready-by-the-controller",
        "set Ready",
        "controller",
    ),
    "Workload status, written by Kueue": ("dispatch-workload-status/admission-by-kueue", "admitted", "kueue"),
    "JobSet, created by Trainer": ("dispatch-jobsets/created-by-trainer", "create", "trainer"),
    "JobSet, resumed by Trainer": ("dispatch-jobsets/changed-by-its-managers", "resumed", "trainer"),
    "Job, created by JobSet": ("dispatch-jobs/created-by-jobset", "create", "jobset"),
    "Job, resumed by JobSet": ("dispatch-jobs/resumed-with-a-higher-count", "a higher one", "jobset"),
    "pod, created by the Job controller": ("dispatch-pods/created-by-the-job-controller", "create", "job_controller"),
    "pod, changed by the Job controller": ("dispatch-pods/identity-stays", "another label", "job_controller"),
}


def in_force(server: Bare, refused: int, guarded: bool) -> bool:
    """Whether the last policy refuses what it must, or does not any more."""
    wanted = change(server, refused)
    return server.ask("jobset", wanted.method, wanted.path, wanted.body).accepted is not guarded


def measure(server: Bare) -> dict[str, dict[bool, list[float]]]:
    """Return the milliseconds of each write, with the guard rails and without."""
    index = {(case.rule, case.what): number for number, case in enumerate(CASES)}
    chosen = {what: (index[rule, case], who) for what, (rule, case, who) in WRITES.items()}
    for number, _ in chosen.values():
        before = CASES[number].before
        if before is not None:
            store(server, CASES[number], named(before, number))
    found: dict[str, dict[bool, list[float]]] = {what: defaultdict(list) for what in chosen}
    refused = index["dispatch-executions-jobs/created-suspended", "running"]
    for turn in range(2 * ROUNDS):
        guarded = bool(turn % 2)
        if guarded:
            server.install(Level.ADMISSIONS, CHECK)
            server.install(Level.EXECUTIONS, CHECK)
        else:
            server.remove()
        waiting.until("the change to be in force", partial(in_force, server, refused, guarded))
        for number, who in chosen.values():
            # The first request of a connection or of a policy is slow.
            first = change(server, number)
            server.ask(who, first.method, first.path, first.body)
        for _ in range(REQUESTS):
            for what, (number, who) in chosen.items():
                wanted = change(server, number)
                began = time.perf_counter()
                answer = server.ask(who, wanted.method, wanted.path, wanted.body)
                found[what][guarded].append(1000 * (time.perf_counter() - began))
                assert answer.accepted, f"{what}: {answer}"
    return found


def main() -> None:
    """Print the medians, and fail where the guard rails cost more than they may."""
    cluster_name = f"test-latency-{os.getpid()}"
    cluster = bare.started(cluster_name)
    server = Bare(cluster)
    try:
        server.prepare()
        found = measure(server)
    finally:
        server.close()
        cluster.down()
    print(f"median of {ROUNDS * REQUESTS} requests each, in ms")
    print(f"{'write':48} {'without':>8} {'with':>8} {'more':>8}")
    worst = 0.0
    for what, times in found.items():
        without, guarded = (statistics.median(times[each]) for each in (False, True))
        worst = max(worst, guarded - without)
        print(f"{what:48} {without:8.2f} {guarded:8.2f} {guarded - without:8.2f}")
    if worst > LIMIT_MS:
        sys.exit(f"the guard rails may cost {LIMIT_MS} ms at the median, not {worst:.2f}")


if __name__ == "__main__":
    main()
