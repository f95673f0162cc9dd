"""
The market: which capacity pools exist, at which price, and how much each can still sell.

A pool is one instance type in one zone. Its capacity is what it has left: a launch takes one,
a host its owner ends gives one back, a host that EC2 reclaims does not. None is no limit.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from reprieve_cli.local.world.catalogue import InstanceType, instance_types, offered_in
from reprieve_cli.local.world.timeline import now

SPOT = "spot"
ON_DEMAND = "on-demand"
RESERVED = "reserved"

ORDINARY = "on-demand-capacity-reservation"
RESERVATION_TYPES = frozenset({ORDINARY, "capacity-block", "interruptible-capacity-reservation"})

_KEYS = frozenset({"pools", "on_demand", "reserved", "settings"})
_SPOT_SHARE = 0.38  # of the on-demand price, where the market gives none
_ZONE_SPREAD = 0.02  # each further zone is that much dearer, so that the order is stable
_LIST_PRICE = 50.0  # for a type without a published price
_DEEP = 1_000


class MarketError(ValueError):
    """The market's description can't be used."""


@dataclass(slots=True)
class Pool:
    type: str
    zone: str
    price: float
    capacity: int | None = None
    estimate: int | None = None
    """What EC2's placement believes the pool has; lags behind the truth, so a dry pool is tried."""
    market: str = SPOT
    reservation: str = ""
    """The Capacity Reservation that a pool of market ``reserved`` stands for."""
    reservation_type: str = ORDINARY

    @property
    def lifecycle(self) -> str:
        """Return what EC2 calls the life cycle of a host from here."""
        if self.market != RESERVED:
            return self.market
        return ON_DEMAND if self.reservation_type == ORDINARY else self.reservation_type

    @property
    def depth(self) -> int:
        if self.estimate is not None:
            return self.estimate
        if self.capacity is None:
            return _DEEP
        return max(self.capacity, 1)

    def take(self) -> bool:
        """Sell one host; False when the pool is dry."""
        if self.capacity is None:
            return True
        if self.capacity < 1:
            return False
        self.capacity -= 1
        return True

    def give_back(self) -> None:
        if self.capacity is not None:
            self.capacity += 1


# Of EC2's 120 seconds of notice: what scales with the world's own.
_REAL_NOTICE_SECONDS = 120.0
_REGISTRATION_SECONDS = 30.0  # at best; minutes on a bad day
_VISIBLE_AFTER_SECONDS = 1.0
_FORGOTTEN_AFTER_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How the world lags, in seconds, and the account's quotas: of each class of types (G, P)."""

    boot_seconds: float = 0.1
    """From the launch to state running, when the agent starts."""
    registration_seconds: float = 0.0
    """From running until SSM knows the host; SendCommand before it is InvalidInstanceId."""
    visible_after_seconds: float = 0.0
    """From the launch until DescribeInstances shows the host."""
    forgotten_after_seconds: float = _FORGOTTEN_AFTER_SECONDS
    """From a host's end until EC2 knows nothing of it."""
    shutdown_seconds: float = 2.0
    """What a host gets between SIGTERM and SIGKILL when its owner terminates it."""
    spot_vcpus: int | None = None
    """Of all Spot hosts that aren't terminated yet; None is no limit."""
    on_demand_vcpus: int | None = None

    @classmethod
    def of_notice(cls, seconds: float) -> Settings:
        """Return EC2's lags, at the speed of a world whose notice takes so long."""
        scale = seconds / _REAL_NOTICE_SECONDS
        return cls(
            registration_seconds=_REGISTRATION_SECONDS * scale,
            visible_after_seconds=_VISIBLE_AFTER_SECONDS * scale,
            forgotten_after_seconds=_FORGOTTEN_AFTER_SECONDS * scale,
        )

    def quota(self, market: str) -> int | None:
        return self.spot_vcpus if market == SPOT else self.on_demand_vcpus


@dataclass(frozen=True, slots=True)
class Price:
    at: dt.datetime
    type: str
    zone: str
    usd_per_hour: float


@dataclass(slots=True)
class Market:
    region: str
    spot: dict[tuple[str, str], Pool]
    on_demand: dict[tuple[str, str], Pool]
    reserved: dict[tuple[str, str], Pool] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    prices: list[Price] = field(default_factory=list)

    def pools(self, market: str) -> dict[tuple[str, str], Pool]:
        return {SPOT: self.spot, ON_DEMAND: self.on_demand, RESERVED: self.reserved}[market]

    def replace(self, described: dict[str, Any]) -> None:
        """Replace what *described* names: lists of pools, and of ``settings`` some."""
        own = self.describe()
        settings = {**own["settings"], **described.get("settings", {})}
        fresh = market_from({**own, **described, "settings": settings}, region=self.region)
        if "pools" in described:
            self.spot = fresh.spot
            self.prices += fresh.prices
        if "on_demand" in described:
            self.on_demand = fresh.on_demand
        if "reserved" in described:
            self.reserved = fresh.reserved
        self.settings = fresh.settings

    def update(self, pool: dict[str, Any]) -> None:
        """Change one pool: its type and zone and what is to differ."""
        changed = dict(pool)
        pools = self.pools(changed.pop("market", SPOT))
        key = changed.pop("type"), changed.pop("zone")
        if key not in pools:
            raise MarketError(f"pools: no pool {key[0]} in {key[1]}: put it first")
        for name, value in changed.items():
            if name not in {"price", "capacity", "estimate"}:
                raise MarketError(f"pools: {name!r} is no property of a pool")
            setattr(pools[key], name, value)
        if "price" in changed and pools is self.spot:
            self.prices.append(Price(now(), *key, changed["price"]))

    def describe(self) -> dict[str, Any]:
        return {
            "pools": [_described(pool) for pool in self.spot.values()],
            "on_demand": [_described(pool) for pool in self.on_demand.values()],
            "reserved": [_described(pool) for pool in self.reserved.values()],
            "settings": asdict(self.settings),
        }


