"""The real CDK CLI, as a person in the activated environment has it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reprieve_cli.assembly import ROOT

BIN = Path(sys.executable).parent
LIMIT_SECONDS = 240


@dataclass(frozen=True)
class Cdk:
    """Runs ``cdk`` of the activated environment; *aws* is all that it knows of any account."""

    aws: Mapping[str, str]
    folder: Path = ROOT

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        activated = {"PATH": f"{BIN}:{own['PATH']}", "VIRTUAL_ENV": str(BIN.parent)}
        quiet = {"CI": "true", "CDK_DISABLE_CLI_TELEMETRY": "true"}
        return subprocess.run(
            ["cdk", *arguments],
            cwd=self.folder,
            env={**own, **activated, **quiet, **self.aws},
            executable=str(BIN / "cdk"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_SECONDS,
        )
