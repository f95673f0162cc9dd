"""The control API under ``/_world/``: JSON in, JSON out; drills, tests and the CLI use it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from aiohttp import web

from reprieve_cli.local.world.errors import AwsError
from reprieve_cli.local.world.faults import FaultError, Faults
from reprieve_cli.local.world.hosts import BOTH, Channel, Hosts, Wire, WrongStateError
from reprieve_cli.local.world.market import Market, MarketError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from reprieve_cli.local.world.calls import CallLog
    from reprieve_cli.local.world.events import Events
    from reprieve_cli.local.world.pump import Pump
    from reprieve_cli.local.world.sweep import Sweep
    from reprieve_cli.local.world.timeline import Timeline

Body = dict[str, Any]


class Control:
    def __init__(
        self,
        *,
        hosts: Hosts,
        market: Market,
        events: Events,
        faults: Faults,
        calls: CallLog,
        requests: CallLog,
        timeline: Timeline,
        sweep: Sweep,
        pump: Pump,
        stop: asyncio.Event,
    ) -> None:
        self._hosts = hosts
        self._market = market
        self._events = events
        self._faults = faults
        self._calls = calls
        self._requests = requests
        self._timeline = timeline
        self._sweep = sweep
        self._pump = pump
        self._stop = stop
        self._routes: dict[tuple[str, str], Callable[[Body], Awaitable[Any]]] = {
            ("GET", "health"): self._health,
            ("GET", "hosts"): self._list_hosts,
            ("GET", "pools"): self._get_pools,
            ("PUT", "pools"): self._put_pools,
            ("PATCH", "pools"): self._patch_pool,
            ("POST", "events"): self._post_event,
            ("GET", "faults"): self._get_faults,
            ("POST", "faults"): self._post_fault,
            ("DELETE", "faults"): self._delete_faults,
            ("GET", "calls"): self._get_calls,
            ("GET", "metadata"): self._get_metadata,
            ("GET", "log"): self._get_log,
            ("POST", "sweep"): self._post_sweep,
            ("POST", "pump"): self._post_pump,
            ("POST", "shutdown"): self._shutdown,
        }
        self._acts: dict[str, Callable[[str, Body], Awaitable[Any]]] = {
            "notice": self._notice,
            "rebalance": self._rebalance,
            "kill": self._kill,
            "terminate": self._terminate,
            "crash": self._crash,
            "stop": self._stop_agent,
            "shutdown": self._shut_down,
            "freeze": self._freeze,
            "thaw": self._thaw,
            "reboot": self._reboot,
            "cut": self._cut,
            "mend": self._mend,
        }

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        path = request.path.removeprefix("/_world/").strip("/")
        try:
            text = await request.text()
            body = {**dict(request.query), **(json.loads(text) if text else {})}
            return web.json_response(await self._route(request.method, path, body))
        except LookupError as error:
            return _trouble(404, f"no such call: {request.method} {request.path} ({error})")
        except WrongStateError as error:
            return _trouble(409, str(error))
        except AwsError as error:
            return _trouble(404 if "NotFound" in error.code else 400, error.message)
        except (FaultError, MarketError, ValueError, TypeError) as error:
            return _trouble(400, str(error))

    async def _route(self, method: str, path: str, body: Body) -> Any:
        parts = path.split("/")
        match parts:
            case ["hosts", instance_id, act] if method == "POST":
                return await self._acts[act](instance_id, body) or {}
            case [name]:
                return await self._routes[method, name](body)
            case _:
                raise LookupError(path)

    # ------------------------------------------------------------------ hosts
    async def _list_hosts(self, _body: Body) -> list[Body]:
        return self._hosts.summaries()

    async def _notice(self, instance_id: str, body: Body) -> None:
        self._hosts.notice(
            instance_id,
            action=body.get("action", "terminate") or None,
            channels=_channels(body),
            in_seconds=body.get("in_seconds"),
            reclaim=body.get("reclaim", True),
        )

    async def _rebalance(self, instance_id: str, body: Body) -> None:
        self._hosts.rebalance(instance_id, channels=_channels(body))

    async def _kill(self, instance_id: str, body: Body) -> None:
        self._hosts.kill(instance_id, events=body.get("events", True))

    async def _terminate(self, instance_id: str, _body: Body) -> None:
        await self._hosts.terminate([instance_id])

    async def _crash(self, instance_id: str, _body: Body) -> None:
        self._hosts.crash(instance_id)

    async def _stop_agent(self, instance_id: str, _body: Body) -> None:
        self._hosts.stop(instance_id)

    async def _shut_down(self, instance_id: str, _body: Body) -> None:
        self._hosts.shut_down(instance_id)

    async def _freeze(self, instance_id: str, _body: Body) -> None:
        self._hosts.freeze(instance_id)

    async def _thaw(self, instance_id: str, _body: Body) -> None:
        self._hosts.thaw(instance_id)

    async def _reboot(self, instance_id: str, _body: Body) -> None:
        await self._hosts.reboot(instance_id)

    async def _cut(self, instance_id: str, body: Body) -> None:
        self._hosts.cut(instance_id, Wire(body.get("what", "network")), seconds=body.get("seconds"))

    async def _mend(self, instance_id: str, body: Body) -> None:
        self._hosts.mend(instance_id, Wire(body["what"]) if body.get("what") else None)

    # ------------------------------------------------------------------ market
    async def _get_pools(self, _body: Body) -> Body:
        return self._market.describe()

    async def _put_pools(self, body: Body) -> Body:
        self._market.replace(body)
        return self._market.describe()

    async def _patch_pool(self, body: Body) -> Body:
        self._market.update(body)
        return self._market.describe()

    # ------------------------------------------------------------------ events and faults
    async def _post_event(self, body: Body) -> Body:
        times = int(body.get("times", 1))
        delivered = [await self._events.deliver(body["event"]) for _ in range(times)]
        return {"delivered": delivered}

    async def _get_faults(self, _body: Body) -> list[Body]:
        return self._faults.describe()

    async def _post_fault(self, body: Body) -> Body:
        return self._faults.add(body).describe()

    async def _delete_faults(self, _body: Body) -> Body:
        self._faults.clear()
        return {}

    # ------------------------------------------------------------------ logs
    async def _get_calls(self, body: Body) -> list[Body]:
        if body.get("in_flight"):
            return self._calls.in_flight()
        return self._calls.since(int(body.get("since", 0)))

    async def _get_metadata(self, body: Body) -> list[Body]:
        return self._requests.since(int(body.get("since", 0)))

    async def _get_log(self, body: Body) -> list[Body]:
        return self._timeline.since(int(body.get("since", 0)))

    # ------------------------------------------------------------------ machinery
    async def _health(self, _body: Body) -> Body:
        return {"status": "ok"}

    async def _post_sweep(self, body: Body) -> Body:
        self._sweep.set(function=body["function"], seconds=float(body["seconds"]))
        return {}

    async def _post_pump(self, body: Body) -> Body:
        self._pump.set(seconds=float(body["seconds"]))
        return {}

    async def _shutdown(self, _body: Body) -> Body:
        self._stop.set()
        return {}


def _channels(body: Body) -> frozenset[Channel]:
    named = body.get("channels")
    return BOTH if named is None else frozenset(Channel(name) for name in named)


def _trouble(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)
