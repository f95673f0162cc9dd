"""
Start the command that follows, as launchers of several ranks do: ``launcher.py SECONDS COMMAND…``.

SIGTERM is passed on, and SIGKILL comes so many seconds later, whatever the platform would allow.
"""

import signal
import subprocess
import sys


def main() -> None:
    seconds, *command = sys.argv[1:]
    child = subprocess.Popen(command)

    def end(_signal: int, _frame: object) -> None:
        child.terminate()
        try:
            child.wait(float(seconds))
        except subprocess.TimeoutExpired:
            child.kill()

    signal.signal(signal.SIGTERM, end)
    sys.exit(child.wait())


if __name__ == "__main__":
    main()
