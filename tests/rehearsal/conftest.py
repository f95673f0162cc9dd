"""What all rehearsals start from: the assembly as it would be deployed, and its local copy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reprieve_cli import assembly
from reprieve_cli.local.deploy import zipped
from reprieve_cli.local.localize import Localized
from reprieve_cli.provision import STACK, prepare

NOTICE_SECONDS = 6.0
SETTINGS: dict[str, Any] = {"pools": {"gpu": {"types": ["g5.xlarge", "g6.xlarge"], "max_hosts": 3}}}


@pytest.fixture(scope="session")
def original() -> Path:
    """Return the folder of the unlocalised assembly."""
    return assembly.synthesise({"stack": STACK, "reprieve": SETTINGS})


@pytest.fixture(scope="session")
def localized(tmp_path_factory: pytest.TempPathFactory) -> Localized:
    target = tmp_path_factory.mktemp("assembly") / "localized"
    return prepare(SETTINGS, notice_seconds=NOTICE_SECONDS, target=target)


@pytest.fixture(scope="session")
def bundle(original: Path) -> tuple[str, bytes]:
    """Return the host bundle as it lies in the bucket: its key, and what CDK uploads."""
    files = json.loads((original / f"{STACK}.assets.json").read_text())["files"]
    (digest,) = (d for d, file in files.items() if "HostBundle" in file["displayName"])
    return f"{digest}.zip", zipped(original / files[digest]["source"]["path"])
