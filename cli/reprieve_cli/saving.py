"""Whether a job's code can come back where it was: a guess, good enough for a warning."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath

SAVES = re.compile(rb"^\s*(?:import|from)\s+reprieve_job\b|REPRIEVE_CKPT_DIR", re.MULTILINE)
IMPORTED = re.compile(rb"^\s*(?:from|import)\s+([\w., \t]+)", re.MULTILINE)
WORD = re.compile(rb"[\w-]+\.\w+")  # what may be a file's name


def saves(texts: Mapping[str, bytes], started: Collection[str]) -> bool:
    """
    Tell whether any of *texts* (path to content) that *started* leads to can save.

    A file leads to the modules that it imports and to the files that it names. Without
    one to start from every file counts: the command may start any of them.
    """
    return any(SAVES.search(texts[path]) for path in _reached(texts, started) or texts)


def _reached(texts: Mapping[str, bytes], started: Collection[str]) -> set[str]:
    by_name: dict[bytes, list[str]] = {}
    for path in texts:
        for name in _names(path):
            by_name.setdefault(name, []).append(path)
    reached: set[str] = set()
    waiting = [path for path in started if path in texts]
    while waiting:
        path = waiting.pop()
        if path not in reached:
            reached.add(path)
            waiting += [other for name in _named(texts[path]) for other in by_name.get(name, ())]
    return reached


def _names(path: str) -> set[bytes]:
    """Return how others may call the file: its name, and its module's last word."""
    parts = PurePosixPath(path)
    names = {parts.name}
    if parts.suffix == ".py":
        names.add(parts.parent.name if parts.stem == "__init__" else parts.stem)
    return {name.encode() for name in names if name}


def _named(text: bytes) -> set[bytes]:
    words = set(WORD.findall(text))
    for match in IMPORTED.finditer(text):
        words |= set(re.findall(rb"\w+", match[1]))
    return words
