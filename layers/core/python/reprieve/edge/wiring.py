"""One function from settings to use cases: where adapters meet ports in a Lambda function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from reprieve.edge.settings import Settings
from reprieve.usecases.wiring import UseCases

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True)
class Wired(Generic[S]):
    """What a handler works with."""

    settings: S
    uses: UseCases
    sqs: SQSClient


def wire(settings: S) -> Wired[S]: ...
