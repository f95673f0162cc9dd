"""The smaller parts of the agent: settings, state on disk, code, queues, the run directory."""

from __future__ import annotations

import io
import json
import logging
import os
import socket
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reprieve.domain.catalogue import holds
from reprieve.domain.needs import Needs
from reprieve.domain.notice import NoticeKind
from reprieve.domain.spec import JobSpec
from reprieve.protocol import ReportKind, Ticket
from reprieve_agent import contract, log, logs, notify, processes
from reprieve_agent import events as on
from reprieve_agent.clock import now
from reprieve_agent.code import SetupError, unpack
from reprieve_agent.config import Config, ConfigError, SupervisorKind
from reprieve_agent.contract import Watcher
from reprieve_agent.events import Event
from reprieve_agent.files import read_json, write_json
from reprieve_agent.places import Places
from reprieve_agent.reports import Reports
from reprieve_agent.state import AckState, Stage, State, Tenure
from reprieve_agent.statefile import StateFile
from reprieve_agent.work import WorkQueue
from tests.agent.fakes import MemoryCheckpoints, Queues
from tests.agent.harness import OWN_KEY, wait_until
from tests.agent.test_machine import running
from tests.builders import HOST, a_key, a_notice

KEY = OWN_KEY
SETTINGS = {
    "STACK": "Reprieve",
    "POOL": "small",
    "JOBS_TABLE": "jobs",
    "CHECKPOINTS_BUCKET": "bucket",
    "WORK_QUEUE_URL": "https://work",
    "REPORTS_QUEUE_URL": "https://reports",
    "AWS_REGION": "us-east-1",
    "SUPERVISOR": "child",
    "PATH": "/usr/bin:/bin",
}


# Settings ---------------------------------------------------------------------------------


def test_settings_have_the_defaults_of_a_real_host() -> None:
    config = Config.from_environ(SETTINGS)

    assert config.clock.notice == timedelta(seconds=120)
    assert config.state_dir == Path("/var/lib/reprieve")
    assert config.run_dir == Path("/run/reprieve")
    assert config.job_path == "/usr/bin:/bin"
    assert config.shutdown_command == ()
    assert config.boot_id()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"STACK": ""}, "not set: STACK"),
        ({"STACK": "", "AWS_REGION": ""}, "not set: STACK, AWS_REGION"),
        ({"NOTICE_SECONDS": "soon"}, "NOTICE_SECONDS"),
        ({"NOTICE_SECONDS": "0"}, "NOTICE_SECONDS"),
        ({"NOTICE_SECONDS": "nan"}, "NOTICE_SECONDS"),
        ({"NOTICE_SECONDS": "inf"}, "NOTICE_SECONDS"),
        ({"STATE_DIR": "state"}, "STATE_DIR must be an absolute path"),
        ({"SUPERVISOR": "docker"}, "SUPERVISOR must be child or systemd"),
    ],
)
def test_a_wrong_setting_gives_one_line_that_names_it(change: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        Config.from_environ(SETTINGS | change)

    assert "\n" not in str(caught.value)


def test_systemd_without_systemd_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(ConfigError, match="systemd-run"):
        Config.from_environ(SETTINGS | {"SUPERVISOR": "systemd"})


def test_with_systemd_leaving_means_power_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "systemd-run").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    config = Config.from_environ(SETTINGS | {"SUPERVISOR": "systemd"})

    assert config.supervisor is SupervisorKind.SYSTEMD
    assert config.shutdown_command == ("systemctl", "poweroff")


# State on disk ----------------------------------------------------------------------------


def test_the_state_comes_back_as_it_was(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "job.json", run_dir=tmp_path / "run")
    state = running().state

    file.save(state)

    assert file.load() == state
    assert stat.S_IMODE((tmp_path / "job.json").stat().st_mode) == 0o600


