"""Whole runs: a real agent and real jobs, a cloud in memory."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from reprieve.domain.errors import UnknownOutcomeError
from reprieve.domain.lease import Cause, Holder, Lease, LeaseKey, LeaseState, Outcome
from reprieve.domain.spec import JobSpec
from reprieve.protocol import ReportKind
from reprieve_agent import processes
from reprieve_agent.ctl import PROGRAM as CTL
from reprieve_agent.places import Account
from reprieve_agent.supervisor import marker
from tests.agent.harness import Cloud, HostUnderTest, chain_job, chain_state, soon, wait_until


def test_a_job_runs_to_its_end_and_its_last_checkpoint_is_committed(
    cloud: Cloud, host: HostUnderTest
) -> None:
    key = cloud.submit(chain_job(TOTAL=10))
    cloud.ring(key)

    wait_until(lambda: cloud.lease(key).state is LeaseState.DONE, "released")

    lease = cloud.lease(key)
    assert (lease.outcome, lease.cause, lease.exit_code) == (Outcome.FINISHED, Cause.DONE, 0)
    assert (lease.committed_step, lease.step) == (10, 10)
    assert lease.committed_manifest in cloud.manifests()
    wait_until(lambda: cloud.queues.said(ReportKind.FINISHED), "reported")
    assert chain_state(10) in cloud.log(key)
    assert cloud.queues.deleted == ["receipt-1"]


def test_an_interrupted_job_is_saved_handed_over_and_finished_elsewhere(
    cloud: Cloud, host: HostUnderTest, other: HostUnderTest
) -> None:
    key = cloud.submit(chain_job(TOTAL=150, PAUSE=0.02))
    cloud.ring(key)
    wait_until(lambda: host.steps() >= 5, "training")

    host.metadata.interrupt(time=soon(20))

    wait_until(lambda: cloud.lease(key).state is LeaseState.DONE, "released")
    lease = cloud.lease(key)
    assert (lease.outcome, lease.cause) == (Outcome.INTERRUPTED, Cause.NOTICE)
    saved = lease.committed_step
    assert saved is not None
    assert 5 <= saved < 150
    wait_until(lambda: cloud.queues.said(ReportKind.INTERRUPTED), "reported")
    receipt = cloud.queues.said(ReportKind.INTERRUPTED)[0].data
    names = ("accepted", "saved", "quiesced", "uploaded", "committed", "released")
    assert all(isinstance(receipt[f"{name}_s"], float) for name in names)
    assert receipt["bytes"] == 64 + 1000
    assert not cloud.queues.said(ReportKind.SAVED)
    assert not cloud.queues.said(ReportKind.COMMITTED)

    successor = cloud.arm_next(key)
    other.start()
    cloud.ring(successor)

    wait_until(lambda: cloud.lease(successor).state is LeaseState.DONE, "finished elsewhere")
    lease = cloud.lease(successor)
    assert (lease.outcome, lease.restored_step) == (Outcome.FINISHED, saved)
    assert f"first step {saved + 1}\n" in cloud.log(successor)
    assert chain_state(150) in cloud.log(successor)


def finished(cloud: Cloud, key: LeaseKey) -> Lease:
    """Wait for the outcome of an attempt."""
    wait_until(lambda: cloud.lease(key).state is LeaseState.DONE, "released")
    return cloud.lease(key)


def submit(cloud: Cloud, spec: JobSpec) -> LeaseKey:
    key = cloud.submit(spec)
    cloud.ring(key)
    return key


def python(script: str, *arguments: str, **env: str) -> JobSpec:
    return JobSpec(command=("python", "-c", textwrap.dedent(script), *arguments), env=env)


def job_pids(key: LeaseKey) -> set[int]:
    return processes.of_job(None, marker(key))


def ctl(host: HostUnderTest, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(CTL), *arguments],
        env={
            "PATH": os.defpath,
            "REPRIEVE_SOCKET": str(host.folder / "run" / "agent.sock"),
            "REPRIEVE_STATE_DIR": str(host.folder / "state"),
        },
        capture_output=True,
        check=False,
        timeout=30,
    )
    assert len(done.stdout) < 2000
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def preempt(
    host: HostUnderTest, kind: str = "interruption", wait: float = 10
) -> tuple[int, dict[str, Any]]:
    return ctl(
        host,
        "preempt",
        "--request-id",
        f"{kind}:{host.instance_id}",
        "--kind",
        kind,
        "--noticed-at",
        soon(0),
        "--deadline",
        soon(20),
        "--wait",
        str(wait),
        "--json",
    )


# How a job ends ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "ended", "detail"),
    [
        ("print('well')", (Outcome.FINISHED, Cause.DONE, 0), ""),
        ("raise SystemExit(75)", (Outcome.INTERRUPTED, Cause.REQUEUE, 75), "queued again"),
        ("raise SystemExit('boom')", (Outcome.FAILED, Cause.CRASH, 1), "exit 1: boom"),
        ("import os; os.kill(os.getpid(), 9)", (Outcome.FAILED, Cause.CRASH, -9), "SIGKILL"),
    ],
)
def test_the_lease_tells_how_a_job_ended(
    cloud: Cloud,
    host: HostUnderTest,
    script: str,
    ended: tuple[Outcome, Cause, int],
    detail: str,
) -> None:
    lease = finished(cloud, submit(cloud, python(script)))

    assert (lease.outcome, lease.cause, lease.exit_code) == ended
    assert detail in lease.detail
    wait_until(lambda: cloud.queues.said(ReportKind.IDLE), "idle again")


def test_a_command_that_isnt_there_says_so(cloud: Cloud, host: HostUnderTest) -> None:
    lease = finished(cloud, submit(cloud, JobSpec(command=("no-such-program",))))

    assert (lease.outcome, lease.exit_code) == (Outcome.FAILED, 127)
    assert lease.detail == "no-such-program: No such file or directory"


def test_one_job_after_another_leaves_no_files_behind(cloud: Cloud, host: HostUnderTest) -> None:
    for name in ("one", "two", "three"):
        key = cloud.submit(chain_job(TOTAL=3), name)
        cloud.ring(key)
        assert finished(cloud, key).outcome is Outcome.FINISHED

    attempts, contracts = host.folder / "state" / "attempts", host.folder / "run" / "jobs"
    wait_until(lambda: not [*attempts.iterdir(), *contracts.iterdir()], "wiped")


def test_a_job_runs_its_own_code_set_up_once(cloud: Cloud, host: HostUnderTest) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("train.py", "import made; print('code', made.X)")
        archive.writestr("prepare.sh", "echo setting up; echo X = 7 > made.py")
    digest = hashlib.sha256(packed.getvalue()).hexdigest()
    cloud.store.objects[f"code/{digest}.zip"] = packed.getvalue()
    spec = JobSpec(("python", "train.py"), code=digest, setup=("sh", "prepare.sh"))

    logs = []
    for name in ("one", "two"):
        key = cloud.submit(spec, name)
        cloud.ring(key)
        assert finished(cloud, key).outcome is Outcome.FINISHED
        logs.append(cloud.log(key))

    assert logs == ["setting up\ncode 7\n", "code 7\n"]


@pytest.mark.parametrize(
    ("setup", "why"),
    [
        (("sh", "-c", "echo no; exit 3"), "setup: exit 3: no"),
        (("no-such-program",), "setup: no-such-program: No such file"),
    ],
)
def test_a_setup_that_fails_fails_the_attempt(
    cloud: Cloud, host: HostUnderTest, setup: tuple[str, ...], why: str
) -> None:
    lease = finished(cloud, submit(cloud, JobSpec(("python",), setup=setup)))

    assert (lease.outcome, lease.cause) == (Outcome.FAILED, Cause.SETUP_FAILED)
    assert why in lease.detail
    assert cloud.log(lease.key) == ("no\n" if setup[0] == "sh" else "")


def test_code_that_isnt_there_fails_the_attempt(cloud: Cloud, host: HostUnderTest) -> None:
    lease = finished(cloud, submit(cloud, JobSpec(("python",), code="0" * 64)))

    assert (lease.outcome, lease.cause) == (Outcome.FAILED, Cause.SETUP_FAILED)
    assert "doesn't exist" in lease.detail


# Notices ----------------------------------------------------------------------------------


def test_ssm_alone_is_enough_and_its_caller_learns_what_was_committed(
    cloud: Cloud, host: HostUnderTest
) -> None:
    key = submit(cloud, chain_job(TOTAL=500))
    wait_until(lambda: host.steps() >= 5, "training")

    code, answer = preempt(host)

    lease = finished(cloud, key)
    assert (code, answer["result"]) == (0, "committed")
    assert answer["committed_step"] == lease.committed_step
    assert answer["manifest"] == lease.committed_manifest


def test_metadata_and_ssm_join_one_request(cloud: Cloud, host: HostUnderTest) -> None:
    key = submit(cloud, chain_job(TOTAL=500))
    wait_until(lambda: host.steps() >= 5, "training")

    host.metadata.interrupt(time=soon(20))
    code, _ = preempt(host)
    again, _ = preempt(host)

    finished(cloud, key)
    by_kind, answer = ctl(host, "preempt", "--request-id", "interruption", "--kind", "interruption")
    assert (code, again, by_kind) == (0, 0, 0), answer
    assert len(cloud.queues.said(ReportKind.NOTICED)) <= 1  # none if SSM was first
    assert len(cloud.manifests()) == 1


def test_a_rebalance_makes_a_checkpoint_and_the_job_goes_on(
    cloud: Cloud, host: HostUnderTest
) -> None:
    key = submit(cloud, chain_job(TOTAL=120))
    wait_until(lambda: host.steps() >= 5, "training")

    host.metadata.recommend_rebalance()

    wait_until(lambda: cloud.queues.said(ReportKind.COMMITTED), "extra checkpoint")
    lease = finished(cloud, key)
    assert (lease.outcome, lease.committed_step) == (Outcome.FINISHED, 120)
    assert len(cloud.manifests()) == 2
    assert cloud.log(key).count("first step") == 1
    assert not host.agent.state.wants_work


def test_a_job_that_never_saves_by_itself_is_asked_to_every_so_often(
    cloud: Cloud, host: HostUnderTest
) -> None:
    spec = replace(chain_job(TOTAL=150), save_every=timedelta(seconds=0.5))
    key = submit(cloud, spec)

    lease = finished(cloud, key)

    assert (lease.outcome, lease.committed_step) == (Outcome.FINISHED, 150)
    assert len(cloud.manifests()) >= 3
    assert cloud.log(key).count("first step") == 1


def test_a_warning_after_a_rebalance_hands_the_job_over(cloud: Cloud, host: HostUnderTest) -> None:
    key = submit(cloud, chain_job(TOTAL=500))
    wait_until(lambda: host.steps() >= 5, "training")
    host.metadata.recommend_rebalance()
    wait_until(lambda: cloud.queues.said(ReportKind.COMMITTED), "extra checkpoint")

    host.metadata.interrupt(time=soon(20))

    lease = finished(cloud, key)
    assert (lease.outcome, lease.cause) == (Outcome.INTERRUPTED, Cause.NOTICE)
    assert len(cloud.manifests()) == 2


def test_hibernation_releases_without_waiting_for_a_save(cloud: Cloud, host: HostUnderTest) -> None:
    key = submit(cloud, chain_job(TOTAL=500, EVERY=20))
    wait_until(lambda: cloud.queues.said(ReportKind.COMMITTED), "periodic checkpoint")

    host.metadata.interrupt("hibernate")

    lease = finished(cloud, key)
    assert (lease.outcome, lease.cause) == (Outcome.INTERRUPTED, Cause.NOTICE)
    assert lease.committed_step is not None
    assert lease.committed_step % 20 == 0
    assert job_pids(key) == set()


DEAF = """
    import signal, sys, time
    if "ignore" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("up", flush=True)
    while True:
        time.sleep(0.1)
