"""Every alarm can ring, reaches somebody, and names a paragraph that exists."""

from __future__ import annotations

import re
from typing import Any

import pytest

from infra.constructs.watch import JOB_ALARMS
from reprieve.metrics import NAMESPACE, Metric
from tests.infra.synthesised import ROOT, Template

MANUAL = ROOT / "docs" / "operations.md"
WATCHED_BY_HAND = {
    "configuration",
    "deploying-again-and-removing",
    "draining-a-host",
    "gpu-faults",
    "hosts-that-others-launch",
    "what-it-costs-when-nothing-runs",
}


def _alarms(template: Template) -> dict[str, Any]:
    return template.of("AWS::CloudWatch::Alarm")


def _paragraphs() -> set[str]:
    """Return the anchors that a renderer gives the headings."""
    headings = re.findall(r"^## (.+)$", MANUAL.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", text.lower()).replace(" ", "-") for text in headings}


def _named(template: Template) -> set[str]:
    found = set()
    for alarm in _alarms(template).values():
        link = re.search(r"docs/operations\.md#([a-z-]+)$", alarm["AlarmDescription"])
        assert link, alarm["AlarmDescription"]
        found.add(link[1])
    return found


def test_every_alarm_names_its_paragraph_and_every_paragraph_an_alarm(template: Template) -> None:
    assert _named(template) == _paragraphs() - WATCHED_BY_HAND


def test_links_within_the_manual_lead_somewhere() -> None:
    assert set(re.findall(r"\]\(#([a-z-]+)\)", MANUAL.read_text())) <= _paragraphs()


def test_every_alarm_reaches_the_topic(template: Template) -> None:
    (topic,) = template.of("AWS::SNS::Topic")

    for alarm in _alarms(template).values():
        assert alarm["AlarmActions"] == [{"Ref": topic}]


def test_the_topic_reaches_the_address_that_was_given(
    template: Template, own_network: Template
) -> None:
    (subscription,) = own_network.of("AWS::SNS::Subscription").values()

    assert not template.of("AWS::SNS::Subscription")
    assert (subscription["Protocol"], subscription["Endpoint"]) == ("email", "ops@example.com")


def test_every_alarm_is_of_the_plain_kind(template: Template) -> None:
    assert not template.of("AWS::CloudWatch::CompositeAlarm")
    for alarm in _alarms(template).values():
        assert "Metrics" not in alarm
        assert alarm["MetricName"]


def test_an_alarm_on_a_count_of_ours_has_the_name_and_dimension_that_are_emitted(
    own_network: Template,
) -> None:
    ours = [a for a in _alarms(own_network).values() if a["Namespace"] == NAMESPACE]

    assert len(ours) == len(JOB_ALARMS) + len(["SweepsMissing", "CheckpointLead"])
    for alarm in ours:
        assert alarm["MetricName"] in set(Metric)
        assert alarm["Dimensions"] == [{"Name": "service", "Value": "Training"}]


def test_every_dead_letter_queue_has_an_alarm(template: Template) -> None:
    watched = {
        template.text(alarm["Dimensions"][0]["Value"]).strip("<>").split(".")[0]
        for alarm in _alarms(template).values()
        if alarm["MetricName"] == "ApproximateNumberOfMessagesVisible"
    }

    assert watched == {name for name in template.of("AWS::SQS::Queue") if "Dead" in name}


def test_every_function_has_an_alarm_on_its_errors(template: Template) -> None:
    watched = {
        template.text(alarm["Dimensions"][0]["Value"])
        for alarm in _alarms(template).values()
        if alarm["Namespace"] == "AWS/Lambda"
    }

    assert watched == {f"<{name}>" for name in template.of("AWS::Lambda::Function")}


def test_silence_of_the_sweep_is_an_alarm(template: Template) -> None:
    alarm = template.named("AWS::CloudWatch::Alarm", "SweepsMissing")

    assert alarm["MetricName"] == Metric.SWEEPS
    assert alarm["TreatMissingData"] == "breaching"
    assert alarm["ComparisonOperator"] == "LessThanThreshold"


def test_silence_of_everything_else_is_peace(template: Template) -> None:
    for name, alarm in _alarms(template).items():
        if "SweepsMissing" not in name:
            assert alarm["TreatMissingData"] == "notBreaching", name


@pytest.mark.parametrize("metric", Metric)
def test_every_metric_is_counted_somewhere(metric: Metric) -> None:
    """An alarm on a name that nobody counts would watch nothing."""
    sources = [
        *(ROOT / "functions").glob("*/handler.py"),
        *(ROOT / "layers/core/python/reprieve/edge").glob("*.py"),
    ]

    assert any(f"Metric.{metric.name}" in source.read_text() for source in sources)


@pytest.mark.parametrize(
    "metric",
    [
        Metric.NOTICE_WITHOUT_CHECKPOINT,
        Metric.LOSS_WITHOUT_NOTICE,
        Metric.UNFILLED,
        Metric.PARKED,
        Metric.ANOMALIES,
        Metric.CANNOT_TELL,
    ],
)
def test_what_nobody_else_would_tell_has_an_alarm(metric: Metric) -> None:
    assert metric in {alarm.metric for alarm in JOB_ALARMS.values()}


def test_the_dashboard_shows_every_metric_of_ours(template: Template) -> None:
    (dashboard,) = template.of("AWS::CloudWatch::Dashboard").values()
    body = template.text(dashboard["DashboardBody"])
    alarmed = {alarm["MetricName"] for alarm in _alarms(template).values()}

    unseen = {metric for metric in Metric if f'"{metric}"' not in body}
    assert unseen <= alarmed
