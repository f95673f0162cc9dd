"""``python -m reprieve_cli.local.world SETTINGS``: run the world until somebody ends it."""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from reprieve_cli.local.world import ministack
from reprieve_cli.local.world.settings import load

if TYPE_CHECKING:
    from reprieve_cli.local.world.settings import Settings


async def run(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop.set)
    if settings.leash is not None:
        loop.add_reader(settings.leash, _let_go, settings.leash, stop)
    starting = asyncio.create_task(ministack.start_healthy(settings))
    await asyncio.sleep(0)  # ministack starts while we import boto3
    from reprieve_cli.local.world.world import World

    emulator = await starting
    try:
        world = await World.build(settings, emulator_port=emulator.port, stop=stop)
        try:
            await world.serve([socket.socket(fileno=descriptor) for descriptor in settings.sockets])
            dead = asyncio.create_task(emulator.process.wait())
            await asyncio.wait(
                [asyncio.create_task(stop.wait()), dead], return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            await world.close()
    finally:
        await emulator.stop()


def _launcher_is_gone(leash: int) -> bool:
    readable, _, _ = select.select([leash], [], [], 0)
    return bool(readable)


def _let_go(leash: int, stop: asyncio.Event) -> None:
    """Nobody writes to the pipe: readable means that the launcher is gone, however it went."""
    asyncio.get_running_loop().remove_reader(leash)
    stop.set()


def main(arguments: list[str]) -> int:
    settings = load(Path(arguments[0]))
    os.chdir(settings.run_dir)
    try:
        asyncio.run(run(settings))
    except ministack.MinistackError as error:
        sys.exit(str(error))
    if settings.leash is not None and _launcher_is_gone(settings.leash):
        shutil.rmtree(settings.run_dir, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
