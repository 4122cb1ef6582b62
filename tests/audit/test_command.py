"""`dispatch-gates audit`: exit codes, what people and programs read, and the ways in which logs lie there.

Aspects: rotated files in any order, gzip, standard input, the same line twice, a line in the middle that is no JSON;
memory does not grow with the log; names from a log never reach the terminal as they are.
"""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from audit.story import COUNT, KEY, NAME, Log, good
from cli.test_program import documented, documented_inside
from dispatch_gates.audit import LogError, read
from dispatch_gates.cli import main


def audit(*arguments: str | Path, given: bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["audit", *map(str, arguments)], input=given)


def wrong() -> Log:
    log = Log()
    log.evicted()
    log.old_pod_ends()
    log.job(a=1, suspend=False)
    return log


def story() -> Log:
    log = Log()
    good(log)
    return log


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


def test_nothing_wrong_is_exit_0(file: Path) -> None:
    file.write_text(story().lines())
    result = audit(file)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "1 jobs, 2 executions: nothing wrong" in result.stdout


def test_a_broken_promise_is_exit_1(file: Path) -> None:
    file.write_text(wrong().lines())
    result = audit(file)
    assert result.exit_code == 1
    line = next(line for line in result.stdout.splitlines() if "A must be higher" in line)
    assert f"trainjobs {KEY}" in line
    assert "1 broken promises" in result.stdout


