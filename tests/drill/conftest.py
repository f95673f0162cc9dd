"""A drill's stage in memory: use cases over one memory, and a world that answers from a script."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from reprieve.domain.checkpoint import FileEntry, Manifest, data_key
from reprieve.domain.lease import Cause, Outcome
from reprieve.domain.notice import NoticeKind
from reprieve_cli.drill.document import parse
from reprieve_cli.drill.engine import Drill, Patience
from reprieve_cli.drill.engine import Outcome as Played
from reprieve_cli.drill.stage import Stage
from reprieve_cli.local.control import WorldClient
from reprieve_cli.stack import Cloud, Stack
from tests.builders import POOL
from tests.cli.conftest import InMemoryObjects, InMemoryStored
from tests.usecases.story import Host, Story

IMPATIENT = Patience(step=0.05, end=0.05, rest=0.0)


@dataclass(frozen=True)
class BucketOf:
    """The S3 calls that actions make, on those objects."""

    objects: InMemoryObjects

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> None:  # noqa: N803
        self.objects.bodies[Key] = Body

    def delete_object(self, *, Bucket: str, Key: str) -> None:  # noqa: N803
        del self.objects.bodies[Key]


@dataclass(frozen=True)
class InMemoryQueues:
    """What is sent, by queue."""

    sent: dict[str, list[str]] = field(default_factory=dict)

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, str]]) -> None:  # noqa: N803
        assert len(Entries) <= 10
        self.sent.setdefault(QueueUrl, []).extend(entry["MessageBody"] for entry in Entries)


@dataclass(frozen=True)
class ScriptedWorld(WorldClient):
    """The real client; what it sends is kept, and the script says what is answered."""

    url: str = "http://nowhere"
    sent: list[tuple[str, str, Any]] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)
    on: dict[str, Callable[[], object]] = field(default_factory=dict)

    def _send(self, method: str, path: str, body: Any = None) -> Any:
        path = urlsplit(path).path
        if method != "GET":
            self.sent.append((method, path, body))
            self.on.get(path.rpartition("/")[2], lambda: None)()
        return self.answers.get(path, [] if method == "GET" else {})


@dataclass
class Theatre:
    """The stage, and hands to move what a real cloud would move."""

    story: Story = field(default_factory=Story)
    world: ScriptedWorld = field(default_factory=ScriptedWorld)
    objects: InMemoryObjects = field(default_factory=InMemoryObjects)
    queues: InMemoryQueues = field(default_factory=InMemoryQueues)

    @property
    def stage(self) -> Stage:
        memory = self.story.memory
        stack = Stack(
            name="Reprieve",
            region="us-east-1",
            table="jobs",
            bucket="bucket",
            orders_url="https://queue/orders",
            pools={POOL: self.story.pool},
            outputs={"IntakeQueueUrl": "https://queue/intake"},
        )
        cloud = Cloud(
            stack=stack,
            rows=memory.rows,
            jobs=memory.jobs,
            orders=memory.orders,
            hosts=memory.hosts,
            mail=memory.mail,
            objects=self.objects,
            now=self.story.now,
            fleet=memory.fleet,
            stop_launching=lambda: None,
            watch=memory.watch,
            announce=lambda _event: None,
            stored=InMemoryStored(self.objects.bodies),
        )
        nobody: Any = None  # no test here looks at logs or at the stack itself
        s3: Any = BucketOf(self.objects)
        sqs: Any = self.queues
        return Stage(
            cloud=cloud,
            world=self.world,
            s3=s3,
            sqs=sqs,
            logs=nobody,
            cloudformation=nobody,
            notice_seconds=1.0,
        )

    def play(self, text: str, *, patience: Patience = IMPATIENT) -> Played:
        return Drill(parse(text, Path("story.yaml")), self.stage, patience=patience).run()

    @property
    def job_id(self) -> str:
        (job_id,) = self.story.memory.job_rows
        return job_id

    def start(self, *, base: str | None = None, restored: int | None = None) -> Host:
        """Bring a host for what is ordered, and have it run the job."""
        host = self.story.launch()
        host.run(base=base, restored=restored)
        self.story.uses.settle(self.job_id)
        return host

    def save(self, host: Host, step: int, **files: bytes) -> str:
        """Commit *step* with *files*, in the bucket and in the lease."""
        assert host.key
        entries = []
        for path, body in files.items():
            key = data_key(host.key.job, host.key.attempt, f"save-{step}", path)
            self.objects.bodies[key] = body
            entries.append(FileEntry(path, key, len(body), hashlib.sha256(body).hexdigest()))
        manifest = Manifest(
            job=host.key.job,
            attempt=host.key.attempt,
            token=host.key.token,
            step=step,
            parent=None,
            files=tuple(entries),
            saved_at=self.story.now(),
        )
        self.objects.bodies[manifest.key] = manifest.to_json()
        return host.commit(step)

    def take_back(self, host: Host) -> None:
        """Let EC2 end the host, and say so."""
        self.story.gone(host)
        self.story.notice(host, NoticeKind.STATE_CHANGE)

    def end(self, host: Host, outcome: Outcome, cause: Cause) -> None:
        host.release(outcome, cause, 0)
        self.story.uses.settle(self.job_id)


@pytest.fixture
def theatre() -> Theatre:
    return Theatre()
