"""A real agent with real processes and files, in this process, on fakes for the cloud."""

from __future__ import annotations

import hashlib
import sys
import textwrap
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reprieve.adapters.memory import Memory
from reprieve.domain.clock import NoticeClock
from reprieve.domain.host import Market
from reprieve.domain.lease import Holder, Lease, LeaseKey, LeaseState
from reprieve.domain.spec import JobSpec
from reprieve.protocol import ReportKind, Ticket
from reprieve_agent import events as on
from reprieve_agent.child_supervisor import ChildSupervisor
from reprieve_agent.config import Config, SupervisorKind
from reprieve_agent.container_supervisor import ContainerSupervisor
from reprieve_agent.executor import Executor
from reprieve_agent.gpus import Gpus
from reprieve_agent.leases import LeaseDesk
from reprieve_agent.listener import Listener
from reprieve_agent.log_stream import LogGroup
from reprieve_agent.machine import Machine
from reprieve_agent.metadata import Identity, MetadataClient, MetadataWatcher
from reprieve_agent.periods import Periods
from reprieve_agent.places import Account
from reprieve_agent.reports import Reports
from reprieve_agent.runtime import Agent, Inbox, Parts
from reprieve_agent.supervisor import Supervisor
from reprieve_agent.surroundings import Host, Outside
from reprieve_agent.work import WorkQueue
from tests.agent.fakes import MemoryCheckpoints, MetadataService, Queues
from tests.agent.waiting import PATIENCE_SECONDS, own_token, wait_until
from tests.builders import a_host, a_job, a_key, a_lease
from tests.stored import submit

__all__ = ["PATIENCE_SECONDS", "own_token", "wait_until"]  # with all that is made here

# That of the folders in conftest.py; no process of another test run has its token.
OWN_KEY = a_key(token=own_token())

# A job whose last word depends on every step it took: state(n) = sha256(state(n-1) + n).
CHAIN = textwrap.dedent(
    """
    import hashlib, os, pathlib, time
    import reprieve_job

    total = int(os.environ.get("TOTAL", "40"))
    pause = float(os.environ.get("PAUSE", "0.02"))
    every = int(os.environ.get("EVERY", "0"))
    job = reprieve_job.connect(total_steps=total)
    state, first = "", 1
    if job.resume_dir is not None:
        state = (job.resume_dir / "state").read_text()
        first = job.resume_step + 1
    print("first step", first, flush=True)

    def save(step):
        with job.checkpoint(step) as folder:
            (folder / "state").write_text(state)
            (folder / "inner").mkdir()
            (folder / "inner" / "ballast").write_bytes(os.urandom(1000))

    for step in range(first, total + 1):
        state = hashlib.sha256(f"{state}{step}".encode()).hexdigest()
        time.sleep(pause)
        request = job.step(step)
        if request is not None or (every and step % every == 0):
            save(step)
        if request is not None and request.must_exit and step < total:
            raise SystemExit(reprieve_job.REQUEUE)
    save(total)
    job.done(total)
    print("state", state, flush=True)
    """
)


def chain_state(total: int) -> str:
    """Return what an uninterrupted run ends with."""
    state = ""
    for step in range(1, total + 1):
        state = hashlib.sha256(f"{state}{step}".encode()).hexdigest()
    return state


@dataclass
class Cloud:
    """What survives a host."""

    memory: Memory = field(default_factory=Memory)
    store: MemoryCheckpoints = field(default_factory=MemoryCheckpoints)
    queues: Queues = field(default_factory=Queues)

    def adopt(self, instance_id: str) -> None:
        self.memory.hosts.adopt(a_host(instance_id))

    def submit(self, spec: JobSpec, job_id: str = "job-1") -> LeaseKey:
        job = a_job(job_id, spec=spec, token=own_token())
        submit(self.memory.rows, job, a_lease(job))
        return job.lease_key

    def arm_next(self, key: LeaseKey) -> LeaseKey:
        """Do what the functions do after an interruption: close, arm, send the ticket."""
        old = self.lease(key)
        assert old.state is LeaseState.DONE
        nxt = LeaseKey(key.job, key.attempt + 1, own_token())
        sealed = key.attempt if old.sealed else old.sealed_attempt
        self.memory.lease_rows[nxt] = Lease(
            key=nxt, pool=old.pool, spec=old.spec, sealed_attempt=sealed, base=old.base
        )
        return nxt

    def ring(self, key: LeaseKey) -> None:
        self.queues.offer(Ticket(key.job, key.attempt, key.token).to_json())

    def lease(self, key: LeaseKey) -> Lease:
        return self.memory.lease_rows[key]

    def manifests(self, job_id: str = "job-1") -> list[str]:
        return sorted(k for k in self.store.objects if k.startswith(f"jobs/{job_id}/manifests/"))

    def log(self, key: LeaseKey) -> str:
        return self.store.objects.get(f"jobs/{key.job}/logs/{key.attempt:06d}.log", b"").decode()


