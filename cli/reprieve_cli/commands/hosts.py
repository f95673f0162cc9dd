"""``reprieve hosts``."""

from __future__ import annotations

import click

from reprieve.domain.host import Host
from reprieve.domain.lease import Holds
from reprieve_cli import documents, phrases
from reprieve_cli.commands.common import Context, json_option
from reprieve_cli.stack import Cloud
from reprieve_cli.terminal import Terminal


@click.command(short_help="List the hosts and what they hold.")
@json_option
@click.pass_obj
def hosts(context: Context, /, terminal: Terminal) -> None:
    """List the hosts that aren't gone: what they are, cost and hold, and what was announced."""
    cloud = context.find_cloud()
    entries = [entry for pool in cloud.stack.pools for entry in _entries(cloud, pool)]
    if entries and not terminal.json:
        terminal.table(
            ("HOST", "STATE", "TYPE", "ZONE", "$/H", "HOLDS"),
            [_row(host, holds) for host, holds in entries],
        )
    known = [host.usd_per_hour for host, _ in entries if host.usd_per_hour is not None]
    terminal.answer(
        f"{phrases.count(len(entries), 'host')}, {phrases.dollars(sum(known))} in all"
        if entries
        else "no hosts",
        {"hosts": [documents.host(host, holds) for host, holds in entries]},
    )


def _entries(cloud: Cloud, pool: str) -> list[tuple[Host, Holds | None]]:
    ids = [instance_id for instance_id, _ in cloud.jobs.live(pool).hosts]
    rows, holds = cloud.hosts.read(ids), cloud.hosts.holds(ids)
    found = sorted(rows.values(), key=lambda host: host.launched_at)
    return [(host, holds.get(host.instance_id)) for host in found]


def _row(host: Host, holds: Holds | None) -> tuple[str, ...]:
    return (
        host.instance_id,
        host.state.value,
        host.capacity.type,
        host.capacity.zone,
        f"{host.usd_per_hour or 0:.3f} {host.capacity.market}",
        _what(host, holds),
    )


def _what(host: Host, holds: Holds | None) -> str:
    jobs = ", ".join(sorted(key.job for key in holds.leases)) if holds else ""
    if host.notice:
        return f"{jobs or 'nothing'} ({host.notice.kind})"
    if jobs:
        return jobs
    return "idle" if holds and holds.beat else "booting"
