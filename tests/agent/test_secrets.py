"""A job's secrets: read in its role, handed over in memory, never written down."""

from __future__ import annotations

import os
import stat
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from reprieve.domain.lease import Cause, LeaseKey, Outcome
from reprieve.domain.spec import JobSpec
from reprieve.ports.checkpoints import AbortedError
from reprieve_agent import events as on
from reprieve_agent import handover, keeper, processes, secret_values
from reprieve_agent.child_supervisor import ChildSupervisor
from reprieve_agent.clock import boot_seconds
from reprieve_agent.code import SetupError
from reprieve_agent.credentials import JobRole, RoleSession
from reprieve_agent.files import read_json
from reprieve_agent.places import Places
from reprieve_agent.secret_values import NO_ROLE, Secrets, fetch
from reprieve_agent.supervisor import JobStart, TooLateError, begun, marker
from tests.agent.harness import own_token, wait_until
from tests.agent.role_account import (
    HOST_KEY,
    HOST_SECRET,
    PARAMETER,
    PARAMETER_VALUE,
    ROLE,
    SECRET,
    SECRET_VALUE,
    RoleAccount,
    role_account,
)
from tests.agent.test_machine import released, starting
from tests.builders import a_key

NEVER = threading.Event()


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[RoleAccount]:
    with role_account() as account:
        monkeypatch.setenv("AWS_ENDPOINT_URL", account.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", HOST_KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", HOST_SECRET)
        yield account


@pytest.fixture
def role(account: RoleAccount) -> Iterator[JobRole]:
    role = JobRole(ROLE, "us-east-1")
    yield role
    if role._client:
        role._client.close()


@pytest.fixture
def session(role: JobRole) -> RoleSession:
    return RoleSession(ROLE, "job-1", role._sts)


@pytest.fixture
def key() -> LeaseKey:
    return a_key(token=own_token())


@pytest.fixture
def places(key: LeaseKey, tmp_path: Path) -> Iterator[Places]:
    places = Places.of(key, state_dir=tmp_path / "state", run_dir=tmp_path / "run")
    places.make(None)
    yield places
    processes.kill_job(None, marker(key), patience_seconds=10)


# Reading them -----------------------------------------------------------------------------


def test_both_kinds_of_secret_are_read_in_the_jobs_role_and_never_as_the_host(
    account: RoleAccount, session: RoleSession
) -> None:
    found = fetch({"HF_TOKEN": SECRET, "WANDB": PARAMETER}, session, NEVER)

    assert found == {"HF_TOKEN": SECRET_VALUE, "WANDB": PARAMETER_VALUE}
    (secret,), (parameter,) = account.called("GetSecretValue"), account.called("GetParameter")
    assert {secret.access_key, parameter.access_key} == {"ASIAJOB1"}
    assert {secret.session_token, parameter.session_token} == {"role-session-1"}
    assert parameter.asked == {"Name": PARAMETER, "WithDecryption": True}
    assert len(account.called("AssumeRole")) == 1


def test_a_secret_is_read_in_its_own_region(account: RoleAccount, session: RoleSession) -> None:
    elsewhere = SECRET.replace("us-east-1", "eu-central-1")
    account.values[elsewhere] = {"SecretString": "x"}

    fetch({"A": elsewhere}, session, NEVER)

    assert account.called("GetSecretValue")[0].region == "eu-central-1"


@pytest.mark.parametrize(
    ("operation", "code", "arn"),
    [
        ("GetSecretValue", "AccessDeniedException", SECRET),
        ("GetParameter", "ParameterNotFound", PARAMETER),
        ("AssumeRole", "AccessDenied", SECRET),
    ],
)
def test_a_secret_that_cannot_be_had_is_named_with_the_call_and_its_code(
    account: RoleAccount, session: RoleSession, operation: str, code: str, arn: str
) -> None:
    account.refusals[operation] = [(code, 400)]

    with pytest.raises(SetupError) as refused:
        fetch({"HF_TOKEN": arn}, session, NEVER)

    assert str(refused.value) == f"secret HF_TOKEN: {operation}: {code}"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"SecretBinary": "aHVudGVyMg=="}, "secret A: its value is binary"),
        ({"SecretString": "hunter2\0"}, "secret A: its value holds a NUL byte"),
    ],
)
def test_a_value_that_no_variable_can_hold_is_refused_and_not_repeated(
    account: RoleAccount, session: RoleSession, value: dict[str, str], said: str
) -> None:
    account.values[SECRET] = value

    with pytest.raises(SetupError, match=said) as refused:
        fetch({"A": SECRET}, session, NEVER)

    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("arn", ["hunter2", "arn:aws:s3:::hunter2", "a:b:hunter2:c:d:e"])
