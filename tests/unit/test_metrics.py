"""What the controller shows, the README's tables of it, and the alerts that rest on it: all three in step."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from dispatch_admission import events, logs
from dispatch_admission.act import Result
from dispatch_admission.metrics import Metrics
from dispatch_admission.waiting import Key, Waiting
from dispatch_gates.contract.next_execution import Reason
from dispatch_infra import alerts

README = Path(__file__).parents[2] / "controller" / "README.md"
SOURCE = Path(str(logs.__file__)).parent
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"([^\"]*)\"")


def table(title: str) -> list[list[str]]:
    """Rows of the first table under a heading of the README."""
    section = README.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[1:] if not row.startswith("|--")]


def shown() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return type and labels of each metric that the code has, by the name under which Prometheus stores it."""
    metrics = Metrics()
    kinds = {Counter: "counter", Gauge: "gauge", Histogram: "histogram"}
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for metric in vars(metrics).values():
        if isinstance(metric, MetricWrapperBase):
            (family,) = metric.describe()
            name = f"{family.name}_total" if isinstance(metric, Counter) else family.name
            found[name] = (kinds[type(metric)], tuple(metric._labelnames))
    waiting = Waiting()
    waiting.put(Key("team", "one"), Reason.HELD, "x", None, 0)
    before = {family.name for family in metrics.registry.collect()}
    metrics.follow(lambda: 0, waiting)
    for family in metrics.registry.collect():
        if family.name not in before:
            found[family.name] = (family.type, tuple(family.samples[0].labels))
            assert {sample.labels["reason"] for sample in family.samples} == {reason.value for reason in Reason}
    return found


def test_the_readme_has_each_metric_with_its_type_and_labels() -> None:
    said = {row[0].strip("`"): (row[1], tuple(re.findall(r"`(\w+)`", row[2]))) for row in table("Metrics")}
    assert said == shown()


def test_the_readme_has_each_result_of_a_pass() -> None:
    text = next(row[3] for row in table("Metrics") if "passes_total" in row[0])
    assert {result.value for result in Result} | {"error", "failed"} == set(re.findall(r"`([a-z-]+)`", text))


def test_the_readme_has_each_alert() -> None:
    said = {row[0].strip("`"): row[2] for row in table("Alerts")}
    assert said == {alert.name: alert.severity for alert in alerts.ALERTS}


def test_the_readme_has_each_event_of_the_log() -> None:
    said = {name for row in table("Log") for name in re.findall(r"`([a-z-]+)`", row[0])}
    written = set()
    for path in SOURCE.glob("*.py"):
        written |= set(re.findall(r'event="([a-z-]+)"', path.read_text()))
    assert written == said | {"decision"}


@pytest.mark.parametrize("alert", alerts.ALERTS, ids=lambda alert: alert.name)
def test_an_alert_rests_on_metrics_that_exist(alert: alerts.Alert) -> None:
    metrics = shown()
    used = re.findall(r"(dispatch_admission_\w+)(?:\{([^}]*)\})?", alert.expression)
    assert used
    for name, matchers in used:
        assert name in metrics
        kind, labels = metrics[name]
        assert ("rate(" in alert.expression or "increase(" in alert.expression) is (kind == "counter")
        for label, values in _LABEL.findall(matchers or ""):
            assert label in labels
            known = {result.value for result in Result} | {"error", "failed"} if label == "result" else set(Reason)
            assert set(values.split("|")) <= known
    grouped = re.findall(r"by \((\w+)\)", alert.expression)
    assert set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.todo)) <= set(grouped)
    for opening, closing in ("()", "[]", "{}"):
        assert alert.expression.count(opening) == alert.expression.count(closing)


def test_the_waits_that_need_a_person_are_the_same_everywhere() -> None:
    assert set(alerts.NEEDS_A_PERSON) == {reason.value for reason in events.NEEDS_A_PERSON}


def test_the_rules_are_what_prometheus_takes() -> None:
    (group,) = alerts.rules()["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(set(names)) == len(names) == len(alerts.ALERTS)
    for rule in group["rules"]:
        assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+m", rule["for"])


def test_a_second_controller_shows_its_own_state() -> None:
    """One instance serves for one period of leadership; a registry takes each metric once."""
    metrics, waiting = Metrics(), Waiting()
    metrics.follow(lambda: 3, Waiting())
    waiting.put(Key("team", "one"), Reason.HELD, "x", None, 0)
    metrics.follow(lambda: 4, waiting)
    value = metrics.registry.get_sample_value
    assert value("dispatch_admission_queue_depth") == 4
    assert value("dispatch_admission_waiting_workloads", {"reason": "Held"}) == 1
    assert value("process_cpu_seconds_total") is not None
