"""What ``submit`` stores, says and refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from reprieve.domain.order import OrderState
from reprieve_cli.stack import Cloud
from tests.builders import POOL
from tests.cli.conftest import Cli, a_pool, sha256

IMAGE = f"ghcr.io/team/train@sha256:{'0' * 64}"
ARN = "arn:aws:secretsmanager:us-east-1:123456789012:secret:hf-AbCdEf"


def test_a_job_is_queued_with_its_ticket_its_order_and_its_code(cli: Cli, code: Path) -> None:
    assert cli("submit", "--code", str(code), "--", "python", "train.py", "--lr", "1") == 0

    job = cli.memory.job_rows[cli.last_line]
    assert job.spec.command == ("python", "train.py", "--lr", "1")
    assert job.pool == POOL
    assert job.name == "train"
    assert job.spec.code == sha256(cli.objects.bodies[f"code/{job.spec.code}.zip"])
    assert cli.memory.order_rows[job.id, 1].state is OrderState.OPEN
    assert job.lease_key in cli.memory.lease_rows
    assert cli.err == ""


def test_the_same_code_is_uploaded_once(cli: Cli, code: Path) -> None:
    for _ in range(2):
        cli("submit", "--code", str(code), "--", "python", "train.py")

    assert cli.objects.uploads == 1
    assert len(cli.memory.job_rows) == 2


def test_every_option_reaches_the_spec(cli: Cli, code: Path) -> None:
    status = cli(
        *("submit", "--name", "My run", "--code", str(code), "--setup", "pip install x && y"),
        *("--env", "A=1", "--env", "B=x=y", "--secret", f"HF_TOKEN={ARN}"),
        *("--save-every", "10m", "--max-restarts", "7"),
        *("--image", IMAGE),
        *("--profile", "a-{step}.pt:9", "--profile", "b-{step}.pt", "--no-helper"),
        *("--json", "--", "sh", "-c", "echo hello"),
    )

    assert status == 0
    document = cli.document
    job = cli.memory.job_rows[document["id"]]
    assert document == {"id": job.id, "name": "My run", "pool": POOL, "code": job.spec.code}
    assert job.spec == replace(
        job.spec,
        command=("sh", "-c", "echo hello"),
        setup=("sh", "-c", "pip install x && y"),
        env={"A": "1", "B": "x=y"},
        secrets={"HF_TOKEN": ARN},
        save_every=timedelta(minutes=10),
        max_restarts=7,
        image=IMAGE,
        profile=("a-{step}.pt:9", "b-{step}.pt"),
        helper=False,
    )


def test_the_options_of_the_command_are_its_own(cli: Cli) -> None:
    cli("submit", "--json", "--", "python", "train.py", "--json", "--name", "99")

    job = cli.memory.job_rows[cli.document["id"]]
    assert job.spec.command[-3:] == ("--json", "--name", "99")


def test_a_job_that_cannot_save_is_warned_of(cli: Cli, code: Path) -> None:
    (code / "train.py").write_text("import torch\n")

    cli("submit", "--code", str(code), "--json", "--", "python", "train.py")
    assert "starts again from the beginning" in cli.err
    assert json.loads(cli.out)["id"]

    (code / "train.py").write_text("import reprieve_job\n")
    cli("submit", "--code", str(code), "--", "python", "train.py")
    assert cli.err == ""


def test_an_image_that_may_change_before_the_job_resumes_is_warned_of(cli: Cli) -> None:
    cli("submit", "--image", "pytorch/pytorch:latest", "--", "x")
    assert "--image pytorch/pytorch:latest may mean another image" in cli.err

    cli("submit", "--image", IMAGE, "--", "x")
    assert cli.err.count("may mean another") == 0


def test_a_script_that_is_not_in_the_code_is_warned_of(cli: Cli, code: Path) -> None:
    cli("submit", "--code", str(code), "--", "python", "trian.py")

    assert "trian.py isn't in --code" in cli.err


def test_a_value_that_looks_like_a_secret_is_warned_of_without_repeating_it(cli: Cli) -> None:
    cli("submit", "--env", "HF_TOKEN=hunter2", "--", "x")

    assert "HF_TOKEN looks like a secret" in cli.err
    assert "hunter2" not in cli.err + cli.out


def test_a_secret_that_is_no_arn_is_refused_and_never_repeated(cli: Cli) -> None:
    assert cli("submit", "--json", "--secret", "HF_TOKEN=hunter2", "--", "x") == 2

    assert "give the ARN" in cli.err
    assert "hunter2" not in cli.err + cli.out
    assert cli.memory.job_rows == {}


def test_a_secret_that_no_host_could_read_is_refused(cli: Cli, code: Path) -> None:
    stack = replace(cli.cloud.stack, outputs={})
    roleless: Cloud = replace(cli.cloud, stack=stack)
    cli.find_cloud = lambda: roleless

    assert cli("submit", "--code", str(code), "--secret", f"A={ARN}", "--", "x") == 2

    assert "stack Reprieve has none: set job_role_arn in its configuration and deploy" in cli.err
    assert cli.memory.job_rows == {}
    assert cli.objects.uploads == 0
    assert cli("submit", "--code", str(code), "--", "python", "train.py") == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no command"),
        (("--",), "no command"),
        (("--", ""), "no command"),
        (("--pool", "nope", "--", "x"), "no pool nope in stack Reprieve: it has small"),
        (("--code", "/nowhere", "--", "x"), "/nowhere doesn't exist"),
        (("--max-restarts", "one", "--", "x"), "'one' is not a valid integer"),
        (("--max-restarts", "-1", "--", "x"), "-1 is not in the range"),
        (("--save-every", "0", "--", "x"), "out of range: 1s to 24h"),
        (("--save-every", "25h", "--", "x"), "out of range: 1s to 24h"),
        (("--save-every", "soon", "--", "x"), "no length of time"),
        (("--save-every", "nan", "--", "x"), "no length of time"),
        (("--env", "A", "--", "x"), "--env takes K=V"),
        (("--env", "A-B=1", "--", "x"), "can't name a variable"),
        (("--env", "REPRIEVE_STEP=1", "--", "x"), "set by the host"),
        (("--env", "A=1", "--secret", f"A={ARN}", "--", "x"), "by --env and by --secret"),
        (("--env", f"A={'x' * 40_000}", "--", "x"), "the limit is 32,768"),
        (("--name", " ", "--", "x"), "1 to 64 printable"),
        (("--name", "a\nb", "--", "x"), "1 to 64 printable"),
        (("--profile", "keras", "--", "x"), "--profile 'keras' is neither one of hf, lightning,"),
        (("--image", "--privileged", "--", "x"), "'--privileged' names no image"),
        (("--nope", "--", "x"), "No such option"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_stored(
    cli: Cli, arguments: tuple[str, ...], said: str
) -> None:
    assert cli("submit", *arguments) == 2

    assert said in cli.err
    assert len(cli.err.splitlines()) == 1 + cli.err.startswith("warning")
    assert cli.out == ""
    assert cli.memory.job_rows == {}
    assert cli.objects.uploads == 0


def test_bad_input_with_json_is_one_document(cli: Cli) -> None:
    assert cli("submit", "--json", "--max-restarts", "999", "--", "x") == 2

    assert cli.document["error"]["exit_code"] == 2


def test_several_pools_must_be_chosen_from(cli: Cli) -> None:
    stack = replace(cli.cloud.stack, pools={"a": a_pool("a"), "b": a_pool("b")})
    several: Cloud = replace(cli.cloud, stack=stack)
    cli.find_cloud = lambda: several

    assert cli("submit", "--", "x") == 2
    assert "choose one: --pool a, b" in cli.err

    assert cli("submit", "--pool", "b", "--", "x") == 0
