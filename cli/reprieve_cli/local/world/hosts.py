"""
The life of hosts: launch, notice, reclaim, and everything that can go wrong with them.

EC2's states follow the machines, and every change of state is an event unless the caller
wants it lost. A host under notice is killed at its deadline with its whole process tree.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import math
import signal
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from reprieve_cli.local import processes
from reprieve_cli.local.world import shapes
from reprieve_cli.local.world.instances import GONE, LIVE, Instance, State, not_found, state_change
from reprieve_cli.local.world.machine import Machine, NoAgentError, Site
from reprieve_cli.local.world.market import ON_DEMAND
from reprieve_cli.local.world.timeline import Timeline, now

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from reprieve_cli.local.world.market import Market

LONGEST_STOP = 110 / 120  # of a notice: TimeoutStopSec of the agent's unit

RECLAIMED = ("Server.SpotInstanceTermination", "Server.SpotInstanceTermination: reclaimed")
STOPPED_BY_EC2 = ("Server.SpotInstanceShutdown", "Server.SpotInstanceShutdown: reclaimed")
HARDWARE = ("Server.InternalError", "Server.InternalError: the host failed")
BY_USER = ("Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown")
BY_ITSELF = (
    "Client.InstanceInitiatedShutdown",
    "Client.InstanceInitiatedShutdown: Instance initiated shutdown",
)


class Channel(StrEnum):
    """Ways by which a host or its owner hears of a notice."""

    METADATA = "metadata"
    EVENT = "event"


class Wire(StrEnum):
    """What can be cut between a host and the rest."""

    NETWORK = "network"
    METADATA = "metadata"
    SSM = "ssm"


BOTH = frozenset(Channel)


class WrongStateError(Exception):
    """The host can't do that now."""


