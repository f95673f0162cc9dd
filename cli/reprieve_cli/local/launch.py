"""How a cloud is launched: a run directory, sockets, and the world's process on a leash."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from reprieve_cli.local import certificates, processes
from reprieve_cli.local.control import WorldClient
from reprieve_cli.local.handle import ACCOUNT, REGION, Cloud, CloudError
from reprieve_cli.local.world.market import MarketError, market_from
from reprieve_cli.local.world.settings import Settings

if TYPE_CHECKING:
    from reprieve_cli.local.world.settings import Tls

AGENT_MODULE = "reprieve_agent"
_ROOT_KEY = "test"  # ministack's root
_START_SECONDS = 40.0
_LONGEST_RUN_DIR = 64  # a Unix socket's path holds 107 characters, the agent's needs 41
_CONFIG_FILE = "aws-config"


@dataclass(frozen=True, slots=True)
class Options:
    """What a cloud is to be like; ``cloud.start`` explains each."""

    notice_seconds: float
    market: Path | dict[str, Any] | None = None
    tls: bool = False
    auth: bool = False
    agent_module: str = AGENT_MODULE
    agent_environment: dict[str, str] = field(default_factory=dict)
    port: int = 0


def launch(options: Options, run_dir: Path | None, *, held: bool) -> Cloud:
    """
    Launch a cloud and wait until it answers; raise ``CloudError`` with nothing left behind.

    A *held* one ends with this process.
    """
    if not processes.PROC.joinpath("self/stat").exists():
        raise CloudError("the embedded cloud needs Linux: it reads process trees from /proc")
    ministack_python = _ministack_python()
    described = _market(options.market)
    directory = _run_directory(run_dir)
    try:
        with contextlib.ExitStack() as cleanup:
            listeners = [_listen(options.port)] + ([_listen(0)] if options.tls else [])
            for listener in listeners:
                cleanup.callback(listener.close)
            settings = _settings(
                replace(options, market=described),
                directory,
                listeners,
                authority=certificates.make(directory / "tls") if options.tls else None,
                ministack_python=ministack_python,
            )
            cloud = _spawn(settings, held=held)
        # Our copies of the sockets are closed: if the world dies, its callers hear of it.
        _wait_ready(cloud)
        return cloud
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        raise CloudError(words(error, directory)) from error
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _settings(
    options: Options,
    directory: Path,
    listeners: list[socket.socket],
    *,
    authority: Tls | None,
    ministack_python: Path,
) -> Settings:
    scheme = "https" if authority else "http"
    return Settings(
        run_dir=directory,
        endpoint=f"{scheme}://127.0.0.1:{listeners[0].getsockname()[1]}",
        metadata=f"http://127.0.0.1:{listeners[-1].getsockname()[1]}",
        sockets=[listener.fileno() for listener in listeners],
        leash=None,
        notice_seconds=options.notice_seconds,
        region=REGION,
        account=ACCOUNT,
        python=sys.executable,
        ministack_python=str(ministack_python),
        agent_module=options.agent_module,
        market=options.market if isinstance(options.market, dict) else None,
        auth=options.auth,
        tls=authority,
        agent_environment=options.agent_environment,
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
        raise CloudError(words(error, run_dir or Path(tempfile.gettempdir()))) from error
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


def words(error: OSError, directory: Path) -> str:
    """Word a failure of the file system for the person at the keyboard."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"no space left for {directory}: free some, or set TMPDIR to another disk"
    return f"{directory} can't be used: {error}"


def _last_line(run_dir: Path) -> str:
    try:
        lines = (run_dir / "world.log").read_text(errors="replace").split("\n")
    except OSError:
        lines = []
    return next((line for line in reversed(lines) if line.strip()), "it said nothing")
