"""``reprieve hosts``."""

from __future__ import annotations

from dataclasses import dataclass

import click

from reprieve.domain.clock import NoticeClock
from reprieve.domain.host import Host, HostState
from reprieve.domain.lease import Holds
from reprieve.domain.silence import Sight
from reprieve_cli import documents, phrases
from reprieve_cli.commands.common import Context, json_option
from reprieve_cli.stack import Cloud
from reprieve_cli.terminal import Terminal

CLOCK = NoticeClock()  # only its counts are used here, which no scale changes


@dataclass(frozen=True, slots=True)
class Entry:
    """A host, what it holds, and what the sweep last heard of it."""

    host: Host
    holds: Holds | None
    sight: Sight | None

    @property
    def unheard(self) -> int:
        """Return for how many sweeps it said nothing new."""
        return self.sight.count - 1 if self.sight else 0


@click.command(short_help="List the hosts and what they hold.")
@json_option
@click.pass_obj
def hosts(context: Context, /, terminal: Terminal) -> None:
    """
    List the hosts that aren't gone: what they are, cost and hold, and what was announced.

    "cannot tell" marks a host from which nothing new was heard for two sweeps or more.
    """
    cloud = context.find_cloud()
    entries = [entry for pool in cloud.stack.pools for entry in _entries(cloud, pool)]
    if entries and not terminal.json:
        terminal.table(
            ("HOST", "STATE", "TYPE", "ZONE", "$/H", "HOLDS"), [_row(entry) for entry in entries]
        )
    known = [e.host.usd_per_hour for e in entries if e.host.usd_per_hour is not None]
    terminal.answer(
        f"{phrases.count(len(entries), 'host')}, {phrases.dollars(sum(known))} in all"
        if entries
        else "no hosts",
        {"hosts": [documents.host(e.host, e.holds, e.sight, CLOCK) for e in entries]},
    )


def _entries(cloud: Cloud, pool: str) -> list[Entry]:
    ids = [instance_id for instance_id, _ in cloud.jobs.live(pool).hosts]
    rows, holds = cloud.hosts.read(ids), cloud.hosts.holds(ids)
    sights = cloud.watch.sights(pool).by_subject if ids else {}
    found = sorted(rows.values(), key=lambda host: host.launched_at)
    return [Entry(h, holds.get(h.instance_id), sights.get(h.instance_id)) for h in found]


def _row(entry: Entry) -> tuple[str, ...]:
    host = entry.host
    return (
        host.instance_id,
        host.state.value,
        host.capacity.type,
        host.capacity.zone,
        f"{host.usd_per_hour or 0:.3f} {host.capacity.market}",
        _what(entry),
    )


def _what(entry: Entry) -> str:
    facts = [_held(entry)]
    notice = entry.host.notice
    if notice:
        due = f", due {phrases.clock(notice.reclaimed_at)}" if notice.reclaimed_at else ""
        facts.append(f"{notice.kind}{due}")
    elif entry.host.state is HostState.RETIRING:
        facts.append(entry.host.reason)
    if entry.unheard >= CLOCK.unheard_sweeps:
        facts.append(f"cannot tell: not heard for {phrases.count(entry.unheard, 'sweep')}")
    more = "; ".join(facts[1:])
    return f"{facts[0]} ({more})" if more else facts[0]


def _held(entry: Entry) -> str:
    jobs = ", ".join(sorted(key.job for key in entry.holds.leases)) if entry.holds else ""
    if jobs:
        return jobs
    if entry.host.notice:
        return "nothing"
    return "idle" if entry.holds and entry.holds.beat else "booting"