class Hosts:
    """All hosts of the world; ids are EC2's, and unknown ones are EC2's error."""

    def __init__(
        self,
        *,
        site: Site,
        market: Market,
        timeline: Timeline,
        publish: Callable[[dict[str, Any]], None],
        account: str,
        notice_seconds: float,
    ) -> None:
        self._site = site
        self._market = market
        self._timeline = timeline
        self._publish = publish
        self._account = account
        self._notice = dt.timedelta(seconds=notice_seconds)
        self._instances: dict[str, Instance] = {}
        self._machines: dict[str, Machine] = {}
        self._cuts: dict[tuple[str, Wire], float] = {}
        self._frozen: set[str] = set()
        self._keys: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------------ look
    def all(self) -> list[Instance]:
        return list(self._instances.values())

    def get(self, instance_id: str) -> Instance:
        return self.get_all([instance_id])[0]

    def get_all(self, instance_ids: Iterable[str]) -> list[Instance]:
        """Find every one of them, or raise EC2's error naming those that don't exist."""
        ids = list(instance_ids)
        missing = [found for found in ids if found not in self._instances]
        if missing:
            raise not_found(missing)
        return [self._instances[found] for found in ids]

    def owns(self, instance_id: str) -> bool:
        return instance_id in self._instances

    def machine(self, instance_id: str) -> Machine:
        return self._machines[self.get(instance_id).instance_id]

    def summaries(self) -> list[dict[str, Any]]:
        return [one.summary(pid=self._machines[one.instance_id].pid) for one in self.all()]

    def registered(self, instance: Instance) -> bool:
        """Whether SSM knows the host: it runs, and has had the time to say so."""
        if instance.state not in {State.RUNNING, State.SHUTTING_DOWN} or not instance.running_at:
            return False
        lag = dt.timedelta(seconds=self._market.settings.registration_seconds)
        return now() >= instance.running_at + lag

    def remembered(self, instance: Instance) -> bool:
        """Whether EC2 still knows the host: it forgets the terminated ones after a while."""
        if instance.state is not State.TERMINATED or instance.ended_at is None:
            return True
        kept = dt.timedelta(seconds=self._market.settings.forgotten_after_seconds)
        return now() < instance.ended_at + kept

    def frozen(self, instance_id: str) -> bool:
        return instance_id in self._frozen

    # ------------------------------------------------------------------ identity of callers
    def remember_key(self, access_key: str, instance_id: str) -> None:
        """Note that calls signed with *access_key* come from this host."""
        self._keys[access_key] = instance_id

    def behind(self, access_key: str | None) -> str | None:
        """Name the host that signs with *access_key*."""
        return self._keys.get(access_key or "")

    # ------------------------------------------------------------------ live
    def launch(self, instance: Instance) -> None:
        machine = Machine(instance.instance_id, instance.template.user_data, self._site)
        self._instances[instance.instance_id] = instance
        self._machines[instance.instance_id] = machine
        self._note("launched", instance, type=instance.pool.type, zone=instance.pool.zone)
        self._say_state(instance)
        self._spawn(self._start(instance, machine))

    async def _start(self, instance: Instance, machine: Machine) -> None:
        await asyncio.sleep(self._market.settings.boot_seconds)
        if instance.state is not State.PENDING:
            return
        instance.state = State.RUNNING
        instance.running_at = now()
        self._say_state(instance)
        await self._boot(instance, machine)
        if machine.boot_limit_seconds is not None:
            self._spawn(self._enforce_boot_limit(instance, machine, machine.boot_limit_seconds))

    async def _enforce_boot_limit(
        self, instance: Instance, machine: Machine, seconds: float
    ) -> None:
        """Power off a host whose agent isn't ready in time, as its first boot's timer does."""
        await asyncio.sleep(seconds)
        if instance.state is State.RUNNING and not machine.ready:
            self._note("not ready in time", instance, seconds=seconds)
            await self._shut_itself_down(instance)

    async def _boot(self, instance: Instance, machine: Machine) -> None:
        try:
            await machine.boot(lambda: self._spawn(self._shut_itself_down(instance)))
        except NoAgentError as error:
            self._note("no agent", instance, reason=str(error))
        except OSError as error:
            self._note("boot failed", instance, reason=str(error))
        else:
            self._note("booted", instance)

    async def _shut_itself_down(self, instance: Instance) -> None:
        self._note("shut itself down", instance)
        if instance.state in LIVE:
            if instance.template.terminates_on_shutdown:
                self._end(instance, reason=BY_ITSELF, given_back=True)
            else:
                self._stop(instance, reason=BY_ITSELF)

    async def terminate(self, instance_ids: list[str]) -> list[dict[str, Any]]:
        """Begin to end the hosts as their owner asked; describe the changes as EC2 does."""
        forgotten = [i for i in instance_ids if self.owns(i) and not self.remembered(self.get(i))]
        if forgotten:
            raise not_found(forgotten)
        instances = self.get_all(instance_ids)
        changes = []
        for instance in instances:
            previous = instance.state
            if previous not in GONE:
                instance.state = State.SHUTTING_DOWN
                instance.state_reason = BY_USER
                self._note("terminating", instance)
                self._say_state(instance)
                self._spawn(self._power_off(instance))
            changes.append(state_change(instance, previous))
        return changes

    async def _power_off(self, instance: Instance) -> None:
        machine = self._machines[instance.instance_id]
        await machine.press_power_button(self._market.settings.shutdown_seconds)
        self._end(instance, reason=BY_USER, given_back=True)

    # ------------------------------------------------------------------ interrupt
    def notice(
        self,
        instance_id: str,
        *,
        action: str | None = "terminate",
        channels: frozenset[Channel] = BOTH,
        in_seconds: float | None = None,
        reclaim: bool = True,
    ) -> None:
        """
        Announce that EC2 takes the host back in *in_seconds* (default: the world's notice).

        Reserved capacity that ends is announced by an event only. *action* None leaves open what
        will happen. Its spot request says so too, whatever the
        channels. With *reclaim* false it never
        comes to it, as happens in the field.
        """
        instance = self._on(instance_id)
        if instance.lifecycle == ON_DEMAND:
            raise WrongStateError(f"{instance_id} is on-demand: EC2 gives it no notice; use kill")
        wait = self._notice if in_seconds is None else dt.timedelta(seconds=in_seconds)
        deadline = now() + wait
        self._note("notice", instance, action=action, seconds=wait.total_seconds())
        if instance.is_spot:
            instance.spot_status = ("closed", "instance-terminated-no-capacity")
            event = shapes.interruption(instance, action, account=self._account)
        else:
            event = shapes.reservation_interruption(instance, deadline, account=self._account)
        if Channel.METADATA in channels and instance.is_spot:
            instance.action = (action, deadline)
        if Channel.EVENT in channels:
            self._publish(event)
        if not reclaim:
            return
        if action == "hibernate":  # it starts at once: the notice is no window
            self._stop(instance, reason=STOPPED_BY_EC2)
        else:
            self._spawn(self._reclaim(instance, action, wait))

    async def _reclaim(self, instance: Instance, action: str | None, wait: dt.timedelta) -> None:
        await asyncio.sleep(wait.total_seconds())
        if instance.state not in LIVE:
            return
        self._note("reclaimed", instance, action=action)
        if action == "stop":
            self._stop(instance, reason=STOPPED_BY_EC2)
        else:
            self._end(instance, reason=RECLAIMED)

    def rebalance(self, instance_id: str, *, channels: frozenset[Channel] = BOTH) -> None:
        """Say that the host is at elevated risk; nothing need follow."""
        instance = self._on(instance_id)
        self._note("rebalance recommendation", instance)
        if Channel.METADATA in channels:
            instance.rebalance_at = now()
        if Channel.EVENT in channels:
            self._publish(shapes.rebalance(instance, account=self._account))

    def kill(self, instance_id: str, *, events: bool = True) -> None:
        """End the host without any notice; without *events* not even its end is announced."""
        instance = self._on(instance_id)
        self._note("killed", instance, events=events)
        self._end(instance, reason=RECLAIMED if instance.is_spot else HARDWARE, events=events)

    def crash(self, instance_id: str) -> None:
        """Kill the agent and nothing else; the host starts it again."""
        instance = self._on(instance_id)
        pid = self.machine(instance_id).pid
        if pid is None:
            raise WrongStateError(f"{instance_id} runs no agent now")
        processes.send([pid], signal.SIGKILL)
        self._note("agent crashed", instance)

    def stop(self, instance_id: str) -> None:
        """Stop the agent's service: SIGTERM to it alone, and no new start; the host stays on."""
        instance = self._on(instance_id)
        if self.machine(instance_id).pid is None:
            raise WrongStateError(f"{instance_id} runs no agent now")
        self.machine(instance_id).stop_agent()
        self._note("agent stopped", instance)

    def shut_down(self, instance_id: str) -> None:
        """Power the host off from within: EC2 hears of it when it is off, and nobody before."""
        instance = self._on(instance_id)
        self._note("shutting down", instance)
        self._spawn(self._shut_down(instance))

    async def _shut_down(self, instance: Instance) -> None:
        longest = self._notice.total_seconds() * LONGEST_STOP
        await self._machines[instance.instance_id].press_power_button(longest)
        await self._shut_itself_down(instance)

    def freeze(self, instance_id: str) -> None:
        instance = self._on(instance_id)
        self.machine(instance_id).freeze()
        self._frozen.add(instance_id)
        self._note("frozen", instance)

    def thaw(self, instance_id: str) -> None:
        instance = self._on(instance_id)
        self.machine(instance_id).thaw()
        self._frozen.discard(instance_id)
        self._note("thawed", instance)

    async def reboot(self, instance_id: str) -> None:
        """Restart the host, or start it if it was stopped: new boot id, same disk."""
        instance = self.get(instance_id)
        if instance.state not in {State.RUNNING, State.STOPPED}:
            raise WrongStateError(f"{instance_id} is {instance.state}: it can't boot")
        machine = self.machine(instance_id)
        machine.kill()
        self._frozen.discard(instance_id)
        self._note("rebooted", instance)
        if instance.state is State.STOPPED:
            instance.action = instance.state_reason = None
            instance.spot_status = ("active", "fulfilled")
            self._move(instance, State.PENDING)
            instance.running_at = now()
            self._move(instance, State.RUNNING)
        await self._boot(instance, machine)

    def cut(self, instance_id: str, wire: Wire, *, seconds: float | None = None) -> None:
        """Cut the host off, for *seconds* or until ``mend``."""
        instance = self._on(instance_id)
        until = math.inf if seconds is None else time.monotonic() + seconds
        self._cuts[instance_id, wire] = until
        self._note("cut", instance, what=wire.value, seconds=seconds)

    def mend(self, instance_id: str, wire: Wire | None = None) -> None:
        """Restore one wire, or all of them."""
        instance = self.get(instance_id)
        for each in Wire if wire is None else (wire,):
            self._cuts.pop((instance_id, each), None)
        self._note("mended", instance)

    def is_cut(self, instance_id: str, wire: Wire) -> bool:
        return self._cuts.get((instance_id, wire), -math.inf) > time.monotonic()

    async def close(self) -> None:
        """End every host and forget the plans for them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for machine in self._machines.values():
            machine.kill()

    # ------------------------------------------------------------------ states
    def _on(self, instance_id: str) -> Instance:
        instance = self.get(instance_id)
        if instance.state not in LIVE:
            raise WrongStateError(f"{instance_id} is {instance.state}")
        return instance

    def _end(
        self,
        instance: Instance,
        *,
        reason: tuple[str, str],
        events: bool = True,
        given_back: bool = False,
    ) -> None:
        """Kill the machine and let EC2's states follow."""
        if instance.state is not State.SHUTTING_DOWN:
            self._move(instance, State.SHUTTING_DOWN, events=events)
        self._machines[instance.instance_id].kill()
        instance.state_reason = reason
        instance.ended_at = now()
        if instance.spot_status[0] == "active":
            by = "by-user" if reason in {BY_USER, BY_ITSELF} else "no-capacity"
            instance.spot_status = ("closed", f"instance-terminated-{by}")
        if given_back:
            instance.pool.give_back()
        self._move(instance, State.TERMINATED, events=events)

    def _stop(self, instance: Instance, *, reason: tuple[str, str]) -> None:
        self._move(instance, State.STOPPING)
        self._machines[instance.instance_id].kill()
        instance.state_reason = reason
        self._move(instance, State.STOPPED)

    def _move(self, instance: Instance, state: State, *, events: bool = True) -> None:
        instance.state = state
        if events:
            self._say_state(instance)

    def _say_state(self, instance: Instance) -> None:
        self._note(instance.state.value, instance)
        self._publish(shapes.state_change(instance, account=self._account))

    def _note(self, kind: str, instance: Instance, **facts: object) -> None:
        self._timeline.note(kind, instance_id=instance.instance_id, **facts)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
