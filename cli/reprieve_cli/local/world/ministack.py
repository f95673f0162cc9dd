"""ministack's process: started with a clean environment, because its functions inherit it."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from reprieve_cli.local import processes

if TYPE_CHECKING:
    from reprieve_cli.local.world.settings import Settings

_HEALTH_SECONDS = 30.0
_GRACE_SECONDS = 0.5  # it has nothing to save
_ATTEMPTS = 3  # a free port may be taken between our look and ministack's bind


class MinistackError(Exception):
    """ministack did not come up."""


@dataclass(frozen=True, slots=True)
class Ministack:
    process: asyncio.subprocess.Process
    port: int

    async def stop(self) -> None:
        """End it and its function workers."""
        if self.process.returncode is None:
            await asyncio.to_thread(processes.end, self.process.pid, grace_seconds=_GRACE_SECONDS)
            await self.process.wait()


async def start(settings: Settings) -> Ministack:
    """Start ministack on a free port; it is not healthy yet (``wait_healthy``)."""
    port = _free_port()
    log = settings.run_dir / "ministack.log"
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            settings.python,
            *("-m", "reprieve_cli.local.world.leash", str(os.getpid())),
            *(settings.ministack_python, "-m", "ministack"),
            env={**settings.own_environment(), **_environment(settings, port)},
            cwd=settings.run_dir,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return Ministack(process, port)


async def start_healthy(settings: Settings) -> Ministack:
    """Start ministack and wait until it answers; raise ``MinistackError`` if it does not."""
    for _ in range(_ATTEMPTS):
        ministack = await start(settings)
        if await _healthy(ministack, settings):
            return ministack
        await ministack.stop()
        log = (settings.run_dir / "ministack.log").read_text(errors="replace")
        if "already in use" not in log:
            break
    raise MinistackError(f"ministack did not start: {_last_line(settings.run_dir)}")


async def _healthy(ministack: Ministack, settings: Settings) -> bool:
    deadline = time.monotonic() + _HEALTH_SECONDS
    url = f"{settings.scheme}://127.0.0.1:{ministack.port}/_ministack/health"
    async with aiohttp.ClientSession() as session:
        while time.monotonic() < deadline and ministack.process.returncode is None:
            try:
                async with session.get(url, ssl=settings.client_tls()) as answer:
                    return answer.ok
            except (aiohttp.ClientError, OSError):
                await asyncio.sleep(0.05)
    return False


def _environment(settings: Settings, port: int) -> dict[str, str]:
    environment = {
        "HOME": str(settings.run_dir),
        "TMPDIR": str(settings.run_dir / "tmp"),
        "GATEWAY_PORT": str(port),
        "BIND_HOST": "127.0.0.1",
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "MINISTACK_REGION": settings.region,
        "MINISTACK_ACCOUNT_ID": settings.account,
        "AUTH": "true" if settings.auth else "false",
        # The functions inherit these: their calls go through the world, too.
        "AWS_ENDPOINT_URL": settings.endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": settings.region,
        "AWS_DEFAULT_REGION": settings.region,
    }
    if settings.tls:
        environment |= {
            "USE_SSL": "1",
            "MINISTACK_SSL_CERT": settings.tls.certificate,
            "MINISTACK_SSL_KEY": settings.tls.key,
            "AWS_CA_BUNDLE": settings.tls.authority,
        }
    return environment


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _last_line(run_dir: Path) -> str:
    lines = (run_dir / "ministack.log").read_text(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "it said nothing")
