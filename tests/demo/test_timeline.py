"""The timeline of executions, by hand-made facts and audit events.

Aspects: each wait begins and ends with the fact that says so, in Kueue mode and in plain mode; an execution is
seen to run on after it was told to end; what is old, or of no job of the demo, changes nothing; the audit log
gives the same facts; the drawings show each span, fit the width and are well-formed.
"""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console
from rich.text import Text

from dispatch_gates.contract import names
from dispatch_gates.contract.count import runtime_patch
from dispatch_local.demo import bars, svg
from dispatch_local.demo.timeline import Kind, Timeline, Track, from_audit_log
from dispatch_local.demo.watching import Fact

LABEL = "example.org/title"


class Acts:
    """Facts about one job, each a second after the last, in a timeline."""

    def __init__(self, title: str = "patient", queue: bool = True) -> None:
        self.timeline = Timeline(LABEL)
        self.now = 100.0
        self.version = 0
        self.title, self.name, self.queue = title, f"job-{title}", queue
        self.events: list[str] = []

    @property
    def track(self) -> Track:
        return self.timeline.tracks[self.name]

    def waits(self) -> list[tuple[Kind, float, float | None]]:
        return [(span.kind, span.begin, span.end) for span in self.track.waits]

    def runs(self) -> list[tuple[Kind, str, float, float | None]]:
        return [(span.kind, span.a, span.begin, span.end) for span in self.track.rows()[1]]

    def fact(self, kind: str, body: dict[str, Any], change: str = "MODIFIED") -> None:
        self.version += 1
        body["metadata"].setdefault("resourceVersion", str(self.version))
        self.timeline.take(self.now, Fact(kind, change, body))
        gone = kind == "pod" and change == "DELETED"
        self.events.append(
            json.dumps(
                {
                    "stage": "ResponseComplete",
                    "verb": "delete" if gone else "update",
                    "requestURI": "/x",
                    "objectRef": {"resource": f"{kind}s", "subresource": "status"}
                    if not gone
                    else {"resource": "pods"},
                    "requestObject": {"gracePeriodSeconds": 0} if gone else body,
                    "responseStatus": {"code": 200},
                    "responseObject": body,
                    "stageTimestamp": f"1970-01-01T00:{int(self.now) // 60:02}:{self.now % 60:09.6f}Z",
                }
            )
        )
        self.now += 1

    def job(self, a: int = 0, gated: bool = False, held: bool = False, opened: bool = False, ended: str = "") -> None:
        annotations = {names.ADMISSION_GATED_BY: names.GATE} if gated else {}
        annotations |= {names.HOLD: "true"} if held else {}
        annotations |= {names.OPENED: "true"} if opened else {}
        self.fact(
            "trainjob",
            {
                "metadata": {
                    "name": self.name,
                    "uid": "u",
                    "labels": {LABEL: self.title} | ({names.QUEUE_NAME: "q"} if self.queue else {}),
                    "annotations": annotations,
                },
                "spec": {"runtimePatches": [runtime_patch(a, ["node"])]},
                "status": {"conditions": [{"type": ended, "status": "True"}] if ended else []},
            },
        )

    def workload(self, reserved: bool, state: str = "Pending") -> None:
        owner = {"apiVersion": "a/v1", "kind": "TrainJob", "name": self.name, "uid": "u", "controller": True}
        self.fact(
            "workload",
            {
                "metadata": {"name": "w", "uid": "w", "ownerReferences": [owner]},
                "status": {
                    "admission": {"clusterQueue": "q"} if reserved else None,
                    "conditions": [{"type": "QuotaReserved", "status": str(reserved)}],
                    "admissionChecks": [{"name": names.ADMISSION_CHECK, "state": state}],
                },
            },
        )

    def pod(self, a: int, phase: str, deleting: bool = False, change: str = "MODIFIED", **more: Any) -> None:
        meta: dict[str, Any] = {
            "name": f"p{a}",
            "uid": f"p{a}",
            "labels": {names.JOBSET_NAME: self.name},
            "annotations": {names.ADMISSION_COUNT: str(a)},
        }
        if deleting:
            meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.fact("pod", {"metadata": meta | more, "status": {"phase": phase}}, change)


def preempted() -> Acts:
    """Return a job that is preempted, and waits for its own old pod when it gets quota again."""
    acts = Acts()
    acts.job(gated=True)  # 100
    acts.job()
    acts.workload(reserved=True)  # 102
    acts.job(a=1)
    acts.workload(reserved=True, state="Ready")  # 104
    acts.pod(1, "Pending")
    acts.pod(1, "Running")  # 106
    acts.pod(1, "Running", deleting=True)
    acts.workload(reserved=False)  # 108
    acts.workload(reserved=True)
    acts.pod(1, "Failed", deleting=True)  # 110
    acts.job(a=2)
    acts.workload(reserved=True, state="Ready")  # 112
    acts.pod(2, "Running")
    acts.pod(2, "Succeeded")  # 114
    acts.job(a=2, ended="Complete")
    return acts