def test_a_state_file_says_in_plain_words_what_the_command_needs(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "job.json", run_dir=tmp_path / "run")

    file.save(running().state)

    job = json.loads((tmp_path / "job.json").read_text())["job"]
    assert job["id"] == "job-1"
    assert job["contract_dir"] == str(tmp_path / "run" / "jobs" / "job-1-000001")
    file.save(State(boot_id="b", idle_since=1.0, tenure=Tenure(KEY, Stage.CLAIMED, 1.0)))
    assert json.loads((tmp_path / "job.json").read_text())["job"] is None


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"v": 2}', '{"v": 1, "state": {}}'])
def test_a_state_file_that_cant_be_read_is_no_state(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "job.json"
    if text is not None:
        path.write_text(text)

    assert StateFile(path, run_dir=tmp_path).load() is None


def test_a_small_file_is_whole_or_not_there_and_never_a_link(tmp_path: Path) -> None:
    write_json(tmp_path / "a", {"n": 1})
    write_json(tmp_path / "a", {"n": 2})
    (tmp_path / "link").symlink_to(tmp_path / "a")
    os.mkfifo(tmp_path / "pipe")

    assert read_json(tmp_path / "a") == {"n": 2}
    assert read_json(tmp_path / "link") is None
    assert read_json(tmp_path / "pipe") is None
    assert {path.name for path in tmp_path.iterdir()} == {"a", "link", "pipe"}


# Code -------------------------------------------------------------------------------------


def packed(tmp_path: Path, *entries: tuple[str, str, int]) -> Path:
    path = tmp_path / "code.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, body, mode in entries:
            about = zipfile.ZipInfo(name)
            about.external_attr = mode << 16
            archive.writestr(about, body)
    return path


def test_code_is_unpacked_with_its_executable_bits_and_no_others(tmp_path: Path) -> None:
    code = packed(
        tmp_path,
        ("run.sh", "#!/bin/sh\n", stat.S_IFREG | 0o4777),
        ("pkg/a.py", "A = 1\n", stat.S_IFREG | 0o600),
        ("plain.txt", "made on another system", 0),
    )

    unpack(code, tmp_path / "tree")

    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "tree").rglob("*.*")}
    assert modes == {"run.sh": 0o755, "a.py": 0o644, "plain.txt": 0o644}


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("../outside.py", stat.S_IFREG | 0o644),
        ("/etc/cron.d/x", stat.S_IFREG | 0o644),
        ("a/../../outside.py", stat.S_IFREG | 0o644),
        ("a\\..\\outside.py", stat.S_IFREG | 0o644),
        ("link", stat.S_IFLNK | 0o777),
        ("pipe", stat.S_IFIFO | 0o644),
    ],
)
def test_code_that_leads_outside_is_refused(tmp_path: Path, name: str, mode: int) -> None:
    code = packed(tmp_path, (name, "/etc/passwd", mode))

    with pytest.raises(SetupError):
        unpack(code, tmp_path / "tree")

    assert not (tmp_path / "outside.py").exists()


def test_code_that_isnt_a_zip_is_refused(tmp_path: Path) -> None:
    (tmp_path / "code.zip").write_bytes(b"PK but not really")

    with pytest.raises(SetupError, match="usable zip"):
        unpack(tmp_path / "code.zip", tmp_path / "tree")


# Queues -----------------------------------------------------------------------------------


@pytest.fixture
def queues() -> Queues:
    return Queues()


def test_tickets_are_received_only_while_work_is_wanted(queues: Queues) -> None:
    told: list[Event] = []
    sqs: Any = queues
    work = WorkQueue(sqs, "work", told.append, timedelta(seconds=1))
    work.start()
    queues.offer("not a ticket")
    for n in (1, 2):
        queues.offer(Ticket("job-1", n, "t").to_json())
    assert told == []

    work.want(tickets=True)
    wait_until(lambda: told, "the first ticket")
    work.want(tickets=False)
    first = list(told)
    work.end()

    assert first[0] == on.TicketCame(a_key(attempt=1, token="t"), "receipt-2")
    assert len(first) == 1
    assert queues.deleted == []


def test_a_ticket_of_a_job_that_this_host_cannot_hold_is_left_to_another(queues: Queues) -> None:
    told: list[Event] = []
    sqs: Any = queues
    big = Needs(gpu_memory_mib=40_000)
    work = WorkQueue(
        sqs, "work", told.append, timedelta(seconds=80), holds=partial(holds, "g5.xlarge")
    )
    queues.offer(Ticket("large", 1, "t", big).to_json())
    queues.offer(Ticket("small", 1, "t").to_json())
    work.want(tickets=True)
    work.start()

    wait_until(lambda: told, "the ticket that fits")
    work.end()

    assert told == [on.TicketCame(a_key("small", token="t"), "receipt-2")]
    assert queues.returned[0] == "receipt-1"
    assert queues.deleted == []