"""


def test_a_notice_during_the_restore_gives_the_attempt_back_at_once(
    cloud: Cloud, host: HostUnderTest
) -> None:
    spec = JobSpec(("python",), setup=("sh", "-c", "sleep 60"))
    key = submit(cloud, spec)
    wait_until(lambda: host.stage == "PREPARING", "setting up")

    host.metadata.interrupt(time=soon(20))

    lease = finished(cloud, key)
    assert (lease.outcome, lease.cause) == (Outcome.INTERRUPTED, Cause.NOTICE)


def test_a_drained_host_takes_no_work_and_leaves_when_it_isnt_reclaimed(
    cloud: Cloud, tmp_path: Path
) -> None:
    host = HostUnderTest(cloud, tmp_path / "a", notice_seconds=2)
    host.start()
    try:
        wait_until(lambda: host.agent.state.adopted, "adopted")
        host.metadata.interrupt(time=soon(2))
        wait_until(lambda: cloud.queues.said(ReportKind.NOTICED), "noticed")
        key = cloud.submit(chain_job(TOTAL=3))
        cloud.ring(key)

        host.join()

        assert host.ended == "interruption notice, and not reclaimed"
        assert cloud.lease(key).state is LeaseState.FREE
    finally:
        host.close()


# The lease --------------------------------------------------------------------------------


def test_a_refused_renewal_kills_the_job_with_all_its_processes(
    cloud: Cloud, host: HostUnderTest
) -> None:
    script = """
        import subprocess, sys, time
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         start_new_session=True)
        print("up", flush=True)
        time.sleep(600)
    """
    key = submit(cloud, python(script))
    wait_until(lambda: "up" in cloud.log(key) and len(job_pids(key)) == 2, "running")

    rows = cloud.memory.lease_rows
    with cloud.memory.lock:
        rows[key] = replace(rows[key], state=LeaseState.CLOSED)

    wait_until(lambda: cloud.queues.said(ReportKind.REFUSED), "refused")
    wait_until(lambda: job_pids(key) == set(), "killed")
    wait_until(lambda: host.agent.state.wants_work, "free again")
    assert cloud.memory.holds_rows[host.instance_id].leases == frozenset()
    assert cloud.lease(key).outcome is None


def test_nothing_is_committed_after_the_lease_is_lost(cloud: Cloud, host: HostUnderTest) -> None:
    key = submit(cloud, chain_job(TOTAL=500, EVERY=10))
    held = threading.Event()

    def before(operation: str, _key: str) -> None:
        if operation == "put_file":
            held.wait(10)

    cloud.store.before = before
    wait_until(lambda: "put_file" in dict(cloud.store.calls), "upload under way")

    rows = cloud.memory.lease_rows
    with cloud.memory.lock:
        rows[key] = replace(rows[key], state=LeaseState.CLOSED)
    wait_until(lambda: cloud.queues.said(ReportKind.REFUSED), "refused")
    held.set()

    wait_until(lambda: host.agent.state.tenure is None, "evicted")
    wait_until(lambda: not [t for t in threading.enumerate() if "upload" in t.name], "aborted")
    assert cloud.manifests() == []


def test_without_a_renewal_commits_wait_and_go_on_after_one(
    cloud: Cloud, host: HostUnderTest
) -> None:
    cut = threading.Event()

    def before(operation: str) -> None:
        if cut.is_set() and operation.startswith("leases."):
            raise UnknownOutcomeError("cut off")

    cloud.memory.before = before
    key = submit(cloud, chain_job(TOTAL=600, EVERY=100, PAUSE=0.02))
    wait_until(lambda: host.steps() >= 1, "training")
    cut.set()
    wait_until(lambda: not host.desk.may_commit(key), "5/6 of a lease")
    wait_until(lambda: host.steps() >= 205, "two periodic saves")
    committed_while_cut = [m for m in cloud.manifests() if m.endswith("200.json")]
    cut.clear()

    assert finished(cloud, key).outcome is Outcome.FINISHED
    assert committed_while_cut == []
    assert [m for m in cloud.manifests() if m.endswith("600.json")]


def test_a_lost_answer_to_the_claim_and_to_the_release_costs_nothing(
    cloud: Cloud, host: HostUnderTest
) -> None:
    lost = {"leases.claim": 2, "leases.seal": 2, "leases.release": 2}

    def after(operation: str) -> None:
        if lost.get(operation):
            lost[operation] -= 1
            raise UnknownOutcomeError("no answer")

    cloud.memory.after = after

    lease = finished(cloud, submit(cloud, chain_job(TOTAL=3)))

    assert lease.outcome is Outcome.FINISHED
    wait_until(lambda: cloud.queues.said(ReportKind.FINISHED), "reported")
    assert set(lost.values()) == {0}


def test_a_host_that_isnt_adopted_waits(cloud: Cloud, tmp_path: Path) -> None:
    host = HostUnderTest(cloud, tmp_path / "a", adopted=False)
    host.start()
    try:
        key = submit(cloud, chain_job(TOTAL=3))
        wait_until(lambda: "leases.idle" in cloud.memory.calls, "asked")
        assert cloud.lease(key).state is LeaseState.FREE

        cloud.adopt(host.instance_id)

        assert finished(cloud, key).outcome is Outcome.FINISHED
    finally:
        host.close()


def test_another_s_ticket_is_deleted_and_a_ticket_without_a_row_is_left(
    cloud: Cloud, host: HostUnderTest
) -> None:
    taken = cloud.submit(chain_job(), "taken")
    cloud.memory.lease_rows[taken] = replace(
        cloud.lease(taken), state=LeaseState.HELD, holder=Holder("i-other", "b")
    )
    cloud.ring(LeaseKey("nowhere", 1, "t"))
    cloud.ring(taken)

    wait_until(lambda: cloud.queues.deleted == ["receipt-2"], "deleted")
    assert cloud.queues.returned == []


# Checkpoints ------------------------------------------------------------------------------


def test_a_corrupt_checkpoint_is_passed_over_and_the_reason_is_reported(
    cloud: Cloud, host: HostUnderTest, other: HostUnderTest
) -> None:
    key = submit(cloud, chain_job(TOTAL=400, EVERY=15))
    wait_until(lambda: len(cloud.manifests()) >= 2, "two commits")
    host.metadata.interrupt(time=soon(20))
    newest = finished(cloud, key).committed_manifest
    assert newest
    body = cloud.store.objects[cloud.store.manifest(newest).files[0].key]
    cloud.store.objects[cloud.store.manifest(newest).files[0].key] = body[:-1] + b"?"
    before = cloud.manifests()[-2]

    successor = cloud.arm_next(key)
    other.start()
    cloud.ring(successor)

    lease = finished(cloud, successor)
    assert lease.outcome is Outcome.FINISHED
    assert lease.base == before
    assert chain_state(400) in cloud.log(successor)
    (told,) = [r for r in cloud.queues.reports if "quarantined" in r.data]
    assert told.data["quarantined"] == newest
    assert "SHA-256" in str(told.data["reason"])


def test_when_every_checkpoint_is_bad_the_attempt_fails_and_says_so(
    cloud: Cloud, host: HostUnderTest
) -> None:
    key = submit(cloud, chain_job(TOTAL=500))
    wait_until(lambda: host.steps() >= 5, "training")
    host.stop()
    assert finished(cloud, key).cause is Cause.STOP
    for name in list(cloud.store.objects):
        if "/data/" in name:
            cloud.store.objects[name] = b""

    successor = cloud.arm_next(key)
    host.start()
    cloud.ring(successor)

    lease = finished(cloud, successor)
    assert (lease.outcome, lease.cause) == (Outcome.FAILED, Cause.NO_VALID_CHECKPOINT)


def test_a_damaged_local_checkpoint_is_never_committed(cloud: Cloud, host: HostUnderTest) -> None:
    script = """
        import hashlib, json, os, pathlib, time
        base = pathlib.Path(os.environ["REPRIEVE_CKPT_DIR"])
        def save(step, body, claimed):
            part = base / f".step-{step}.part"
            part.mkdir()
            (part / "w").write_bytes(body)
            sha = hashlib.sha256(claimed).hexdigest()
            manifest = {"v": 1, "step": step, "files": [
                {"path": "w", "size": len(body), "sha256": sha}]}
            (part / "MANIFEST.json").write_text(json.dumps(manifest))
            part.rename(base / f"step-{step}")
        save(1, b"good", b"good")
        save(2, b"gooe", b"good")
        (base / "step-3").mkdir()
        os.symlink("/etc/passwd", base / "step-3" / "w")
        size = os.stat("/etc/passwd").st_size
        (base / "step-3" / "MANIFEST.json").write_text(json.dumps({"v": 1, "step": 3, "files": [
            {"path": "w", "size": size, "sha256": "0" * 64}]}))
        raise SystemExit(75)
    """
    lease = finished(cloud, submit(cloud, python(script)))

    assert lease.committed_step == 1
    assert [m[-6:] for m in cloud.manifests()] == ["1.json"]
    assert b"root:" not in b"".join(cloud.store.objects.values())


def test_s3_trouble_delays_a_commit_and_loses_nothing(cloud: Cloud, host: HostUnderTest) -> None:
    troubles = {"put_file": 2, "commit": 2, "put_log": 1}

    def before(operation: str, _key: str) -> None:
        if troubles.get(operation):
            troubles[operation] -= 1
            raise UnknownOutcomeError("503 Slow Down")

    cloud.store.before = before

    lease = finished(cloud, submit(cloud, chain_job(TOTAL=5)))

    assert lease.committed_step == 5
    assert len(cloud.manifests()) == 1


# Stopping, leaving, coming back -------------------------------------------------------------


def test_a_stopped_agent_saves_its_job_gives_it_up_and_says_goodbye(
    cloud: Cloud, host: HostUnderTest
) -> None:
    key = submit(cloud, chain_job(TOTAL=500))
    wait_until(lambda: host.steps() >= 5, "training")

    host.stop()

    lease = finished(cloud, key)
    assert (lease.outcome, lease.cause) == (Outcome.INTERRUPTED, Cause.STOP)
    assert lease.committed_step
    assert host.ended == "told to stop"
    assert cloud.queues.reports[-1].kind is ReportKind.LEAVING
    assert job_pids(key) == set()


def test_an_idle_host_leaves_by_itself(cloud: Cloud, tmp_path: Path) -> None:
    host = HostUnderTest(cloud, tmp_path / "a", notice_seconds=0.4)
    host.start()
    try:
        host.join()
        assert host.ended == "no work"
    finally:
        host.close()


def test_a_host_whose_world_ended_kills_its_job_and_leaves(cloud: Cloud, tmp_path: Path) -> None:
    host = HostUnderTest(cloud, tmp_path / "a", notice_seconds=2)
    host.start()
    try:
        key = submit(cloud, python(DEAF, "ignore"))
        wait_until(lambda: "up" in cloud.log(key), "running")

        def before(_operation: str) -> None:
            raise UnknownOutcomeError("nobody there")

        cloud.memory.before = before
        host.metadata.status = 503
        host.join(30)

        assert host.ended == "nobody can be reached"
        wait_until(lambda: job_pids(key) == set(), "killed")
    finally:
        cloud.memory.before = lambda _operation: None
        host.close()


def test_after_a_reboot_the_host_only_gives_up_what_it_held(cloud: Cloud, tmp_path: Path) -> None:
    before = HostUnderTest(cloud, tmp_path / "a")
    before.start()
    key = submit(cloud, python(DEAF, "ignore"))
    wait_until(lambda: "up" in cloud.log(key), "running")
    state = (tmp_path / "a" / "state" / "job.json").read_bytes()
    (pid,) = job_pids(key)
    # The host goes down without a word: what it held stays held, and its disk as it was.
    cloud.memory.before = lambda _operation: (_ for _ in ()).throw(UnknownOutcomeError("down"))
    before.stop()
    cloud.memory.before = lambda _operation: None
    (tmp_path / "a" / "state" / "job.json").write_bytes(state)
    before.metadata.close()
    assert pid

    after = HostUnderTest(cloud, tmp_path / "a", boot_id="boot-2", adopted=False)
    after.start()
    try:
        lease = finished(cloud, key)
        assert (lease.outcome, lease.cause) == (Outcome.INTERRUPTED, Cause.REBOOT)
        wait_until(lambda: after.agent.state.wants_work, "ready for work")
        assert cloud.memory.holds_rows[after.instance_id].leases == frozenset()
    finally:
        after.close()


# The local command ------------------------------------------------------------------------


def test_a_preempt_without_a_job_says_so_and_drains_the_host(
    cloud: Cloud, host: HostUnderTest
) -> None:
    wait_until(lambda: host.agent.state.adopted, "adopted")

    code, answer = preempt(host)

    assert (code, answer["result"]) == (11, "no job")
    assert not host.agent.state.wants_work


def test_a_preempt_of_a_job_that_cant_save_tells_what_is_durable(
    cloud: Cloud, host: HostUnderTest
) -> None:
    key = submit(cloud, python(DEAF, "heed"))
    wait_until(lambda: "up" in cloud.log(key), "running")

    early, _ = preempt(host, wait=0)
    late, answer = preempt(host, wait=15)

    assert early == 20
    assert (late, answer["result"]) == (30, "nothing durable")


def test_a_preempt_of_a_job_that_saved_before_tells_of_the_older_checkpoint(
    cloud: Cloud, host: HostUnderTest
) -> None:
    script = """
        import time
        import reprieve_job
        job = reprieve_job.connect()
        job.step(7)
        with job.checkpoint(7) as folder:
            (folder / "state").write_text("seven")
        time.sleep(600)
    """
    submit(cloud, python(script))
    wait_until(lambda: cloud.queues.said(ReportKind.COMMITTED), "committed")

    code, answer = preempt(host, wait=15)

    assert (code, answer["result"], answer["committed_step"]) == (10, "fallback", 7)


def test_a_preempt_for_another_host_is_refused(cloud: Cloud, host: HostUnderTest) -> None:
    arguments = ("preempt", "--kind", "interruption", "--request-id", "interruption:i-other")

    code, answer = ctl(host, *arguments)

    assert code == 2
    assert "isn't for this host" in answer["error"]
    assert host.agent.state.standing is None


def test_status_tells_what_the_agent_is_doing(cloud: Cloud, host: HostUnderTest) -> None:
    submit(cloud, chain_job(TOTAL=500))
    wait_until(lambda: host.steps() >= 5, "training")

    code, answer = ctl(host, "status")

    assert code == 0
    assert (answer["stage"], answer["job"], answer["adopted"]) == ("RUNNING", "job-1", True)


# Other users -------------------------------------------------------------------------------

SYSTEM_PYTHON = Path("/usr/bin/python3")

as_root = pytest.mark.skipif(
    os.geteuid() != 0 or not SYSTEM_PYTHON.exists(),
    reason="only root can play another user, and needs a Python that one may run",
)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Yield a folder that every user may enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@as_root
def test_only_root_and_the_agent_s_group_may_ask(cloud: Cloud, open_folder: Path) -> None:
    host = HostUnderTest(cloud, open_folder / "a")
    host.start()
    try:
        wait_until(lambda: host.agent.state.adopted, "adopted")
        path = host.folder / "run" / "agent.sock"
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        path.chmod(0o666)
        ask = f"""
            import contextlib, socket
            with socket.socket(socket.AF_UNIX) as agent:
                agent.connect({str(path)!r})
                with contextlib.suppress(BrokenPipeError):  # refused before it could ask
                    agent.sendall(b'{{"op": "status"}}\\n')
                print(agent.recv(4096).decode())
        """
        command = [str(SYSTEM_PYTHON), "-I", "-S", "-c", textwrap.dedent(ask)]

        ours = subprocess.run(command, capture_output=True, check=True)
        theirs = subprocess.run(
            command, capture_output=True, check=True, user=65534, group=65534, extra_groups=[]
        )

        assert json.loads(ours.stdout)["result"] == "ok"
        assert json.loads(theirs.stdout)["error"] == "only root and the agent's group may ask"
    finally:
        host.close()


@as_root
def test_a_job_runs_as_its_own_user_from_setup_to_resume(cloud: Cloud, open_folder: Path) -> None:
    script = """
        import hashlib, json, os, pathlib
        folder = pathlib.Path(os.environ["REPRIEVE_CKPT_DIR"])
        resumed = [p.read_text() for p in pathlib.Path(os.environ["REPRIEVE_RESUME_DIR"]).glob("w")]
        print(os.getuid(), os.getgid(), os.environ["HOME"], os.environ["USER"], resumed)
        part = folder / ".step-1.part"
        part.mkdir()
        (part / "w").write_text("weights")
        (part / "w").chmod(0o600)
        sha = hashlib.sha256(b"weights").hexdigest()
        (part / "MANIFEST.json").write_text(json.dumps(
            {"v": 1, "step": 1, "files": [{"path": "w", "size": 7, "sha256": sha}]}))
        part.rename(folder / "step-1")
        raise SystemExit(0 if resumed else 75)
    """
    spec = JobSpec(
        (str(SYSTEM_PYTHON), "-c", textwrap.dedent(script)), setup=("sh", "-c", "id -u; umask")
    )
    nobody = Account.named("nobody")
    host = HostUnderTest(cloud, open_folder / "a", account=nobody)
    host.start()
    try:
        first = submit(cloud, spec)
        assert finished(cloud, first).committed_step == 1
        second = cloud.arm_next(first)
        cloud.ring(second)
        assert finished(cloud, second).outcome is Outcome.FINISHED

        who = f"{nobody.uid} {nobody.gid} {nobody.home} nobody"
        assert cloud.log(first).splitlines()[0] == str(nobody.uid)
        assert f"{who} []" in cloud.log(first)
        assert f"{who} ['weights']" in cloud.log(second)
        wait_until(lambda: not list((host.folder / "state" / "attempts").iterdir()), "wiped")
    finally:
        host.close()
