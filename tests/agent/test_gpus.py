"""GPUs that can't be trusted, told by a scripted ``nvidia-smi``."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprieve.domain.lease import Holds, LeaseState
from reprieve.domain.spec import JobSpec
from reprieve.protocol import ReportKind
from reprieve_agent import actions as do
from reprieve_agent import events as on
from reprieve_agent import gpus as module
from reprieve_agent.gpus import Gpus
from tests.agent.harness import Cloud, HostUnderTest, wait_until
from tests.agent.test_machine import KEY, MACHINE, idle, interrupted, only, reports, running
from tests.builders import HOST

TWO = "0, NVIDIA A10G, 0\n1, NVIDIA A10G, 0\n"


def script(folder: Path, gpus: str, *, apps: str = "", code: int = 0) -> Gpus:
    """Put an ``nvidia-smi`` into *folder* that answers so; two GPUs are expected."""
    program = folder / "nvidia-smi"
    (folder / "gpus").write_text(gpus)
    (folder / "apps").write_text(apps)
    program.write_text(
        "#!/bin/sh\n"
        f'case "$1" in --query-gpu=*) cat "{folder}/gpus"; exit {code};; '
        f'*) cat "{folder}/apps";; esac\n'
    )
    program.chmod(0o755)
    return Gpus(expected=2, path=f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("gpus", "code", "fault"),
    [
        (TWO, 0, None),
        ("0, Tesla V100, [N/A]\n1, Tesla V100, [N/A]\n", 0, None),
        ("0, NVIDIA A10G, 0\n", 0, "1 of 2 GPUs answer"),
        ("No devices were found\n", 6, "nvidia-smi exits 6: No devices were found"),
        ("0, NVIDIA A10G, 0\n1, NVIDIA A10G, 3\n", 0, "GPU 1 has 3 uncorrected memory errors"),
        (
            "0, NVIDIA H100, 0\n1, NVIDIA H100, [GPU requires reset]\n",
            0,
            "nvidia-smi says 'requires reset'",
        ),
        (
            "Unable to determine the device handle for GPU0: 0000:10:1C.0: GPU is lost.\n",
            15,
            "nvidia-smi exits 15: Unable to determine the device handle for GPU0",
        ),
    ],
)
def test_what_nvidia_smi_says_of_them(
    gpus: str, code: int, fault: str | None, tmp_path: Path
) -> None:
    found = script(tmp_path, gpus, code=code).fault()

    assert (found or "").startswith(fault or "")
    assert (found is None) == (fault is None)


def test_a_driver_that_hangs_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = script(tmp_path, TWO)
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.2)

    assert gpus.fault() == "nvidia-smi doesn't answer within 0.2 s"


def test_a_host_without_the_program_is_taken_at_its_word(tmp_path: Path) -> None:
    gpus = Gpus(expected=8, path=str(tmp_path))

    assert (gpus.fault(), gpus.fault_after_kill()) == (None, None)


def test_a_process_that_outlives_the_kill_holds_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SETTLE_SECONDS", 0.1)

    fault = script(tmp_path, TWO, apps="4711, python\n").fault_after_kill()

    assert fault == "still in use after the kill: 4711, python"
    assert script(tmp_path, TWO).fault_after_kill() is None


def test_a_host_with_a_bad_gpu_claims_nothing_says_why_and_goes() -> None:
    play = idle()

    gone = play.tell(on.GpusFailed("GPU 1 is lost"))

    assert not play.state.wants_work
    (said,) = only(do.SendReport, gone)
    assert (said.kind, said.data) == (ReportKind.LEAVING, {"reason": "GPU fault: GPU 1 is lost"})
    assert only(do.Leave, gone) == [do.Leave("GPU fault: GPU 1 is lost", shutdown=True)]
    assert play.tell(on.TicketCame(KEY, "r")) == [do.ReturnTicket("r")]


def test_a_job_that_runs_is_not_disturbed_and_the_host_goes_after_it() -> None:
    play = running()

    assert play.tell(on.GpusFailed("GPU 1 is lost")) == []
    play.tell(on.JobExited(KEY, 0), on.Swept(KEY, (), None))
    ended = play.tell(on.Released(KEY))

    assert only(do.Leave, ended)
    assert ReportKind.FINISHED in reports(ended)


def test_a_host_under_notice_hands_its_job_over_first() -> None:
    play = interrupted()

    assert play.tell(on.GpusFailed("GPU 1 is lost")) == []
    assert play.state.tenure


def test_after_a_restart_the_gpus_are_judged_anew() -> None:
    play = running()
    play.tell(on.GpusFailed("GPU 1 is lost"))
    play.tell(on.JobExited(KEY, 0), on.Swept(KEY, (), None), on.Released(KEY))
    play.state, _ = MACHINE.recover(play.state, play.now)
    play.tell(on.HoldsRead(Holds(HOST)))

    assert play.state.wants_work


def test_a_job_that_left_a_gpu_unusable_is_the_hosts_last(tmp_path: Path) -> None:
    cloud = Cloud()
    host = HostUnderTest(cloud, tmp_path / "host")
    host.gpus = script(tmp_path, TWO)
    key = cloud.submit(JobSpec(("sh", "-c", f"echo '0, NVIDIA A10G, 0' > {tmp_path}/gpus"), env={}))
    host.start()
    try:
        cloud.ring(key)
        wait_until(lambda: cloud.lease(key).state is LeaseState.DONE, "the job is over")
        host.join()
    finally:
        host.close()

    assert host.ended == "GPU fault: 1 of 2 GPUs answer"
    (leaving,) = cloud.queues.said(ReportKind.LEAVING)
    assert leaving.data["reason"] == host.ended