def test_json(file: Path) -> None:
    file.write_text(wrong().lines())
    result = audit(file, "-o", "json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["version"] == 1
    assert [each["name"] for each in found["jobs"]] == [KEY]
    assert [each["admissionCount"] for each in found["jobs"][0]["executions"]] == [1, 1]
    assert [(each["resource"], each["name"]) for each in found["violations"]] == [("trainjobs", NAME)]
    assert found["cannotTell"] == []
    assert set(found) == documented("all") | documented("audit")
    (job, *_), (violation, *_) = found["jobs"], found["violations"]
    assert documented_inside("audit", "jobs") == set(job) | set(job["executions"][0])
    assert documented_inside("audit", "violations") == set(violation)


@pytest.mark.parametrize(("options", "code"), [((), 4), (("--partial",), 0)])
def test_a_log_that_does_not_tell_all_is_exit_4_unless_that_is_known(
    options: tuple[str, ...], code: int, file: Path
) -> None:
    log = story()
    del log.events[0]
    file.write_text(log.lines())
    result = audit(file, *options)
    assert result.exit_code == code
    assert "cannot tell" in result.stdout
    assert "--policy" in result.stdout


def test_a_broken_promise_counts_in_a_partial_log(file: Path) -> None:
    log = wrong()
    del log.events[0]
    file.write_text(log.lines())
    assert audit(file, "--partial").exit_code == 1


def test_rotated_files_of_several_servers_in_any_order_count_once(tmp_path: Path) -> None:
    events = wrong().events
    halves = [events[:9], events[9:], events[5:12]]
    files = [tmp_path / name for name in ("b.log.gz", "a.log", "copy.log")]
    for path, half in zip(files, halves, strict=True):
        content = "".join(json.dumps(event) + "\n" for event in half).encode()
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    for order in (files, files[::-1]):
        timeline = read(order)
        assert len(timeline.violations()) == 1
        assert timeline.gaps() == []
        assert [a for a, _ in timeline.jobs[KEY].resumes] == [1, 1]


@pytest.mark.parametrize("compressed", [False, True])
def test_standard_input(compressed: bool) -> None:
    content = wrong().lines().encode()
    assert audit("-", given=gzip.compress(content) if compressed else content).exit_code == 1


def test_one_namespace(file: Path) -> None:
    file.write_text(wrong().lines())
    assert audit(file, "-n", "team").exit_code == 1
    elsewhere = audit(file, "-n", "other")
    assert elsewhere.exit_code == 4
    assert "no TrainJob of dispatch's" in elsewhere.stdout


def test_check_of_another_name(file: Path) -> None:
    log = Log()
    log.opened()
    log.workload(check="Ready")
    file.write_text(log.lines())
    assert audit(file).exit_code == 1
    assert audit(file, "--check", "mine").exit_code == 0


def test_no_such_file_is_exit_4(file: Path) -> None:
    result = audit(file)
    assert result.exit_code == 4
    assert "cannot be read" in result.stderr


def test_no_file_is_a_usage_error() -> None:
    result = audit()
    assert result.exit_code == 2
    assert "no audit log was named" in result.stderr


def test_yaml(file: Path) -> None:
    file.write_text(story().lines())
    result = audit(file, "-o", "yaml")
    assert result.exit_code == 0
    assert yaml.safe_load(result.stdout)["violations"] == []


@pytest.mark.parametrize("line", ['nonsense about "pods"', '["pods"]', '{"verb": 1, "x": "pods"', ""])
def test_a_line_that_is_no_event_is_named(line: str, file: Path) -> None:
    lines = story().lines().splitlines()
    lines.insert(3, line)
    file.write_text("\n".join(lines) + "\n")
    result = audit(file)
    if line:
        assert result.exit_code == 4
        assert f"{file}:4" in "".join(result.stderr.split())
    else:
        assert result.exit_code == 0


def test_an_object_of_another_shape_is_named(file: Path) -> None:
    log = story()
    log.events[2]["responseObject"]["status"]["conditions"] = [None]
    file.write_text(log.lines())
    with pytest.raises(LogError, match=r"audit\.log:3: the object of this event is not understood"):
        read([file])


def test_cut_gzip_is_exit_4(file: Path) -> None:
    file.write_bytes(gzip.compress(story().lines().encode())[:-20])
    assert audit(file).exit_code == 4


def test_damaged_gzip_is_exit_4(file: Path) -> None:
    content = gzip.compress(story().lines().encode())
    for at in range(10, len(content), len(content) // 40):
        file.write_bytes(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
        assert audit(file).exit_code == 4, at


def test_what_a_log_says_does_not_move_the_cursor(file: Path) -> None:
    log = wrong()
    for event in log.events:
        event["user"]["username"] = "[bold]x\x1b[2Jy"
    file.write_text(log.lines())
    result = audit(file)
    assert "\x1b" not in result.stdout
    assert "[bold]x" in result.stdout


def test_policy_is_what_is_needed() -> None:
    result = audit("--policy")
    assert result.exit_code == 0
    policy = yaml.safe_load(result.stdout)
    assert (policy["apiVersion"], policy["kind"]) == ("audit.k8s.io/v1", "Policy")
    first = policy["rules"][0]
    assert first["level"] == "RequestResponse"
    assert {"group": "", "resources": ["pods", "pods/status"]} in first["resources"]


def test_memory_does_not_grow_with_the_log(file: Path) -> None:
    """A job runs, and then one of its pods changes for hours."""
    log = Log()
    log.first_execution()
    about = {"labels": {"jobset.sigs.k8s.io/jobset-name": NAME}, "annotations": {COUNT: "1"}}
    body = {"metadata": {"name": "p1", "namespace": "team", "uid": "p1", **about, "junk": "x" * 2000}, "status": {}}
    log.write("patch", "pods", body)
    event = log.events.pop()

    def peak(lines: int) -> int:
        with file.open("w") as stream:
            stream.write(log.lines())
            for number in range(lines):
                event["auditID"] = str(number)
                event["responseObject"]["metadata"]["resourceVersion"] = str(1000 + number)
                event["stageTimestamp"] = (
                    f"2026-01-01T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z"
                )
                stream.write(json.dumps(event) + "\n")
        tracemalloc.start()
        try:
            assert read([file]).reading.lines == lines + len(log.events)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # What would be kept of a line has 2,000 bytes; what is kept of a file, a tenth of a megabyte.
    assert peak(1600) < 2 * peak(400)
