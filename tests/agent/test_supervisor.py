"""A job's processes: started, found again, watched and ended, with real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve_agent import processes
from reprieve_agent.clock import boot_seconds
from reprieve_agent.files import read_json
from reprieve_agent.places import Places
from reprieve_agent.state import Process
from reprieve_agent.supervisor import (
    ChildSupervisor,
    JobStart,
    LaunchError,
    SystemdSupervisor,
    TooLateError,
    marker,
    unit,
)
from tests.agent.harness import own_token, wait_until
from tests.builders import a_key

KEY = a_key("job-1", token=own_token())


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    places = Places.of(KEY, state_dir=tmp_path / "state", run_dir=tmp_path / "run")
    places.make(None)
    yield places
    processes.kill_job(None, marker(KEY), patience_seconds=10)


@pytest.fixture
def supervisor(places: Places) -> Iterator[ChildSupervisor]:
    supervisor = ChildSupervisor()
    yield supervisor
    supervisor.kill(KEY, places)
    for child in supervisor._children.values():
        child.wait(10)


def a_start(places: Places, script: str, *arguments: str, argv0: str = sys.executable) -> JobStart:
    return JobStart(
        key=KEY,
        places=places,
        argv=(argv0, "-c", textwrap.dedent(script), *arguments),
        env={"PATH": os.defpath, "REPRIEVE_TOKEN": KEY.token, "WHO": "a job"},
        cwd=places.work,
        account=None,
    )


def launch(supervisor: ChildSupervisor, start: JobStart) -> Process:
    return supervisor.launch(start, not_after=boot_seconds() + 60)


def ended(pid: int | None) -> bool:
    return pid is None or processes.start_ticks(pid) is None


def said(places: Places) -> str:
    return places.log.read_text() if places.log.exists() else ""


def test_a_job_runs_in_its_folder_with_its_own_environment_and_is_reaped(
    supervisor: ChildSupervisor, places: Places
) -> None:
    start = a_start(
        places,
        """
        import os, sys
        print(os.getcwd(), sorted(os.environ), sys.stdin.read() == "", os.getsid(0) == os.getpid())
        raise SystemExit(75)
        """,
    )
    process = launch(supervisor, start)

    how = supervisor.wait(KEY, places, process)

    assert how.exit_code == 75
    assert how.detail.startswith(f"exit 75: {places.work} ['LC_CTYPE', 'PATH', 'REPRIEVE_TOKEN'")
    assert said(places).endswith("True True\n")
    assert ended(process.keeper)


def test_the_wake_up_signal_doesnt_kill_a_job_that_has_no_handler(
    supervisor: ChildSupervisor, places: Places
) -> None:
    start = a_start(
        places,
        """
        import os, signal, subprocess
        os.kill(os.getpid(), signal.SIGUSR1)
        subprocess.run(["kill", "-USR1", str(os.getpid())], check=True)
        print(signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGPIPE).name)
        """,
    )

    how = supervisor.wait(KEY, places, launch(supervisor, start))

    assert how.exit_code == 0
    assert said(places) == "1 SIG_IGN\n"  # Python itself ignores SIGPIPE


def test_sigpipe_and_sigterm_have_their_default_again_for_the_job(
    supervisor: ChildSupervisor, places: Places
) -> None:
    start = JobStart(
        key=KEY,
        places=places,
        argv=("/bin/sh", "-c", "grep -E '^Sig(Ign|Blk)' /proc/self/status"),
        env={"PATH": os.defpath, "REPRIEVE_TOKEN": KEY.token},
        cwd=places.work,
        account=None,
    )

    supervisor.wait(KEY, places, launch(supervisor, start))

    masks = dict(line.split(":") for line in said(places).splitlines())
    # Whatever else this test's own parent had set to be ignored (nice, make) is not ours.
    ignored = int(masks["SigIgn"], 16)
    assert ignored & (1 << (signal.SIGUSR1 - 1))
    assert not ignored & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGTERM - 1))
    assert int(masks["SigBlk"], 16) == 0


def test_a_command_that_isnt_there_ends_with_127_and_says_so(
    supervisor: ChildSupervisor, places: Places
) -> None:
    how = supervisor.wait(
        KEY, places, launch(supervisor, a_start(places, "", argv0="no-such-command"))
    )

    assert (how.exit_code, how.detail) == (127, "no-such-command: No such file or directory")


def test_a_job_killed_by_a_signal_says_which(supervisor: ChildSupervisor, places: Places) -> None:
    start = a_start(places, "import os; print('last words', flush=True); os.kill(os.getpid(), 9)")

    how = supervisor.wait(KEY, places, launch(supervisor, start))

    assert (how.exit_code, how.detail) == (-9, "killed by SIGKILL: last words")


def test_a_second_launch_finds_the_first(supervisor: ChildSupervisor, places: Places) -> None:
    start = a_start(places, "import time; print('started', flush=True); time.sleep(60)")
    first = launch(supervisor, start)
    wait_until(lambda: "started" in said(places), "started")

    again = launch(ChildSupervisor(), start)

    assert again == first
    assert said(places) == "started\n"


def test_a_start_that_is_late_doesnt_happen(supervisor: ChildSupervisor, places: Places) -> None:
    start = a_start(places, "print('started')")

    with pytest.raises(TooLateError):
        supervisor.launch(start, not_after=boot_seconds() - 0.001)

    assert not places.process.exists()
    assert launch(supervisor, start).pid


def test_a_kill_before_the_start_prevents_it(supervisor: ChildSupervisor, places: Places) -> None:
    supervisor.kill(KEY, places)

    with pytest.raises(LaunchError):
        launch(supervisor, a_start(places, "print('started')"))

    assert not places.process.exists()


FAMILY = """
    import os, subprocess, sys, time
    def child(detached, hides):
        script = "import time; print('up', flush=True); time.sleep(600)"
        env = {} if hides else None
        subprocess.Popen([sys.executable, "-c", script], start_new_session=detached, env=env)
    child(False, False); child(True, False); child(False, True)
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            print("up", flush=True)
            time.sleep(600)
        os._exit(0)
    os.wait()
    time.sleep(600 if sys.argv[1] == "stay" else 0)
