"""Limits that services enforce and periods of ours must fit together."""

from __future__ import annotations

import re
from typing import Any

import pytest

from reprieve.domain.clock import NoticeClock
from tests.infra.synthesised import Template

CLOCK = NoticeClock()
CONSUMERS = ("handle_notice", "replace_host", "record_report")
LAMBDA_BATCH_WITHOUT_WINDOW = 10
EVENTBRIDGE_MIN_AGE = 60


@pytest.mark.parametrize("name", CONSUMERS)
def test_a_message_stays_away_until_its_function_has_ended(template: Template, name: str) -> None:
    mapping = template.mapping(name)
    queue = template.queue(mapping["EventSourceArn"])
    window = mapping.get("MaximumBatchingWindowInSeconds", 0)

    assert queue["VisibilityTimeout"] > template.function(name)["Timeout"] + window


@pytest.mark.parametrize("name", CONSUMERS)
def test_a_large_batch_has_the_window_that_lambda_wants(template: Template, name: str) -> None:
    mapping = template.mapping(name)

    if mapping["BatchSize"] > LAMBDA_BATCH_WITHOUT_WINDOW:
        assert mapping["MaximumBatchingWindowInSeconds"] >= 1


def test_a_notice_survives_three_dead_functions_within_its_two_minutes(template: Template) -> None:
    intake = template.queue(template.mapping("handle_notice")["EventSourceArn"])

    assert 3 * intake["VisibilityTimeout"] < CLOCK.notice.total_seconds() / 2


def test_an_event_is_delivered_while_it_still_says_something(template: Template) -> None:
    for rule in template.of("AWS::Events::Rule").values():
        for target in rule["Targets"]:
            age = target["RetryPolicy"]["MaximumEventAgeInSeconds"]
            assert EVENTBRIDGE_MIN_AGE <= age <= CLOCK.notice.total_seconds()


def test_sweeps_never_overlap_and_come_once_a_sweep(template: Template) -> None:
    period = CLOCK.sweep.total_seconds()

    assert period == 60
    assert template.function("reconcile")["Timeout"] < period


def test_a_command_waits_less_than_the_document_allows(template: Template) -> None:
    (document,) = template.of("AWS::SSM::Document").values()
    (step,) = document["Content"]["mainSteps"]
    wait = re.search(r"--wait (\d+)", "\n".join(step["inputs"]["runCommand"]))

    assert wait
    assert int(wait[1]) < int(step["inputs"]["timeoutSeconds"]) <= 90


def test_dead_letters_outlive_what_they_died_of(template: Template) -> None:
    for queue in template.of("AWS::SQS::Queue").values():
        redrive: Any = queue.get("RedrivePolicy")
        if redrive:
            dead = template.queue(redrive["deadLetterTargetArn"])
            assert dead["MessageRetentionPeriod"] > queue["MessageRetentionPeriod"]


def test_a_host_that_never_gets_ready_is_gone_when_it_stops_counting(template: Template) -> None:
    (launch,) = template.of("AWS::EC2::LaunchTemplate").values()
    script = template.text(launch["LaunchTemplateData"]["UserData"])

    assert f"--on-active={CLOCK.boot.total_seconds():.0f} " in script
