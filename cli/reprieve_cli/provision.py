"""The stack on an embedded cloud: localised, deployed, and swept on the cloud's own clock."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprieve.domain.clock import NoticeClock
from reprieve_cli import assembly, wiring
from reprieve_cli.local.cloud import Cloud
from reprieve_cli.local.deploy import deploy
from reprieve_cli.local.localize import Localized, complete, localize

STACK = wiring.DEFAULT_STACK


@dataclass(frozen=True, slots=True)
class Provisioned:
    """A deployed stack, and how it differs from what goes to AWS."""

    stack: str
    removed: tuple[str, ...]
    changed: tuple[str, ...]


def prepare(
    settings: Mapping[str, Any],
    *,
    notice_seconds: float,
    target: Path,
    called_off: threading.Event | None = None,
) -> Localized:
    """Synthesise the stack with *settings*, and write its local copy to *target*."""
    context = {"stack": STACK, "reprieve": dict(settings)}
    folder = assembly.synthesise(context, called_off=called_off)
    return localize(folder, STACK, target, notice_seconds=notice_seconds)


def provision(cloud: Cloud, localized: Localized) -> Provisioned:
    """Deploy the local copy and start the sweep."""
    outputs = deploy(cloud, localized.assembly_dir, localized.stack)
    complete(cloud, localized)
    # The emulator's own schedule knows minutes only, and our notice may be seconds.
    sweep = NoticeClock.of_seconds(cloud.notice_seconds).sweep
    cloud.control.sweep(outputs["ReconcileFunction"], seconds=sweep.total_seconds())
    return Provisioned(
        stack=localized.stack,
        removed=tuple(f"{name} ({kind})" for name, kind in localized.removed),
        changed=tuple(localized.changed),
    )
