"""The launcher: it says what is wrong in one line, and leaves nothing behind, however it ends."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve_cli.local import cloud as local_cloud
from reprieve_cli.local import launch, processes
from reprieve_cli.local.aws import client as local_client
from reprieve_cli.local.cloud import CloudError
from tests.local.support import HERE, Aws, Fleet, eventually, make_template, start, subnets_of

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

# A program that starts a cloud with one host and waits to be ended.
PROGRAM = """
import json, sys, time
from pathlib import Path
from tests.local.support import Aws, Fleet, make_template, start, subnets_of

with start(run_dir=Path(sys.argv[1])) as cloud:
    aws = Aws(cloud)
    fleet = Fleet(aws, make_template(aws), subnets_of(aws))
    instance_id = fleet.launch()
    facts = {
        "world": cloud.pid,
        "agent": cloud.control.hosts()[0].pid,
        "job": fleet.read(instance_id, "agent.json")["job"],
    }
    print(json.dumps(facts), flush=True)
    if "fail" in sys.argv:
        raise RuntimeError("on purpose")
    time.sleep(600)
"""


class Program:
    """The program as a process, and what it started."""

    def __init__(self, run_dir: Path, *arguments: str) -> None:
        self.run_dir = run_dir
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(run_dir), *arguments],
            cwd=HERE.parents[1],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.facts = json.loads(self.process.stdout.readline())

    @property
    def pids(self) -> list[int]:
        """Return the world and all below it: ministack, the host's init, agent, and job."""
        return [self.facts["world"], *processes.descendants(self.facts["world"])]

    def end(self) -> None:
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture
def run_dir(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Name a directory short enough for sockets; it must be gone after the test."""
    path = Path("/tmp") / f"rt-{os.getpid()}-{abs(hash(request.node.name)) % 10_000}"
    yield path
    assert not path.exists()


@pytest.mark.parametrize(
    "how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["ctrl-c", "term", "kill"]
)
def test_nothing_is_left_when_the_launching_process_ends(
    run_dir: Path, how: signal.Signals
) -> None:
    program = Program(run_dir)
    try:
        pids = program.pids
        assert {program.facts["agent"], program.facts["job"]} <= set(pids)
        assert len(pids) >= 5

        program.process.send_signal(how)

        program.process.wait(10)
        assert processes.wait_gone(pids, seconds=10)
        eventually(lambda: not run_dir.exists())
    finally:
        program.end()


def test_nothing_is_left_when_the_with_block_raises(run_dir: Path) -> None:
    program = Program(run_dir, "fail")
    try:
        assert program.process.wait(10) == 1
        assert not processes.alive(program.facts["job"])
        assert not processes.alive(program.facts["world"])
    finally:
        program.end()


def test_no_process_survives_the_death_of_the_world(run_dir: Path) -> None:
    program = Program(run_dir)
    try:
        pids = program.pids

        os.kill(program.facts["world"], signal.SIGKILL)

        assert processes.wait_gone(pids, seconds=10)
        program.process.send_signal(signal.SIGINT)  # its stop() finds a dead world
        program.process.wait(10)
    finally:
        program.end()


def test_stopping_twice_is_fine_and_takes_the_directory_away() -> None:
    cloud = start()
    tree = [cloud.pid, *processes.descendants(cloud.pid)]

    cloud.stop()
    cloud.stop()

    assert not cloud.run_dir.exists()
    assert not any(processes.alive(pid) for pid in tree)


def test_a_cloud_in_the_background_is_found_used_and_taken_down(tmp_path: Path) -> None:
    started = local_cloud.up(tmp_path / "state", notice_seconds=9)
    try:
        found = local_cloud.load(tmp_path / "state")
        assert found.env == started.env
        assert found.notice_seconds == 9
        assert Aws(found).client("sts").get_caller_identity()["Account"] == found.account
        with pytest.raises(CloudError, match="already up"):
            local_cloud.up(tmp_path / "state")
    finally:
        assert local_cloud.down(tmp_path / "state")

    assert not started.run_dir.exists()
    assert not processes.alive(started.pid)
    assert not local_cloud.down(tmp_path / "state")
    with pytest.raises(CloudError, match="is not up"):
        local_cloud.load(tmp_path / "state")


def test_a_background_cloud_that_died_is_said_to_be_dead_and_cleaned_up(tmp_path: Path) -> None:
    started = local_cloud.up(tmp_path / "state")
    tree = [started.pid, *processes.descendants(started.pid)]
    os.kill(started.pid, signal.SIGKILL)
    assert processes.wait_gone(tree, seconds=10)

    with pytest.raises(CloudError, match="has died"):
        local_cloud.load(tmp_path / "state")
    assert local_cloud.down(tmp_path / "state")

    assert not started.run_dir.exists()


def test_a_broken_state_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "cloud.json").write_text("{")

    with pytest.raises(CloudError, match=r"cloud\.json can't be read, delete it"):
        local_cloud.load(tmp_path)


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(CloudError, match=f"port {port} of 127.0.0.1 is taken"):
            local_cloud.start(port=port)


def test_a_missing_emulator_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "__file__", str(tmp_path / "a" / "b" / "c" / "cloud.py"))

    with pytest.raises(CloudError, match="run 'make setup'"):
        local_cloud.start()


def test_an_emulator_that_cannot_start_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / ".venv-local" / "bin" / "python"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\necho no such module >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(CloudError, match=r"did not start.*no such module"):
        local_cloud.start()


def test_a_full_disk_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "mkdtemp", full)

    with pytest.raises(CloudError, match="no space left"):
        local_cloud.start()


def test_a_run_directory_too_deep_for_sockets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CloudError, match="too long for Unix sockets"):
        local_cloud.start(tmp_path / ("x" * 80))


@pytest.mark.parametrize(
    ("market", "complaint"),
    [
        ({"pools": [{"type": "not.a.type", "zone": "us-east-1a"}]}, "not.a.type"),
        ({"pools": [{"type": "g5.xlarge"}]}, "needs a zone"),
        ({"pools": [{"type": "g5.xlarge", "zone": "us-east-1a", "colour": 1}]}, "colour"),
        ({"prices": []}, "unknown key 'prices'"),
        ({"settings": {"boot": 1}}, "settings"),
    ],
)
def test_a_market_that_makes_no_sense_is_refused_before_anything_starts(
    market: dict[str, object], complaint: str
) -> None:
    with pytest.raises(CloudError, match=complaint):
        local_cloud.start(market=market)


def test_a_market_can_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "market.yaml"
    path.write_text("pools:\n- {type: g5.xlarge, zone: us-east-1a, price: 0.3, capacity: 2}\n")

    with start(market=path) as cloud:
        (pool,) = cloud.control.pools()["pools"]

    assert pool["capacity"] == 2
    path.write_text("- just a list\n")
    with pytest.raises(CloudError, match="no mapping"):
        local_cloud.start(market=path)


def test_functions_and_hosts_get_nothing_of_the_users_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", "http://elsewhere")
    monkeypatch.setenv("HTTP_PROXY", "http://nowhere.invalid:1")
    monkeypatch.setenv("SECRET_OF_THE_USER", "x")

    with start() as cloud:
        fleet = Fleet(Aws(cloud), make_template(Aws(cloud)), subnets_of(Aws(cloud)))
        instance_id = fleet.launch()
        agent = fleet.read(instance_id, "agent.json")["env"]
        everything = [
            Path(f"/proc/{pid}/environ").read_text()
            for pid in [cloud.pid, *processes.descendants(cloud.pid)]
        ]

        environment = cloud.environ()
        local_client(cloud, "sts").get_caller_identity()

    assert environment["AWS_PROFILE"] == "default"
    assert "AWS_ENDPOINT_URL_SQS" not in environment
    assert "AWS_PROFILE" not in agent
    assert not any("SECRET_OF_THE_USER" in environment for environment in everything)
