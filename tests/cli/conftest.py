"""A cloud in memory, and the command line in front of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from reprieve.adapters.memory import Memory
from reprieve.domain.capacity import Pool, Tier
from reprieve.domain.checkpoint import Manifest, manifest_of_mark
from reprieve.ports.stored import Listing, Object
from reprieve_cli.app import run
from reprieve_cli.stack import Cloud, Stack
from tests.builders import POOL, at


class InMemoryObjects:
    """``Objects``: a dictionary of bytes."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        self.uploads = 0

    def uri(self, key: str) -> str:
        return f"s3://bucket/{key}"

    def sizes(self, prefix: str) -> dict[str, int]:
        return {k: len(v) for k, v in sorted(self.bodies.items()) if k.startswith(prefix)}

    def read(self, key: str, *, start: int = 0) -> bytes | None:
        body = self.bodies.get(key)
        return None if body is None else body[start:]

    def chunks(self, key: str) -> Iterator[bytes] | None:
        body = self.bodies.get(key)
        return None if body is None else iter([body[at : at + 7] for at in range(0, len(body), 7)])

    def put_new(self, key: str, file: Path) -> bool:
        if key in self.bodies:
            return False
        self.bodies[key] = file.read_bytes()
        self.uploads += 1
        return True


@dataclass
class InMemoryStored:
    """``Stored`` over the same bytes, which lie there for an hour already."""

    bodies: dict[str, bytes]

    def listing(self, job: str) -> Listing:
        def below(folder: str) -> dict[str, Object]:
            prefix = f"jobs/{job}/{folder}/"
            found = {k: v for k, v in self.bodies.items() if k.startswith(prefix)}
            return {key: Object(len(body), at(-3000)) for key, body in found.items()}

        marks = frozenset(manifest_of_mark(key) for key in below("set-aside"))
        return Listing(below("manifests"), below("data"), marks)

    def manifest(self, key: str) -> Manifest | None:
        body = self.bodies.get(key)
        return Manifest.from_json(body, key=key) if body else None

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.bodies.pop(key, None)


@dataclass
class Cli:
    """What one call of the command line left behind."""

    memory: Memory
    objects: InMemoryObjects
    cloud: Cloud
    capsys: pytest.CaptureFixture[str]
    find_cloud: Callable[[], Cloud]
    stopped: list[bool]
    announced: list[Mapping[str, Any]]
    code: int = -1
    out: str = ""
    err: str = ""
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def __call__(self, *arguments: str) -> int:
        self.calls.append(arguments)
        self.code = run(arguments, find_cloud=self.find_cloud)
        self.out, self.err = self.capsys.readouterr()
        return self.code

    @property
    def last_line(self) -> str:
        return self.out.splitlines()[-1]

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def a_pool(name: str = POOL) -> Pool:
    return Pool(
        name=name,
        types=("g5.xlarge", "g6.xlarge"),
        tiers=(Tier.SPOT, Tier.ON_DEMAND),
        launch_template="lt-0aaaaaaaaaaaaaaaa",
        launch_template_version="1",
        work_queue_url=f"https://sqs.us-east-1.amazonaws.com/000000000000/{name}",
    )


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TZ", "UTC")
    memory, objects = Memory(clock=lambda: at(600)), InMemoryObjects()
    stack = Stack(
        name="Reprieve",
        region="us-east-1",
        table="jobs",
        bucket="bucket",
        orders_url="https://sqs.us-east-1.amazonaws.com/000000000000/orders",
        pools={POOL: a_pool()},
        outputs={
            "Subnets": '{"us-east-1a": "subnet-a", "us-east-1b": "subnet-b"}',
            "JobRole": "arn:aws:iam::123456789012:role/training-data",
            "AlarmTopic": "arn:aws:sns:us-east-1:123456789012:Reprieve-Alarms",
        },
    )
    stopped: list[bool] = []
    announced: list[Mapping[str, Any]] = []
    cloud = Cloud(
        stack=stack,
        rows=memory.rows,
        jobs=memory.jobs,
        orders=memory.orders,
        hosts=memory.hosts,
        mail=memory.mail,
        objects=objects,
        now=lambda: at(600),
        fleet=memory.fleet,
        stop_launching=lambda: stopped.append(True),
        watch=memory.watch,
        announce=announced.append,
        stored=InMemoryStored(objects.bodies),
    )
    return Cli(memory, objects, cloud, capsys, lambda: cloud, stopped, announced)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("import reprieve_job\n")
    return folder


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
