"""Where the parts of the world meet."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from reprieve_cli.local.world.calls import CallLog
from reprieve_cli.local.world.commands import Ssm
from reprieve_cli.local.world.control_api import Control
from reprieve_cli.local.world.ec2 import Account, Ec2
from reprieve_cli.local.world.events import Events
from reprieve_cli.local.world.faults import Faults
from reprieve_cli.local.world.fleet import Fleets
from reprieve_cli.local.world.hosts import Hosts
from reprieve_cli.local.world.imds import Metadata
from reprieve_cli.local.world.machine import Site
from reprieve_cli.local.world.market import market_from
from reprieve_cli.local.world.proxy import Proxy
from reprieve_cli.local.world.pump import Pump
from reprieve_cli.local.world.queues import Queues
from reprieve_cli.local.world.server import Server
from reprieve_cli.local.world.sweep import Sweep
from reprieve_cli.local.world.timeline import Timeline
from reprieve_cli.local.world.upstream import Address, Upstream

if TYPE_CHECKING:
    import socket

    from reprieve_cli.local.world.settings import Settings

_SHUTDOWN_SECONDS = 0.2  # long polls are of no use to a caller any more


@dataclass(slots=True)
class World:
    settings: Settings
    hosts: Hosts
    ssm: Ssm
    events: Events
    sweep: Sweep
    pump: Pump
    proxy: Proxy
    upstream: Upstream
    server: Server
    runner: web.ServerRunner

    @classmethod
    async def build(cls, settings: Settings, *, emulator_port: int, stop: asyncio.Event) -> World:
        address = Address(
            url=f"{settings.scheme}://127.0.0.1:{emulator_port}",
            region=settings.region,
            ca_bundle=Path(settings.tls.authority) if settings.tls else None,
        )
        upstream = Upstream(address)
        timeline = Timeline()
        calls = CallLog()
        faults = Faults()
        requests = CallLog()
        events = Events(upstream, timeline, faults)
        market = market_from(
            settings.market, region=settings.region, notice_seconds=settings.notice_seconds
        )
        hosts = Hosts(
            site=_site(settings),
            market=market,
            timeline=timeline,
            publish=events.publish,
            account=settings.account,
            notice_seconds=settings.notice_seconds,
        )
        ssm = Ssm(
            hosts=hosts,
            timeline=timeline,
            publish=events.publish,
            account=settings.account,
            region=settings.region,
        )
        fleets = Fleets(
            market=market, facts=Account(upstream), launch=hosts.launch, instances=hosts.all
        )
        sweep = Sweep(upstream, timeline, account=settings.account)
        pump = Pump(upstream, timeline)
        proxy = Proxy(address)
        control = Control(
            hosts=hosts,
            market=market,
            events=events,
            faults=faults,
            calls=calls,
            requests=requests,
            timeline=timeline,
            sweep=sweep,
            pump=pump,
            stop=stop,
        )
        server = Server(
            hosts=hosts,
            ec2=Ec2(hosts=hosts, market=market, fleets=fleets),
            ssm=ssm,
            metadata=Metadata(hosts=hosts, upstream=upstream, account=settings.account),
            proxy=proxy,
            faults=faults,
            calls=calls,
            requests=requests,
            control=control,
            put_back=Queues(upstream).put_back,
        )
        runner = web.ServerRunner(
            web.Server(server, auto_decompress=False, access_log=None, handler_cancellation=True),
            shutdown_timeout=_SHUTDOWN_SECONDS,
        )
        return cls(settings, hosts, ssm, events, sweep, pump, proxy, upstream, server, runner)

    async def serve(self, sockets: list[socket.socket]) -> None:
        """Answer on *sockets*: SDK calls on the first, metadata and control on the last."""
        await self.runner.setup()
        for place, listener in enumerate(sockets):
            listener.setblocking(False)  # noqa: FBT003  # the socket's own signature
            tls = self.settings.server_tls() if place == 0 else None
            await web.SockSite(self.runner, listener, ssl_context=tls).start()

    async def close(self) -> None:
        """End everything, hosts first: nothing of ours outlives this."""
        await self.hosts.close()
        for part in (self.sweep, self.pump, self.ssm, self.events):
            await part.close()
        await self.runner.cleanup()
        await self.server.close()
        await self.proxy.close()
        self.upstream.close()


def _site(settings: Settings) -> Site:
    return Site(
        directory=settings.run_dir / "hosts",
        endpoint=settings.endpoint,
        metadata=settings.metadata,
        region=settings.region,
        ca_bundle=Path(settings.tls.authority) if settings.tls else None,
        python=settings.python,
        agent_module=settings.agent_module,
        extra=settings.agent_environment,
    )
