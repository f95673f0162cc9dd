"""
A stand-in for the agent: it does what hosts are tested with, and writes down what it sees.

It answers to files in its state directory: ``leave`` ends it with 0, ``crash`` with 3,
``call`` makes it ask AWS who it is.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

STATE = Path(os.environ["STATE_DIR"])
METADATA = os.environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"]
SLEEPER = "import time; time.sleep(600)"


def token() -> str:
    request = urllib.request.Request(
        f"{METADATA}latest/api/token",
        method="PUT",
        headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"},
    )
    with urllib.request.urlopen(request) as answer:
        return str(answer.read().decode())


def metadata(path: str, session: str) -> str | None:
    request = urllib.request.Request(
        f"{METADATA}latest/meta-data/{path}", headers={"X-aws-ec2-metadata-token": session}
    )
    try:
        with urllib.request.urlopen(request, timeout=2) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        error.close()
        return None
    except OSError:
        return None


def write(name: str, content: object) -> None:
    fresh = STATE / f".{name}"
    fresh.write_text(json.dumps(content))
    fresh.replace(STATE / name)


def call_aws() -> None:
    import boto3  # noqa: PLC0415  # slow, and most tests don't need it

    write("identity.json", {"arn": boto3.client("sts").get_caller_identity()["Arn"]})


def stop(_signal: int, _frame: object) -> None:
    write("stopped.json", {"at": time.time()})
    sys.exit(7)


def main() -> None:
    signal.signal(signal.SIGTERM, stop)
    session = token()
    instance_id = metadata("instance-id", session)
    escaped = subprocess.Popen([sys.executable, "-c", SLEEPER], start_new_session=True)
    beats = 0
    if "NEVER_READY" not in os.environ:
        (Path(os.environ["RUN_DIR"]) / "ready").touch()
    write("agent.json", {"env": dict(os.environ), "id": instance_id, "job": escaped.pid})
    while True:
        beats += 1
        write("beat.json", {"beats": beats, "boot": Path(os.environ["BOOT_ID_FILE"]).read_text()})
        for path in ("spot/instance-action", "events/recommendations/rebalance"):
            seen = metadata(path, session)
            if seen is not None:
                write(path.replace("/", "-") + ".json", json.loads(seen))
        if (STATE / "call").exists():
            (STATE / "call").unlink()
            call_aws()
        for name, code in (("leave", 0), ("crash", 3)):
            if (STATE / name).exists():
                (STATE / name).unlink()
                sys.exit(code)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