"""


def test_a_kill_ends_children_daemons_and_those_without_our_environment(
    supervisor: ChildSupervisor, places: Places
) -> None:
    process = launch(supervisor, a_start(places, FAMILY, "stay"))
    wait_until(lambda: said(places).count("up") == 4, "the whole family")
    family = processes.of_job(process.keeper, marker(KEY))
    assert len(family) == 5

    assert supervisor.kill(KEY, places)

    assert all(ended(pid) for pid in family)
    assert supervisor.wait(KEY, places, process).exit_code == -9


def test_what_a_job_leaves_running_ends_with_it(
    supervisor: ChildSupervisor, places: Places
) -> None:
    process = launch(supervisor, a_start(places, FAMILY, "leave"))
    family: set[int] = set()

    def all_known() -> bool:
        family.update(processes.of_job(process.keeper, marker(KEY)))
        return read_json(places.exit) is not None

    wait_until(all_known, "the main process ended")
    how = supervisor.wait(KEY, places, process)

    assert how.exit_code == 0
    assert processes.of_job(None, marker(KEY)) == set()
    assert all(ended(pid) for pid in family)


def test_sigterm_reaches_the_main_process_alone(
    supervisor: ChildSupervisor, places: Places
) -> None:
    start = a_start(
        places,
        """
        import os, signal, subprocess, sys, time
        told = lambda s, f: (print(os.getpid() == main, s, flush=True), os._exit(3))
        main = os.getpid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, lambda s, f: print("a worker was told", flush=True))
            print("up", flush=True)
            while True: time.sleep(0.1)
        signal.signal(signal.SIGTERM, told)
        print("up", flush=True)
        while True: time.sleep(0.1)
        """,
    )
    process = launch(supervisor, start)
    wait_until(lambda: said(places).count("up") == 2, "both handlers")

    supervisor.terminate(process)

    assert supervisor.wait(KEY, places, process).exit_code == 3
    assert "a worker was told" not in said(places)
    assert "True 15" in said(places)


def test_a_keeper_told_to_stop_passes_it_on_and_says_so(
    supervisor: ChildSupervisor, places: Places
) -> None:
    start = a_start(places, "import time; print('up', flush=True); time.sleep(60)")
    process = launch(supervisor, start)
    wait_until(lambda: "up" in said(places), "started")

    processes.send(process.keeper, process.keeper_ticks, signal.SIGTERM)
    how = supervisor.wait(KEY, places, process)

    assert (how.exit_code, how.stopped) == (-15, True)


def test_a_killed_keeper_takes_its_job_along_and_nobody_claims_to_know_the_exit_code(
    supervisor: ChildSupervisor, places: Places
) -> None:
    process = launch(supervisor, a_start(places, "import time; time.sleep(600)"))
    wait_until(lambda: processes.of_job(None, marker(KEY)), "started")

    processes.send(process.keeper, process.keeper_ticks, signal.SIGKILL)
    how = supervisor.wait(KEY, places, process)

    assert how.exit_code is None
    assert ended(process.pid)


def test_an_exit_that_nobody_watched_is_read_later(
    supervisor: ChildSupervisor, places: Places
) -> None:
    process = launch(supervisor, a_start(places, "raise SystemExit(75)"))
    wait_until(lambda: read_json(places.exit), "written down")
    supervisor.wait(KEY, places, process)

    assert ChildSupervisor().wait(KEY, places, process).exit_code == 75


def test_another_process_with_the_pid_is_left_alone() -> None:
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(subprocess.Popen(["sleep", "60"]))
        stack.callback(other.kill)
        ticks = processes.start_ticks(other.pid)
        assert ticks

        assert not processes.send(other.pid, ticks - 1, signal.SIGTERM)
        assert not processes.send(other.pid, None, signal.SIGTERM)
        assert other.poll() is None
        assert processes.send(other.pid, ticks, signal.SIGTERM)
        assert other.wait(10) == -signal.SIGTERM
        assert not processes.send(other.pid, ticks, signal.SIGTERM)


def test_killing_a_whole_job_is_quick(supervisor: ChildSupervisor, places: Places) -> None:
    process = launch(supervisor, a_start(places, FAMILY, "stay"))
    wait_until(lambda: said(places).count("up") == 4, "the whole family")

    began = time.monotonic()
    supervisor.kill(KEY, places)
    supervisor.wait(KEY, places, process)

    assert time.monotonic() - began < 2


# systemd, by what is asked of it: no system manager runs where these tests do ----------------


@pytest.fixture
def systemd_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def test_with_systemd_the_same_keeper_runs_in_a_unit_of_its_own(
    systemd_calls: Path, places: Places
) -> None:
    supervisor = SystemdSupervisor()
    start = a_start(places, "import time; print('up', flush=True); time.sleep(600)")

    process = launch(supervisor, start)
    wait_until(lambda: "up" in said(places), "started")
    supervisor.kill(KEY, places)

    assert supervisor.wait(KEY, places, process).exit_code == -9
    asked = systemd_calls.read_text()
    assert f"--unit={unit(places)}" in asked
    for wanted in (
        "KillMode=mixed",
        "Type=exec",
        "SuccessExitStatus=75",
        "After=reprieve-agent.service",
        "IPAddressDeny=169.254.169.254/32",
    ):
        assert f"--property={wanted}" in asked
    assert f"kill --signal=KILL {unit(places)}" in asked


def test_a_unit_that_systemd_refuses_is_no_start(systemd_calls: Path, places: Places) -> None:
    command = systemd_calls.parent / "bin" / "systemd-run"
    command.write_text("#!/bin/sh\necho 'Unit was already loaded' >&2\nexit 1\n")

    with pytest.raises(LaunchError, match="already loaded"):
        launch(SystemdSupervisor(), a_start(places, ""))


def test_a_unit_s_name_is_safe_whatever_the_job_is_called(tmp_path: Path) -> None:
    key = a_key("../../etc/a job%", attempt=3)

    places = Places.of(key, state_dir=tmp_path, run_dir=tmp_path / "run")

    assert places.private.parent == tmp_path / "attempts"
    assert unit(places) == "reprieve-job-.._2F.._2Fetc_2Fa_20job_25-000003.service"
