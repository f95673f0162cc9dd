"""
A job whose every step reaches outside: it bills the step in a ledger.

``--keyed`` gives each entry the name of its job and step, so that a step that runs twice is
billed once; without it the same step is billed again.
"""

import argparse
import os
import sqlite3
import sys
from pathlib import Path

import reprieve_job

KEYED = (
    "INSERT INTO bills (job, step, amount) VALUES (?, ?, ?)"
    " ON CONFLICT (job, step) DO UPDATE SET amount = excluded.amount"
)
PLAIN = "INSERT INTO bills (job, step, amount) VALUES (?, ?, ?)"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--keyed", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--save-every", type=int, default=8)
    parser.add_argument("--die-at", type=int, help="as a host does that is lost without notice")
    options = parser.parse_args()
    unique = ", UNIQUE (job, step)" if options.keyed else ""
    ledger = sqlite3.connect(options.ledger, isolation_level=None)
    ledger.execute(
        f"CREATE TABLE IF NOT EXISTS bills (job TEXT, step INTEGER, amount INTEGER{unique})"
    )
    job = reprieve_job.connect(total_steps=options.steps)
    balance = 0
    if job.resume_dir is not None:
        balance = int((job.resume_dir / "balance").read_text())
    for step in range((job.resume_step or 0) + 1, options.steps + 1):
        amount = step * step
        balance += amount
        statement = KEYED if options.keyed else PLAIN
        ledger.execute(statement, (os.environ["REPRIEVE_JOB_ID"], step, amount))
        sys.stdout.write(f"billed {step}\n")
        sys.stdout.flush()
        job.step(step)
        if step == options.die_at:
            os.kill(os.getpid(), 9)
        if step % options.save_every == 0 or job.should_save():
            with job.checkpoint(step) as folder:
                (folder / "balance").write_text(str(balance))
    job.done(options.steps)
    sys.stdout.write(f"balance {balance}\n")


if __name__ == "__main__":
    main()
