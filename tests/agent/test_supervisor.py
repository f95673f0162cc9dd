"""What each supervisor does in its own way; what all of them promise is in the contract."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from reprieve_agent import container_supervisor, processes
from reprieve_agent.clock import boot_seconds
from reprieve_agent.container_supervisor import ContainerSupervisor, contained
from reprieve_agent.places import Account, Places
from reprieve_agent.supervisor import LaunchError
from reprieve_agent.systemd_supervisor import unit
from tests.agent.kept import IMAGE, Kept, docker
from tests.agent.waiting import own_token, wait_until
from tests.builders import a_key


def test_a_process_is_signalled_only_if_it_is_the_very_one() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        ticks = processes.start_ticks(other.pid)
        assert ticks

        assert not processes.send(other.pid, ticks - 1, signal.SIGTERM)
        assert not processes.send(other.pid, None, signal.SIGTERM)
        assert other.poll() is None
        assert processes.send(other.pid, ticks, signal.SIGTERM)
        assert other.wait(10) == -signal.SIGTERM
        assert not processes.send(other.pid, ticks, signal.SIGTERM)


# systemd, by what is asked of it: tests/systemd has it for real -------------------------------


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put commands in PATH that write their arguments down and run what they are given."""
    calls, commands = tmp_path / "calls", tmp_path / "bin"
    commands.mkdir()
    say = f'#!/bin/sh\necho "$0 $*" >>{calls}\n'
    run = 'while [ "$1" != -- ]; do shift; done\nshift\n"$@" >/dev/null 2>&1 &\n'
    (commands / "systemd-run").write_text(say + run)
    (commands / "systemctl").write_text(say)
    for command in commands.iterdir():
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    return calls


