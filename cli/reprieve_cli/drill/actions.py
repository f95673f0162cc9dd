"""What the steps of a scenario do, through the doors that people and EC2 use too."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

from reprieve.domain.checkpoint import Manifest, step_of
from reprieve.usecases.submit import Cancel
from reprieve_cli.drill.filling import Placeholder, filled, in_time
from reprieve_cli.drill.scenario import (
    Action,
    EventAction,
    FaultAction,
    HostAction,
    HostRef,
    JobAction,
    MarketChange,
    MessageAction,
    ObjectAction,
    PoolsAction,
    Scenario,
    WaitAction,
    WorldAction,
)
from reprieve_cli.drill.stage import Stage, View
from reprieve_cli.local.control import WorldClient

_BATCH = 10  # messages that SQS takes at once
_SECONDS = "_seconds"  # settings with that ending are times
MARKETS = {"spot": "pools", "on-demand": "on_demand", "reserved": "reserved"}


class StepError(Exception):
    """A step can't be done: what it is about isn't there."""


@dataclass(frozen=True, slots=True)
class Actions:
    """Carries out one action after the other; *ids* maps the scenario's job names to job ids."""

    scenario: Scenario
    stage: Stage
    view: View
    ids: dict[str, str]
    wait: Callable[[WaitAction], None]
    submit: Callable[[str], None]

    def __call__(self, action: Action) -> None:
        """Do it; raise ``StepError``, or ``ControlError`` where the world refuses."""
        match action:
            case HostAction():
                self._host(action)
            case JobAction():
                self._job(action)
            case EventAction() | MessageAction():
                self._send(action)
            case WorldAction(settings):
                self.change_world(settings)
            case FaultAction(fault):
                self._fault(fault)
            case PoolsAction(changes):
                for change in changes:
                    change_market(self.stage.world, change)
            case ObjectAction():
                self._object(action)
            case WaitAction():
                self.wait(action)
            case _:
                assert_never(action)

    # ------------------------------------------------------------------ hosts
    def _host(self, action: HostAction) -> None:
        for instance_id in self.instances(action.host):
            self._act(action, instance_id)

    def _act(self, action: HostAction, found: str) -> None:
        world, real = self.stage.world, self.scenario.real
        seconds = None if action.seconds is None else real(action.seconds)
        match action.do:
            case "notice":
                world.notice(
                    found,
                    action=action.action,
                    channels=action.channels,
                    in_seconds=None if action.in_seconds is None else real(action.in_seconds),
                    reclaim=action.reclaim,
                )
            case "rebalance":
                world.rebalance(found, channels=action.channels)
            case "kill":
                world.kill(found, events=action.events)
            case "cut":
                world.cut(found, action.what or "network", seconds=seconds)
            case "mend":
                world.mend(found, action.what)
            case "shutdown":
                world.shut_down(found)
            case "terminate" | "crash" | "stop" | "freeze" | "thaw" | "reboot":
                getattr(world, action.do)(found)
            case _:
                raise AssertionError(action.do)

    def instances(self, ref: HostRef) -> list[str]:
        """Return the ids of all that *ref* means now; raise ``StepError`` if there is none."""
        if not (ref.every or ref.zone):
            return [self.instance(ref)]
        alive = self.view.alive()
        found = [host.instance_id for host in alive if ref.zone in {None, host.zone}]
        if not found:
            raise StepError(f"{ref}: there is none now")
        return found

    def instance(self, ref: HostRef) -> str:
        """Return the id of the instance that *ref* means now."""
        if ref.of is not None:
            found = self.view.job(self._id(ref.of)).instance_of(ref.attempt)
            if found is None:
                raise StepError(f"{ref}: it has none now")
            return found
        launched = self.view.hosts()
        place = ref.nth or 1
        if place > len(launched):
            raise StepError(f"{ref}: only {len(launched)} were launched so far")
        return launched[place - 1].instance_id

    def _id(self, job: str) -> str:
        if job not in self.ids:
            raise StepError(f"{job} isn't submitted yet")
        return self.ids[job]

    def _job(self, action: JobAction) -> None:
        cloud = self.stage.cloud
        match action.do:
            case "cancel":
                Cancel(rows=cloud.rows, now=cloud.now)(self._id(action.job))
            case "requeue":
                cloud.settle(self._id(action.job), requeued=True)
            case "submit":
                self.submit(action.job)
            case _:
                raise AssertionError(action.do)

    # ------------------------------------------------------------------ faults and events
    def _send(self, action: EventAction | MessageAction) -> None:
        if isinstance(action, MessageAction):
            self._message(action)
        else:
            self._event(action)

    def _event(self, action: EventAction) -> None:
        text = json.dumps(action.body)
        if "${n}" not in text:
            self.stage.world.put_event(json.loads(self._filled(text)), times=action.times)
            return
        for number in range(1, action.times + 1):
            self.stage.world.put_event(json.loads(self._filled(text, number)))

    def _message(self, action: MessageAction) -> None:
        text, url = json.dumps(action.body), self._queue_url(action)
        bodies = [self._filled(text, number) for number in range(1, action.times + 1)]
        for start in range(0, len(bodies), _BATCH):
            self.stage.sqs.send_message_batch(
                QueueUrl=url,
                Entries=[
                    {"Id": str(place), "MessageBody": body}
                    for place, body in enumerate(bodies[start : start + _BATCH])
                ],
            )

    def _queue_url(self, action: MessageAction) -> str:
        stack = self.stage.cloud.stack
        match action.queue:
            case "work":
                return stack.pool(action.pool or min(stack.pools)).work_queue_url
            case "orders":
                return stack.orders_url
            case _:
                return stack.outputs[f"{action.queue.title()}QueueUrl"]

    def change_world(self, settings: dict[str, Any]) -> None:
        """Change the world's lags and quotas; those that aren't named stay."""
        real = {
            name: self.scenario.real(value) if name.endswith(_SECONDS) else value
            for name, value in settings.items()
        }
        self.stage.world.put_pools({"settings": real})

    def _fault(self, described: dict[str, Any]) -> None:
        fault = json.loads(self._filled(json.dumps(described)))
        if "seconds" in fault:
            fault["seconds"] = self.scenario.real(fault["seconds"])
        then = fault["then"]
        for effect in then if isinstance(then, list) else [then]:
            if "delay_seconds" in effect:
                effect["delay_seconds"] = self.scenario.real(effect["delay_seconds"])
        self.stage.world.add_fault(
            fault.pop("service"), fault.pop("action"), fault.pop("then"), **fault
        )

    def _filled(self, text: str, number: int = 1) -> str:
        return filled(text, lambda found: self._value(found, number))

    def _value(self, found: Placeholder, number: int) -> str:
        match found.kind:
            case "n":
                return f"{number:017x}"
            case "now" | "rfc1123":
                return in_time(found.kind, seconds=self.scenario.real(found.offset))
            case "host":
                return self.instance(HostRef(of=found.job, attempt=found.attempt))
            case "job":
                return self._id(found.job)
            case "token":
                return self.view.job(self._id(found.job)).job.token
            case "attempt":
                return str(self.view.job(self._id(found.job)).job.attempt)
            case _:
                raise AssertionError(found.kind)

    # ------------------------------------------------------------------ objects
    def _object(self, action: ObjectAction) -> None:
        key = self._filled(action.key) if action.key else self._checkpoint_key(action)
        s3, bucket = self.stage.s3, self.stage.cloud.stack.bucket
        match action.do:
            case "put":
                s3.put_object(Bucket=bucket, Key=key, Body=self._filled(action.body).encode())
            case "delete":
                s3.delete_object(Bucket=bucket, Key=key)
            case "damage":
                body = self._read(key)
                # Same size, other bytes: what only a digest finds.
                s3.put_object(Bucket=bucket, Key=key, Body=bytes([body[0] ^ 0xFF]) + body[1:])
            case "truncate":
                s3.put_object(Bucket=bucket, Key=key, Body=self._read(key)[: -action.bytes])
            case "zero":
                s3.put_object(Bucket=bucket, Key=key, Body=b"")
            case _:
                raise AssertionError(action.do)

    def _checkpoint_key(self, action: ObjectAction) -> str:
        job = self._id(action.job)
        keys = self.stage.cloud.objects.sizes(f"jobs/{job}/manifests/")
        found = {place: key for key in keys if (place := step_of(key))}
        wanted = [p for p in sorted(found) if action.step is None or p[1] == action.step]
        if not wanted:
            step = "checkpoint" if action.step is None else f"checkpoint at step {action.step}"
            raise StepError(f"{action}: the bucket has no {step}")
        manifest = found[wanted[-1]]
        if action.file is None:
            return manifest
        files = Manifest.from_json(self._read(manifest), key=manifest).files
        for file in files:
            if file.path == action.file:
                return file.key
        raise StepError(f"{action}: the checkpoint holds {', '.join(f.path for f in files)}")

    def _read(self, key: str) -> bytes:
        body = self.stage.cloud.objects.read(key)
        if not body:
            raise StepError(f"{key} is not in the bucket, or empty")
        return body


def change_market(world: WorldClient, change: MarketChange) -> None:
    """Change every capacity pool that *change* means; raise ``StepError`` if there is none."""
    described = world.pools()
    found = 0
    for market, name in MARKETS.items():
        for pool in described.get(name, []):
            if change.market in {None, market} and _meant(change, pool):
                world.set_pool(pool["type"], pool["zone"], market=market, **change.changes)
                found += 1
    if not found:
        raise StepError("no capacity pool has that type, zone and market")


def _meant(change: MarketChange, pool: dict[str, Any]) -> bool:
    return change.type in {None, pool["type"]} and change.zone in {None, pool["zone"]}