def test_what_is_no_arn_of_a_secret_may_be_one_and_is_not_repeated(
    session: RoleSession, arn: str
) -> None:
    with pytest.raises(SetupError, match="secret A: not the ARN of") as refused:
        fetch({"A": arn}, session, NEVER)

    assert "hunter2" not in str(refused.value)


def test_a_failure_that_may_pass_is_tried_again(
    account: RoleAccount,
    session: RoleSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(secret_values, "FIRST_PAUSE_SECONDS", 0.01)
    account.refusals["GetSecretValue"] = [("InternalServiceError", 500)] * 2  # botocore tries twice

    assert fetch({"A": SECRET}, session, NEVER) == {"A": SECRET_VALUE}

    (record,) = caplog.records
    assert record.message == "secret will be asked for again"
    assert vars(record)["variable"] == "A"


def test_a_failure_that_does_not_pass_ends_the_attempt_after_a_while(
    account: RoleAccount, session: RoleSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_values, "PATIENCE_SECONDS", 0.0)
    account.refusals["GetSecretValue"] = [("InternalServiceError", 500)] * 2

    with pytest.raises(SetupError, match="secret A: GetSecretValue: InternalServiceError"):
        fetch({"A": SECRET}, session, NEVER)


def test_an_attempt_that_is_called_off_waits_for_no_secret(session: RoleSession) -> None:
    stop = threading.Event()
    stop.set()

    with pytest.raises(AbortedError):
        fetch({"A": SECRET}, session, stop)


def test_an_attempt_reads_its_secrets_once_and_forgets_them_at_its_end(
    account: RoleAccount, role: JobRole, places: Places, key: LeaseKey
) -> None:
    secrets, spec = Secrets(role), JobSpec(("x",), secrets={"A": SECRET})

    for _ in range(2):
        assert secrets.of(key, spec, places, NEVER) == {"A": SECRET_VALUE}
    assert len(account.called("GetSecretValue")) == 1
    assert SECRET_VALUE not in repr(secrets)

    secrets.forget(key)
    assert secrets.of(key, spec, places, NEVER) == {"A": SECRET_VALUE}
    assert len(account.called("GetSecretValue")) == 2
    role.close(key)


def test_without_a_role_it_says_what_to_configure(places: Places, key: LeaseKey) -> None:
    with pytest.raises(SetupError) as refused:
        Secrets(None).of(key, JobSpec(("x",), secrets={"A": SECRET}), places, NEVER)

    assert str(refused.value) == NO_ROLE
    assert "job_role_arn" in NO_ROLE
    assert Secrets(None).of(key, JobSpec(("x",)), places, NEVER) == {}


def test_a_refusal_just_before_the_start_fails_the_attempt_as_one_before() -> None:
    play = starting()

    play.tell(on.PreparationFailed(a_key(), Cause.SETUP_FAILED, "secret A: AssumeRole: x"))

    assert released(play.done) == (Outcome.FAILED, Cause.SETUP_FAILED)


# Handing them over ------------------------------------------------------------------------


@dataclass
class Reader(threading.Thread):
    """A keeper's end of the pipe."""

    pipe: Path
    received: dict[str, str] | None = None

    def __post_init__(self) -> None:
        super().__init__()
        self.start()

    def run(self) -> None:
        self.received = keeper.receive(str(self.pipe), [])

    __hash__ = threading.Thread.__hash__


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    handover.lay(tmp_path / "secrets")
    return tmp_path / "secrets"


def given(pipe: Path, values: dict[str, str]) -> None:
    wait_until(lambda: handover.give(pipe, values), "handed over")


def test_only_the_agents_user_can_open_the_pipe_and_nothing_lies_in_it(pipe: Path) -> None:
    status = pipe.stat()

    assert stat.S_ISFIFO(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_size == 0


def test_while_nobody_reads_nothing_is_given(pipe: Path) -> None:
    assert not handover.give(pipe, {"A": "x"})
    assert not handover.give(pipe.with_name("none"), {"A": "x"})


@pytest.mark.parametrize("value", ["x", "ä\n€\n", "y" * 500_000])
def test_what_is_given_is_received(pipe: Path, value: str) -> None:
    reader = Reader(pipe)

    given(pipe, {"A": value})

    reader.join(20)
    assert reader.received == {"A": value}


@pytest.mark.parametrize("half", [b"\n", b'\n{"A": "ha', b'{"A": "half"}'])
def test_what_a_dying_agent_left_half_written_does_no_harm(pipe: Path, half: bytes) -> None:
    reader = Reader(pipe)
    descriptor = _opened(pipe)
    os.write(descriptor, half)
    os.close(descriptor)

    given(pipe, {"A": "whole"})

    reader.join(20)
    assert reader.received == {"A": "whole"}


def _opened(pipe: Path) -> int:
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            time.sleep(0.005)


def test_a_keeper_waits_only_so_long(pipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "HANDOVER_SECONDS", 0.05)

    assert keeper.receive(str(pipe), []) is None


# The keeper and its supervisor ------------------------------------------------------------


TELL = """
    import os
    print(os.environ["A"], os.environ["REPRIEVE_TOKEN"] != "forged", flush=True)
"""


def a_start(key: LeaseKey, places: Places, **secrets: str) -> JobStart:
    return JobStart(
        key=key,
        places=places,
        argv=(sys.executable, "-c", textwrap.dedent(TELL)),
        env={"PATH": os.defpath, "REPRIEVE_TOKEN": key.token},
        cwd=places.work,
        account=None,
        secrets=secrets,
    )


@pytest.fixture
def supervising(key: LeaseKey, places: Places) -> Iterator[ChildSupervisor]:
    supervising = ChildSupervisor()
    yield supervising
    supervising.kill(key, places)
    for child in supervising._children.values():
        child.wait(10)


def soon() -> float:
    return boot_seconds() + 60


def test_a_job_has_its_secrets_and_no_file_has_them(
    supervising: ChildSupervisor, key: LeaseKey, places: Places
) -> None:
    start = a_start(key, places, A="hunter2", REPRIEVE_TOKEN="forged")

    process = supervising.launch(start, not_after=soon())

    assert supervising.wait(key, places, process).exit_code == 0
    assert places.log.read_text() == "hunter2 True\n"
    places.log.unlink()
    _nowhere(places.private, "hunter2")
    assert "hunter2" not in repr(start)


def _nowhere(folder: Path, word: str) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if word.encode() in path.read_bytes()]


def _die(*_: object, **__: object) -> None:
    raise InterruptedError


@pytest.fixture
def waiting(
    supervising: ChildSupervisor,
    key: LeaseKey,
    places: Places,
    monkeypatch: pytest.MonkeyPatch,
) -> int:
    """Return the keeper that an agent left when it died before it handed the secrets over."""
    with monkeypatch.context() as patched:
        patched.setattr(ChildSupervisor, "_came_up", _die)
        with pytest.raises(InterruptedError):
            supervising.launch(a_start(key, places, A="hunter2"), not_after=soon())
    wait_until(lambda: read_json(places.process), "the keeper waits")
    process = read_json(places.process)
    assert process
    assert not begun(places)
    return int(process["keeper"])


def test_a_restarted_agent_hands_over_to_the_keeper_that_waits(
    waiting: int, supervising: ChildSupervisor, key: LeaseKey, places: Places
) -> None:
    process = ChildSupervisor().launch(a_start(key, places, A="again"), not_after=soon())

    assert process.keeper == waiting
    assert begun(places)
    supervising.wait(key, places, process)
    assert places.log.read_text() == "again True\n"


def test_a_lease_that_is_too_old_starts_no_job_that_waits(
    waiting: int, supervising: ChildSupervisor, key: LeaseKey, places: Places
) -> None:
    start = a_start(key, places, A="late")

    with pytest.raises(TooLateError):
        supervising.launch(start, not_after=boot_seconds())

    assert not begun(places)
    assert supervising.launch(start, not_after=soon()).keeper == waiting


def test_a_kill_ends_a_keeper_that_waits(
    waiting: int, supervising: ChildSupervisor, key: LeaseKey, places: Places
) -> None:
    assert supervising.kill(key, places)

    wait_until(lambda: processes.start_ticks(waiting) is None, "ended")
    written = read_json(places.exit)
    assert written
    assert written["detail"] == "its secrets were not handed over"
    assert not places.log.exists()
