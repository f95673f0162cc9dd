"""Where a drill is played: an embedded cloud with the stack on it, and what is seen of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from reprieve.domain.job import Attempt, Event, Job
from reprieve.domain.lease import Lease
from reprieve_cli import wiring
from reprieve_cli.local.control import Host, WorldClient
from reprieve_cli.stack import Cloud

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

ALIVE = frozenset({"pending", "running"})


@dataclass(frozen=True, slots=True)
class Stage:
    """The cloud as people reach it, the world that moves it, and clients for what is looked at."""

    cloud: Cloud
    world: WorldClient
    s3: S3Client
    sqs: SQSClient
    logs: CloudWatchLogsClient
    cloudformation: CloudFormationClient
    notice_seconds: float


def open_stage(variables: Mapping[str, str], world: WorldClient, *, notice_seconds: float) -> Stage:
    """Reach the stack that is deployed on the cloud that *variables*, for the SDK, lead to."""
    with _environment(variables):
        session = wiring.session()
        return Stage(
            cloud=wiring.find_cloud(),
            world=world,
            s3=wiring.client("s3", session),
            sqs=wiring.client("sqs", session),
            logs=wiring.client("logs", session),
            cloudformation=wiring.client("cloudformation", session),
            notice_seconds=notice_seconds,
        )


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Hold *variables* in our environment: the SDK reads it while a client is made."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@dataclass(frozen=True, slots=True)
class JobSeen:
    """What the table says of a job, read at one time."""

    job: Job
    lease: Lease | None
    attempts: tuple[Attempt, ...]
    events: tuple[Event, ...]

    def instance_of(self, attempt: int | None) -> str | None:
        """Return the instance that has or had *attempt*, by default the current one."""
        n = attempt or self.job.attempt
        if n == self.job.attempt and self.lease and self.lease.holder:
            return self.lease.holder.instance_id
        return next((row.instance_id for row in self.attempts if row.n == n), None)


@dataclass(slots=True)
class View:
    """Sees what happened since it was made; earlier hosts, calls and logs are not its own."""

    stage: Stage
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    _hosts_before: frozenset[str] = frozenset()
    _calls_before: int = 0
    _requests_before: int = 0
    _world_before: int = 0

    @classmethod
    def of(cls, stage: Stage) -> View:
        """Begin now."""
        world = stage.world
        return cls(
            stage,
            _hosts_before=frozenset(host.instance_id for host in world.hosts()),
            _calls_before=_last(world.calls()),
            _requests_before=_last(world.metadata_requests()),
            _world_before=_last(world.log()),
        )

    def job(self, job_id: str) -> JobSeen:
        """Read all rows of a job."""
        jobs = self.stage.cloud.jobs
        row = jobs.read(job_id)
        if row is None:
            raise LookupError(job_id)
        return JobSeen(
            job=row,
            lease=jobs.lease(row.lease_key),
            attempts=tuple(jobs.attempts(job_id)),
            events=tuple(jobs.events(job_id)),
        )

    def hosts(self) -> list[Host]:
        """Return the hosts launched since, in that order."""
        return [
            host for host in self.stage.world.hosts() if host.instance_id not in self._hosts_before
        ]

    def alive(self) -> list[Host]:
        """Return those that EC2 calls pending or running."""
        return [host for host in self.hosts() if host.state in ALIVE]

    def calls(self) -> list[dict[str, Any]]:
        """Return the AWS calls since."""
        return self.stage.world.calls(since=self._calls_before)

    def metadata_requests(self) -> list[dict[str, Any]]:
        """Return the same of the hosts' metadata services."""
        return self.stage.world.metadata_requests(since=self._requests_before)

    def calls_of(self, service: str) -> list[dict[str, Any]]:
        """Return what is counted for *service*: ``imds`` is the metadata's."""
        return self.metadata_requests() if service == "imds" else self.calls()

    def calls_in_flight(self) -> list[dict[str, Any]]:
        """Return those that nobody has answered yet."""
        return self.stage.world.calls_in_flight()

    def world(self) -> list[dict[str, Any]]:
        """Return the world's timeline since."""
        return self.stage.world.log(since=self._world_before)


def _last(entries: list[dict[str, Any]]) -> int:
    return int(entries[-1]["n"]) if entries else 0
