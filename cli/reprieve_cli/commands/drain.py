"""``reprieve drain``."""

from __future__ import annotations

import time
from typing import Any

import click

from reprieve.detail_types import DetailType, Source
from reprieve.domain.host import Host, HostState
from reprieve.domain.job import Job
from reprieve.domain.notice import NoticeKind
from reprieve_cli import documents, phrases
from reprieve_cli.commands.common import Context, json_option
from reprieve_cli.errors import AnswerIsNoError, BadInputError
from reprieve_cli.stack import Cloud
from reprieve_cli.terminal import Terminal

HEARD_SECONDS = 60.0  # a message waits seconds for its function, a cold start included
EMPTY_SECONDS = 900.0
POLL_SECONDS = 0.5


@click.command(short_help="Empty a host and let it go.")
@click.argument("instance_id", metavar="HOST")
@click.option("--wait", is_flag=True, help="Until the host is empty and told to go.")
@json_option
@click.pass_obj
def drain(context: Context, /, instance_id: str, terminal: Terminal, *, wait: bool) -> None:
    """
    Have HOST save its job and hand it over, then let it go.

    It takes the same path as a notice of EC2: the host is asked for a checkpoint, a
    replacement is ordered at once, and no new work comes. A host that doesn't let go within
    a notice loses its job to your word: the job goes on from its newest checkpoint. No
    budget is charged beyond one interruption.
    """
    cloud = context.find_cloud()
    host = _find(cloud, instance_id)
    if host.state in {HostState.RETIRING, HostState.GONE}:
        raise AnswerIsNoError(f"{instance_id} is {host.state} already: {host.reason}")
    jobs = _jobs(cloud, instance_id)
    cloud.announce(_event(cloud, instance_id))
    with terminal.working(f"telling {instance_id}") as show:
        host = _await_notice(cloud, instance_id)
        if wait:
            show(f"{instance_id} is handing over")
            host = _await_empty(cloud, instance_id)
    terminal.answer(_answer(cloud, host, jobs), _document(cloud, host, jobs))


def _find(cloud: Cloud, instance_id: str) -> Host:
    host = cloud.hosts.read([instance_id]).get(instance_id)
    if host is None:
        raise BadInputError(
            f"no host {instance_id} in stack {cloud.stack.name}: `reprieve hosts` lists them"
        )
    return host


def _jobs(cloud: Cloud, instance_id: str) -> list[str]:
    holds = cloud.hosts.holds([instance_id]).get(instance_id)
    return sorted(key.job for key in holds.leases) if holds else []


def _event(cloud: Cloud, instance_id: str) -> dict[str, Any]:
    """Return what a rule of EventBridge would have put on the intake queue."""
    return {
        "version": "0",
        "source": Source.OPERATOR,
        "detail-type": DetailType.DRAIN,
        "account": cloud.stack.account,
        "region": cloud.stack.region,
        "time": cloud.now().isoformat(),
        "detail": {"instance-id": instance_id},
    }


def _await_notice(cloud: Cloud, instance_id: str) -> Host:
    give_up = time.monotonic() + HEARD_SECONDS
    while True:
        host = _find(cloud, instance_id)
        if host.state is not HostState.READY:
            return host
        if time.monotonic() > give_up:
            raise AnswerIsNoError(
                f"{instance_id} is still READY after {HEARD_SECONDS:.0f} s: handle_notice didn't "
                "act, see docs/operations.md#intake-age; the order stands and will be carried out"
            )
        time.sleep(POLL_SECONDS)


def _await_empty(cloud: Cloud, instance_id: str) -> Host:
    give_up = time.monotonic() + EMPTY_SECONDS
    while True:
        host = _find(cloud, instance_id)
        left = _jobs(cloud, instance_id)
        if not left and host.state in {HostState.RETIRING, HostState.GONE}:
            return host
        if time.monotonic() > give_up:
            holding = ", ".join(left) or "nothing"
            raise AnswerIsNoError(
                f"{instance_id} is {host.state} and holds {holding} after "
                f"{EMPTY_SECONDS / 60:.0f} minutes: is reconcile running? (reprieve doctor)"
            )
        time.sleep(POLL_SECONDS)


def _answer(cloud: Cloud, host: Host, jobs: list[str]) -> str:
    notice = host.notice
    if host.state is not HostState.DRAINING or notice is None:
        moved = [_where(job) for name in jobs if (job := cloud.jobs.read(name))]
        return f"{host.instance_id} {host.state}: {', '.join(moved) or 'it held nothing'}"
    what = ", ".join(jobs) or "nothing to hand over"
    why = "" if notice.kind is NoticeKind.DRAIN else f" ({notice.kind})"
    due = f" by {phrases.clock(notice.reclaimed_at)}" if notice.reclaimed_at and jobs else ""
    return f"{host.instance_id} DRAINING{why}: {what}{due}"


def _where(job: Job) -> str:
    return f"{job.id} {job.status}, attempt {job.attempt}"


def _document(cloud: Cloud, host: Host, jobs: list[str]) -> dict[str, Any]:
    rows = [job for name in jobs if (job := cloud.jobs.read(name))]
    return {
        "instance_id": host.instance_id,
        "state": host.state.value,
        "notice": documents.notice(host.notice),
        "jobs": [
            {"id": job.id, "status": job.status.value, "attempt": job.attempt} for job in rows
        ],
    }
