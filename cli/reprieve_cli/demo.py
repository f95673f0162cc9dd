"""
The main job, whole and real, on this machine: a training run survives a Spot interruption.

The demo deploys the stack to the embedded cloud, submits a job through the same code as
``reprieve submit``, has the world interrupt its host, and compares the weights with those
of the same script run alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from reprieve.domain.clock import NoticeClock
from reprieve.domain.job import Job, JobStatus
from reprieve.domain.lease import LeaseState
from reprieve_cli import assembly, documents, phrases, receipt, submission, timeline, wiring
from reprieve_cli.errors import AnswerIsNoError
from reprieve_cli.local import cloud as embedded
from reprieve_cli.local.control import WorldClient
from reprieve_cli.provision import Provisioned, prepare, provision
from reprieve_cli.receipt import Evidence, Receipt
from reprieve_cli.signals import terminated_like_interrupted
from reprieve_cli.stack import Cloud
from reprieve_cli.terminal import Terminal

EXAMPLE = assembly.ROOT / "examples" / "numpy_lm"
TYPES = ("g5.xlarge", "g6.xlarge")
SETTINGS = {"pools": {"gpu": {"types": TYPES}}}
STEP_SECONDS = 0.03  # slow enough that an interruption falls into the run
INTERRUPT_AT = 0.35  # of the steps
LIMIT = 180.0  # seconds from the submission: on a slow machine the demo fails with a reason
LAST_REPORTS = 30.0  # on an idle machine they take less than a second
POLL_SECONDS = 0.2

# Cheapest first: one host to sell, then one that EC2 believes in and that is empty when asked.
MARKET: dict[str, Any] = {
    "pools": [
        {"type": "g5.xlarge", "zone": "us-east-1a", "price": 0.402, "capacity": 1},
        {"type": "g5.xlarge", "zone": "us-east-1b", "price": 0.418, "capacity": 0, "estimate": 9},
        {"type": "g6.xlarge", "zone": "us-east-1c", "price": 0.431, "capacity": 3},
        {"type": "g6.xlarge", "zone": "us-east-1b", "price": 0.447, "capacity": 3},
        {"type": "g5.xlarge", "zone": "us-east-1c", "price": 0.466, "capacity": 3},
        {"type": "g6.xlarge", "zone": "us-east-1a", "price": 0.489, "capacity": 3},
    ]
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How the demo runs; ``notice_seconds`` stands for EC2's 120."""

    notice_seconds: float = 6.0
    steps: int = 400
    forget_random_state: bool = False
    keep: bool = False

    @property
    def training(self) -> tuple[str, ...]:
        """What both runs are told."""
        forget = ("--forget-random-state",) if self.forget_random_state else ()
        return ("--steps", str(self.steps), *forget)


def run(options: Options, terminal: Terminal) -> tuple[Receipt, list[str]]:
    """
    Run the demo; return its receipt, and why it isn't a proof (empty if it is).

    Whatever ends it, nothing of it is left: processes, directories, sockets.
    """
    began = time.monotonic()
    _introduce(options, terminal)
    with contextlib.ExitStack() as stack:
        stack.enter_context(terminated_like_interrupted())
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reprieve-demo-")))
        called_off = threading.Event()
        preparing = stack.enter_context(ThreadPoolExecutor(1)).submit(
            prepare,
            SETTINGS,
            notice_seconds=options.notice_seconds,
            target=scratch / "assembly",
            called_off=called_off,
        )
        stack.callback(called_off.set)
        world = stack.enter_context(
            embedded.start(notice_seconds=options.notice_seconds, market=MARKET)
        )
        reference = stack.enter_context(_Reference.start(world.run_dir, options))
        with terminal.working("synthesising the stack"):
            localized = preparing.result()
        with terminal.working("deploying it"):
            provisioned = provision(world, localized)
        stack.enter_context(_environment(world.env))
        _tell_deployed(provisioned, terminal, seconds=time.monotonic() - began)
        cloud = wiring.find_cloud()
        job = _submit(options, cloud, terminal)
        job = _Drama(options, cloud, world.control, terminal, job).play()
        with terminal.working("the run that nobody interrupts"):
            weights = reference.weights()
        evidence = receipt.gather(cloud, job)
        written = receipt.write(
            evidence,
            job=documents.status(job, evidence.attempts, cloud.objects),
            reference=weights,
            removed=provisioned.removed,
            changed=provisioned.changed,
            wall_seconds=time.monotonic() - began,
        )
        faults = receipt.faults(evidence, written)
        _tell_receipt(evidence, written, terminal)
        if options.keep:
            _keep(world, job, terminal)
    return written, faults


def _submit(options: Options, cloud: Cloud, terminal: Terminal) -> Job:
    request = submission.Request(
        command=(
            *("python", "train.py", *options.training),
            *("--step-seconds", str(STEP_SECONDS)),
        ),
        pool="gpu",
        name="numpy-lm",
        code=EXAMPLE,
    )
    return submission.submit(request, lambda: cloud, warn=terminal.warn)


