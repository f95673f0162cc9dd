"""
Faults of a job and of its host, by the numbers under which docs/faults.md lists them.

Each story is played by a real agent and real processes. Whatever goes wrong with the first
attempt, the second ends with the hash of a run that nothing ever happened to.
"""

from __future__ import annotations

import re
import signal
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from reprieve.domain.lease import Cause, Lease, LeaseKey, LeaseState, Outcome
from reprieve.domain.spec import JobSpec
from reprieve.protocol import ReportKind
from reprieve_agent import actions as do
from reprieve_agent import events as on
from tests.agent.harness import Cloud, HostUnderTest, chain_state, soon, wait_until
from tests.agent.test_machine import JOB as PROCESS
from tests.agent.test_machine import KEY, MACHINE, interrupted, only

ROOT = Path(__file__).parents[2]

TOTAL = 20
LONG = 60.0  # seconds that are enough for any save
HELD = 12  # the step at which the first attempt waits for what is done to it

# A chain of hashes that saves every five steps; FAULT is what is wrong with its first attempt.
JOB = textwrap.dedent(
    """
    import hashlib, os, pathlib, signal, time

    first_attempt = os.environ["REPRIEVE_ATTEMPT"] == "1"
    fault = os.environ["FAULT"] if first_attempt else ""
    held = int(os.environ.get("HELD", "12"))
    request_file = pathlib.Path(os.environ["REPRIEVE_RUN_DIR"]) / "request.json"

    def hold(until=lambda: False):
        print("holding", flush=True)
        while not until():
            time.sleep(0.005)

    if fault in {"ignores everything", "save too slow"}:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if fault == "no hook":
        hold()
    if fault == "request before the hook":
        hold(request_file.exists)

    import reprieve_job
    from reprieve_job import checkpoints

    job = reprieve_job.connect(total_steps=20)
    state, first = "", 1
    if job.resume_dir is not None:
        state, first = (job.resume_dir / "state").read_text(), job.resume_step + 1
    print("first step", first, flush=True)

    seal = checkpoints._seal

    def spoilt_seal(part, facts, **more):
        seal(part, facts, **more)
        body = (part / "state").read_bytes()
        spoilt = body[:-1] if fault == "truncated" else bytes([body[0] ^ 1]) + body[1:]
        (part / "state").write_bytes(spoilt)

    def save(step):
        if fault in {"truncated", "bit flipped"} and step == 12:
            checkpoints._seal = spoilt_seal
        with job.checkpoint(step) as folder:
            (folder / "state").write_text(state)
            if step == 12:
                if fault == "killed in the middle of a save":
                    os.kill(os.getpid(), signal.SIGKILL)
                if fault == "save too slow":
                    hold()
                if fault == "request during a periodic save":
                    hold(request_file.exists)

    for step in range(first, 21):
        state = hashlib.sha256(f"{state}{step}".encode()).hexdigest()
        if first_attempt and step == held:
            if fault in {"deaf", "ignores everything"}:
                hold()
            if fault == "request during a periodic save":
                save(step)
            else:
                hold(lambda: job.step(step) is not None)
        request = job.step(step)
        if step % 5 == 0 or job.should_save():
            save(step)
        if job.should_exit():
            raise SystemExit(0 if fault == "exit 0" else reprieve_job.REQUEUE)
    job.done(20)
    print("state", state, flush=True)
    """
)


@dataclass(frozen=True, slots=True)
class Fault:
    """
    What is wrong with the first attempt, and what comes of it.

    *seconds* is the time that the notice leaves: short where the job has to be ended by it.
    An agent that is kept waiting then may have to kill where it would have terminated.
    """

    name: str
    exit_code: int | None
    committed: int | None
    seconds: float = LONG


class Hosts:
    """The hosts of one story."""

    def __init__(self, cloud: Cloud, folder: Path) -> None:
        self._cloud = cloud
        self._folder = folder
        self._started: list[HostUnderTest] = []

    def start(self, *, notice_seconds: float = 24) -> HostUnderTest:
        name = "ab"[len(self._started)]
        host = HostUnderTest(
            self._cloud,
            self._folder / name,
            instance_id=f"i-0{name * 16}",
            notice_seconds=notice_seconds,
        )
        self._started.append(host)
        host.start()
        return host

    def close(self) -> None:
        for host in self._started:
            host.close()


@pytest.fixture
def hosts(cloud: Cloud, tmp_path: Path) -> Iterator[Hosts]:
    hosts = Hosts(cloud, tmp_path)
    yield hosts
    hosts.close()


def submit(cloud: Cloud, fault: str, *, held: int = HELD) -> LeaseKey:
    env = {"FAULT": fault, "HELD": str(held)}
    key = cloud.submit(JobSpec(command=("python", "-c", JOB), env=env))
    cloud.ring(key)
    return key


