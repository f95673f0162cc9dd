"""Valid objects, so that a test names only what it is about."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from reprieve.domain.checkpoint import FileEntry, Manifest, data_key
from reprieve.domain.host import CapacityPool, Host, Instance, InstanceState, Market
from reprieve.domain.job import Attempt, Event, Job
from reprieve.domain.lease import Holder, Lease, LeaseKey, LeaseState
from reprieve.domain.notice import Channel, Notice, NoticeKind
from reprieve.domain.order import Order, Override, Plan
from reprieve.domain.spec import JobSpec

NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
POOL = "small"
HOST = "i-0aaaaaaaaaaaaaaaa"
OTHER_HOST = "i-0bbbbbbbbbbbbbbbb"
BOOT = "b0000001-0000-4000-8000-000000000000"
SPOT_A = CapacityPool("g5.xlarge", "us-east-1a", Market.SPOT)
SPOT_B = CapacityPool("g6.xlarge", "us-east-1b", Market.SPOT)


def at(seconds: float) -> datetime:
    """Return the moment *seconds* after noon of the tests' day."""
    return NOON + timedelta(seconds=seconds)


def a_spec(**changes: Any) -> JobSpec:
    return replace(JobSpec(command=("python", "train.py")), **changes)


def a_job(job_id: str = "job-1", **changes: Any) -> Job:
    job = Job(
        id=job_id,
        name="a job",
        pool=POOL,
        spec=a_spec(),
        token="t1",
        created_at=NOON,
        updated_at=NOON,
        ticket_at=NOON,
    )
    return replace(job, **changes)


def a_lease(job: Job | None = None, **changes: Any) -> Lease:
    """Return the FREE lease of *job*'s current attempt."""
    job = job or a_job()
    return replace(Lease(key=job.lease_key, pool=job.pool, spec=job.spec), **changes)


def a_held_lease(job: Job | None = None, holder: Holder | None = None, **changes: Any) -> Lease:
    held = a_lease(job, state=LeaseState.HELD, holder=holder or a_holder(), beat=1)
    return replace(held, **changes)


def a_key(job_id: str = "job-1", attempt: int = 1, token: str = "t1") -> LeaseKey:
    return LeaseKey(job_id, attempt, token)


def a_holder(instance_id: str = HOST, boot_id: str = BOOT) -> Holder:
    return Holder(instance_id, boot_id)


def a_host(instance_id: str = HOST, **changes: Any) -> Host:
    host = Host(instance_id=instance_id, pool=POOL, capacity=SPOT_A, launched_at=NOON)
    return replace(host, **changes)


def an_instance(instance_id: str = HOST, **changes: Any) -> Instance:
    instance = Instance(
        instance_id=instance_id,
        type=SPOT_A.type,
        zone=SPOT_A.zone,
        market=SPOT_A.market,
        state=InstanceState.ALIVE,
        launched_at=NOON,
        tags={
            "reprieve:stack": "Reprieve",
            "reprieve:pool": POOL,
            "reprieve:order": "job-1#1#1",
        },
    )
    return replace(instance, **changes)


def a_notice(
    kind: NoticeKind = NoticeKind.INTERRUPTION, instance_id: str = HOST, **changes: Any
) -> Notice:
    notice = Notice(
        kind=kind,
        instance_id=instance_id,
        noticed_at=NOON,
        channel=Channel.EVENT,
        reclaimed_at=at(120) if kind is NoticeKind.INTERRUPTION else None,
    )
    return replace(notice, **changes)


def an_attempt(n: int = 1, job_id: str = "job-1", **changes: Any) -> Attempt:
    return replace(Attempt(job_id, n), **changes)


def an_event(seconds: float = 0, kind: str = "started", **changes: Any) -> Event:
    return replace(Event(at=at(seconds), kind=kind, text=f"job {kind}"), **changes)


def an_order(job_id: str = "job-1", attempt: int = 1, **changes: Any) -> Order:
    order = Order(
        job=job_id,
        attempt=attempt,
        pool=POOL,
        reason="submitted",
        created_at=NOON,
        updated_at=NOON,
    )
    return replace(order, **changes)


def a_plan(job_id: str = "job-1", attempt: int = 1, try_n: int = 1, **changes: Any) -> Plan:
    plan = Plan(
        stack="Reprieve",
        job=job_id,
        attempt=attempt,
        try_n=try_n,
        pool=POOL,
        market=Market.SPOT,
        strategy="price-capacity-optimized",
        launch_template="lt-0aaaaaaaaaaaaaaaa",
        launch_template_version="1",
        overrides=(
            Override(SPOT_A, "subnet-0aaaaaaaaaaaaaaaa"),
            Override(SPOT_B, "subnet-0bbbbbbbbbbbbbbbb"),
        ),
    )
    return replace(plan, **changes)


def a_manifest(attempt: int = 1, step: int = 100, **changes: Any) -> Manifest:
    file = FileEntry(
        path="model.bin",
        key=data_key("job-1", attempt, "save-1", "model.bin"),
        size=3,
        sha256="ab" * 32,
    )
    manifest = Manifest(
        job="job-1",
        attempt=attempt,
        token=f"t{attempt}",
        step=step,
        parent=None,
        files=(file,),
        saved_at=NOON,
    )
    return replace(manifest, **changes)