class HostUnderTest:
    """One host; `start` runs its agent in a thread, and another `start` after its end restarts."""

    def __init__(
        self,
        cloud: Cloud,
        folder: Path,
        *,
        instance_id: str = "i-0aaaaaaaaaaaaaaaa",
        notice_seconds: float = 8.0,
        boot_id: str = "boot-1",
        adopted: bool = True,
        account: Account | None = None,
    ) -> None:
        self.cloud = cloud
        self.account = account
        self.folder = folder
        self.instance_id = instance_id
        self.boot_id = boot_id
        self.clock = NoticeClock.of_seconds(notice_seconds)
        self.metadata = MetadataService(instance_id)
        self.supervisor: Supervisor = ChildSupervisor()
        self.gpus: Gpus | None = None
        self.log_group: LogGroup | None = None
        self.ended: str | None = None
        self._thread: threading.Thread | None = None
        folder.mkdir(parents=True, exist_ok=True)
        if adopted:
            cloud.adopt(instance_id)

    @property
    def holder(self) -> Holder:
        return Holder(self.instance_id, self.boot_id)

    def start(self) -> None:
        config = self.config()
        config.state_dir.mkdir(parents=True, exist_ok=True)
        config.run_dir.mkdir(parents=True, exist_ok=True)
        self.inbox = Inbox()
        watcher = MetadataWatcher(
            MetadataClient(self.metadata.endpoint),
            self.instance_id,
            self.clock,
            emit=lambda notice: self.inbox.put(on.NoticeSeen(notice)),
        )
        sqs: Any = self.cloud.queues
        self.desk = LeaseDesk(
            self.cloud.memory.leases,
            self.holder,
            self.clock,
            self.inbox.put,
            metadata_answers=lambda: watcher.answers,
        )
        reports = Reports(sqs, "reports", self.instance_id)
        work = WorkQueue(sqs, "work", self.inbox.put, self.clock.notice)
        identity = Identity(self.instance_id, "g5.xlarge", "us-east-1a", Market.SPOT)
        outside = Outside(
            desk=self.desk,
            work=work,
            reports=reports,
            store=self.cloud.store,
            supervisor=self.supervisor,
            gpus=self.gpus,
            log_group=self.log_group,
        )
        self.executor = Executor(
            config, Host(identity, self.boot_id, self.account), outside, self.inbox.put
        )
        machine = Machine(self.instance_id, Periods.of(self.clock))
        self.agent = Agent(config, self.boot_id, machine, self.inbox, self.executor)
        ctl = Listener(config.run_dir / "agent.sock", self.instance_id, self.agent, self.inbox)
        parts = Parts(beating=(self.desk, watcher), others=(work, ctl), reports=reports)

        def run() -> None:
            self.ended = self.agent.run(parts)

        self.ended = None
        self._thread = threading.Thread(target=run, name=f"agent-{self.instance_id}")
        self._thread.start()

    def config(self) -> Config:
        return Config(
            stack="Reprieve",
            pool="small",
            jobs_table="jobs",
            checkpoints_bucket="bucket",
            work_queue_url="work",
            reports_queue_url="reports",
            aws_region="us-east-1",
            clock=self.clock,
            state_dir=self.folder / "state",
            run_dir=self.folder / "run",
            job_user="",
            job_path=f"{Path(sys.executable).parent}:/usr/bin:/bin",
            supervisor=SupervisorKind.CHILD,
            boot_id_file=self.folder / "boot_id",
            shutdown_command=(),
        )

    def stop(self) -> None:
        """Tell the agent to hand over and leave; wait until it has."""
        self.inbox.put(on.StopAsked())
        self.join()

    def join(self, seconds: float = PATIENCE_SECONDS) -> None:
        assert self._thread
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the agent doesn't end"

    def close(self) -> None:
        """End everything of this host, whatever state it is in."""
        if self._thread and self._thread.is_alive():
            self.stop()
        self.metadata.close()
        keeping = self.supervisor
        if isinstance(keeping, ContainerSupervisor):
            keeping = keeping.kept_by
        if isinstance(keeping, ChildSupervisor):  # Popen minds being forgotten unwaited for
            for keeper in list(keeping._children.values()):
                keeper.kill()
                keeper.wait()

    @property
    def stage(self) -> str | None:
        tenure = self.agent.state.tenure
        return tenure.stage.value if tenure else None

    def steps(self) -> int:
        tenure = self.agent.state.tenure
        return tenure.step or 0 if tenure else 0


def chain_job(**env: object) -> JobSpec:
    """Return a job that runs `CHAIN`."""
    return JobSpec(
        command=("python", "-c", CHAIN), env={name: str(value) for name, value in env.items()}
    )


def announced(kind: ReportKind, cloud: Cloud) -> bool:
    return bool(cloud.queues.said(kind))


def soon(seconds: float) -> str:
    """Return a wall time, as EC2 writes it, *seconds* from now."""
    return datetime.fromtimestamp(time.time() + seconds, UTC).isoformat()
