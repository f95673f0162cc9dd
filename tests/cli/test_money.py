"""Deadlines at submit, decisions in ``why``, and what was spent."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reprieve.domain.capacity import Tier
from reprieve.domain.host import HostState
from reprieve.domain.lease import Cause
from reprieve.domain.spec import Due, Remedy
from tests.builders import (
    HOST,
    OTHER_HOST,
    POOL,
    a_host,
    a_job,
    a_lease,
    a_notice,
    an_attempt,
    an_event,
    at,
)
from tests.cli.conftest import Cli
from tests.stored import note, submit, tell

DEADLINE = ("--deadline", "60h", "--work", "48h", "--steps", "1000")


def test_a_deadline_is_kept_with_the_job(cli: Cli) -> None:
    assert cli("submit", *DEADLINE, "--if-stuck", "on-demand", "--json", "--", "x") == 0

    spec = cli.memory.job_rows[cli.document["id"]].spec
    assert spec.due == Due(at(600) + timedelta(hours=60), timedelta(hours=48), 1000)
    assert (spec.if_stuck, spec.if_spot_loses) == (Remedy.ON_DEMAND, Remedy.ON_DEMAND)
    assert spec.periodic_saves
    assert spec.save_every is None


def test_a_deadline_may_be_a_date(cli: Cli) -> None:
    given = ("--deadline", "2026-03-07T12:00:00+00:00", *DEADLINE[2:])
    assert cli("submit", *given, "--json", "--", "x") == 0
    assert cli.memory.job_rows[cli.document["id"]].spec.due == Due(
        at(3 * 86_400), timedelta(hours=48), 1000
    )


def test_periodic_saves_can_be_declined(cli: Cli) -> None:
    assert cli("submit", "--save-every", "never", "--json", "--", "x") == 0
    assert not cli.memory.job_rows[cli.document["id"]].spec.periodic_saves


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--deadline", "60h"), "--deadline needs --work and --steps"),
        (("--work", "48h"), "only serve a --deadline"),
        (("--deadline", "soon", *DEADLINE[2:]), "neither a length of time"),
        (("--deadline", "48h", *DEADLINE[2:]), "even on demand from now on the job takes"),
        (("--deadline", "60h", "--work", "0", "--steps", "1"), "is no length of time"),
        (("--save-every", "hourly"), "write 90s, 10m, 1h or never"),
    ],
)
def test_a_deadline_that_makes_no_sense_is_refused(
    cli: Cli, arguments: tuple[str, ...], said: str
) -> None:
    assert cli("submit", *arguments, "--", "x") == 2
    assert said in cli.err
    assert cli.memory.job_rows == {}


def test_a_pool_without_on_demand_keeps_no_deadline(cli: Cli) -> None:
    pools = cli.cloud.stack.pools
    pools[POOL] = replace(pools[POOL], tiers=(Tier.SPOT,))
    assert cli("submit", *DEADLINE, "--", "x") == 2
    assert "needs a pool with the tier on-demand" in cli.err
    assert cli("submit", "--if-stuck", "on-demand", "--", "x") == 2
    assert "has no tier on-demand" in cli.err


def test_why_tells_what_was_decided_and_on_which_numbers(cli: Cli) -> None:
    submit(cli.memory.rows, a_job(), a_lease())
    saves = "saves every 1315 s by T*: C 30 s (usual), λ 0.25/h, q 0.50, λ_f 0.00017/h"
    behind = "on demand: 3 min behind its line to the deadline"
    decided = an_event(1, "policy", text=behind, attempt=1, data={"slack_s": 43_200.0})
    started = an_event(2, text="started from the start", attempt=1, data={"policy": saves})
    tell(cli.memory.rows, "job-1", [decided, started])

    assert cli("why", "job-1") == 0
    assert behind in cli.out
    assert f"started from the start; {saves}" in " ".join(cli.out.split())


def ran(cli: Cli) -> None:
    """Store a job that ran on two Spot hosts, a quarter of the first one's steps in vain."""
    submit(cli.memory.rows, a_job(), a_lease())
    spot: dict[str, Any] = {"instance_type": "g5.xlarge", "zone": "us-east-1a", "market": "spot"}
    first = an_attempt(
        started_at=at(-7200),
        ended_at=at(-3600),
        instance_id=HOST,
        usd_per_hour=0.40,
        cause=Cause.NOTICE,
        last_step=400,
        steps_lost=100,
        **spot,
    )
    second = an_attempt(
        2,
        started_at=at(-3000),
        instance_id=OTHER_HOST,
        usd_per_hour=0.40,
        restored_step=300,
        **spot,
    )
    note(cli.memory.rows, first)
    note(cli.memory.rows, second)


def test_savings_compares_what_was_spent_with_the_same_work_on_demand(cli: Cli) -> None:
    ran(cli)
    assert cli("savings", "job-1", "--json") == 0
    found = cli.document
    assert found["usd"] == pytest.approx(0.80)
    assert found["on_demand_usd"] == pytest.approx(1.006 * 1.75, abs=1e-4)
    assert found["saved_share"] == pytest.approx(1 - 0.80 / (1.006 * 1.75), abs=1e-4)
    assert "us-east-1, 2026-07" in found["sources"]

    assert cli("savings") == 0  # all that run
    assert cli.last_line == "$0.80 spent, $1.76 on demand for the same work: 55% saved"


def test_an_hour_that_aws_gives_back_is_no_cost(cli: Cli) -> None:
    ran(cli)
    noticed = a_notice(noticed_at=at(-3720), reclaimed_at=at(-3600))
    host = a_host(state=HostState.GONE, launched_at=at(-7190), notice=noticed)
    cli.memory.host_rows[HOST] = host

    assert cli("savings", "job-1", "--json") == 0
    assert cli.document["attempts"][0]["free_usd"] == pytest.approx(0.40)
    assert cli.document["usd"] == pytest.approx(0.40)


def test_what_has_no_price_is_in_neither_sum(cli: Cli) -> None:
    submit(cli.memory.rows, a_job(), a_lease())
    place: dict[str, Any] = {"instance_type": "g5.xlarge", "zone": "eu-north-1a", "market": "spot"}
    row = an_attempt(started_at=at(0), ended_at=at(60), usd_per_hour=0.4, **place)
    note(cli.memory.rows, row)

    assert cli("savings", "job-1") == 0
    assert "1 without a known price" in cli.out
    assert cli.last_line == "nothing ran yet whose price is known"