def released(cloud: Cloud, key: LeaseKey) -> Lease:
    wait_until(lambda: cloud.lease(key).state is LeaseState.DONE, "released", seconds=60)
    return cloud.lease(key)


def assert_ends_as_if_nothing_had_happened(
    cloud: Cloud, key: LeaseKey, hosts: Hosts, *, after: int | None
) -> None:
    following = cloud.arm_next(key)
    hosts.start()
    cloud.ring(following)
    lease = released(cloud, following)
    assert (lease.outcome, lease.restored_step) == (Outcome.FINISHED, after)
    assert f"first step {(after or 0) + 1}\n" in cloud.log(following)
    assert f"state {chain_state(TOTAL)}\n" in cloud.log(following)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("none", exit_code=75, committed=HELD),
        # Fault 2: 0 without done.json means «requeue».
        Fault("exit 0", exit_code=0, committed=HELD),
        Fault("request before the hook", exit_code=75, committed=1),
        Fault("no hook", exit_code=None, committed=None, seconds=5),
        Fault("deaf", exit_code=None, committed=10, seconds=5),
        Fault("ignores everything", exit_code=-signal.SIGKILL, committed=10, seconds=3),
        Fault("killed in the middle of a save", exit_code=-signal.SIGKILL, committed=10),
        Fault("request during a periodic save", exit_code=75, committed=HELD),
        Fault("save too slow", exit_code=-signal.SIGKILL, committed=10, seconds=3),
        Fault("truncated", exit_code=75, committed=10),
        Fault("bit flipped", exit_code=75, committed=10),
    ],
    ids=lambda fault: fault.name.replace(" ", "-"),
)
def test_fault_1_whatever_happens_to_a_save_the_chain_ends_the_same(
    cloud: Cloud, hosts: Hosts, fault: Fault
) -> None:
    # Where a job leaves by itself it gets the time to, however busy this machine is.
    host = hosts.start(notice_seconds=24 if fault.seconds == LONG else 8)
    key = submit(cloud, fault.name)
    wait_until(lambda: "holding" in cloud.log(key), "held")
    if fault.committed not in {None, 1}:
        wait_until(lambda: committed(cloud) >= 10, "the periodic save is in the bucket")

    host.metadata.interrupt(time=soon(fault.seconds))

    lease = released(cloud, key)
    assert (lease.outcome, lease.cause) == (Outcome.INTERRUPTED, Cause.NOTICE)
    assert lease.committed_step == fault.committed
    if fault.exit_code is None:
        assert lease.exit_code in {-signal.SIGTERM, -signal.SIGKILL}
    else:
        assert lease.exit_code == fault.exit_code
    assert_ends_as_if_nothing_had_happened(cloud, key, hosts, after=fault.committed)


def test_fault_3_a_job_that_says_it_is_done_is_done_under_a_request_too(
    cloud: Cloud, hosts: Hosts
) -> None:
    host = hosts.start()
    key = submit(cloud, "none", held=TOTAL)
    wait_until(lambda: "holding" in cloud.log(key), "held")

    host.metadata.interrupt(time=soon(LONG))

    lease = released(cloud, key)
    assert (lease.outcome, lease.cause) == (Outcome.FINISHED, Cause.DONE)
    assert (lease.exit_code, lease.committed_step) == (0, TOTAL)
    assert f"state {chain_state(TOTAL)}\n" in cloud.log(key)


@pytest.mark.parametrize("jump", [timedelta(hours=-1), timedelta(hours=1)], ids=["back", "ahead"])
def test_fault_16_a_clock_that_is_set_moves_nothing_that_was_planned(jump: timedelta) -> None:
    play = interrupted()
    at = replace(play.now, wall=play.now.wall + jump)
    due = MACHINE.wake_at(play.state)

    state, actions = MACHINE.step(play.state, on.Tick(), at)

    assert (state, actions) == (play.state, ())
    assert due is not None
    assert MACHINE.wake_at(state) == due
    late = replace(at, boot=due)
    assert only(do.Terminate, MACHINE.step(state, on.Tick(), late)[1]) == [
        do.Terminate(KEY, PROCESS)
    ]


def test_every_fault_that_the_docs_list_names_tests_that_are_there() -> None:
    page = (ROOT / "docs" / "faults.md").read_text()
    rows = re.findall(r"^\| (\d+) \|.*\| (.*) \|$", page, re.MULTILINE)
    assert [int(number) for number, _tests in rows] == [*range(1, 25)]
    for number, tests in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
        assert named, f"fault {number} names no test"
        for path, name in named:
            assert f"def {name}(" in (ROOT / path).read_text(), f"{path} has no {name}"


def committed(cloud: Cloud) -> int:
    """Return the highest step that was reported to be in the bucket."""
    steps = [report.data.get("step") for report in cloud.queues.said(ReportKind.COMMITTED)]
    return max((step for step in steps if isinstance(step, int)), default=0)
