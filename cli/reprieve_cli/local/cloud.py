"""
Start and stop the embedded cloud.

``start`` holds the cloud for one process: it ends with the ``with`` block, and also when that
process is interrupted, terminated or killed, because the world watches a pipe that only we hold.
``up``, ``load`` and ``down`` keep one in the background, found by a state file.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from reprieve_cli.local import processes
from reprieve_cli.local.control import WorldClient
from reprieve_cli.local.handle import ACCOUNT, REGION, Cloud, CloudError
from reprieve_cli.local.launch import AGENT_MODULE, Options, launch, words

__all__ = ["ACCOUNT", "REGION", "Cloud", "CloudError", "down", "load", "start", "up"]

_STATE_DIR = Path(".reprieve/local")
_STATE_FILE = "cloud.json"


def start(
    run_dir: Path | None = None,
    *,
    notice_seconds: float = 20.0,
    market: Path | dict[str, Any] | None = None,
    tls: bool = False,
    auth: bool = False,
    agent_module: str = AGENT_MODULE,
    agent_environment: dict[str, str] | None = None,
    port: int = 0,
) -> Cloud:
    """
    Start an embedded cloud that lives as long as this process, at most.

    *market* describes the capacity pools (``world.market``; a YAML file or its content); None
    sells everything everywhere. *auth* has ministack enforce IAM policies, which needs *tls*
    where policies ask for it. *agent_module* is what hosts run (``python -m``), its ``.ctl``
    what commands find as ``reprieve-ctl``; *agent_environment* is added to every agent's.
    *port* 0 takes a free one. Raise ``CloudError`` when it can't be had.
    """
    options = Options(
        notice_seconds=notice_seconds,
        market=market,
        tls=tls,
        auth=auth,
        agent_module=agent_module,
        agent_environment=agent_environment or {},
        port=port,
    )
    return launch(options, run_dir, held=True)


def up(
    state_dir: Path | None = None,
    *,
    notice_seconds: float = 20.0,
    market: Path | dict[str, Any] | None = None,
    tls: bool = False,
    auth: bool = False,
    port: int = 0,
) -> Cloud:
    """Start a cloud that outlives this process; its state file lies in *state_dir*."""
    directory = state_dir or default_state_dir()
    known = _known(directory)
    if known is not None and _works(known):
        raise CloudError(f"already up at {known.endpoint}: 'reprieve local down' ends it")
    options = Options(notice_seconds=notice_seconds, market=market, tls=tls, auth=auth, port=port)
    cloud = launch(options, None, held=False)
    try:
        _remember(cloud, directory)
    except OSError as error:
        cloud.stop()
        raise CloudError(words(error, directory)) from error
    except BaseException:
        cloud.stop()
        raise
    return cloud


def load(state_dir: Path | None = None) -> Cloud:
    """Find the cloud that ``up`` started; raise ``CloudError`` if there is none."""
    known = _known(state_dir or default_state_dir())
    if known is None:
        raise CloudError("the embedded cloud is not up: run 'reprieve local up'")
    if not _works(known):
        raise CloudError("the embedded cloud has died: run 'reprieve local down', then 'up'")
    return known


def down(state_dir: Path | None = None) -> bool:
    """End the cloud that ``up`` started, dead or alive; False if there was none."""
    directory = state_dir or default_state_dir()
    known = _known(directory)
    if known is None:
        return False
    known.stop()
    (directory / _STATE_FILE).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty: it isn't ours alone
        directory.rmdir()
    return True


def default_state_dir() -> Path:
    """Below $XDG_RUNTIME_DIR if there is one, else below the current directory."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "reprieve" if runtime else Path(_STATE_DIR)


def _remember(cloud: Cloud, directory: Path) -> None:
    state = {
        "pid": cloud.pid,
        "endpoint": cloud.endpoint,
        "env": cloud.env,
        "control": cloud.control.url,
        "run_dir": str(cloud.run_dir),
        "notice_seconds": cloud.notice_seconds,
    }
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / _STATE_FILE
    fresh = path.with_suffix(".part")
    fresh.write_text(json.dumps(state, indent=1), encoding="utf-8")
    fresh.replace(path)


def _known(directory: Path) -> Cloud | None:
    """Read the state file; the cloud it names may be dead."""
    try:
        state = json.loads((directory / _STATE_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CloudError(f"{directory / _STATE_FILE} can't be read, delete it: {error}") from error
    return Cloud(
        endpoint=state["endpoint"],
        env=state["env"],
        control=WorldClient(state["control"]),
        run_dir=Path(state["run_dir"]),
        notice_seconds=state["notice_seconds"],
        pid=state["pid"],
    )


def _works(cloud: Cloud) -> bool:
    return processes.alive(cloud.pid) and cloud.control.healthy()
