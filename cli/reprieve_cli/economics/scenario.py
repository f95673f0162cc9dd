"""What is run and in which world: the job's times and the market's terms."""

from __future__ import annotations

from dataclasses import dataclass

from reprieve.domain.clock import NoticeClock
from reprieve.domain.economics.interval import Recovery
from reprieve.domain.economics.spending import HOUR_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """
    One job, by the symbols of ``reprieve.domain.economics``: C, U, E, q, B, R.

    ``recall`` is the truth that policies don't know. A gang of ``hosts`` is launched, saved
    and lost together.
    """

    name: str
    work_hours: float = 48.0
    save_seconds: float = 10.0
    durable_seconds: float = 30.0
    emergency_seconds: float = 45.0
    recall: float = 0.9
    boot_seconds: float = 180.0
    restore_seconds: float = 60.0
    deadline_hours: float | None = None
    hosts: int = 1
    gpus_per_host: int = 1
    state_gigabytes: float = 0.0

    @property
    def work_seconds(self) -> float:
        """W."""
        return self.work_hours * HOUR_SECONDS

    @property
    def recovery(self) -> Recovery:
        """What stands still after an interruption."""
        return Recovery(
            boot_seconds=self.boot_seconds,
            restore_seconds=self.restore_seconds,
            emergency_seconds=self.emergency_seconds,
        )


SMALL = Job(name="small")
LARGE = Job(
    name="large",
    save_seconds=60.0,
    durable_seconds=120.0,
    emergency_seconds=110.0,
    recall=0.6,
    boot_seconds=420.0,
    restore_seconds=600.0,
)
JOBS = {job.name: job for job in (SMALL, LARGE)}


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """
    The market's terms; prices are of one host.

    The defaults are p3.2xlarge's on-demand price and 70 % off, as the literature uses them.
    ``delivery_seconds`` (D) passes from EC2's notice until the host knows;
    ``launch_seconds`` from a request to EC2's answer. ``silent_losses_per_hour`` (λ_f) end a
    host without notice, on-demand too. The account has held every pool for ``history_hours``
    before the start, and has tried as many emergency checkpoints of this job; 0 is a new one.
    """

    spot_usd_per_hour: float = 0.918
    on_demand_usd_per_hour: float = 3.06
    delivery_seconds: float = 5.0
    launch_seconds: float = 2.0
    first_hour_credit: bool = True
    silent_losses_per_hour: float = 0.0
    transfer_usd_per_gigabyte: float = 0.02
    horizon_hours: float = 240.0
    history_hours: float = 24.0
    clock: NoticeClock = NoticeClock()  # noqa: RUF009 - frozen, so one will do for all

    @property
    def notice_seconds(self) -> float:
        """120 on EC2."""
        return self.clock.notice.total_seconds()

    @property
    def horizon_seconds(self) -> float:
        """A job that isn't done by then counts as unfinished."""
        return self.horizon_hours * HOUR_SECONDS
