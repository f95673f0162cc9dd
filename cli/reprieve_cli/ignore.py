"""
Which files of a folder stay at home: the rules of ``.gitignore``, in a file of our own name.

One file at the root of the folder. As in git the last rule that matches wins, and a file
below an ignored folder can't be taken back in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

IGNORE_FILE = ".reprieveignore"

# What never belongs on a host: history, environments built for this machine, caches, and the
# files where people keep credentials. `!name` in .reprieveignore takes one back in.
DEFAULTS = (
    ".git",
    ".hg/",
    ".svn/",
    "__pycache__/",
    "*.py[cod]",
    ".venv/",
    "venv/",
    "node_modules/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".ipynb_checkpoints/",
    ".DS_Store",
    ".env",
    ".aws/",
    ".ssh/",
    f"/{IGNORE_FILE}",
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of an ignore file."""

    regex: re.Pattern[str]
    ignores: bool
    folders_only: bool

    @classmethod
    def parse(cls, line: str) -> Self | None:
        """Read a line; None for a blank, a comment or a pattern that can match nothing."""
        text = _strip_trailing_spaces(line.rstrip("\r\n"))
        if not text or text.startswith("#"):
            return None
        ignores = not text.startswith("!")
        text = text if ignores else text[1:]
        folders_only = text.endswith("/")
        text = text.rstrip("/") if folders_only else text
        if not text:
            return None
        anchored = "/" in text
        text = text.removeprefix("/")
        source = _regex(text) if anchored else f"(?:.*/)?{_regex(text)}"
        try:
            return cls(re.compile(source), ignores, folders_only)
        except re.error:  # an unclosed range, say: git doesn't match it either
            return None


@dataclass(frozen=True, slots=True)
class Ignore:
    """All rules in force for one folder."""

    rules: tuple[Rule, ...]

    @classmethod
    def of_lines(cls, lines: Iterable[str]) -> Self:
        """Return the defaults followed by *lines*."""
        found = (Rule.parse(line) for line in (*DEFAULTS, *lines))
        return cls(tuple(rule for rule in found if rule))

    @classmethod
    def of_folder(cls, folder: Path) -> Self:
        """Return the rules of *folder*, whose ignore file may be missing."""
        file = folder / IGNORE_FILE
        text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        return cls.of_lines(text.splitlines())

    def ignores(self, path: str, *, folder: bool) -> bool:
        """Tell whether *path* (relative, with slashes) stays; its parents are the caller's part."""
        for rule in reversed(self.rules):
            if (folder or not rule.folders_only) and rule.regex.fullmatch(path):
                return rule.ignores
        return False


def kept(folder: Path, ignore: Ignore) -> Iterator[Path]:
    """Yield what *folder* holds beyond the ignored, sorted; folders that are links come too."""
    for entry in sorted(folder.iterdir(), key=lambda path: path.name):
        yield from _kept_below(entry, folder, ignore)


def _kept_below(entry: Path, root: Path, ignore: Ignore) -> Iterator[Path]:
    real_folder = entry.is_dir() and not entry.is_symlink()
    if ignore.ignores(entry.relative_to(root).as_posix(), folder=real_folder):
        return
    if not real_folder:
        yield entry
        return
    for child in sorted(entry.iterdir(), key=lambda path: path.name):
        yield from _kept_below(child, root, ignore)


def _strip_trailing_spaces(text: str) -> str:
    stripped = text.rstrip(" ")
    cut = len(text) - len(stripped)
    return f"{stripped} " if cut and stripped.endswith("\\") else stripped


def _regex(pattern: str) -> str:
    parts = pattern.split("/")
    source = ""
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            source += ".+" if last else "(?:.*/)?"
        else:
            source += _regex_of_part(part) + ("" if last else "/")
    return source


TOKEN = re.compile(r"\\(?P<escaped>.)|(?P<stars>\*+)|(?P<any>\?)|(?P<set>\[[!^]?\]?[^\]]*\])")


def _regex_of_part(part: str) -> str:
    source = ""
    at = 0
    for token in TOKEN.finditer(part):
        source += re.escape(part[at : token.start()])
        source += _regex_of_token(token)
        at = token.end()
    return source + re.escape(part[at:])


def _regex_of_token(token: re.Match[str]) -> str:
    if token["escaped"]:
        return re.escape(token["escaped"])
    if token["stars"]:
        return "[^/]*"
    if token["any"]:
        return "[^/]"
    inside = token["set"][1:-1]
    negated = inside[:1] in ("!", "^")
    body = re.sub(r"([\[\]&|~])", r"\\\1", inside[1:] if negated else inside)
    return f"(?!/)[{'^' if negated else ''}{body}]"
