"""What a function reads from its environment; ``infra`` sets exactly these names."""

from __future__ import annotations

import os
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, Json

from reprieve.domain.capacity import Pool, Strategy, Tier
from reprieve.domain.clock import NoticeClock
from reprieve.domain.economics.switches import Policy
from reprieve.domain.retention import Retention

Text = Annotated[str, Field(min_length=3)]


class PoolSettings(BaseModel):
    """One pool, as the template hands it to the functions."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    types: tuple[str, ...] = Field(min_length=1)
    tiers: tuple[Tier, ...] = Field(min_length=1)
    max_hosts: Annotated[int, Field(ge=1)]
    max_usd_per_hour: Annotated[float, Field(gt=0)]
    on_demand_base: Annotated[int, Field(ge=0)] = 0
    buffer: Annotated[int, Field(ge=0)] = 0
    strategy: Strategy = Strategy.PRICE_CAPACITY
    reservations: tuple[str, ...] = ()
    reservation_types: tuple[str, ...] = ()
    spares_per_hour: Annotated[int, Field(ge=0)] = 0
    off: tuple[Policy, ...] = ()
    launch_template: str
    launch_template_version: str
    work_queue_url: str

    def pool(self, name: str) -> Pool:
        """Return the domain's pool."""
        return Pool(name=name, **self.model_dump())


class Settings(BaseModel):
    """Common to all functions."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=str.upper, populate_by_name=True
    )

    stack: Annotated[str, Field(min_length=1)]
    jobs_table: Text
    orders_queue_url: Text
    pools: Json[dict[str, PoolSettings]]
    subnets: Json[dict[str, str]]
    notice_seconds: Annotated[float, Field(gt=0)]

    @classmethod
    def load(cls) -> Self:
        """Read the environment; a missing or bad variable is named by the error."""
        return cls.model_validate(dict(os.environ))

    @property
    def clock(self) -> NoticeClock:
        """Every period of the system."""
        return NoticeClock.of_seconds(self.notice_seconds)

    @property
    def retention(self) -> Retention:
        """What is kept of each job's checkpoints."""
        return Retention()

    def domain_pools(self) -> dict[str, Pool]:
        """Return the pools as the use cases know them."""
        return {name: settings.pool(name) for name, settings in self.pools.items()}


class HandleNoticeSettings(Settings):
    """``handle_notice``."""

    intake_queue_url: Text
    ssm_document: Text


class ReplaceHostSettings(Settings):
    """``replace_host``."""


class RecordReportSettings(Settings):
    """``record_report``."""

    reports_queue_url: Text
    attested_sender: Literal["on", "off"] = "on"


class ReconcileSettings(Settings):
    """``reconcile``."""

    checkpoints_bucket: Text
    ssm_document: Text
    keep_checkpoints: Annotated[int, Field(ge=1)] = 3
    keep_every_steps: Annotated[int, Field(ge=0)] = 0

    @property
    def retention(self) -> Retention:
        """What is kept of each job's checkpoints."""
        return Retention(self.keep_checkpoints, self.keep_every_steps)
