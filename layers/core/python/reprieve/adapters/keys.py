"""Names of the table's rows and of the index `live`, and what they say when read back."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime

from reprieve.domain.host import CapacityPool, Host, HostState, Market
from reprieve.domain.job import Event, Job, JobStatus
from reprieve.domain.lease import LeaseKey
from reprieve.domain.order import Order
from reprieve.ports.jobs import Live
from reprieve.ports.orders import LISTED_ORDERS
from reprieve.ports.rows import LAG

Key = tuple[str, str]

LIVE_INDEX = "live"
EVENT_PREFIX = "EVENT#"
ATTEMPT_PREFIX = "ATTEMPT#"
TRY_PREFIX = "TRY#"
COLD_PREFIX = "COLD#"
SEEN_PREFIX = "SEEN#"


def job(job_id: str) -> Key:
    return f"JOB#{job_id}", "JOB"


def attempt(job_id: str, n: int) -> Key:
    return f"JOB#{job_id}", f"{ATTEMPT_PREFIX}{n:04d}"


def event(job_id: str, said: Event) -> Key:
    """Return a key made of the content, so that a redelivered event overwrites itself."""
    facts = {name: fact for name, fact in said.data.items() if name != LAG}
    content = json.dumps([said.kind, said.text, said.attempt, facts], sort_keys=True)
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    return f"JOB#{job_id}", f"{EVENT_PREFIX}{_milliseconds(said.at):013d}#{digest}"


def lease(key: LeaseKey) -> Key:
    return f"LEASE#{key.job}", f"{key.attempt:06d}#{key.token}"


def holds(instance_id: str) -> Key:
    return f"LEASE#HOST#{instance_id}", "HOLDS"


def host(instance_id: str) -> Key:
    return f"HOST#{instance_id}", "HOST"


def order(job_id: str, n: int) -> Key:
    return f"ORDER#{job_id}#{n:06d}", "ORDER"


def order_try(job_id: str, n: int, try_n: int) -> Key:
    return f"ORDER#{job_id}#{n:06d}", f"{TRY_PREFIX}{try_n:03d}"


def cold(pool: str, capacity: CapacityPool) -> Key:
    return f"POOL#{pool}", f"{COLD_PREFIX}{capacity}"


def cold_capacity(sort_key: str) -> CapacityPool:
    """Read the sort key of a cold pool."""
    kind, zone, market = sort_key.removeprefix(COLD_PREFIX).split("#")
    return CapacityPool(kind, zone, Market(market))


def watch(pool: str) -> Key:
    return f"POOL#{pool}#WATCH", "WATCH"


def seen(pool: str, capacity: CapacityPool) -> Key:
    """Return the key of a Spot pool's own history: the same type and zone, whatever is asked."""
    return f"POOL#{pool}", f"{SEEN_PREFIX}{capacity.type}#{capacity.zone}"


def quotes(pool: str) -> Key:
    """Return the key of a pool's Spot prices."""
    return f"POOL#{pool}", "QUOTES#spot#usd"


def seen_place(sort_key: str) -> tuple[str, str]:
    """Read the sort key of a history: type and zone."""
    kind, zone = sort_key.removeprefix(SEEN_PREFIX).split("#")
    return kind, zone


def live_pool(pool: str) -> str:
    return f"POOL#{pool}"


def live_job(row: Job) -> str | None:
    """Return the sort key in the index; None once the job is over."""
    return None if row.terminal else f"JOB#{row.status}#{row.id}"


def live_host(row: Host) -> str | None:
    """Return the sort key in the index; None once the host is gone."""
    return None if row.state is HostState.GONE else f"HOST#{row.state}#{row.instance_id}"


def live_order(row: Order) -> str | None:
    """Return the sort key in the index; None once the order is closed."""
    return f"ORDER#{row.job}#{row.attempt:06d}" if row.state in LISTED_ORDERS else None


def read_live(sort_keys: list[str]) -> Live:
    """Return what the sort keys of one pool's partition say."""
    jobs: list[tuple[str, JobStatus]] = []
    hosts: list[tuple[str, HostState]] = []
    orders: list[tuple[str, int]] = []
    for text in sort_keys:
        kind, first, second = text.split("#", 2)
        if kind == "JOB":
            jobs.append((second, JobStatus(first)))
        elif kind == "HOST":
            hosts.append((second, HostState(first)))
        elif kind == "ORDER":
            orders.append((first, int(second)))
    return Live(tuple(jobs), tuple(hosts), tuple(orders))


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)
