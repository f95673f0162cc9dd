"""The metadata service of a host, version 2."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from reprieve_cli.local.control import WorldClient
from tests.local.support import Aws, Fleet, make_launch_template

pytestmark = pytest.mark.e2e

TTL = "X-aws-ec2-metadata-token-ttl-seconds"
TOKEN = "X-aws-ec2-metadata-token"

Ask = Callable[..., tuple[int, str]]


@pytest.fixture
def control(aws: Aws) -> WorldClient:
    return aws.cloud.control


@pytest.fixture
def ask(aws: Aws) -> Ask:
    """Ask a host's metadata service; the answer is status and text."""

    def look(
        instance_id: str, path: str, *, method: str = "GET", **headers: str
    ) -> tuple[int, str]:
        request = urllib.request.Request(
            f"{aws.cloud.control.url}/imds/{instance_id}/latest/{path}",
            method=method,
            headers=headers,
        )
        try:
            with urllib.request.urlopen(request) as answer:
                return int(answer.status), str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return look


def session(ask: Ask, instance_id: str) -> dict[str, str]:
    _, token = ask(instance_id, "api/token", method="PUT", **{TTL: "60"})
    return {TOKEN: token}


def test_without_a_token_nothing_is_told(fleet: Fleet, ask: Ask) -> None:
    instance_id = fleet.launch()

    assert ask(instance_id, "meta-data/instance-id")[0] == 401
    assert ask(instance_id, "meta-data/instance-id", **{TOKEN: "made-up"})[0] == 401


def test_a_token_needs_a_lifetime_within_bounds(fleet: Fleet, ask: Ask) -> None:
    instance_id = fleet.launch()

    for lifetime in ({}, {TTL: "0"}, {TTL: "21601"}, {TTL: "long"}):
        assert ask(instance_id, "api/token", method="PUT", **lifetime)[0] == 400


def test_a_token_is_good_for_its_own_host_only(fleet: Fleet, ask: Ask) -> None:
    one, other = fleet.launch(), fleet.launch()

    assert ask(other, "meta-data/instance-id", **session(ask, one))[0] == 401


def test_the_identity_of_a_host_is_what_ec2_says(fleet: Fleet, ask: Ask) -> None:
    instance_id = fleet.launch(zones="b")
    own = session(ask, instance_id)

    told = {
        path: ask(instance_id, f"meta-data/{path}", **own)[1]
        for path in (
            *("instance-id", "instance-type", "instance-life-cycle"),
            *("placement/availability-zone", "placement/region"),
        )
    }

    assert list(told.values()) == [instance_id, "g5.xlarge", "spot", "us-east-1b", "us-east-1"]
    document = json.loads(ask(instance_id, "dynamic/instance-identity/document", **own)[1])
    assert document["instanceId"] == instance_id
    assert document["availabilityZone"] == "us-east-1b"


@pytest.mark.parametrize(
    "path", ["spot/instance-action", "spot/termination-time", "events/recommendations/rebalance"]
)
def test_what_has_not_happened_is_404(fleet: Fleet, ask: Ask, path: str) -> None:
    instance_id = fleet.launch()

    assert ask(instance_id, f"meta-data/{path}", **session(ask, instance_id))[0] == 404


def test_a_notice_names_the_action_and_its_time_in_whole_seconds(
    fleet: Fleet, ask: Ask, control: WorldClient
) -> None:
    instance_id = fleet.launch()
    control.notice(instance_id, in_seconds=30)
    own = session(ask, instance_id)

    status, text = ask(instance_id, "meta-data/spot/instance-action", **own)

    notice = json.loads(text)
    assert (status, notice["action"]) == (200, "terminate")
    assert len(notice["time"]) == len("2026-01-01T00:00:00Z")
    assert ask(instance_id, "meta-data/spot/termination-time", **own) == (200, notice["time"])


def test_the_role_and_its_credentials_are_told(fleet: Fleet, ask: Ask) -> None:
    instance_id = fleet.launch()
    own = session(ask, instance_id)

    role = ask(instance_id, "meta-data/iam/security-credentials/", **own)[1]
    credentials = json.loads(
        ask(instance_id, f"meta-data/iam/security-credentials/{role}", **own)[1]
    )

    assert role == "host"
    assert credentials["Code"] == "Success"
    assert credentials["AccessKeyId"].startswith("ASIA")
    assert "instance-profile/host" in ask(instance_id, "meta-data/iam/info", **own)[1]


def test_tags_are_told_only_if_the_template_asks_for_it(fleet: Fleet, ask: Ask, aws: Aws) -> None:
    shown = fleet.launch()
    hidden = Fleet(
        aws, make_launch_template(aws, MetadataOptions={"HttpTokens": "required"}), fleet.subnets
    ).launch()

    told: dict[str, Any] = {
        name: ask(name, "meta-data/tags/instance/reprieve:pool", **session(ask, name))
        for name in (shown, hidden)
    }

    assert told[shown] == (200, "gpu")
    assert told[hidden][0] == 404
