"""The deployed stack as its outputs describe it, and the ports that every command works through."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reprieve.domain.capacity import Pool, Strategy, Tier
from reprieve.domain.clock import NoticeClock
from reprieve.domain.economics.switches import Policy
from reprieve.ports.cloud import Fleet, Mail
from reprieve.ports.hosts import HostStore, Watch
from reprieve.ports.jobs import JobStore
from reprieve.ports.orders import OrderStore
from reprieve.ports.rows import Rows
from reprieve.ports.stored import Stored
from reprieve.usecases.retire import Retire
from reprieve.usecases.settle import Settle
from reprieve_cli.errors import BadInputError
from reprieve_cli.objects import Objects


@dataclass(frozen=True, slots=True)
class Stack:
    """What the stack's outputs say."""

    name: str
    region: str
    table: str
    bucket: str
    orders_url: str
    pools: dict[str, Pool]
    outputs: dict[str, str]

    @classmethod
    def of_outputs(cls, name: str, region: str, outputs: Mapping[str, str]) -> Stack:
        """Read the outputs; raise ``BadInputError`` if the stack isn't one of ours."""
        pools = (_pool(v) for k, v in sorted(outputs.items()) if k.startswith("Pool"))
        try:
            return cls(
                name=name,
                region=region,
                table=outputs["JobsTable"],
                bucket=outputs["CheckpointsBucket"],
                orders_url=outputs["OrdersQueueUrl"],
                pools={pool.name: pool for pool in pools if pool},
                outputs=dict(outputs),
            )
        except KeyError as error:
            raise BadInputError(
                f"stack {name} in {region} has no output {error.args[0]}: it isn't a Reprieve "
                "stack, or its first deployment isn't finished; set REPRIEVE_STACK"
            ) from error

    @property
    def account(self) -> str:
        """The account that the stack is in, as the ARN of its alarms' topic says."""
        return self.outputs["AlarmTopic"].split(":")[4]

    def pool(self, name: str | None) -> Pool:
        """Return the pool of that name, or the only one; raise ``BadInputError``."""
        if name is None and len(self.pools) == 1:
            return next(iter(self.pools.values()))
        known = ", ".join(self.pools) or "none"
        if name is None:
            raise BadInputError(f"stack {self.name} has several pools, choose one: --pool {known}")
        if name not in self.pools:
            raise BadInputError(f"no pool {name} in stack {self.name}: it has {known}")
        return self.pools[name]


@dataclass(frozen=True, slots=True)
class Cloud:
    """
    Everything a command reaches.

    *stop_launching* keeps ``replace_host`` from running; *announce* puts an event where
    EventBridge puts them.
    """

    stack: Stack
    rows: Rows
    jobs: JobStore
    orders: OrderStore
    hosts: HostStore
    mail: Mail
    objects: Objects
    now: Callable[[], datetime]
    fleet: Fleet
    stop_launching: Callable[[], None]
    watch: Watch
    announce: Callable[[Mapping[str, Any]], None]
    stored: Stored

    @property
    def settle(self) -> Settle:
        """Bring a job in line with its lease, or with what a person wants."""
        return Settle(
            rows=self.rows,
            fleet=self.fleet,
            mail=self.mail,
            retire=Retire(self.jobs, self.hosts, self.fleet),
            clock=NoticeClock(),
            now=self.now,
        )


def _pool(text: str) -> Pool | None:
    """Read an output; None for one that describes no pool."""
    try:
        raw = json.loads(text)
        return Pool(
            name=raw["name"],
            types=tuple(raw["types"]),
            tiers=tuple(Tier(tier) for tier in raw["tiers"]),
            launch_template=raw["launch_template"],
            launch_template_version=raw["launch_template_version"],
            work_queue_url=raw["work_queue_url"],
            max_hosts=int(raw["max_hosts"]),
            max_usd_per_hour=float(raw["max_usd_per_hour"]),
            on_demand_base=int(raw.get("on_demand_base", 0)),
            buffer=int(raw.get("buffer", 0)),
            strategy=Strategy(raw.get("strategy", Strategy.PRICE_CAPACITY)),
            reservations=tuple(raw.get("reservations", ())),
            reservation_types=tuple(raw.get("reservation_types", ())),
            spares_per_hour=int(raw.get("spares_per_hour", 0)),
            off=tuple(Policy(name) for name in raw.get("off", ())),
        )
    except (ValueError, KeyError, TypeError):
        return None
