"""
A training loop of the standard library alone: it counts, and its log shows each step it made.

In the attempts before ``--attempts`` it goes on until it is told to leave, so that a scenario has
all the time it needs; from then on it makes ``--steps`` more and is done, or crashes.
"""

import argparse
import json
import signal
import sys
import time
from pathlib import Path

import reprieve_job


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=1, help="the attempt that may end (1)")
    parser.add_argument("--steps", type=int, default=20, help="made in the last attempt (20)")
    parser.add_argument("--step-seconds", type=float, default=0.05, help="per step (0.05)")
    parser.add_argument("--save-every", type=int, default=0, help="steps; 0: when asked to (0)")
    parser.add_argument("--saves-until", type=int, default=99, help="the last attempt with these")
    parser.add_argument("--save-to", type=int, default=sys.maxsize, help="the last step with these")
    parser.add_argument("--save-seconds", type=float, default=0.0, help="that a save takes (0)")
    parser.add_argument("--stubborn", action="store_true", help="hear nobody, SIGTERM neither")
    parser.add_argument("--crash", action="store_true", help="end with code 1 instead of 0")
    return parser.parse_args()


class Count:
    """The state: which steps were made, in which attempt."""

    def __init__(self, resume_dir: "Path | None") -> None:
        self.log: list[dict[str, int]] = []
        if resume_dir is not None:
            lines = (resume_dir / "steps.jsonl").read_text(encoding="utf-8").splitlines()
            self.log = [json.loads(line) for line in lines]

    @property
    def step(self) -> int:
        return len(self.log)

    def save(self, folder: Path) -> None:
        lines = "".join(json.dumps(line) + "\n" for line in self.log)
        (folder / "steps.jsonl").write_text(lines, encoding="utf-8")


def main() -> None:
    options = parse_options()
    job = reprieve_job.connect()
    count = Count(job.resume_dir)
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    may_end = job.attempt >= options.attempts
    last = count.step + options.steps if may_end else sys.maxsize
    periodic = options.save_every if job.attempt <= options.saves_until else 0
    while count.step < last:
        time.sleep(options.step_seconds)
        count.log.append({"attempt": job.attempt, "step": count.step + 1})
        job.step(count.step)
        due = periodic and count.step % periodic == 0 and count.step <= options.save_to
        ends = count.step == last and not options.crash
        asked = not options.stubborn and job.should_save()
        if due or ends or asked:
            with job.checkpoint(count.step) as folder:
                count.save(folder)
                time.sleep(options.save_seconds)
        if job.should_exit() and count.step != last and not options.stubborn:
            raise SystemExit(reprieve_job.REQUEUE)
    if options.crash:
        raise SystemExit(f"crashed at step {count.step}")
    job.done(count.step)


if __name__ == "__main__":
    main()