def test_a_queue_that_cant_be_read_is_read_again(queues: Queues) -> None:
    told: list[Event] = []
    troubles = [OSError("no route")]

    class Unwell(Queues):
        def receive_message(self, **request: Any) -> dict[str, Any]:
            if troubles:
                raise troubles.pop()
            return super().receive_message(**request)

    sqs: Any = Unwell()
    sqs.offer(Ticket("job-1", 1, "t").to_json())
    work = WorkQueue(sqs, "work", told.append, timedelta(seconds=1))
    work.want(tickets=True)
    work.start()

    wait_until(lambda: told, "the ticket")
    work.end()


def test_reports_are_kept_in_order_over_an_outage(queues: Queues) -> None:
    down = [True]

    class Unwell(Queues):
        def send_message(self, **request: str) -> None:
            if down[0]:
                raise OSError("no route")
            super().send_message(**request)

    sqs: Any = Unwell()
    reports = Reports(sqs, "reports", HOST)
    reports.start()
    for kind in (ReportKind.CLAIMED, ReportKind.STARTED, ReportKind.FINISHED):
        reports.send(kind, KEY, {"step": 1})

    assert not reports.flush(0.3)
    down[0] = False
    assert reports.flush(5)
    reports.end()

    assert [r.kind for r in sqs.reports] == ["claimed", "started", "finished"]
    assert [r.seq for r in sqs.reports] == [1, 2, 3]
    assert {r.instance_id for r in sqs.reports} == {HOST}


# The run directory ------------------------------------------------------------------------


def say(places: Places, name: str, **content: Any) -> None:
    write_json(places.contract / name, {"v": 1} | content)


def test_each_word_of_the_job_is_heard_once(
    places: Places, watcher: Watcher, told: list[Event]
) -> None:
    say(places, "ready.0.json", pid=1, start_ticks=2)
    say(places, "ack.0.json", request_id="r", state="saved", step=7, error=None)
    say(places, "progress.json", step=7, total=10)
    say(places, "other.json", step=7)
    for _ in range(3):
        watcher.look()
    say(places, "progress.json", step=8, total=10)
    watcher.look()

    assert told[0] == on.JobProgress(KEY, 7)  # never older than what an answer says
    assert set(told[1:3]) == {on.JobReady(KEY), on.JobAcked(KEY, "r", AckState.SAVED, 7)}
    assert told[3:] == [on.JobProgress(KEY, 8)]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"step": -1}', '{"step": "7"}', '{"step": true}', '{"state": "dancing"}'],
)
def test_nonsense_of_a_job_is_passed_over(
    places: Places, watcher: Watcher, told: list[Event], text: str
) -> None:
    for name in ("progress.json", "ack.0.json"):
        (places.contract / name).write_text(text)

    watcher.look()

    assert told == []


