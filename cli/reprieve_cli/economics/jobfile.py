"""What is known of a job before it runs: a YAML file, checked field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprieve.domain.catalogue import GPU_CLASSES
from reprieve.domain.economics.pools import History
from reprieve.domain.economics.recall import SuccessRate
from reprieve_cli.economics.scenario import Job
from reprieve_cli.errors import BadInputError

HELP = "see «The job file» in docs/economics.md"
USUAL_CLASS = "24GBx1"
USUAL_SAVE, USUAL_DURABLE, USUAL_EMERGENCY = 30.0, 30.0, 60.0
USUAL_BOOT, USUAL_RESTORE, USUAL_DETECTION = 180.0, 60.0, 360.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """
    How the job saves. ``emergency_seconds`` None means: from its size and the type's network.

    ``rate`` is how emergency checkpoints of this job have gone so far.
    """

    save_seconds: float = USUAL_SAVE
    durable_seconds: float = USUAL_DURABLE
    on_notice: bool = True
    emergency_seconds: float | None = None
    rate: SuccessRate = SuccessRate()  # noqa: RUF009 - frozen


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPool:
    """What the user knows of a type, in a zone or anywhere; it overrules what we ship."""

    type: str
    zone: str = ""
    usd_per_hour: float | None = None
    on_demand_usd_per_hour: float | None = None
    history: History | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A job to plan. Without ``checkpoints`` it starts over after each interruption."""

    name: str
    work_hours: float
    types: tuple[str, ...]
    region: str = "us-east-1"
    deadline_hours: float | None = None
    hosts: int = 1
    state_gigabytes: float = 0.0
    checkpoints: Checkpoints | None = None
    boot_seconds: float = USUAL_BOOT
    restore_seconds: float = USUAL_RESTORE
    detection_seconds: float = USUAL_DETECTION
    silent_losses_per_hour: float = 0.0
    pools: tuple[KnownPool, ...] = ()


def load(path: Path) -> PlannedJob:
    """Read a job file; raise ``BadInputError`` with the field that is wrong."""
    import yaml

    try:
        raw = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise BadInputError(f"{path} isn't YAML: {reason}") from error
    return _job(_Fields(str(path), raw), path.stem)


def simulated(path: Path) -> Job:
    """Return a job file as the simulator takes it."""
    planned = load(path)
    saving = planned.checkpoints
    if saving is None:
        raise BadInputError(f"{path}: the simulator needs its checkpoint times ({HELP})")
    return Job(
        name=planned.name,
        work_hours=planned.work_hours,
        save_seconds=saving.save_seconds,
        durable_seconds=saving.durable_seconds,
        emergency_seconds=saving.emergency_seconds or USUAL_EMERGENCY,
        recall=saving.rate.estimate if saving.on_notice else 0.0,
        boot_seconds=planned.boot_seconds,
        restore_seconds=planned.restore_seconds,
        deadline_hours=planned.deadline_hours,
        hosts=planned.hosts,
        state_gigabytes=planned.state_gigabytes,
    )


class _Fields:
    """A mapping that is asked for known names, and complains about the rest."""

    def __init__(self, where: str, raw: object) -> None:
        if not isinstance(raw, Mapping):
            raise BadInputError(f"{where} must hold names and values ({HELP})")
        self.where = where
        self._left: dict[str, Any] = dict(raw)

    def number(self, name: str, usual: float, *, least: float = 0.0) -> float:
        value = self.maybe_number(name, least=least)
        return usual if value is None else value

    def maybe_number(self, name: str, *, least: float = 0.0) -> float | None:
        value = self._left.pop(name, None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
            raise BadInputError(f"{self.where}: {name} must be a number from {least:g} on")
        return float(value)

    def text(self, name: str, usual: str) -> str:
        value = self._left.pop(name, usual)
        if not isinstance(value, str) or not value:
            raise BadInputError(f"{self.where}: {name} must be text")
        return value

    def truth(self, name: str, *, usual: bool) -> bool:
        value = self._left.pop(name, usual)
        if not isinstance(value, bool):
            raise BadInputError(f"{self.where}: {name} must be true or false")
        return value

    def inner(self, name: str) -> _Fields | None:
        value = self._left.pop(name, None)
        return None if value is None else _Fields(f"{self.where}: {name}", value)

    def items(self, name: str) -> Sequence[Any]:
        value = self._left.pop(name, None) or []
        if not isinstance(value, list):
            raise BadInputError(f"{self.where}: {name} must be a list")
        return value

    def done(self) -> None:
        """Complain about what nobody asked for: a misspelt name."""
        if self._left:
            raise BadInputError(f"{self.where}: nobody knows {', '.join(self._left)} ({HELP})")


def _job(fields: _Fields, name: str) -> PlannedJob:
    work = fields.maybe_number("work_hours", least=0.01)
    if work is None:
        raise BadInputError(f"{fields.where}: work_hours is missing: the job's length on one host")
    job = PlannedJob(
        name=fields.text("name", name),
        work_hours=work,
        region=fields.text("region", "us-east-1"),
        deadline_hours=fields.maybe_number("deadline_hours", least=0.01),
        hosts=int(fields.number("hosts", 1, least=1)),
        state_gigabytes=fields.number("state_gb", 0.0),
        checkpoints=_checkpoints(fields.inner("checkpoint")),
        boot_seconds=fields.number("boot_seconds", USUAL_BOOT),
        restore_seconds=fields.number("restore_seconds", USUAL_RESTORE),
        detection_seconds=fields.number("detection_seconds", USUAL_DETECTION),
        silent_losses_per_hour=fields.number("silent_losses_per_hour", 0.0),
        types=_types(fields),
        pools=tuple(
            _pool(_Fields(f"{fields.where}: pools", item)) for item in fields.items("pools")
        ),
    )
    fields.done()
    return job


def _checkpoints(fields: _Fields | None) -> Checkpoints | None:
    if fields is None:
        return None
    saving = Checkpoints(
        save_seconds=fields.number("save_seconds", USUAL_SAVE, least=0.001),
        durable_seconds=fields.number("durable_seconds", USUAL_DURABLE),
        on_notice=fields.truth("on_notice", usual=True),
        emergency_seconds=fields.maybe_number("emergency_seconds"),
        rate=SuccessRate(
            int(fields.number("notices_tried", 0)), int(fields.number("notices_saved", 0))
        ),
    )
    fields.done()
    if saving.rate.successes > saving.rate.attempts:
        raise BadInputError(f"{fields.where}: notices_saved exceeds notices_tried")
    return saving


def _types(fields: _Fields) -> tuple[str, ...]:
    named = [str(item) for item in fields.items("types")]
    kind = fields.text("class", USUAL_CLASS)
    if kind not in GPU_CLASSES:
        raise BadInputError(f"{fields.where}: no class {kind}: {', '.join(GPU_CLASSES)}")
    return tuple(named) or GPU_CLASSES[kind]


def _pool(fields: _Fields) -> KnownPool:
    hours = fields.maybe_number("hours")
    interruptions = int(fields.number("interruptions", 0))
    pool = KnownPool(
        type=fields.text("type", "any"),
        zone=fields.text("zone", "any").removeprefix("any"),
        usd_per_hour=fields.maybe_number("usd_per_hour"),
        on_demand_usd_per_hour=fields.maybe_number("on_demand_usd_per_hour"),
        history=None if hours is None else History(hours=hours, interruptions=interruptions),
    )
    fields.done()
    return pool
