"""One function from settings to use cases: where adapters meet ports in a Lambda function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from reprieve.adapters.aws import Clients, connect
from reprieve.domain.settlement import Decision
from reprieve.edge.settings import Settings
from reprieve.usecases.wiring import Deployment, Ports, UseCases

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True)
class Wired(Generic[S]):
    """What a handler works with."""

    settings: S
    uses: UseCases
    sqs: SQSClient


def wire(settings: S, *, told: Callable[[Decision], None]) -> Wired[S]:
    """
    Return the use cases of one function; EC2 and SSM clients are made when first used.

    *told* hears of every settlement, whichever use case it happened in.
    """
    clients = Clients()
    pools = settings.domain_pools()
    adapters = connect(
        clients,
        table=settings.jobs_table,
        stack=settings.stack,
        zones=list(settings.subnets),
        orders_queue_url=settings.orders_queue_url,
        work_queues={name: pool.work_queue_url for name, pool in pools.items()},
        ssm_document=getattr(settings, "ssm_document", None),
        bucket=getattr(settings, "checkpoints_bucket", None),
    )
    ports = Ports(
        rows=adapters.rows,
        jobs=adapters.jobs,
        hosts=adapters.hosts,
        orders=adapters.orders,
        watch=adapters.watch,
        fleet=adapters.fleet,
        signals=adapters.signals,
        mail=adapters.mail,
        manifests=adapters.manifests,
        stored=adapters.stored,
    )
    deployment = Deployment(
        settings.stack, pools, settings.subnets, settings.clock, settings.retention
    )
    return Wired(settings, UseCases(ports, deployment, told=told), clients.sqs)