def test_a_job_that_is_preempted() -> None:
    acts = preempted()
    assert acts.waits() == [
        (Kind.GATED, 100, 101),
        (Kind.QUOTA, 101, 102),
        (Kind.CHECK, 102, 104),
        (Kind.STARTING, 104, 105),
        (Kind.QUOTA, 108, 109),
        (Kind.OLD_PODS, 109, 110),
        (Kind.CHECK, 110, 112),
        (Kind.STARTING, 112, 113),
    ]
    assert acts.runs() == [(Kind.RUNS, "1", 106, 107), (Kind.ENDS, "1", 107, 110), (Kind.RUNS, "2", 113, 114)]
    assert (acts.timeline.begin(), acts.timeline.end()) == (100, 114)


def test_plain_mode_has_no_quota_and_no_check() -> None:
    acts = Acts(queue=False)
    acts.job(gated=True)
    acts.job(a=1, opened=True)
    acts.pod(1, "Running")  # 102
    acts.job(a=1, opened=True, held=True)
    acts.pod(1, "Failed")
    acts.job(a=2, opened=True)  # 105
    acts.pod(2, "Running")
    assert acts.waits() == [
        (Kind.GATED, 100, 101),
        (Kind.STARTING, 101, 102),
        (Kind.HELD, 103, 105),
        (Kind.STARTING, 105, 106),
    ]
    assert acts.runs() == [(Kind.RUNS, "1", 102, 104), (Kind.RUNS, "2", 106, None)]


def test_what_is_old_or_of_no_job_of_the_demo_changes_nothing() -> None:
    acts = preempted()
    waits, runs = acts.waits(), acts.runs()
    acts.pod(1, "Running", resourceVersion="5")
    acts.fact("trainjob", {"metadata": {"name": "other", "uid": "o"}})
    acts.fact("pod", {"metadata": {"name": "no-uid"}})
    acts.fact("log", {"metadata": {}})
    assert (acts.waits(), acts.runs(), list(acts.timeline.tracks)) == (waits, runs, [acts.name])


def test_a_pod_that_is_gone_is_over() -> None:
    acts = Acts()
    acts.job(a=1)
    acts.pod(1, "Running")
    acts.pod(1, "Running", deleting=True, change="DELETED")
    assert acts.runs()[-1][3] == 102


def test_the_record_is_kept_once() -> None:
    acts = preempted()
    for at in (1.0, 2.0):
        acts.timeline.take(at, Fact("record", "ADDED", {"name": acts.name, "uid": "u"}))
    assert acts.track.recorded == 1.0


def test_the_audit_log_tells_the_same() -> None:
    acts = preempted()
    read = Timeline(LABEL)
    events = [json.loads(line) for line in acts.events]
    refused = events[0] | {"responseStatus": {"code": 409}}
    tried = events[5] | {"requestURI": "/x?dryRun=All"}
    seen = events[6] | {"verb": "get"}
    lines = [json.dumps(each) for each in (refused, tried, seen, *events)]
    for at, fact in from_audit_log([*lines, '{"cut off']):
        read.take(at, fact)
    assert read.tracks[acts.name].rows() == acts.track.rows()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_text_fits_and_shows_every_span(width: int) -> None:
    acts = preempted()
    lines = bars.draw(acts.timeline, width, acts.timeline.end())
    assert max(len(line) for line in lines) <= width
    waits, pods, axis = (line.plain for line in lines[:3])
    assert [letter for letter in "ogqc-" if letter not in waits[bars.LABEL :]] == ["g"]
    assert "/" in pods
    assert "=" in pods or "A=1" in pods
    assert axis.endswith("14 s")
    legend = " ".join(line.plain for line in lines[3:])
    used = {span.kind for row in acts.track.rows() for span in row}
    assert [kind for kind in Kind if kind in legend] == [kind for kind in Kind if kind in used]


def test_the_executions_are_named_where_there_is_room() -> None:
    acts = preempted()
    plain = bars.draw(acts.timeline, 200, acts.timeline.end())[1].plain
    assert plain.index(" A=1 ") < plain.index(" A=2 ")


def test_nothing_seen_is_nothing_drawn() -> None:
    assert bars.draw(Timeline(LABEL), 80, 0.0) == []
    ElementTree.fromstring(svg.draw(Timeline(LABEL)))


def test_text_goes_through_a_console_unchanged() -> None:
    acts = preempted()
    console = Console(width=80, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(Text("\n").join(bars.draw(acts.timeline, 80, acts.timeline.end())))
    assert max(len(line) for line in captured.get().splitlines()) <= 80


def test_the_svg_is_small_well_formed_and_in_scale() -> None:
    acts = preempted()
    text = svg.draw(acts.timeline)
    assert len(text) < 8_000
    root = ElementTree.fromstring(text)
    spot = "{http://www.w3.org/2000/svg}"
    drawn = [rect for rect in root.iter(f"{spot}rect") if rect.find(f"{spot}title") is not None]
    spans = [span for row in acts.track.rows() for span in row]
    assert len(drawn) == len(spans)
    scale = (svg.WIDTH - svg.LABEL - svg.RIGHT) / 14
    for rect, span in zip(drawn, spans, strict=True):
        assert span.end is not None
        assert float(rect.attrib["x"]) == pytest.approx(svg.LABEL + (span.begin - 100) * scale, abs=0.1)
        assert float(rect.attrib["width"]) == pytest.approx((span.end - span.begin) * scale, abs=0.1)


def test_titles_are_escaped() -> None:
    acts = Acts(title="a<b")
    acts.job(gated=True)
    ElementTree.fromstring(svg.draw(acts.timeline))
