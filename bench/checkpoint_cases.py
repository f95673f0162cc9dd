"""One case of `checkpoints.py`, in a process of its own: prints what it took as JSON."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reprieve.adapters import s3_transfers, sdk
from reprieve.adapters.s3_checkpoints import S3Checkpoints, s3_client
from reprieve.domain.checkpoint import FileEntry, Manifest, data_key
from reprieve.domain.lease import LeaseKey
from reprieve_agent import checkpoint, restore
from reprieve_agent.events import Committed, Event
from reprieve_agent.ledgers import FileLedger, Ledgers
from reprieve_agent.upload import Uploads
from reprieve_job.checkpoints import CheckpointStore

MIB = 1 << 20
FILES = 8
KEY = LeaseKey("job", 1, "token")
PART_MIB = 4


def main() -> int:
    """Run the case that is named."""
    name, scratch, mib = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    print(json.dumps(CASES[name](scratch, mib)))
    return 0


def timed(work: Callable[[], object]) -> dict[str, float]:
    before, began = os.times(), time.monotonic()
    work()
    after = os.times()
    return {
        "seconds": time.monotonic() - began,
        "cpu": after.user + after.system - before.user - before.system,
        "rss_mib": _peak() / 1024,
    }


def _peak() -> int:
    """Return the most memory that this process ever had, in KiB; not that of its parent."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def store() -> S3Checkpoints:
    """Return the bucket as the agent makes it."""
    return S3Checkpoints(s3_client(sdk.session("us-east-1")), "bucket")


def default_client() -> Any:
    """Return boto3's client as it comes; our own cases are weighed without boto3."""
    return importlib.import_module("boto3").client("s3")


def upload_default(scratch: Path, _mib: int) -> dict[str, float]:
    client = default_client()
    return timed(lambda: client.upload_file(str(scratch / "source"), "bucket", "default"))


def upload_ours(scratch: Path, _mib: int) -> dict[str, float]:
    bucket = store()
    return timed(lambda: bucket.put_file("ours", scratch / "source"))


def numpy() -> Any:
    """Return numpy, for the cases that need it: the others are weighed without it."""
    return importlib.import_module("numpy")


def state(mib: int) -> dict[str, Any]:
    """Return arrays of random numbers, which no link and no disk can shrink."""
    random = numpy().random.default_rng(7)
    each = mib * MIB // FILES // 4
    return {f"layer{n}": random.random(each, dtype="float32") for n in range(FILES)}


def _disk(scratch: Path) -> Path:
    """Return a new folder on a real disk: a save is synced, and that is part of its time."""
    folder = Path(tempfile.gettempdir()) / scratch.name
    folder.mkdir()
    return folder


def durable_archive(scratch: Path, mib: int) -> dict[str, float]:
    """Save all in one archive, sync it, send it: the job waits for all of that."""
    zipfile = importlib.import_module("zipfile")
    arrays, path = state(mib), _disk(scratch) / "state.zip"
    client = default_client()

    def work() -> None:
        with path.open("wb") as file:
            with zipfile.ZipFile(file, "w") as archive:  # stored, each array in one go
                for name, array in arrays.items():
                    archive.writestr(name, memoryview(array).cast("B"))
            file.flush()
            os.fsync(file.fileno())
        client.upload_file(str(path), "bucket", "archive")

    found = timed(work)
    shutil.rmtree(path.parent)
    return found | {"stall": found["seconds"]}


def durable_ours(scratch: Path, mib: int) -> dict[str, float]:
    """Let a job save by the helper while this process, as the agent, sends what is finished."""
    folder = _disk(scratch) / "checkpoints"
    folder.mkdir()
    said: queue.Queue[Event] = queue.Queue()
    uploads = Uploads(KEY, folder, store(), said.put, lambda: True, None)
    job = subprocess.Popen(
        [sys.executable, __file__, "job", str(folder), str(mib)], stdout=subprocess.PIPE, text=True
    )
    assert job.stdout is not None
    job.stdout.readline()  # the state lies in its memory
    before = os.times()
    uploads.hurry(urgent=True)
    watcher = threading.Thread(target=_watch, args=(folder, uploads))
    watcher.start()
    event = said.get(timeout=600)
    ended = time.monotonic()
    after = os.times()
    told = json.loads(job.stdout.readline())
    job.wait()
    watcher.join()
    uploads.hurry(urgent=False)
    shutil.rmtree(folder.parent)
    if not isinstance(event, Committed):
        raise SystemExit(repr(event))
    cpu = told["cpu"] + after.user + after.system - before.user - before.system
    return {"seconds": ended - told["began"], "stall": told["stall"], "cpu": cpu}


def _watch(folder: Path, uploads: Uploads) -> None:
    while not (steps := checkpoint.whole_steps(folder)):
        time.sleep(0.05)  # as the agent does while it waits for a save
    uploads.start(steps[-1])


