"""What a sweep costs on AWS: pages and batches, and nothing for a single job or host."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from reprieve.adapters.dynamodb import Table
from reprieve.adapters.dynamodb_hosts import DynamoHostStore
from reprieve.adapters.dynamodb_jobs import DynamoJobStore
from reprieve.adapters.dynamodb_orders import DynamoOrderStore
from reprieve.adapters.dynamodb_rows import DynamoRows
from reprieve.adapters.dynamodb_watch import DynamoWatch
from reprieve.domain.clock import NoticeClock
from reprieve.domain.job import JobStatus
from reprieve.domain.lease import Holder, LeaseState, Phase
from reprieve.ports.rows import PutHolds, PutHost, PutJob, PutLease
from reprieve.usecases.wiring import Deployment, Ports, UseCases
from tests.builders import NOON, POOL, a_host, a_job, a_lease, an_instance
from tests.contract.stores import TABLE
from tests.usecases.story import Story, a_pool

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

pytestmark = pytest.mark.e2e

COUNT = 100


@pytest.fixture
def calls(dynamodb: DynamoDBClient) -> Counter[str]:
    """Count what leaves for DynamoDB, call by call."""
    counted: Counter[str] = Counter()

    def note(model: Any, **_: Any) -> None:
        counted[model.name] += 1

    dynamodb.meta.events.register("before-call.dynamodb", note)
    return counted


@pytest.fixture
def uses(dynamodb: DynamoDBClient) -> UseCases:
    """Wire the functions over the real stores; EC2, SSM and SQS are in memory."""
    story = Story()
    table, memory = Table(dynamodb, TABLE), story.memory
    ports = Ports(
        rows=DynamoRows(table, clock=story.now),
        jobs=DynamoJobStore(table),
        hosts=DynamoHostStore(table, clock=story.now),
        orders=DynamoOrderStore(table),
        watch=DynamoWatch(table),
        fleet=memory.fleet,
        signals=memory.signals,
        mail=memory.mail,
    )
    for nth in range(COUNT):
        instance_id = f"i-{nth:017x}"
        memory.fleet.instances[instance_id] = an_instance(instance_id)
    deployment = Deployment("Reprieve", {POOL: a_pool(max_hosts=300)}, {}, NoticeClock())
    return UseCases(ports, deployment, story.now)


def run(uses: UseCases, count: int) -> None:
    """Store *count* jobs, each running on a host of its own."""
    for nth in range(count):
        job = replace(a_job(), id=f"job-{nth}", status=JobStatus.RUNNING, created_at=NOON)
        host = replace(a_host(), instance_id=f"i-{nth:017x}", pool=job.pool)
        lease = replace(
            a_lease(),
            key=job.lease_key,
            pool=job.pool,
            state=LeaseState.HELD,
            holder=Holder(host.instance_id, "boot"),
            phase=Phase.RUNNING,
            sealed_attempt=1,
            beat=7,
        )
        uses.ports.rows.commit(
            [
                PutJob(job, new=True),
                PutLease(lease),
                PutHost(host, new=True),
                PutHolds(host.instance_id),
            ]
        )


def test_a_sweep_of_a_hundred_jobs_on_a_hundred_hosts(uses: UseCases, calls: Counter[str]) -> None:
    """
    Ten calls of DynamoDB and three of EC2, whatever each of them does.

    | call | times | for |
    |---|---|---|
    | Query | 1 | the index: what isn't over in the pool |
    | BatchGetItem | 4 | a hundred jobs, their hosts, what they hold; and the hosts that EC2 lists |
    | BatchGetItem | 3 | a hundred leases, and the orders of two attempts of each job |
    | GetItem, PutItem | 1 + 1 | what was heard, a row for the whole pool |
    """
    run(uses, COUNT)
    calls.clear()

    swept = uses.reconcile()

    assert not swept.failures
    assert (swept.jobs, swept.hosts) == (COUNT, COUNT)
    assert calls == {"Query": 1, "BatchGetItem": 7, "GetItem": 1, "PutItem": 1}
    memory = uses.ports.fleet._memory  # type: ignore[attr-defined]
    ec2 = [name for name in memory.calls if name.startswith("fleet.")]
    assert ec2 == ["fleet.ours", "fleet.states", "fleet.marked"]  # 1 call each up to 200 ids
