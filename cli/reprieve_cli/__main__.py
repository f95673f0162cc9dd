"""``reprieve`` and ``python -m reprieve_cli``."""

from __future__ import annotations

import sys

from reprieve_cli.app import run
from reprieve_cli.wiring import find_cloud


def main() -> None:
    """Run the command line with the real cloud behind it."""
    sys.exit(run(sys.argv[1:], find_cloud=find_cloud))


if __name__ == "__main__":
    main()