@dataclass(slots=True)
class _Drama:
    """Follows the job, and interrupts its host once, when there is something to lose."""

    options: Options
    cloud: Cloud
    control: WorldClient
    terminal: Terminal
    job: Job
    interrupted: str | None = None
    story: timeline.Story = field(init=False)

    def __post_init__(self) -> None:
        self.story = timeline.Story(self.cloud, self.job.id, brief=True)

    def play(self) -> Job:
        """Return the job when it is over; raise ``AnswerIsNoError`` if it takes too long."""
        give_up = time.monotonic() + LIMIT
        with self.terminal.working("waiting for a host") as show:
            while not (self.job.terminal or self.job.needs_you):
                if time.monotonic() > give_up:
                    raise AnswerIsNoError(
                        f"the job is still {self.job.status} after {LIMIT:g} s "
                        f"({self.job.reason}): is this machine very busy?"
                    )
                time.sleep(POLL_SECONDS)
                self._look()
                self._tell(before=wiring.now() - timeline.HOLD_BACK)
                show(self._where())
            self._hear_the_last(show)
        return self.job

    def _tell(self, *, before: datetime | None = None) -> None:
        for line in self.story.news(before=before):
            self.terminal.line(str(line), indent=timeline.INDENT)

    def _hear_the_last(self, show: Callable[[str], None]) -> None:
        """Wait a moment for reports under way: the job was moved by its lease, not by them."""
        show("the last reports")
        give_up = time.monotonic() + LAST_REPORTS
        while time.monotonic() < give_up:
            if receipt.is_told(self.cloud.jobs.events(self.job.id), attempt=self.job.attempt):
                break
            time.sleep(POLL_SECONDS)
        self._tell()

    def _look(self) -> None:
        found = self.cloud.jobs.read(self.job.id)
        if found is None:
            raise AnswerIsNoError(f"job {self.job.id} has vanished from the table")
        self.job = found
        if self.interrupted or self.job.status is not JobStatus.RUNNING:
            return
        lease = self.cloud.jobs.lease(self.job.lease_key)
        if lease is None or lease.state is not LeaseState.HELD or lease.holder is None:
            return
        if (lease.step or 0) >= self.options.steps * INTERRUPT_AT:
            self.interrupted = lease.holder.instance_id
            self.control.notice(self.interrupted)
            words = f"the world takes {self.interrupted} back in {self.options.notice_seconds:g} s"
            self.story.add(timeline.Line(wiring.now(), words))

    def _where(self) -> str:
        lease = self.cloud.jobs.lease(self.job.lease_key)
        step = f", step {phrases.steps(lease.step)}" if lease and lease.step else ""
        return f"{self.job.id} {self.job.status}: {self.job.reason}{step}"


@dataclass(frozen=True, slots=True)
class _Reference:
    """The same script with the same options, run alone: no host, no notice, no resume."""

    process: subprocess.Popen[bytes]
    folder: Path

    @classmethod
    @contextlib.contextmanager
    def start(cls, run_dir: Path, options: Options) -> Iterator[_Reference]:
        """Start it below *run_dir*; it can't outlive us."""
        folder = run_dir / "reference"
        folder.mkdir()
        script = [sys.executable, str(EXAMPLE / "train.py"), *options.training]
        alone = {k: v for k, v in os.environ.items() if not k.startswith(("REPRIEVE_", "AWS_"))}
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "reprieve_cli.local.world.leash", str(os.getpid())),
                    *(*script, "--out", "weights.npz", "--checkpoints", "checkpoints"),
                ],
                cwd=folder,
                env=alone,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            yield cls(process, folder)
        finally:
            process.kill()
            process.wait()

    def weights(self) -> bytes | None:
        """Return its weights file once it has ended; None if it failed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(LIMIT)
        file = self.folder / "weights.npz"
        return file.read_bytes() if self.process.returncode == 0 else None


def _introduce(options: Options, terminal: Terminal) -> None:
    notice = phrases.duration(NoticeClock.of_seconds(options.notice_seconds).notice)
    for label, text in (
        (
            "real",
            "our template, Lambda code, agent, checkpoints and trainer: the files that go to AWS",
        ),
        (
            "simulated",
            "AWS (ministack, and a world that sells and takes back hosts) and the hosts: processes",
        ),
        ("scaled", f"the notice, {notice} instead of EC2's 120 s, and every wait with it"),
    ):
        terminal.line(f"{label:<9}  {text}", indent=11)
    terminal.line()


def _tell_deployed(provisioned: Provisioned, terminal: Terminal, *, seconds: float) -> None:
    terminal.line(
        f"stack {provisioned.stack} deployed to the embedded cloud ({seconds:.1f} s so far); "
        f"{phrases.count(len(provisioned.removed), 'part')} of the template left out there, "
        f"{len(provisioned.changed)} changed"
    )


def _tell_receipt(evidence: Evidence, written: Receipt, terminal: Terminal) -> None:
    terminal.line()
    for label, text in _receipt_lines(evidence, written):
        terminal.line(f"{label:<14} {text}", indent=15)


def _receipt_lines(evidence: Evidence, written: Receipt) -> Iterator[tuple[str, str]]:
    hosts = [row for row in evidence.attempts if row.instance_type]
    yield "hosts", ", then ".join(f"{row.instance_type} in {row.zone}" for row in hosts)
    yield "noticed by", written.first_channel or "nobody"
    yield "checkpoint", f"{_seconds(written.seconds_notice_to_committed)} after the notice"
    yield "running", f"{_seconds(written.seconds_notice_to_running)} after the notice"
    yield "repeated", f"{written.steps_repeated} of {written.steps_total:,} steps"
    yield "weights", f"sha256 {(written.final_digest or 'none')[:16]}"
    yield "uninterrupted", f"sha256 {(written.uninterrupted_digest or 'none')[:16]}"


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"


def _keep(world: embedded.Cloud, job: Job, terminal: Terminal) -> None:
    """Leave the cloud up until Ctrl-C; that ends the looking around, not the demo."""
    terminal.line()
    terminal.line("the cloud stays up until Ctrl-C; in another shell:")
    for name, value in sorted(world.env.items()):
        terminal.line(f"  export {name}={value}")
    terminal.line(f"  reprieve why {job.id}")
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()


@contextlib.contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Point this process's SDK at the embedded cloud, and nowhere else."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.pop("REPRIEVE_STACK", None)
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
