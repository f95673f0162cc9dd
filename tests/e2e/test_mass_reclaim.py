"""A zone is taken back: sixty hosts at once, each a real agent with a real job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from reprieve_cli.drill.document import parse
from reprieve_cli.drill.engine import Patience
from reprieve_cli.drill.scenario import Scenario
from reprieve_cli.drill.stage import open_stage
from reprieve_cli.local import cloud as embedded
from reprieve_cli.provision import prepare, provision
from tests.e2e.theatre import Theatre

pytestmark = [pytest.mark.e2e, pytest.mark.deep, pytest.mark.crowd, pytest.mark.timeout(900)]

HOSTS = 60
NOTICE_SECONDS = 60.0
TYPE, ZONE, ROOM = "g5.xlarge", "us-east-1a", ("us-east-1b", "us-east-1c")
POOL = {"types": [TYPE], "max_hosts": 2 * HOSTS, "max_usd_per_hour": 1000}
JOBS = [f"job-{number:02d}" for number in range(HOSTS)]
COMMAND = ["python", "count.py", "--attempts", "2", "--steps", "4", "--step-seconds", "0.5"]
PATIENCE = Patience(step=4, end=4, rest=1)


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    """Deploy with room for all of them, and with a notice of a minute."""
    target = tmp_path_factory.mktemp("assembly") / "localized"
    localized = prepare({"pools": {"gpu": POOL}}, notice_seconds=NOTICE_SECONDS, target=target)
    with embedded.start(notice_seconds=NOTICE_SECONDS) as cloud:
        provision(cloud, localized)
        stage = open_stage(cloud.env, cloud.control, notice_seconds=NOTICE_SECONDS)
        theatre = Theatre(cloud=cloud, stage=stage, everything=cloud.control.pools())
        theatre.leave_the_sweep_to_the_world()
        yield theatre


def test_each_job_goes_on_elsewhere_from_its_last_checkpoint(crowd: Theatre) -> None:
    outcome = crowd.play(reclaimed_zone(), patience=PATIENCE)
    for line in figures(crowd):
        print(line)  # noqa: T201 - counts for whoever tunes this
    assert outcome.holds, crowd.explain(outcome)


def reclaimed_zone() -> Scenario:
    """Fill one zone, open the others, and take the first one back."""
    running = [{"wait": {"job": job, "status": "RUNNING", "step": 1}} for job in JOBS]
    attempts = [
        {"zone": ZONE, "cause": "notice", "steps_lost": 0},
        {"zone": {"one_of": list(ROOM)}, "outcome": "finished", "restored_step": {"at_least": 1}},
    ]
    job = {
        "status": "SUCCEEDED",
        "attempt": 2,
        "attempts": attempts,
        "resumes_proven": True,
        "step_log": "steps.jsonl",
    }
    described = {
        "name": "mass reclaim",
        "clock_scale": NOTICE_SECONDS / 120,
        "pools": [
            {"type": TYPE, "zone": ZONE, "price": 0.40},
            *({"type": TYPE, "zone": zone, "price": 0.50, "capacity": 0} for zone in ROOM),
        ],
        "jobs": [
            {
                "name": name,
                "code": "../scenarios/counter",
                "command": [
                    "python",
                    "count.py",
                    "--attempts",
                    "2",
                    "--steps",
                    "4",
                    "--step-seconds",
                    "0.5",
                ],
            }
            for name in JOBS
        ],
        "steps": [
            *running,
            {"pools": [{"zone": zone, "capacity": HOSTS} for zone in ROOM]},
            {"host": {"zone": ZONE, "do": "notice"}},
        ],
        "expect": {
            "jobs": dict.fromkeys(JOBS, job),
            "instances": {"launched": {"at_most": 2 * HOSTS}},
            "queues": dict.fromkeys(("intake", "orders", "reports", "work", "dead_letters"), 0),
            "metrics": {"LossWithoutNotice": 0, "NoticeWithoutCheckpoint": 0},
        },
    }
    return parse(yaml.safe_dump(described), Path(__file__))


def commands(crowd: Theatre) -> list[list[str]]:
    """Return the instances of each command that was sent."""
    calls = crowd.stage.world.calls(service="ssm", action="SendCommand")
    return [call["parameters"]["InstanceIds"] for call in calls]


@dataclass(frozen=True, slots=True)
class Usage:
    """What processes cost so far: resident bytes, and seconds of CPU."""

    bytes: int
    cpu_seconds: float


def usage(pid: int) -> Usage:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    ticks = int(stat[11]) + int(stat[12])  # utime and stime
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return Usage(pages * os.sysconf("SC_PAGE_SIZE"), ticks / os.sysconf("SC_CLK_TCK"))


def figures(crowd: Theatre) -> Iterator[str]:
    """Say what this took."""
    hosts = crowd.stage.world.hosts()
    agents = [usage(host.pid) for host in hosts if host.pid]
    calls = crowd.stage.world.calls()
    yield f"hosts launched: {len(hosts)}, agents alive: {len(agents)}"
    if agents:
        yield f"an agent holds {sum(one.bytes for one in agents) / len(agents) / 2**20:.0f} MiB"
        yield f"an agent took {sum(one.cpu_seconds for one in agents) / len(agents):.1f} s of CPU"
    world = usage(crowd.cloud.pid)
    yield f"the world: {world.bytes / 2**20:.0f} MiB, {world.cpu_seconds:.0f} s of CPU"
    yield f"AWS calls: {len(calls)}, commands: {len(commands(crowd))}"
