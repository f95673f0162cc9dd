"""The command line without a cloud, and markets small enough to work out by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import pytest

from reprieve_cli.app import run
from reprieve_cli.errors import CloudUnreachableError


@dataclass
class Answer:
    """What one call of the command line said."""

    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        return self.out.splitlines()[-1]

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def _no_cloud() -> NoReturn:
    raise CloudUnreachableError("no cloud in this test")


@pytest.fixture
def reprieve(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Answer]:
    monkeypatch.setenv("COLUMNS", "100")

    def call(*arguments: str) -> Answer:
        code = run(arguments, find_cloud=_no_cloud)
        return Answer(code, *capsys.readouterr())

    return call