def job(folder: Path, mib: int) -> dict[str, float]:
    """Be the job: one file for each layer, so that the first can go while the last is written."""
    arrays = state(mib)
    print("ready", flush=True)
    time.sleep(0.5)
    began, before = time.monotonic(), time.process_time()
    facts = {"v": 1, "attempt": 1, "world_size": 1, "framework": "numpy"}
    store = CheckpointStore(folder, keep=None)
    with store.saving(7, facts=facts, lasting=lambda: False) as part:  # as under a notice
        for name, array in arrays.items():
            with (part / f"{name}.npy").open("wb") as file:
                numpy().save(file, array, allow_pickle=False)
    return {
        "began": began,
        "stall": time.monotonic() - began,
        "cpu": time.process_time() - before,
    }


def _served(scratch: Path) -> Manifest:
    source = scratch / "source"
    digest = hashlib.file_digest(source.open("rb"), "sha256").hexdigest()
    entry = FileEntry("model.bin", "served/model.bin", source.stat().st_size, digest)
    return Manifest("job", 1, "token", 7, None, (entry,), datetime.now(UTC))


def resume_download(scratch: Path, _mib: int) -> dict[str, float]:
    client, target = default_client(), scratch / "target"
    found = timed(lambda: client.download_file("bucket", "served/model.bin", str(target)))
    target.unlink()
    return found


def resume_unchecked(scratch: Path, mib: int) -> dict[str, float]:
    s3_transfers._digest = lambda *_: None  # noqa: SLF001 - the check is what is left out
    return resume_ours(scratch, mib, expected=hashlib.sha256().hexdigest())


def resume_ours(scratch: Path, _mib: int, expected: str | None = None) -> dict[str, float]:
    manifest, target, bucket = _served(scratch), scratch / "resume", store()
    if expected:
        (file,) = manifest.files
        unchecked = FileEntry(file.path, file.key, file.size, expected)
        manifest = Manifest("job", 1, "token", 7, None, (unchecked,), manifest.saved_at)
    bucket.commit(manifest)
    target.mkdir()
    restorer = restore.Restorer(bucket, lambda key, why: sys.exit(f"{key}: {why}"), lambda: False)
    found = timed(lambda: restorer.restore_exactly(manifest.key, target, None))
    shutil.rmtree(target)
    return found


def _commit(folder: Path, parent: str | None) -> Committed:
    said: queue.Queue[Event] = queue.Queue()
    uploads = Uploads(KEY, folder, store(), said.put, lambda: True, parent)
    (step,) = checkpoint.whole_steps(folder)
    uploads.start(step)
    event = said.get(timeout=600)
    if not isinstance(event, Committed):
        raise SystemExit(repr(event))
    return event


def _adapter_job(scratch: Path, mib: int, step: int) -> tuple[Path, int]:
    """Save a frozen file and a hundredth that was trained; return the folder and that part."""
    folder = scratch / f"adapter-{step}"
    folder.mkdir()
    facts = {"v": 1, "attempt": 1, "world_size": 1, "framework": "numpy"}
    trainable = mib * MIB // 100
    with CheckpointStore(folder, keep=None).saving(step, facts=facts) as part:
        shutil.copy(scratch / "source", part / "frozen.bin")
        (part / "adapter.bin").write_bytes(os.urandom(trainable))
    return folder, trainable


def bytes_first(scratch: Path, mib: int) -> dict[str, float]:
    folder, trainable = _adapter_job(scratch, mib, 1)
    (scratch / "base").write_text(_commit(folder, None).manifest)
    shutil.rmtree(folder)
    return {"trainable": trainable}


def bytes_second(scratch: Path, mib: int) -> dict[str, float]:
    folder, _ = _adapter_job(scratch, mib, 2)
    _commit(folder, (scratch / "base").read_text())
    shutil.rmtree(folder)
    return {}


def bytes_killed(scratch: Path, _mib: int) -> dict[str, float]:
    s3_transfers.PART_BYTES = PART_MIB * MIB
    key = data_key("job", 1, "save", "model.bin")
    ledger: FileLedger = Ledgers(scratch / "ledgers").of(7, "0" * 64, key=key)
    store().put_file(ledger.key, scratch / "source", ledger=ledger)
    return {}


CASES: dict[str, Callable[[Path, int], dict[str, float]]] = {
    "upload-default": upload_default,
    "upload-ours": upload_ours,
    "durable-archive": durable_archive,
    "durable-ours": durable_ours,
    "job": job,
    "resume-download": resume_download,
    "resume-unchecked": resume_unchecked,
    "resume-ours": resume_ours,
    "bytes-first": bytes_first,
    "bytes-second": bytes_second,
    "bytes-killed": bytes_killed,
}

if __name__ == "__main__":
    raise SystemExit(main())