def test_a_job_without_a_run_directory_is_no_trouble(
    places: Places, watcher: Watcher, told: list[Event]
) -> None:
    places.remove()

    watcher.look()

    assert told == []


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    script = (
        "import os, signal, time\n"  # not print: the signal may come in the midst of one
        "signal.signal(signal.SIGUSR1, lambda *_: (os.write(1, b'woken\\n'), os._exit(0)))\n"
        "os.write(1, b'up\\n')\n"
        "time.sleep(60)\n"
    )
    env = {"REPRIEVE_TOKEN": KEY.token}
    with subprocess.Popen(
        [sys.executable, "-c", script], env=env, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        yield process
        process.kill()


def test_fault_20_only_a_process_of_the_job_that_registered_is_woken(
    places: Places, sleeper: subprocess.Popen[bytes]
) -> None:
    ticks = processes.start_ticks(sleeper.pid)
    assert ticks
    marker = f"REPRIEVE_TOKEN={KEY.token}"

    say(places, "ready.0.json", pid=sleeper.pid, start_ticks=ticks - 1)
    assert contract.wake(places, root=None, marker=marker) == 0  # the pid was used again
    say(places, "ready.0.json", pid=sleeper.pid, start_ticks=ticks)
    assert contract.wake(places, root=None, marker="REPRIEVE_TOKEN=another") == 0
    say(places, "ready.1.json", pid=os.getppid(), start_ticks=processes.start_ticks(os.getppid()))
    say(places, "ready.2.json", pid="1", start_ticks=None)

    assert contract.wake(places, root=None, marker=marker) == 1
    assert sleeper.stdout
    assert sleeper.stdout.readline() == b"woken\n"


def test_a_process_that_cleared_its_environment_is_known_by_its_ancestors(
    sleeper: subprocess.Popen[bytes],
) -> None:
    stranger = "REPRIEVE_TOKEN=another"

    assert processes.is_of_job(sleeper.pid, os.getpid(), stranger)
    assert not processes.is_of_job(sleeper.pid, None, stranger)
    assert not processes.is_of_job(os.getppid(), os.getpid(), stranger)
    assert not processes.is_of_job(sleeper.pid, sleeper.pid, stranger)  # the keeper itself


def test_a_request_tells_its_deadlines_on_both_clocks(places: Places) -> None:
    play = running()
    play.tell(on.StopAsked())
    request = play.tenure.request
    assert request
    at = now()

    contract.write_request(places, request, at)

    written = json.loads((places.contract / "request.json").read_text())
    assert written["v"] == 1
    assert (written["id"], written["kind"]) == (f"stop:{HOST}:1", "checkpoint_exit")
    assert written["deadline_boottime_ns"] == int(request.deadline * 1e9)
    left = request.deadline - at.boot
    assert written["deadline_unix"] - at.wall.timestamp() == pytest.approx(left, abs=1e-3)
    assert written["save_by_unix"] < written["deadline_unix"]


def test_a_job_that_is_to_go_on_is_told_no_deadline(places: Places) -> None:
    play = running()
    play.tell(on.NoticeSeen(a_notice(NoticeKind.REBALANCE)))
    request = play.tenure.request
    assert request

    contract.write_request(places, request, now())

    written = json.loads((places.contract / "request.json").read_text())
    assert written["kind"] == "checkpoint"
    assert written["deadline_unix"] is None
    assert written["deadline_boottime_ns"] is None


def test_a_job_s_environment_is_its_own_and_the_contract_s_and_nothing_else(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of the agent")
    spec = JobSpec(("x",), env={"LR": "0.1", "PATH": "/mine"})

    plain = contract.plain_environment(spec, path="/usr/bin", home="/home/job", user="job")
    promised = contract.environment(
        KEY, places, spec=spec, base_step=40, grace=timedelta(seconds=105)
    )

    assert plain == {
        "HOME": "/home/job",
        "LANG": "C.UTF-8",
        "LOGNAME": "job",
        "LR": "0.1",
        "PATH": "/mine",
        "PYTHONUNBUFFERED": "1",
        "USER": "job",
    }
    assert promised["REPRIEVE_RESUME_STEP"] == "40"
    assert promised["REPRIEVE_GRACE_S"] == "105"
    assert all(name.startswith("REPRIEVE_") or name == "PYTHONPATH" for name in promised)


# Logs -------------------------------------------------------------------------------------


def test_a_long_log_is_cut_at_its_beginning_at_a_line(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(b"".join(b"line %d\n" % n for n in range(1000)))

    kept = logs.tail(path, 100)

    assert kept.startswith(logs.CUT + b"line ")
    assert kept.endswith(b"line 999\n")
    assert len(kept) < 100 + len(logs.CUT)
    assert logs.tail(path, 10**6) == path.read_bytes()


def test_a_log_is_pushed_when_it_grew_and_not_again(tmp_path: Path) -> None:
    store = MemoryCheckpoints()
    pusher = logs.LogPusher(KEY, tmp_path / "job.log", store, period=60)
    pusher.push()
    (tmp_path / "job.log").write_bytes(b"one\n")

    pusher.push()
    pusher.push()

    assert [op for op, _ in store.calls] == ["put_log"]
    assert store.objects["jobs/job-1/logs/000001.log"] == b"one\n"


def test_the_agent_s_own_lines_are_json_with_facts_as_keys() -> None:
    stream = io.StringIO()
    formatter = log.JsonLines()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    record = logging.makeLogRecord(
        {"msg": "ticket won", "levelname": "INFO", "job": "job-1", "path": Path("/x")}
    )

    handler.emit(record)

    line = json.loads(stream.getvalue())
    assert (line["message"], line["job"], line["path"]) == ("ticket won", "job-1", "/x")


# systemd ----------------------------------------------------------------------------------


def test_systemd_hears_one_datagram(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "n"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "n"))

        notify.notify("READY=1")

        assert manager.recv(100) == b"READY=1"
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify.notify("READY=1")
