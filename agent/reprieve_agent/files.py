"""Small files that are either whole or not there."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_json(path: Path, content: Mapping[str, Any], *, mode: int = 0o644) -> None:
    """
    Replace *path* in one rename.

    Not synced: these files serve a process of the same boot, and a reboot voids them.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(json.dumps(content))  # ``dump`` encodes in Python: eight times the time
    draft.replace(path)


def read_json(path: Path, *, limit_bytes: int = 64 * 1024 * 1024) -> dict[str, Any] | None:
    """
    Return the object in *path*, or None if there is none.

    A job may write anything, so a link, a pipe or nonsense counts as nothing.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            content = json.loads(file.read(limit_bytes))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
