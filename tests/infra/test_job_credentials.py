"""Jobs get credentials of their own role, by a file that root writes and only jobs read."""

from __future__ import annotations

import grp
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from infra.host.job_credentials import store
from tests.infra.synthesised import ROOT, Template

ROLE = "arn:aws:iam::123456789012:role/training-data"
SCRIPT = ROOT / "infra" / "host" / "job_credentials.py"

ANSWER = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
<Credentials><AccessKeyId>ASIAJOB</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>
<SessionToken>session</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>
</AssumeRoleResult></AssumeRoleResponse>"""


JOB = """
import boto3
found = boto3.Session().get_credentials()
print(found.access_key, found.token, found.method)
"""


class Sts(ThreadingHTTPServer):
    """Answers ``AssumeRole`` and keeps what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.asked: list[dict[str, list[str]]] = []
        self.status = 200


class Answering(BaseHTTPRequestHandler):
    server: Sts

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append(parse_qs(body.decode()))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(ANSWER.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def sts() -> Iterator[Sts]:
    with Sts() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _group() -> str:
    return grp.getgrgid(os.getgid()).gr_name


def _run(sts: Sts, target: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(target), _group()],
        env={
            "PATH": os.environ["PATH"],
            "AWS_ACCESS_KEY_ID": "host",
            "AWS_SECRET_ACCESS_KEY": "host",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "1",
            "AWS_ENDPOINT_URL_STS": f"http://127.0.0.1:{sts.server_port}",
            "JOB_ROLE_ARN": ROLE,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_file_is_what_an_sdk_of_a_job_reads(sts: Sts, tmp_path: Path) -> None:
    target = tmp_path / "aws.json"
    done = _run(sts, target)
    assert done.returncode == 0, done.stderr

    config = tmp_path / "config"
    config.write_text(f"[default]\ncredential_process = /bin/cat {target}\n")
    job = subprocess.run(
        [
            sys.executable,
            "-c",
            JOB,
        ],
        env={"PATH": os.environ["PATH"], "AWS_CONFIG_FILE": str(config)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert job.stdout.split() == ["ASIAJOB", "session", "custom-process"]
    (asked,) = sts.asked
    assert asked["RoleArn"] == [ROLE]
    assert asked["DurationSeconds"] == ["3600"]


def test_only_jobs_may_read_it(sts: Sts, tmp_path: Path) -> None:
    target = tmp_path / "aws.json"
    _run(sts, target)

    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert target.stat().st_gid == os.getgid()


def test_a_refusal_leaves_the_last_credentials_in_place(sts: Sts, tmp_path: Path) -> None:
    target = tmp_path / "aws.json"
    target.write_text("as before")
    sts.status = 403

    done = _run(sts, target)

    assert done.returncode != 0
    assert target.read_text() == "as before"
    assert list(tmp_path.iterdir()) == [target]


def test_a_draft_that_a_dead_run_left_is_no_obstacle(tmp_path: Path) -> None:
    target = tmp_path / "aws.json"
    target.with_suffix(".new").write_text("half")

    store("whole", target, group_id=os.getgid())

    assert target.read_text() == "whole"


def test_a_host_is_told_the_role_that_was_configured(
    template: Template, own_network: Template
) -> None:
    for one, line in ((template, False), (own_network, True)):
        for launch in one.of("AWS::EC2::LaunchTemplate").values():
            script = one.text(launch["LaunchTemplateData"]["UserData"])
            assert (f"\nJOB_ROLE_ARN={ROLE}\n" in script) is line


@pytest.mark.parametrize(("env", "expected"), [(f"JOB_ROLE_ARN={ROLE}\n", 0), ("STACK=x\n", 1)])
def test_a_host_sets_it_up_only_then(tmp_path: Path, env: str, expected: int) -> None:
    path = tmp_path / "agent.env"
    path.write_text(env)
    script = ROOT / "infra" / "host" / "install.sh"

    done = subprocess.run(
        ["bash", "-c", f"source {script}; has_job_role"],
        env={"PATH": os.environ["PATH"], "ENV_FILE": str(path)},
        check=False,
    )

    assert done.returncode == expected
