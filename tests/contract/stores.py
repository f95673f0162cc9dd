"""The stores under test, over one table or one memory, and the emulator that holds tables."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from reprieve.adapters.dynamodb import Table
from reprieve.adapters.dynamodb_hosts import DynamoHostStore
from reprieve.adapters.dynamodb_jobs import DynamoJobStore
from reprieve.adapters.dynamodb_leases import DynamoHostLeases
from reprieve.adapters.dynamodb_orders import DynamoOrderStore
from reprieve.adapters.dynamodb_rows import DynamoRows
from reprieve.adapters.dynamodb_watch import DynamoWatch
from reprieve.adapters.memory import Memory
from reprieve.ports.hosts import HostStore, Watch
from reprieve.ports.jobs import JobStore
from reprieve.ports.leases import HostLeases
from reprieve.ports.orders import OrderStore
from reprieve.ports.rows import Rows

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

REPOSITORY = Path(__file__).parents[2]
MINISTACK = REPOSITORY / ".venv-local" / "bin" / "ministack"
TABLE = "Jobs"
START_SECONDS = 30
STOP_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Stores:
    """Every port that the table serves, over one state."""

    rows: Rows
    jobs: JobStore
    hosts: HostStore
    orders: OrderStore
    leases: HostLeases
    watch: Watch


def in_memory(now: datetime) -> Stores:
    memory = Memory(clock=lambda: now)
    return Stores(
        rows=memory.rows,
        jobs=memory.jobs,
        hosts=memory.hosts,
        orders=memory.orders,
        leases=memory.leases,
        watch=memory.watch,
    )


def in_table(client: DynamoDBClient, now: datetime) -> Stores:
    table = Table(client, TABLE)
    return Stores(
        rows=DynamoRows(table, clock=lambda: now),
        jobs=DynamoJobStore(table),
        hosts=DynamoHostStore(table, clock=lambda: now),
        orders=DynamoOrderStore(table),
        leases=DynamoHostLeases(table),
        watch=DynamoWatch(table),
    )


def create_table(client: DynamoDBClient) -> None:
    client.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": "S"}
            for name in ("pk", "sk", "live_pk", "live_sk")
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "live",
                "KeySchema": [
                    {"AttributeName": "live_pk", "KeyType": "HASH"},
                    {"AttributeName": "live_sk", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
    )


@contextmanager
def emulator() -> Iterator[str]:
    """Run the AWS emulator and yield its address; nothing of it is left afterwards."""
    port = _free_port()
    run_dir = tempfile.mkdtemp(prefix="reprieve-contract-")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": run_dir,
        "TMPDIR": run_dir,
        "GATEWAY_PORT": str(port),
        "BIND_HOST": "127.0.0.1",
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
    }
    with Path(run_dir, "log").open("wb") as log:
        process = subprocess.Popen(
            [MINISTACK], cwd=run_dir, env=environment, stdout=log, stderr=log
        )
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_until_healthy(process, address, Path(run_dir, "log"))
        yield address
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(run_dir, ignore_errors=True)


def _wait_until_healthy(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/_ministack/health", timeout=1):
                return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"the emulator didn't start: {log.read_text(errors='replace')[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
