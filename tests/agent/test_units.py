"""The text of the units: systemd has nothing to say about it, and each stop leaves time to save."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from reprieve.domain.clock import NoticeClock
from reprieve_agent.periods import Periods
from reprieve_agent.systemd_supervisor import PROPERTIES, SAVE_SECONDS

AGENT = Path(__file__).parents[2] / "agent" / "systemd" / "reprieve-agent.service"
OF_THE_UNIT_SECTION = frozenset({"After"})
EXPOSURE_LIMIT = 35  # tenths; systemd calls less than 5 "OK"

needs_systemd_analyze = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd-analyze isn't installed"
)


def analyze(*arguments: str) -> tuple[int, str]:
    """Return status and every word of it: older versions end with 0 whatever they find."""
    done = subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, check=False, text=True
    )
    return done.returncode, done.stdout + done.stderr


def settings(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if "=" in line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def job_unit() -> str:
    """Return the text of a unit with the properties of a job's."""
    sections: dict[str, list[str]] = {"Unit": [], "Service": [f"ExecStart={sys.executable} -V"]}
    for name, value in PROPERTIES.items():
        section = "Unit" if name in OF_THE_UNIT_SECTION else "Service"
        sections[section].append(f"{name}={value}")
    return "\n".join(f"[{name}]\n" + "\n".join(lines) for name, lines in sections.items())


@needs_systemd_analyze
def test_systemd_has_nothing_to_say_about_the_units(tmp_path: Path) -> None:
    agent, job = tmp_path / AGENT.name, tmp_path / "reprieve-job.service"
    agent.write_text(AGENT.read_text().replace("/opt/reprieve/bin/python", sys.executable))
    job.write_text(job_unit())

    assert analyze("verify", "--man=no", str(agent), str(job)) == (0, "")


@needs_systemd_analyze
def test_a_setting_that_systemd_ignores_is_noticed(tmp_path: Path) -> None:
    unit = tmp_path / "reprieve-job.service"
    unit.write_text(job_unit().replace("KillMode=mixed", "KillMode=mixd"))

    assert "mixd" in analyze("verify", "--man=no", str(unit))[1]


@needs_systemd_analyze
def test_the_agent_may_do_little_else() -> None:
    status, said = analyze(
        "security", "--offline=true", f"--threshold={EXPOSURE_LIMIT}", str(AGENT)
    )

    assert status == 0, said.splitlines()[-1]


def test_sigterm_goes_to_the_agent_and_to_the_keeper_alone() -> None:
    agent = settings(AGENT.read_text())

    assert agent["KillMode"] == PROPERTIES["KillMode"] == "mixed"
    assert agent["ExecStart"].startswith("/opt/reprieve/bin/python ")  # no shell


def test_no_stop_ends_before_a_save_may() -> None:
    periods = Periods.of(NoticeClock.of_seconds(120))
    agent_limit = float(settings(AGENT.read_text())["TimeoutStopSec"])
    job_limit = float(PROPERTIES["TimeoutStopSec"])

    assert periods.stop_budget < SAVE_SECONDS < job_limit
    assert timedelta(seconds=periods.stop_budget + periods.margin) < timedelta(seconds=agent_limit)


def test_the_agent_is_started_for_ever_and_a_job_never_again() -> None:
    agent = settings(AGENT.read_text())

    assert (agent["Restart"], agent["StartLimitIntervalSec"]) == ("always", "0")
    assert "Restart" not in PROPERTIES


def test_a_job_is_stopped_before_its_agent_and_kept_from_the_metadata_service() -> None:
    assert PROPERTIES["After"] == AGENT.name
    assert "169.254.169.254/32" in PROPERTIES["IPAddressDeny"]
    assert PROPERTIES["NoNewPrivileges"] == "yes"
