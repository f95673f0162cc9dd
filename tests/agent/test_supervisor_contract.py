"""
What every supervisor promises, held to with real processes.

With a service manager as process 1 these tests are about transient units, else about sessions of
our own; in both cases bare and in a container. ``make test-systemd`` runs them on a machine that
boots.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import pytest

from reprieve_agent import contract, processes
from reprieve_agent.clock import boot_seconds
from reprieve_agent.files import read_json, write_json
from reprieve_agent.state import Process
from reprieve_agent.supervisor import LaunchError, TooLateError, marker
from tests.agent.kept import HERE, REAL_IMAGE, Kept, docker
from tests.agent.waiting import own_token, wait_until
from tests.builders import a_key

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=HERE)
def kept(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Kept]:
    kept = Kept(request.param, tmp_path, a_key("job-1", token=own_token()))
    scripted = kept.contained and not REAL_IMAGE
    with docker(tmp_path / "bin") if scripted else nullcontext():
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        yield kept
        kept.clean()


def ended(pid: int | None) -> bool:
    return pid is None or processes.start_ticks(pid) is None


def test_a_job_has_its_own_environment_folder_and_session_and_an_empty_stdin(kept: Kept) -> None:
    process = kept.python(
        "import os, json\n"
        "own = {k: v for k, v in os.environ.items() if k in ('WHO', 'REPRIEVE_TOKEN', 'SECRET')}\n"
        "print(json.dumps([own, os.getcwd(), os.readlink('/proc/self/fd/0'),"
        " os.getsid(0) == os.getpid(), sorted(os.environ)]))\n"
        "raise SystemExit(75)"
    )

    how = kept.wait(process)

    own, cwd, stdin, leads, names = json.loads(kept.said())
    assert own == {"WHO": "a 'job'", "REPRIEVE_TOKEN": kept.key.token}
    assert (cwd, stdin, leads) == (str(kept.places.work), "/dev/null", True)
    assert not {"PYTEST_CURRENT_TEST", "PYTHONPATH", "NOTIFY_SOCKET"} & set(names)
    assert how.exit_code == 75
    assert ended(process.keeper)


def test_a_secret_reaches_the_job_and_lies_in_no_file(kept: Kept) -> None:
    secret = f"line one\n'quoted' $HOME `id` {own_token()}"
    process = kept.launch(
        *(sys.executable, "-c", "import os; print(os.environ['SECRET'])"), SECRET=secret
    )

    kept.wait(process)

    assert kept.said() == f"{secret}\n"
    kept.places.log.unlink()
    word = secret.rpartition(" ")[2].encode()
    files = [path for path in kept.folder.rglob("*") if path.is_file()]
    assert kept.places.order in files
    assert [path for path in files if word in path.read_bytes()] == []


def test_the_wake_up_signal_is_ignored_and_no_other(kept: Kept) -> None:
    # Of grep, which has what the shell was given: a shell blocks signals while it waits.
    process = kept.launch(
        "/bin/sh", "-c", "kill -USR1 $$; grep -E '^Sig(Ign|Blk)' /proc/self/status"
    )

    assert kept.wait(process).exit_code == 0

    masks = dict(line.split(":") for line in kept.said().splitlines())
    # Whatever else this test's own parent had set to be ignored (nice, make) is not ours.
    ignored = int(masks["SigIgn"], 16)
    assert ignored & (1 << (signal.SIGUSR1 - 1))
    assert not ignored & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGTERM - 1))
    assert int(masks["SigBlk"], 16) == 0


def test_a_command_that_isnt_there_ends_with_127_and_says_so(kept: Kept) -> None:
    how = kept.wait(kept.launch("no-such-command"))

    assert how.exit_code == 127
    assert "no-such-command" in how.detail


def test_a_job_that_a_signal_ended_says_its_last_words(kept: Kept) -> None:
    how = kept.wait(
        kept.python("import os; print('last words', flush=True); os.kill(os.getpid(), 9)")
    )

    # A container's process is another's child: its signal comes as a shell tells it.
    expected = (137, "exit 137") if kept.contained else (-9, "killed by SIGKILL")
    assert (how.exit_code, how.detail) == (expected[0], f"{expected[1]}: last words")


def test_a_second_launch_finds_the_first(kept: Kept) -> None:
    script = "import time; print('started', flush=True); time.sleep(60)"
    first = kept.python(script)
    kept.says("started")

    kept.supervisor = kept.another()
    again = kept.python(script)

    assert again == first
    assert kept.said() == "started\n"


def test_a_start_that_is_late_doesnt_happen(kept: Kept) -> None:
    start = kept.start("/bin/sh", "-c", "echo started")

    with pytest.raises(TooLateError):
        kept.supervisor.launch(start, not_after=boot_seconds() - 0.001)

    assert not kept.places.process.exists()
    assert kept.launch(*start.argv).pid


def test_a_kill_before_the_start_prevents_it(kept: Kept) -> None:
    assert kept.kill()

    with pytest.raises(LaunchError):
        kept.launch("/bin/sh", "-c", "echo started")

    assert not kept.places.process.exists()


FAMILY = textwrap.dedent(
    """
    import os, subprocess, sys, time
    def child(detached, hides):
        script = "import os, time; print('up', os.getpid(), flush=True); time.sleep(600)"
        env = {} if hides else None
        subprocess.Popen([sys.executable, "-S", "-c", script], start_new_session=detached, env=env)
    child(False, False); child(True, False); child(False, True)
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            print("up", os.getpid(), flush=True)
            time.sleep(600)
        os._exit(0)
    os.wait()
    time.sleep(600 if sys.argv[1] == "stay" else 0)
    """
)


def family(kept: Kept) -> set[int]:
    """Return who said that it is up."""
    words = kept.said().split()
    return {int(pid) for up, pid in pairwise(words) if up == "up"}


def test_a_kill_ends_children_daemons_and_those_without_our_environment(kept: Kept) -> None:
    process = kept.python(FAMILY, "stay")
    kept.says("up", times=4)

    assert kept.kill()

    assert len(family(kept)) == 4
    assert all(ended(pid) for pid in family(kept))
    assert kept.left() == set()
    assert kept.wait(process).exit_code in {-9, 137}


def test_what_a_job_leaves_running_ends_with_it(kept: Kept) -> None:
    process = kept.python(FAMILY, "leave")

    how = kept.wait(process)

    assert how.exit_code == 0
    assert kept.left() == set()
    assert all(ended(pid) for pid in family(kept))


WITH_WORKER = textwrap.dedent(
    """
    import os, signal, sys, time
    main = os.getpid()
    # Written, not printed: the signal may come in the midst of a print.
    def told(signum, frame):
        os.write(1, f"told {os.getpid() == main} {signum}\\n".encode())
        os._exit(3)
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, lambda s, f: os.write(1, b"a worker was told\\n"))
    else:
        signal.signal(signal.SIGTERM, told)
    print("up", flush=True)
    while True:
        time.sleep(0.1)
    """
)


def test_sigterm_reaches_the_main_process_alone(kept: Kept) -> None:
    process = kept.python(WITH_WORKER)
    kept.says("up", times=2)

    kept.supervisor.terminate(process)

    assert kept.wait(process).exit_code == 3
    assert "told True 15" in kept.said()
    assert "a worker was told" not in kept.said()
    assert kept.left() == set()


def test_a_keeper_told_to_stop_tells_the_main_process_alone_and_says_so(kept: Kept) -> None:
    process = kept.python(WITH_WORKER)
    kept.says("up", times=2)

    processes.send(process.keeper, process.keeper_ticks, signal.SIGTERM)
    how = kept.wait(process)

    assert (how.exit_code, how.stopped) == (3, True)
    assert "a worker was told" not in kept.said()


def test_a_killed_keeper_takes_its_job_along_and_nobody_claims_to_know_the_exit_code(
    kept: Kept,
) -> None:
    process = kept.python("import time; print('up', flush=True); time.sleep(600)")
    kept.says("up")

    processes.send(process.keeper, process.keeper_ticks, signal.SIGKILL)
    how = kept.wait(process)

    assert how.exit_code is None
    assert ended(process.pid)
    wait_until(lambda: not kept.left(), "nothing of it is left")


def test_an_exit_that_nobody_watched_is_read_by_the_next_agent(kept: Kept) -> None:
    process = kept.launch("/bin/sh", "-c", "exit 75")
    wait_until(lambda: read_json(kept.places.exit), "written down")
    kept.wait(process)

    kept.supervisor = kept.another()

    assert kept.wait(process).exit_code == 75


def test_an_exit_that_could_not_be_written_is_known_all_the_same(kept: Kept) -> None:
    kept.places.exit.mkdir()  # as on a full disk, the rename fails

    process = kept.launch("/bin/sh", "-c", "exit 75")

    assert kept.wait(process).exit_code == 75


def test_a_job_outlives_the_kill_of_who_started_it_and_is_adopted(kept: Kept) -> None:
    gate = kept.places.work / "gate"
    script = f"echo up; until [ -e {gate} ]; do sleep 0.02; done; exit 9"
    arguments = (kept.kind, str(kept.folder), kept.key.job, kept.key.token)
    command = (sys.executable, "-m", "tests.agent.kept", *arguments, "/bin/sh", "-c", script)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout
        assert owner.stdout.readline() == "launched\n"
        owner.kill()
    kept.says("up")

    process = kept.launch("/bin/sh", "-c", script)
    gate.touch()

    assert kept.wait(process).exit_code == 9
    assert kept.said() == "up\n"


def test_another_process_with_the_pid_is_left_alone(kept: Kept) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        ticks = processes.start_ticks(other.pid)
        assert ticks
        reused = Process(other.pid, ticks - 1, other.pid, ticks - 1)
        said = {"keeper": other.pid, "keeper_ticks": ticks - 1}
        write_json(kept.places.process, said | {"pid": other.pid, "ticks": ticks - 1})

        kept.supervisor.terminate(reused)
        assert kept.wait(reused).exit_code is None
        assert kept.kill()

        assert other.poll() is None
        other.kill()


TRAINER = textwrap.dedent(
    """
    import json, os, pathlib, signal, sys, time
    signal.signal(signal.SIGUSR1, lambda s, f: sys.exit(75))
    ticks = int(pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    said = {"v": 1, "pid": os.getpid(), "start_ticks": ticks, "rank": 0, "hook": "signal"}
    ready = pathlib.Path(os.environ["REPRIEVE_RUN_DIR"], "ready.0.json")
    ready.with_name("draft").write_text(json.dumps(said))
    ready.with_name("draft").rename(ready)
    while True:
        time.sleep(0.1)
    """
)


@pytest.mark.parametrize(
    "argv",
    [
        ("bash", "run.sh"),
        ("sh", "-c", f"true; {sys.executable} -S train.py; echo after $?; true"),
    ],
    ids=["script", "line"],
)
def test_the_wake_up_reaches_the_trainer_behind_a_wrapper(
    kept: Kept, argv: tuple[str, ...]
) -> None:
    folder = kept.places.work / "inner"
    folder.mkdir()
    for where in (kept.places.work, folder):
        (where / "train.py").write_text(TRAINER)
    run = kept.places.work / "run.sh"
    run.write_text(f"cd inner\n{sys.executable} -S train.py\necho after $?\n")
    process = kept.launch(*argv)
    ready = kept.places.contract / "ready.0.json"
    wait_until(ready.exists, "the trainer registered")

    woken = contract.wake(kept.places, root=process.keeper, marker=marker(kept.key))

    assert woken == 1
    assert kept.wait(process).exit_code == 0
    assert kept.said() == "after 75\n"
    assert kept.left() == set()


def test_a_kill_leaves_nothing_of_a_wrapped_job(kept: Kept) -> None:
    (kept.places.work / "run.sh").write_text(f"{sys.executable} -S -c '{FAMILY}' stay\ntrue\n")
    process = kept.launch("bash", "run.sh")
    kept.says("up", times=4)

    assert kept.kill()

    assert all(ended(pid) for pid in family(kept))
    assert kept.left() == set()
    kept.wait(process)
