"""
Start and stop the embedded cloud.

``start`` holds the cloud for one process: it ends with the ``with`` block, and also when that
process is interrupted, terminated or killed, because the world watches a pipe that only we hold.
``up``, ``load`` and ``down`` keep one in the background, found by a state file.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml

from reprieve_cli.local import certificates, processes
from reprieve_cli.local.control import WorldClient
from reprieve_cli.local.world.market import MarketError, market_from
from reprieve_cli.local.world.settings import Settings, Tls

if TYPE_CHECKING:
    from types import TracebackType

ACCOUNT = "000000000000"
REGION = "us-east-1"
AGENT_MODULE = "reprieve_agent"
_ROOT_KEY = "test"  # ministack's root
_START_SECONDS = 40.0
_STOP_SECONDS = 5.0
_LONGEST_RUN_DIR = 64  # a Unix socket's path holds 107 characters, the agent's needs 41
_STATE_DIR = Path(".reprieve/local")
_STATE_FILE = "cloud.json"
_CONFIG_FILE = "aws-config"


class CloudError(Exception):
    """The embedded cloud can't be had: one line, with what to do."""


@dataclass(slots=True)
class Cloud:
    """A running embedded cloud; as a context manager it stops at the end."""

    endpoint: str
    """Where SDK calls go (AWS_ENDPOINT_URL)."""
    env: dict[str, str]
    """The SDK environment for product code: put it over one without other AWS_* variables."""
    control: WorldClient
    run_dir: Path
    """Logs, hosts' directories, certificates: deleted by ``stop``."""
    notice_seconds: float
    pid: int
    """Of the world, which leads its own process group."""
    region: str = REGION
    account: str = ACCOUNT
    _leash: int | None = field(default=None, repr=False)
    """Our end of the pipe that the world watches; None for a cloud that nobody holds."""

    def environ(self) -> dict[str, str]:
        """Return this process's environment with our AWS settings instead of the user's."""
        others = {name: value for name, value in os.environ.items() if name[:4] != "AWS_"}
        return {**others, **self.env}

    def stop(self) -> None:
        """End every process of this cloud and delete its run directory; twice is fine."""
        if self._leash is not None:
            os.close(self._leash)  # the world ends itself when it sees this
            self._leash = None
        else:
            with contextlib.suppress(Exception):
                self.control.shutdown()
        if not self._gone(seconds=_STOP_SECONDS):
            processes.end(self.pid, grace_seconds=0)
        self._gone(seconds=_STOP_SECONDS)
        processes.kill_those_in(self.run_dir)
        shutil.rmtree(self.run_dir, ignore_errors=True)

    def _gone(self, *, seconds: float) -> bool:
        gone = processes.wait_gone([self.pid], seconds=seconds)
        with contextlib.suppress(ChildProcessError):  # it may be another process's child
            os.waitpid(self.pid, os.WNOHANG)
        return gone

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


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
    return _launch(
        run_dir,
        notice_seconds=notice_seconds,
        market=market,
        tls=tls,
        auth=auth,
        agent_module=agent_module,
        agent_environment=agent_environment or {},
        port=port,
        held=True,
    )


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
    cloud = _launch(
        None,
        notice_seconds=notice_seconds,
        market=market,
        tls=tls,
        auth=auth,
        agent_module=AGENT_MODULE,
        agent_environment={},
        port=port,
        held=False,
    )
    try:
        _remember(cloud, directory)
    except OSError as error:
        cloud.stop()
        raise CloudError(_words(error, directory)) from error
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


# ---------------------------------------------------------------------- launch
def _launch(
    run_dir: Path | None,
    *,
    notice_seconds: float,
    market: Path | dict[str, Any] | None,
    tls: bool,
    auth: bool,
    agent_module: str,
    agent_environment: dict[str, str],
    port: int,
    held: bool,
) -> Cloud:
    if not processes.PROC.joinpath("self/stat").exists():
        raise CloudError("the embedded cloud needs Linux: it reads process trees from /proc")
    ministack_python = _ministack_python()
    described = _market(market)
    directory = _run_directory(run_dir)
    try:
        with contextlib.ExitStack() as cleanup:
            listeners = [_listen(port)] + ([_listen(0)] if tls else [])
            for listener in listeners:
                cleanup.callback(listener.close)
            settings = _settings(
                directory,
                listeners,
                authority=certificates.make(directory / "tls") if tls else None,
                notice_seconds=notice_seconds,
                market=described,
                auth=auth,
                agent_module=agent_module,
                agent_environment=agent_environment,
                ministack_python=ministack_python,
            )
            cloud = _spawn(settings, held=held)
        # Our copies of the sockets are closed: if the world dies, its callers hear of it.
        _wait_ready(cloud)
        return cloud
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        raise CloudError(_words(error, directory)) from error
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _settings(
    directory: Path,
    listeners: list[socket.socket],
    *,
    authority: Tls | None,
    notice_seconds: float,
    market: dict[str, Any] | None,
    auth: bool,
    agent_module: str,
    agent_environment: dict[str, str],
    ministack_python: Path,
) -> Settings:
    scheme = "https" if authority else "http"
    return Settings(
        run_dir=directory,
        endpoint=f"{scheme}://127.0.0.1:{listeners[0].getsockname()[1]}",
        metadata=f"http://127.0.0.1:{listeners[-1].getsockname()[1]}",
        sockets=[listener.fileno() for listener in listeners],
        leash=None,
        notice_seconds=notice_seconds,
        region=REGION,
        account=ACCOUNT,
        python=sys.executable,
        ministack_python=str(ministack_python),
        agent_module=agent_module,
        market=market,
        auth=auth,
        tls=authority,
        agent_environment=agent_environment,
    )


