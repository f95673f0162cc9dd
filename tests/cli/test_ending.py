"""How a command ends, seen from outside: exit status, streams, one line and no traceback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from reprieve.domain.errors import StaleError, UnknownOutcomeError
from reprieve_cli.errors import AnswerIsNoError, BadInputError, CliError, CloudUnreachableError
from reprieve_cli.failures import translate
from tests.cli.conftest import Cli

REPRIEVE = [sys.executable, "-m", "reprieve_cli"]


def environment(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return kept | {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.devnull} | changes


def reprieve(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*REPRIEVE, *arguments],
        capture_output=True,
        text=True,
        env=environment(**changes),
        timeout=60,
        check=False,
    )


@contextmanager
def a_port_where_nobody_listens() -> Iterator[int]:
    """Yield a port that stays taken, so that nobody else can start to listen there."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def test_no_region_is_bad_input() -> None:
    ended = reprieve("queue", AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x")

    assert ended.returncode == 2
    assert ended.stderr == "error: no region: set AWS_REGION to the region of the stack\n"
    assert ended.stdout == ""


def test_missing_credentials_say_how_to_sign_in() -> None:
    ended = reprieve("queue", AWS_REGION="us-east-1", AWS_SHARED_CREDENTIALS_FILE=os.devnull)

    assert ended.returncode == 3
    assert ended.stderr.startswith("error: no usable AWS credentials")
    assert "aws sso login" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_profile_that_does_not_exist_is_bad_input() -> None:
    ended = reprieve("queue", AWS_REGION="us-east-1", AWS_PROFILE="nope")

    assert ended.returncode == 2
    assert "nope" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_an_embedded_cloud_that_is_not_running_is_unreachable() -> None:
    with a_port_where_nobody_listens() as port:
        ended = reprieve(
            "queue",
            "--json",
            AWS_REGION="us-east-1",
            AWS_ACCESS_KEY_ID="test",
            AWS_SECRET_ACCESS_KEY="test",
            AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
        )

    assert ended.returncode == 3
    assert f"isn't running at http://127.0.0.1:{port}" in ended.stderr
    assert json.loads(ended.stdout)["error"]["exit_code"] == 3


def test_doctor_ends_like_any_command_when_nothing_answers() -> None:
    with a_port_where_nobody_listens() as port:
        ended = reprieve(
            "doctor",
            AWS_REGION="us-east-1",
            AWS_ACCESS_KEY_ID="test",
            AWS_SECRET_ACCESS_KEY="test",
            AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
        )

    assert ended.returncode == 3
    assert ended.stdout.startswith("ok    python: 3.")
    assert ended.stdout.splitlines()[-1].startswith("no: credentials: the embedded cloud isn't")


def test_help_is_an_answer_and_no_command_is_not() -> None:
    assert reprieve("--help").returncode == 0
    ended = reprieve()
    assert (ended.returncode, ended.stderr) == (2, "")
    assert "submit" in ended.stdout
    assert reprieve("nope").returncode == 2


def test_a_reader_that_leaves_is_no_trouble(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*REPRIEVE, "submit", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()

    assert process.wait(30) in {0, 1}
    assert err == b""


def an_answer(code: str, status: int = 400) -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}},  # type: ignore[typeddict-item]
        "GetItem",
    )


def because(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (an_answer("ExpiredToken"), CloudUnreachableError, "refuses the credentials"),
        (an_answer("AccessDeniedException"), AnswerIsNoError, "not allowed to call GetItem"),
        (an_answer("ThrottlingException"), CloudUnreachableError, "try again later"),
        (an_answer("InternalError", 500), CloudUnreachableError, "try again later"),
        (an_answer("ResourceNotFoundException"), AnswerIsNoError, "GetItem is refused"),
        (EndpointConnectionError(endpoint_url="x"), CloudUnreachableError, "can't be reached"),
        (StaleError("somebody wrote first"), AnswerIsNoError, "somebody wrote first"),
        (UnknownOutcomeError("no answer"), CloudUnreachableError, "try again"),
        (
            because(UnknownOutcomeError("read"), EndpointConnectionError(endpoint_url="x")),
            CloudUnreachableError,
            "can't be reached",
        ),
        (BadInputError("as it is"), BadInputError, "as it is"),
    ],
)
def test_what_the_cloud_says_becomes_a_line_and_a_status(
    error: Exception, kind: type[CliError], said: str
) -> None:
    told = translate(error)

    assert type(told) is kind
    assert said in str(told)


def test_a_defect_is_one_line_too_and_shows_where_on_request(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks() -> None:
        raise ZeroDivisionError("by zero")

    cli.find_cloud = breaks  # type: ignore[assignment]

    assert cli("queue") == 1
    assert (
        cli.err == "error: unexpected ZeroDivisionError: by zero (REPRIEVE_DEBUG=1 shows where)\n"
    )

    monkeypatch.setenv("REPRIEVE_DEBUG", "1")
    cli("queue")
    assert "Traceback" in cli.err
