"""Git itself says what an ignore file means."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_cli.ignore import DEFAULTS, IGNORE_FILE, Ignore, kept

TREE = (
    "a.log",
    "data/big.bin",
    "data/keep/small.txt",
    "docs/a.log",
    "docs/deep/a.log",
    "foo/bar/baz.txt",
    "foo/x/bar/baz.txt",
    "src/model.py",
    "src/model.txt",
    "src/[odd].py",
    "file1",
    "file2",
    "filex",
    "spaced name",
    "#hash",
    "!bang",
    "build",
    "sub/build/out.o",
    "trailing ",
)

PATTERNS = (
    "*.log",
    "/a.log",
    "docs/*.log",
    "docs/**/a.log",
    "**/deep",
    "data/",
    "data/*\n!data/keep/",
    "!a.log",
    "*.log\n!docs/a.log",
    "foo/**/bar",
    "foo/**",
    "**/baz.txt",
    "file[12]",
    "file[!12]",
    "file[a-z0]",
    "src/?odel.*",
    "src/\\[odd\\].py",
    "\\#hash",
    "\\!bang",
    "# a comment",
    "build/",
    "trailing\\ ",
    "spaced name   ",
    "*",
    "*\n!*.py\n!*/",
    "[",
    "file[",
    "/",
    "**",
    "a**g",
    "src/",
    "/src/*\n!/src/model.py",
    "sub/**/*.o",
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    for name in TREE:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return root


def kept_by_git(root: Path, lines: str) -> set[str]:
    (root / ".gitignore").write_text(lines)
    found = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-zco", "--exclude-per-directory=.gitignore"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    (root / ".gitignore").unlink()
    return {name for name in found.split("\0") if name and name != ".gitignore"}


def kept_by_us(root: Path, lines: str) -> set[str]:
    ignore = Ignore.of_lines(lines.splitlines())
    return {path.relative_to(root).as_posix() for path in kept(root, ignore)}


@pytest.mark.parametrize("lines", PATTERNS)
def test_a_pattern_means_what_it_means_to_git(tree: Path, lines: str) -> None:
    assert kept_by_us(tree, lines) == kept_by_git(tree, lines)


@given(st.lists(st.sampled_from("abf*?/!.[]1lo\\"), max_size=8).map("".join))
def test_no_pattern_is_too_odd_to_read(pattern: str) -> None:
    Ignore.of_lines([pattern]).ignores("foo/bar/a.log", folder=False)


def test_what_never_belongs_on_a_host_stays_at_home_and_can_be_taken_back(tmp_path: Path) -> None:
    for name in (".git/HEAD", ".env", "pkg/__pycache__/a.pyc", ".venv/bin/python", "train.py"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")

    assert [p.name for p in kept(tmp_path, Ignore.of_folder(tmp_path))] == ["train.py"]

    (tmp_path / IGNORE_FILE).write_text("!.env\n")
    names = [p.name for p in kept(tmp_path, Ignore.of_folder(tmp_path))]
    assert names == [".env", "train.py"]


def test_every_default_is_a_rule() -> None:
    assert len(Ignore.of_lines([]).rules) == len(DEFAULTS)