def _spawn(settings: Settings, *, held: bool) -> Cloud:
    """Start the world and wait until it answers."""
    ours: int | None = None
    theirs: int | None = None
    if held:
        theirs, ours = os.pipe()
    settings = replace(settings, leash=theirs)
    try:
        pid = _spawn_world(settings)
    except BaseException:
        if ours is not None:
            os.close(ours)
        raise
    finally:
        if theirs is not None:
            os.close(theirs)
    return Cloud(
        endpoint=settings.endpoint,
        env=_sdk_environment(settings),
        control=WorldClient(settings.metadata),
        run_dir=settings.run_dir,
        notice_seconds=settings.notice_seconds,
        pid=pid,
        _leash=ours,
    )


def _spawn_world(settings: Settings) -> int:
    """Start the world's process in a session of its own; it may outlive us, so no Popen."""
    command = [settings.python, "-m", "reprieve_cli.local.world", str(settings.save())]
    inherited = [*settings.sockets, *([settings.leash] if settings.leash is not None else [])]
    for descriptor in inherited:
        os.set_inheritable(descriptor, True)  # noqa: FBT003  # its own signature
    log = str(settings.run_dir / "world.log")
    return os.posix_spawn(
        settings.python,
        command,
        {**settings.own_environment(), "HOME": str(settings.run_dir)},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigdef=[signal.SIGPIPE],
    )


def _wait_ready(cloud: Cloud) -> None:
    """Wait until *cloud* answers; end it and raise ``CloudError`` if it never does."""
    deadline = time.monotonic() + _START_SECONDS
    try:
        while processes.alive(cloud.pid) and time.monotonic() < deadline:
            # The socket is bound already: the first request waits until the world takes it.
            if cloud.control.healthy():
                return
    except BaseException:
        cloud.stop()
        raise
    reason = _last_line(cloud.run_dir)
    cloud.stop()
    raise CloudError(f"the embedded cloud did not start: {reason}")


def _sdk_environment(settings: Settings) -> dict[str, str]:
    environment = {
        "AWS_ENDPOINT_URL": settings.endpoint,
        "AWS_ACCESS_KEY_ID": _ROOT_KEY,
        "AWS_SECRET_ACCESS_KEY": _ROOT_KEY,
        "AWS_REGION": settings.region,
        "AWS_DEFAULT_REGION": settings.region,
        "AWS_EC2_METADATA_DISABLED": "true",
        # The user's profiles must not leak in, whichever is chosen.
        "AWS_CONFIG_FILE": str(settings.run_dir / _CONFIG_FILE),
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_PROFILE": "default",
        "AWS_DEFAULT_PROFILE": "default",
        # Nor may the way to our loopback lead over the user's proxy.
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }
    config = f"[default]\nregion = {settings.region}\n"
    (settings.run_dir / _CONFIG_FILE).write_text(config, encoding="utf-8")
    if settings.tls:
        environment["AWS_CA_BUNDLE"] = settings.tls.authority
        environment["NODE_EXTRA_CA_CERTS"] = settings.tls.authority
    return environment


def _ministack_python() -> Path:
    """Find ``.venv-local`` at or above the current directory, or in our own checkout."""
    checkout = Path(__file__).resolve().parents[3]
    for directory in (Path.cwd(), *Path.cwd().parents, checkout):
        candidate = directory / ".venv-local" / "bin" / "python"
        if candidate.exists():
            return candidate
    raise CloudError("the AWS emulator is not installed (.venv-local): run 'make setup'")


def _market(market: Path | dict[str, Any] | None) -> dict[str, Any] | None:
    """Read and check the market's description."""
    try:
        described = market if market is None or isinstance(market, dict) else _yaml(market)
        market_from(described, region=REGION)
    except MarketError as error:
        raise CloudError(str(error)) from error
    return described


def _yaml(path: Path) -> dict[str, Any]:
    try:
        read = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise CloudError(f"the market {path} can't be read: {error}") from error
    if not isinstance(read, dict):
        raise CloudError(f"the market {path} is no mapping: see reprieve_cli.local.world.market")
    return read


def _run_directory(run_dir: Path | None) -> Path:
    try:
        if run_dir is None:
            directory = Path(tempfile.mkdtemp(prefix="reprieve-"))
        else:
            directory = run_dir.resolve()
            directory.mkdir(parents=True, exist_ok=True)
        (directory / "tmp").mkdir(exist_ok=True)
    except OSError as error:
        raise CloudError(_words(error, run_dir or Path(tempfile.gettempdir()))) from error
    if len(str(directory)) > _LONGEST_RUN_DIR:
        raise CloudError(
            f"the run directory {directory} is longer than {_LONGEST_RUN_DIR} characters, too "
            "long for Unix sockets: choose a shorter one, or set TMPDIR"
        )
    return directory


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise CloudError(
                f"port {port} of 127.0.0.1 is taken: stop what listens there, or take port 0"
            ) from error
        raise
    return listener


def _words(error: OSError, directory: Path) -> str:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"no space left for {directory}: free some, or set TMPDIR to another disk"
    return f"{directory} can't be used: {error}"


def _last_line(run_dir: Path) -> str:
    try:
        lines = (run_dir / "world.log").read_text(errors="replace").split("\n")
    except OSError:
        lines = []
    return next((line for line in reversed(lines) if line.strip()), "it said nothing")
