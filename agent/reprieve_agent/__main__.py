"""``python -m reprieve_agent``: wire the parts together and run until it is time to leave."""

from __future__ import annotations

import logging
import os
import signal
import sys
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.config import Config as ClientConfig

from reprieve.adapters import sdk
from reprieve.adapters.dynamodb import Table
from reprieve.adapters.dynamodb_leases import DynamoHostLeases
from reprieve.adapters.s3_checkpoints import S3Checkpoints, s3_client
from reprieve.domain.catalogue import GPU_TYPES, holds
from reprieve.domain.lease import Holder
from reprieve_agent import events as on
from reprieve_agent.child_supervisor import ChildSupervisor
from reprieve_agent.config import Config, ConfigError, SupervisorKind
from reprieve_agent.container_supervisor import ContainerSupervisor
from reprieve_agent.executor import Executor
from reprieve_agent.gpus import Gpus
from reprieve_agent.leases import LeaseDesk
from reprieve_agent.listener import Listener
from reprieve_agent.log import configure
from reprieve_agent.log_stream import LogGroup
from reprieve_agent.machine import Machine
from reprieve_agent.metadata import (
    MetadataClient,
    MetadataError,
    MetadataWatcher,
    wait_for_credentials,
    wait_for_identity,
)
from reprieve_agent.periods import Periods
from reprieve_agent.places import Account
from reprieve_agent.reports import Reports
from reprieve_agent.runtime import Agent, Inbox, Parts
from reprieve_agent.surroundings import Host, Outside
from reprieve_agent.systemd_supervisor import SystemdSupervisor
from reprieve_agent.work import LONG_POLL_SECONDS, WorkQueue

if TYPE_CHECKING:
    from botocore.session import Session

    from reprieve_agent.credentials import JobRole

log = logging.getLogger("reprieve_agent")

CANNOT_START = 1


def main() -> int:
    """Run the agent; return its exit status."""
    configure()
    try:
        config = Config.from_environ(os.environ)
        account = Account.named(config.job_user) if config.job_user else None
        config.state_dir.mkdir(parents=True, exist_ok=True)
        config.run_dir.mkdir(parents=True, exist_ok=True)
        boot_id = config.boot_id()
        client = MetadataClient(os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT"))
        identity = wait_for_identity(client, patience=config.clock.boot)
        session = sdk.session(config.aws_region)
        wait_for_credentials(session, patience=config.clock.boot)
    except (ConfigError, MetadataError) as error:
        log.error("agent can't start", extra={"error": str(error)})  # noqa: TRY400
        return CANNOT_START
    except KeyError:
        error_text = f"JOB_USER: there is no user {os.environ['JOB_USER']!r} on this host"
        log.error("agent can't start", extra={"error": error_text})  # noqa: TRY400
        return CANNOT_START
    except OSError as error:
        log.error("agent can't start", extra={"error": str(error)})  # noqa: TRY400
        return CANNOT_START
    serve(config, client, Host(identity, boot_id, account), session)
    return 0


def serve(config: Config, metadata: MetadataClient, host: Host, session: Session) -> None:
    """Wire and run."""
    instance_id = host.identity.instance_id
    inbox = Inbox()
    watcher = MetadataWatcher(
        metadata,
        instance_id,
        config.clock,
        emit=lambda notice: inbox.put(on.NoticeSeen(notice)),
    )
    quick = _client_config(config)
    table = Table(sdk.client(session, "dynamodb", config=quick), config.jobs_table)
    desk = LeaseDesk(
        DynamoHostLeases(table),
        Holder(instance_id, host.boot_id),
        config.clock,
        inbox.put,
        metadata_answers=lambda: watcher.answers,
    )
    sqs = sdk.client(session, "sqs", config=quick)
    reports = Reports(sqs, config.reports_queue_url, instance_id)
    polling = ClientConfig(read_timeout=LONG_POLL_SECONDS + 10, connect_timeout=5)
    work = WorkQueue(
        sdk.client(session, "sqs", config=polling),
        config.work_queue_url,
        inbox.put,
        config.clock.notice,
        holds=partial(holds, host.identity.type),
    )
    systemd = config.supervisor is SupervisorKind.SYSTEMD
    socket = config.run_dir / "agent.sock"
    # An idle host needs no client of the bucket: it takes memory until the first job comes.
    bucket: Any = sdk.Later(partial(s3_client, session))
    outside = Outside(
        desk=desk,
        work=work,
        reports=reports,
        store=S3Checkpoints(bucket, config.checkpoints_bucket),
        supervisor=ContainerSupervisor(SystemdSupervisor(socket) if systemd else ChildSupervisor()),
        role=_job_role(config),
        gpus=Gpus(_gpus_expected(host.identity.type)) if systemd else None,
        log_group=(
            LogGroup(config.log_group, partial(sdk.client, session, "logs", config=quick))
            if config.log_group
            else None
        ),
    )
    executor = Executor(config, host, outside, inbox.put)
    machine = Machine(instance_id, Periods.of(config.clock))
    agent = Agent(config, host.boot_id, machine, inbox, executor)
    ctl = Listener(socket, instance_id, agent, inbox)
    fault = outside.gpus.fault() if outside.gpus else None
    if fault:
        inbox.put(on.GpusFailed(fault))  # heard before any ticket
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda _signum, _frame: inbox.put(on.StopAsked()))
    agent.run(Parts(beating=(desk, watcher), others=(work, ctl), reports=reports))


def _job_role(config: Config) -> JobRole | None:
    if not config.job_role_arn:
        return None
    # With it comes a server, of which a host without a role keeps nothing in memory.
    from reprieve_agent.credentials import JobRole  # noqa: PLC0415

    return JobRole(config.job_role_arn, config.aws_region)


def _gpus_expected(instance_type: str) -> int | None:
    known = GPU_TYPES.get(instance_type)
    return known.gpus if known else None


def _client_config(config: Config) -> ClientConfig:
    """Give up on a call early enough for another try before the next renewal is due."""
    renewal: timedelta = config.clock.renewal
    seconds = min(max(renewal.total_seconds() / 3, 1.0), 5.0)
    return ClientConfig(
        connect_timeout=seconds,
        read_timeout=seconds,
        retries={"mode": "standard", "max_attempts": 2},
    )


if __name__ == "__main__":
    sys.exit(main())