def market_from(
    described: dict[str, Any] | None,
    *,
    region: str,
    notice_seconds: float = _REAL_NOTICE_SECONDS,
) -> Market:
    """
    Build the market of *region* from its description.

    ``pools`` lists {type, zone, price, capacity, estimate}; without it every type of the
    catalogue is sold in every zone that offers it, without limit. ``on_demand`` is such a list
    too, or {type: {price, capacity}} for all zones that offer the type; without it there is no
    limit. ``reserved`` lists Capacity Reservations, with their ``reservation`` (its id) and
    ``reservation_type``; without it there are none. ``settings`` are the lags and quotas; those
    that aren't named are EC2's, scaled to a notice of *notice_seconds*. Raise ``MarketError``
    for what makes no sense.
    """
    described = described or {}
    unknown = set(described) - _KEYS
    if unknown:
        raise MarketError(f"market: unknown key {min(unknown)!r}: use {', '.join(sorted(_KEYS))}")
    spot_pools = (
        [_pool(item) for item in described["pools"]]
        if "pools" in described
        else _everything(region, SPOT)
    )
    on_demand = described.get("on_demand")
    if isinstance(on_demand, list):
        own_pools = [_pool(item, market=ON_DEMAND) for item in on_demand]
    else:
        own_pools = [_limited(pool, on_demand or {}) for pool in _everything(region, ON_DEMAND)]
    start = now() - dt.timedelta(hours=1)
    return Market(
        region=region,
        spot={(pool.type, pool.zone): pool for pool in spot_pools},
        on_demand={(pool.type, pool.zone): pool for pool in own_pools},
        reserved={
            (pool.type, pool.zone): pool
            for pool in (_pool(item, market=RESERVED) for item in described.get("reserved", []))
        },
        settings=_settings(described.get("settings", {}), Settings.of_notice(notice_seconds)),
        prices=[Price(start, pool.type, pool.zone, pool.price) for pool in spot_pools],
    )


def _everything(region: str, market: str) -> list[Pool]:
    return [
        Pool(kind.name, zone, _price(kind, market, place), market=market)
        for kind in instance_types().values()
        if market == ON_DEMAND or kind.spot
        for place, zone in enumerate(offered_in(kind, region))
    ]


def _price(kind: InstanceType, market: str, place: int) -> float:
    listed = kind.usd_per_hour or _LIST_PRICE
    if market != SPOT:
        return listed
    return round(listed * _SPOT_SHARE * (1 + _ZONE_SPREAD * place), 4)


def _limited(pool: Pool, limits: dict[str, dict[str, Any]]) -> Pool:
    limit = limits.get(pool.type, {})
    pool.price = limit.get("price", pool.price)
    pool.capacity = limit.get("capacity", pool.capacity)
    return pool


def _pool(item: dict[str, Any], *, market: str = SPOT) -> Pool:
    kind = instance_types().get(item.get("type", ""))
    if kind is None:
        raise MarketError(f"pools: {item.get('type')!r} is no instance type of the catalogue")
    if "zone" not in item:
        raise MarketError(f"pools: {kind.name} needs a zone")
    try:
        pool = Pool(**{"price": _price(kind, market, 0), **item, "market": market})
    except TypeError as error:
        raise MarketError(f"pools: {kind.name} in {item['zone']}: {error}") from error
    if pool.market == RESERVED and not pool.reservation:
        raise MarketError(f"pools: {kind.name} in {pool.zone} is reserved: name its reservation")
    if pool.reservation_type not in RESERVATION_TYPES:
        raise MarketError(f"pools: {pool.reservation_type!r} is no type of reservation")
    return pool


def _settings(item: dict[str, Any], usual: Settings) -> Settings:
    try:
        return replace(usual, **item)
    except TypeError as error:
        raise MarketError(f"settings: {error}") from error


def _described(pool: Pool) -> dict[str, Any]:
    named = {name: value for name, value in asdict(pool).items() if name != "market"}
    if pool.market != RESERVED:
        del named["reservation"], named["reservation_type"]
    return named
