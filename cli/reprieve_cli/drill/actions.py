"""What the steps of a scenario do, through the doors that people and EC2 use too."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, assert_never

from reprieve.domain.checkpoint import Manifest, step_of
from reprieve.usecases.submit import Cancel
from reprieve_cli.drill.scenario import (
    Action,
    EventAction,
    FaultAction,
    HostAction,
    HostRef,
    JobAction,
    MarketChange,
    ObjectAction,
    PoolsAction,
    Scenario,
    WaitAction,
)
from reprieve_cli.drill.stage import Stage, View
from reprieve_cli.local.control import WorldClient

_PLACEHOLDER = re.compile(r"\$\{(?:(host|job):([^}]+)|(now))\}")
_MARKETS = {"spot": "pools", "on-demand": "on_demand"}


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

    def __call__(self, action: Action) -> None:
        """Do it; raise ``StepError``, or ``ControlError`` where the world refuses."""
        match action:
            case HostAction():
                self._host(action)
            case JobAction():
                self._job(action)
            case EventAction(body, times):
                event = json.loads(self._filled(json.dumps(body)))
                self.stage.world.put_event(event, times=times)
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
        world, found, real = self.stage.world, self.instance(action.host), self.scenario.real
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
            case "freeze" | "thaw" | "reboot":
                getattr(world, action.do)(found)
            case _:
                raise AssertionError(action.do)

    def instance(self, ref: HostRef) -> str:
        """Return the id of the instance that *ref* means now."""
        if ref.of is not None:
            found = self.view.job(self.ids[ref.of]).instance_of(ref.attempt)
            if found is None:
                raise StepError(f"{ref}: it has none now")
            return found
        launched = self.view.hosts()
        place = ref.nth or 1
        if place > len(launched):
            raise StepError(f"{ref}: only {len(launched)} were launched so far")
        return launched[place - 1].instance_id

    def _job(self, action: JobAction) -> None:
        cloud, job_id = self.stage.cloud, self.ids[action.job]
        match action.do:
            case "cancel":
                Cancel(jobs=cloud.jobs, now=cloud.now)(job_id)
            case "requeue":
                cloud.settle(job_id, requeued=True)
            case _:
                raise AssertionError(action.do)

    # ------------------------------------------------------------------ faults and events
    def _fault(self, described: dict[str, Any]) -> None:
        fault = json.loads(self._filled(json.dumps(described)))
        if "seconds" in fault:
            fault["seconds"] = self.scenario.real(fault["seconds"])
        self.stage.world.add_fault(
            fault.pop("service"), fault.pop("action"), fault.pop("then"), **fault
        )

    def _filled(self, text: str) -> str:
        return _PLACEHOLDER.sub(self._value, text)

    def _value(self, found: re.Match[str]) -> str:
        kind, name = found[1], found[2]
        if kind is None:
            return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        if name not in self.ids:
            raise StepError(f"{found[0]}: no job is named {name}")
        return self.ids[name] if kind == "job" else self.instance(HostRef(of=name))

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
            case _:
                raise AssertionError(action.do)

    def _checkpoint_key(self, action: ObjectAction) -> str:
        job = self.ids[action.job]
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
    for market, name in _MARKETS.items():
        for pool in described[name]:
            if change.market in {None, market} and _meant(change, pool):
                world.set_pool(pool["type"], pool["zone"], market=market, **change.changes)
                found += 1
    if not found:
        raise StepError("no capacity pool has that type, zone and market")


def _meant(change: MarketChange, pool: dict[str, Any]) -> bool:
    return change.type in {None, pool["type"]} and change.zone in {None, pool["zone"]}
