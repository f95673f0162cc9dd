"""One timeline of everything: what the drill did, what the world did, what the job's rows say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reprieve_cli.drill.stage import JobSeen
from reprieve_cli.timeline import of_event

_SAID = frozenset({"n", "at", "kind", "instance_id", "event"})


@dataclass(frozen=True, slots=True)
class Line:
    """*who* tells it: the drill, the world, or a job by its name."""

    at: datetime
    who: str
    text: str
    kind: str = ""
    """The world's word for it, or the event's."""


def of_world(entries: Sequence[dict[str, Any]]) -> Iterator[Line]:
    """Return the world's entries in words."""
    for entry in entries:
        who = entry.get("instance_id") or ""
        facts = ", ".join(
            f"{name.replace('_', ' ')} {value}"
            for name, value in entry.items()
            if name not in _SAID and value is not None
        )
        text = " ".join(part for part in (who, entry["kind"]) if part)
        if entry["kind"] == "event":
            detail = entry["event"].get("detail") or {}
            about = " ".join(str(detail[k]) for k in ("instance-id", "state") if k in detail)
            text = f"{text} {about}".strip()
        text = f"{text} ({facts})" if facts else text
        yield Line(datetime.fromisoformat(entry["at"]), "world", text, entry["kind"])


def of_job(name: str, seen: JobSeen) -> Iterator[Line]:
    """Return the job's own timeline."""
    for event in seen.events:
        yield Line(event.at, name, of_event(event), event.kind)