@pytest.fixture
def kept(tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    monkeypatch.setattr("reprieve_agent.systemd_supervisor.ANSWER_SECONDS", 60.0)
    kept = Kept("systemd", tmp_path, a_key("job-1", token=own_token()))
    yield kept
    kept.clean()


def test_with_systemd_the_same_keeper_runs_in_a_unit_of_its_own(kept: Kept, calls: Path) -> None:
    process = kept.launch("/bin/sh", "-c", "echo up; exec sleep 600")
    kept.says("up")

    kept.kill()

    assert kept.wait(process).exit_code == -9
    asked = calls.read_text()
    assert f"--unit={unit(kept.places)}" in asked
    for wanted in (
        "KillMode=mixed",
        "Type=exec",
        "SuccessExitStatus=75",
        "After=reprieve-agent.service",
        "RemainAfterExit=yes",
        "OOMPolicy=continue",
        "IPAddressDeny=169.254.169.254/32",
    ):
        assert f"--property={wanted}" in asked
    assert f"kill --signal=KILL {unit(kept.places)}" in asked
    assert f"reset-failed {unit(kept.places)}" in asked


def test_a_unit_that_systemd_refuses_is_no_start(kept: Kept, calls: Path) -> None:
    command = calls.parent / "bin" / "systemd-run"
    command.write_text("#!/bin/sh\necho 'Unit was already loaded' >&2\nexit 1\n")

    with pytest.raises(LaunchError, match="already loaded"):
        kept.launch("/bin/true")


def test_a_unit_s_name_is_safe_whatever_the_job_is_called(tmp_path: Path) -> None:
    key = a_key("../../etc/a job%", attempt=3)

    places = Places.of(key, state_dir=tmp_path, run_dir=tmp_path / "run")

    assert places.private.parent == tmp_path / "attempts"
    assert unit(places) == "reprieve-job-.._2F.._2Fetc_2Fa_20job_25-000003.service"


# The host shuts down: the unit is stopped before the agent ------------------------------------

DIES_OF_SIGTERM = "trap 'exit 75' USR2; echo up; while :; do sleep 0.05; done"


def agent(path: Path, answers: Sequence[bytes]) -> list[bytes]:
    """Listen where the agent does, and give those answers; return what it was told."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    told: list[bytes] = []

    def serve() -> None:
        with listener:
            for answer in answers:
                caller, _ = listener.accept()
                with caller:
                    told.append(caller.recv(1000))
                    caller.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return told


def stop_unit(kept: Kept) -> int:
    """Stop it as systemd does: SIGTERM to its main process. Return the job's pid."""
    process = kept.launch("/bin/sh", "-c", DIES_OF_SIGTERM)
    kept.says("up")
    processes.send(process.keeper, process.keeper_ticks, signal.SIGTERM)
    assert process.pid
    return process.pid


def test_a_unit_that_is_stopped_has_the_agent_ask_its_job_and_sends_no_sigterm(kept: Kept) -> None:
    told = agent(kept.folder / "agent.sock", [b'{"v": 1, "result": "stopping"}\n'])
    pid = stop_unit(kept)
    wait_until(lambda: told, "the agent heard")

    os.kill(pid, signal.SIGUSR2)  # what its request to save leads to
    how = kept.wait(kept.launch("/bin/true"))

    assert json.loads(told[0]) == {"op": "stop"}
    assert (how.exit_code, how.stopped) == (75, True)


@pytest.mark.parametrize("answer", [b'{"v": 1, "result": "refused"}\n', b"", b"[]\n"])
def test_sigterm_comes_at_once_if_the_agent_wont(kept: Kept, answer: bytes) -> None:
    agent(kept.folder / "agent.sock", [answer])
    stop_unit(kept)

    assert kept.wait(kept.launch("/bin/true")).exit_code == -signal.SIGTERM


def test_sigterm_comes_if_the_agent_is_too_slow(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reprieve_agent.systemd_supervisor.SAVE_SECONDS", 0.05)
    agent(kept.folder / "agent.sock", [b'{"v": 1, "result": "stopping"}\n'])
    stop_unit(kept)

    assert kept.wait(kept.launch("/bin/true")).exit_code == -signal.SIGTERM


# Containers -----------------------------------------------------------------------------------

ACCOUNT = Account(uid=4711, gid=4712, groups=(4712, 44), home="/home/someone", name="someone")


def options(kept: Kept, *, has_gpus: bool = True, **env: str) -> list[str]:
    """Return what `docker` is asked for a job with that environment."""
    start = kept.start("python", "train.py")
    start = replace(start, account=ACCOUNT, env={**start.env, **env})
    argv = list(contained(start, IMAGE, has_gpus=has_gpus).argv)
    assert argv[:2] == ["docker", "run"]
    assert argv[-6:-3] == [IMAGE, "-c", container_supervisor.ENTRY]
    assert argv[-3:] == ["sh", "python", "train.py"]
    return argv[2:-6]


def test_a_container_is_the_same_user_who_cannot_become_root(kept: Kept) -> None:
    asked = options(kept)

    for wanted in (
        "--user=4711:4712",
        "--group-add=44",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--network=host",  # where the metadata service is closed to this user
        "--pid=host",  # so that the pids that it registers are the host's
    ):
        assert wanted in asked
    assert not [option for option in asked if "privileged" in option and "no-new" not in option]


def test_a_container_sees_what_the_job_would_and_the_socket_of_docker_is_not_among_it(
    kept: Kept,
) -> None:
    mounted = {o.split("=")[1].split(":")[0] for o in options(kept) if o.startswith("--volume=")}

    assert mounted == {str(kept.places.private), str(kept.places.contract), ACCOUNT.home}


@pytest.mark.parametrize(
    ("has_gpus", "env", "expected"),
    [
        (True, {}, ["--gpus=all"]),
        (True, {"NVIDIA_VISIBLE_DEVICES": "0,2"}, ['--gpus="device=0,2"']),
        (True, {"NVIDIA_VISIBLE_DEVICES": "none"}, []),
        (False, {}, []),
    ],
)
def test_a_container_has_the_gpus_of_the_host_or_those_that_it_names(
    kept: Kept, *, has_gpus: bool, env: dict[str, str], expected: list[str]
) -> None:
    assert [
        o for o in options(kept, has_gpus=has_gpus, **env) if o.startswith("--gpus")
    ] == expected


def test_docker_is_told_nothing_that_a_job_can_choose(tmp_path: Path, calls: Path) -> None:
    with docker(tmp_path / "docker") as docker_calls, pytest.MonkeyPatch.context() as patched:
        patched.setenv("PATH", f"{tmp_path / 'docker'}:{os.environ['PATH']}")
        kept = Kept("container", tmp_path, a_key("job-1", token=own_token()))
        secret = own_token()

        kept.wait(kept.launch(sys.executable, "-c", "import os; os.environ['S']", S=secret))

        told = json.loads(docker_calls.read_text().splitlines()[0])
        kept.clean()
    assert secret not in json.dumps(told)
    assert {"WHO", "S", "REPRIEVE_RUN_DIR"} & set(told["env"]) == set()


BUSY = """\
#!/bin/sh
[ $1 = run ] && exit 0
echo removing >>{folder}/tries
[ $(wc -l <{folder}/tries) -gt 1 ] && exit 0
echo "removal of container $3 is already in progress" >&2
exit 1
"""
BROKEN = "#!/bin/sh\n[ $1 = run ] && exit 0\nexit 1\n"


@pytest.mark.parametrize(("program", "gone"), [(BUSY, True), (BROKEN, False)])
def test_a_container_is_gone_when_docker_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, *, gone: bool
) -> None:
    monkeypatch.setattr(container_supervisor, "REMOVE_SECONDS", 20.0 if gone else 0.2)
    commands = tmp_path / "bin"
    commands.mkdir()
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    (commands / "docker").write_text(program.format(folder=commands))
    (commands / "docker").chmod(0o755)
    kept = Kept("container", tmp_path, a_key("job-1", token=own_token()))
    kept.wait(kept.launch("/bin/true"))

    assert kept.kill() is gone

    kept.clean()


def test_a_job_without_an_image_needs_no_docker(tmp_path: Path) -> None:
    kept = Kept("container", tmp_path, a_key("job-1", token=own_token()))
    start = replace(kept.start("/bin/sh", "-c", "exit 5"), image=None)
    assert isinstance(kept.supervisor, ContainerSupervisor)

    process = kept.supervisor.launch(start, not_after=boot_seconds() + 60)

    assert kept.wait(process).exit_code == 5
    assert kept.kill()
    kept.clean()
