"""The bench works: a small run of all its parts, on a real API server. It shows that, and measures nothing."""

from __future__ import annotations

import json
import subprocess
import sys

from bench.record import RECORDED
from dispatch_gates.contract.execution import parse_job, parse_jobset, parse_pod
from dispatch_gates.contract.trainjob import parse_trainjob
from dispatch_gates.contract.workload import parse_workload


def test_a_small_run_of_all_parts() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--smoke", "--output", "json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout)
    for rows in (found["latency"], found["rate"]):
        assert [row["driver"] for row in rows] == ["raw", "controller"]
    assert all(0 < row["p50"] <= row["p90"] <= row["p99"] for row in found["latency"])
    for row in found["rate"]:
        assert row["admissions"] >= 50
        assert row["requests"] >= 2
        assert row["trainer_requests"] > 0
        assert min(row["own_ms"], row["api_server_ms"], row["per_second"]) > 0
    assert [row["events"] for row in found["events"]] == [20, 20]
    assert found["memory"]["peak_mib"] > 20


def test_what_is_multiplied_is_a_job_at_the_moment_of_the_decision() -> None:
    recorded = json.loads(RECORDED.read_text())
    workload, job = parse_workload(recorded["Workload"]), parse_trainjob(recorded["TrainJob"])
    assert workload.reserved
    assert job.suspended
    assert parse_jobset(recorded["JobSet"]).suspended
    assert parse_job(recorded["Job"]).over
    assert parse_pod(recorded["Pod"]).may_run
