"""
The world's control API from Python: look at hosts, interrupt them, script faults, read logs.

Every method raises ``ControlError`` with the world's own sentence when it is refused.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_TIMEOUT_SECONDS = 30
_POLL_SECONDS = 0.05

Json = dict[str, Any]


class ControlError(Exception):
    """The world refused a request, or can't be reached."""


@dataclass(frozen=True, slots=True)
class Host:
    instance_id: str
    type: str
    zone: str
    market: str
    """spot or on-demand."""
    state: str
    """EC2's word: pending, running, shutting-down, terminated, stopping, stopped."""
    pid: int | None
    """Of the agent, while it runs."""
    launched_at: str
    price: float
    """USD per hour."""
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorldClient:
    """Talks to one world at *url* (without a slash at the end)."""

    url: str

    # ------------------------------------------------------------------ hosts
    def hosts(self, *, state: str | None = None) -> list[Host]:
        """List the hosts, in the order of their launch; only those in *state* if given."""
        found = [Host(**one) for one in self._get("hosts")]
        return [host for host in found if state in {None, host.state}]

    def notice(
        self,
        instance_id: str,
        *,
        action: str | None = "terminate",
        channels: Iterable[str] | None = None,
        in_seconds: float | None = None,
        reclaim: bool = True,
    ) -> None:
        """
        Give *instance_id* an interruption notice.

        *action* None: the notice doesn't say what will happen. *channels*: ``metadata`` and
        ``event``, both by default. The host is killed when
        *in_seconds* (default: the cloud's notice) are over, unless *reclaim* is false.
        """
        self._act(
            instance_id,
            "notice",
            action=action or "",
            channels=None if channels is None else list(channels),
            in_seconds=in_seconds,
            reclaim=reclaim,
        )

    def rebalance(self, instance_id: str, *, channels: Iterable[str] | None = None) -> None:
        self._act(instance_id, "rebalance", channels=None if channels is None else list(channels))

    def kill(self, instance_id: str, *, events: bool = True) -> None:
        """End the host without notice; without *events* not even its end is announced."""
        self._act(instance_id, "kill", events=events)

    def terminate(self, instance_id: str) -> None:
        """End the host as its owner does, in the console."""
        self._act(instance_id, "terminate")

    def crash(self, instance_id: str) -> None:
        """Kill the host's agent and nothing else; the host starts it again."""
        self._act(instance_id, "crash")

    def stop(self, instance_id: str) -> None:
        """Stop the service of the host's agent in an orderly way; the host stays on without."""
        self._act(instance_id, "stop")

    def shut_down(self, instance_id: str) -> None:
        """Power the host off from within, as somebody logged in does."""
        self._act(instance_id, "shutdown")

    def freeze(self, instance_id: str) -> None:
        """Stop every process of the host."""
        self._act(instance_id, "freeze")

    def thaw(self, instance_id: str) -> None:
        self._act(instance_id, "thaw")

    def reboot(self, instance_id: str) -> None:
        """Restart the host under a new boot id; also starts a stopped one."""
        self._act(instance_id, "reboot")

    def cut(self, instance_id: str, what: str = "network", *, seconds: float | None = None) -> None:
        """Cut ``network``, ``metadata`` or ``ssm`` for *seconds*, or until ``mend``."""
        self._act(instance_id, "cut", what=what, seconds=seconds)

    def mend(self, instance_id: str, what: str | None = None) -> None:
        self._act(instance_id, "mend", what=what)

    # ------------------------------------------------------------------ market
    def pools(self) -> Json:
        return self._json(self._get("pools"))

    def put_pools(self, market: Json) -> Json:
        """Replace ``pools``, ``on_demand`` and ``settings``, as far as *market* names them."""
        return self._json(self._send("PUT", "pools", market))

    def set_pool(
        self, instance_type: str, zone: str, *, market: str = "spot", **changes: float | None
    ) -> Json:
        """Change ``price``, ``capacity`` or ``estimate`` of one pool."""
        body = {"type": instance_type, "zone": zone, "market": market, **changes}
        return self._json(self._send("PATCH", "pools", body))

    # ------------------------------------------------------------------ events and faults
    def put_event(self, event: Json, *, times: int = 1) -> list[int]:
        """Deliver *event* as it is; return how many targets got it, each time."""
        delivered: list[int] = self._send("POST", "events", {"event": event, "times": times})[
            "delivered"
        ]
        return delivered

    def add_fault(
        self, service: str, action: str, then: Json | Sequence[Json], **limits: Any
    ) -> Json:
        """
        Script a fault for calls of *action* of *service* (wildcards allowed).

        *then*: error {code, message, status, reason}, reply {…}, delay_seconds, drop
        before|during|after, duplicate n, kill before|after, pass true; of several each call gets
        the next one. *limits*: times, seconds, skip, caller, instance_id, resource, key.
        """
        body = {"service": service, "action": action, "then": then, **limits}
        return self._json(self._send("POST", "faults", body))

    def faults(self) -> list[Json]:
        """List the faults that are not used up, with their hits."""
        return self._list(self._get("faults"))

    def clear_faults(self) -> None:
        self._send("DELETE", "faults")

    # ------------------------------------------------------------------ logs
    def calls(self, *, since: int = 0, **equal: object) -> list[Json]:
        """Return the AWS calls that ended after number *since*, with fields *equal* to these."""
        return _where(self._list(self._get("calls", since=since)), equal)

    def metadata_requests(self, *, since: int = 0, **equal: object) -> list[Json]:
        """Return the hosts' requests to their metadata services, as calls of service ``imds``."""
        return _where(self._list(self._get("metadata", since=since)), equal)

    def calls_in_flight(self, **equal: object) -> list[Json]:
        """Return the AWS calls that nobody has answered yet, long polls among them."""
        return _where(self._list(self._get("calls", in_flight=1)), equal)

    def log(self, *, since: int = 0, **equal: object) -> list[Json]:
        """Return the world's timeline after number *since*, filtered like ``calls``."""
        return _where(self._list(self._get("log", since=since)), equal)

    # ------------------------------------------------------------------ machinery
    def sweep(self, function: str, *, seconds: float) -> None:
        """Invoke the deployed *function* every *seconds*; 0 stops."""
        self._send("POST", "sweep", {"function": function, "seconds": seconds})

    def pump(self, *, seconds: float) -> None:
        """Turn logs and queue depths into metrics every *seconds*; 0 stops."""
        self._send("POST", "pump", {"seconds": seconds})

    def healthy(self) -> bool:
        try:
            self._get("health")
        except ControlError:
            return False
        return True

    def shutdown(self) -> None:
        self._send("POST", "shutdown")

    def wait_for(
        self, what: str, condition: Callable[[], object], *, seconds: float = 10.0
    ) -> None:
        """Poll *condition* until it is true; raise ``ControlError`` for *what* if it never is."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise ControlError(f"waited {seconds:g} s in vain for {what}")
            time.sleep(_POLL_SECONDS)

    # ------------------------------------------------------------------ transport
    def _act(self, instance_id: str, act: str, **body: object) -> None:
        given = {name: value for name, value in body.items() if value is not None}
        self._send("POST", f"hosts/{instance_id}/{act}", given)

    def _get(self, path: str, **fields: object) -> Any:
        return self._send("GET", f"{path}?{urlencode(fields)}" if fields else path)

    def _send(self, method: str, path: str, body: Json | None = None) -> Any:
        request = urllib.request.Request(  # noqa: S310  # our own http address
            f"{self.url}/_world/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
        )
        try:
            with _OPENER.open(request, timeout=_TIMEOUT_SECONDS) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise ControlError(_sentence(error.read(), str(error))) from None
        except OSError as error:
            raise ControlError(f"no embedded cloud answers at {self.url}: {error}") from error

    @staticmethod
    def _json(answer: Any) -> Json:
        read: Json = answer
        return read

    @staticmethod
    def _list(answer: Any) -> list[Json]:
        read: list[Json] = answer
        return read


# The user's proxy settings are not for our loopback.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _sentence(body: bytes, otherwise: str) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return otherwise


def _where(entries: Sequence[Json], equal: Json) -> list[Json]:
    return [
        entry for entry in entries if all(entry.get(name) == value for name, value in equal.items())
    ]
