"""ministack, behind us: calls of the world's own, as the account's root."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from pathlib import Path

ROOT_KEY = "test"  # ministack's root, with any secret


@dataclass(frozen=True, slots=True)
class Address:
    """Where ministack listens."""

    url: str
    region: str
    ca_bundle: Path | None = None


class Upstream:
    """boto3 in threads, so that the event loop never waits for it."""

    def __init__(self, address: Address, *, access_key: str = ROOT_KEY) -> None:
        self.address = address
        self._session = boto3.Session(
            aws_access_key_id=access_key,
            aws_secret_access_key=ROOT_KEY,
            region_name=address.region,
        )
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    async def call(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        """Call *operation* (boto3's method name); raise botocore's ``ClientError``."""
        return await asyncio.to_thread(self._call, service, operation, parameters)

    def _call(self, service: str, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = getattr(self._client(service), operation)(**parameters)
        return result

    def _client(self, service: str) -> Any:
        with self._lock:  # making clients is not thread-safe, using them is
            if service not in self._clients:
                ca_bundle = self.address.ca_bundle
                make: Any = self._session.client  # its stubs want the name as a literal
                self._clients[service] = make(
                    service,
                    endpoint_url=self.address.url,
                    verify=str(ca_bundle) if ca_bundle else None,
                    config=Config(
                        retries={"total_max_attempts": 2},
                        max_pool_connections=20,
                        read_timeout=60,
                    ),
                )
            return self._clients[service]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
