"""
A job whose result tells whether any step was lost or doubled: a chain of hashes.

It stops at gates that a test has armed (``<name>.wait`` in --gates), says ``<name>.here`` and goes
on at ``<name>.go``, so that a test can act between any two of its moves.
"""

import argparse
import atexit
import hashlib
import multiprocessing
import sys
import time
from pathlib import Path

import reprieve_job


class Gates:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, name: str) -> None:
        if not (self._directory / f"{name}.wait").exists():
            return
        (self._directory / f"{name}.here").touch()
        while not (self._directory / f"{name}.go").exists():
            time.sleep(0.002)


def work(tasks: "multiprocessing.Queue[int | None]", results: "multiprocessing.Queue[int]") -> None:
    """Be a data worker: hand each step's number back."""
    for task in iter(tasks.get, None):
        results.put(task)


class DataWorkers:
    """Child processes that feed the loop, as a DataLoader has them."""

    def __init__(self, method: str) -> None:
        multiprocessing.set_start_method(method)
        self._tasks: multiprocessing.Queue[int | None] = multiprocessing.Queue()
        self._results: multiprocessing.Queue[int] = multiprocessing.Queue()
        self._workers = [
            multiprocessing.Process(target=work, args=(self._tasks, self._results))
            for _ in range(2)
        ]
        for worker in self._workers:
            worker.start()

    def fetch(self, step: int) -> int:
        self._tasks.put(step)
        return self._results.get(timeout=30)

    def stop(self) -> None:
        for _ in self._workers:
            self._tasks.put(None)
        for worker in self._workers:
            worker.join(timeout=30)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--step-seconds", type=float, default=0.0)
    parser.add_argument("--save-at", type=int, nargs="*", default=[])
    parser.add_argument("--save-again", action="store_true", help="save each saved step twice")
    parser.add_argument("--gates", type=Path, default=Path("gates"))
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"))
    parser.add_argument("--workers", choices=["fork", "spawn", "forkserver"])
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    gate = Gates(options.gates)
    atexit.register(gate, "late-exit")  # registered first, so it runs last
    gate("connect")
    job = reprieve_job.connect(total_steps=options.steps, checkpoint_dir=options.checkpoints)
    workers = DataWorkers(options.workers) if options.workers else None
    digest = b"start"
    if job.resume_dir is not None:
        digest = (job.resume_dir / "digest").read_bytes()
    sys.stdout.write(f"first step {(job.resume_step or 0) + 1}\n")

    def save(step: int) -> None:
        with job.checkpoint(step) as folder:
            (folder / "digest").write_bytes(digest)
            gate(f"save-{step}")
            (folder / "ballast").write_bytes(bytes(4096))

    for step in range((job.resume_step or 0) + 1, options.steps + 1):
        gate(f"step-{step}")
        fetched = workers.fetch(step) if workers else step
        digest = hashlib.sha256(digest + str(fetched).encode()).digest()
        time.sleep(options.step_seconds)
        job.step(step)
        if step in options.save_at or job.should_save():
            save(step)
            gate(f"saved-{step}")
            if options.save_again:
                job.step(step)
                save(step)
        if job.should_exit():
            if workers:
                workers.stop()
            raise SystemExit(reprieve_job.REQUEUE)
    if workers:
        workers.stop()
    gate("done")
    job.done(options.steps)
    sys.stdout.write(f"digest {digest.hex()}\n")


if __name__ == "__main__":
    main()
