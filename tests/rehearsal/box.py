"""
A machine that boots a root tree: own processes, own network, own control groups, own systemd.

It is a container made of util-linux alone. The tree stays as it is: what the machine writes goes
to its disk, a folder that survives a reboot. Both end with the ``with`` block, the machine with us
at the latest.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from reprieve_cli.local import processes
from tests.rehearsal.debian import NotHereError

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NAMESPACES = ("--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup")
BOOT_SECONDS = 60.0
END_SECONDS = 60.0
POLL_SECONDS = 0.1

# Runs outside: a control group of its own, then the namespaces, then the boot inside them.
ENTER = """\
echo $$ >"$GROUP/cgroup.procs"
exec unshare --mount --pid --fork --kill-child --net --uts --ipc --cgroup \
  --propagation private sh -eu "$BOOT"
"""
BOOT = r"""
mount -t overlay overlay \
  -o "lowerdir=$TREE,upperdir=$DISK/upper,workdir=$DISK/work" "$DISK/root"
cd "$DISK/root"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
mount -t tmpfs -o mode=755 tmpfs run
for name in null zero full random urandom tty; do
  : >"dev/$name"
  mount --bind "/dev/$name" "dev/$name"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mkdir -p .outside
pivot_root . .outside
umount -l /.outside
rmdir /.outside
exec env -i container=rehearsal PATH=/usr/sbin:/usr/bin:/sbin:/bin /sbin/init
"""

# Needs what a machine without kernel modules, disks and a schedule of its own has not.
MASKED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "systemd-modules-load.service",
)


@dataclass
class Box:
    tree: Path
    disk: Path
    """What the machine writes, below ``upper``."""
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _group: Path | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        for name in ("upper", "work", "root"):
            (self.disk / name).mkdir(parents=True, exist_ok=True)
        for unit in MASKED:
            self.link(f"/etc/systemd/system/{unit}", "/dev/null")
        # Timers wait for each other, a minute at most, to save wake-ups: not worth it here.
        self.write(
            "/etc/systemd/system.conf.d/timers.conf", "[Manager]\nDefaultTimerAccuracySec=1\n"
        )

    # ------------------------------------------------------------------ its disk
    def path(self, inside: str) -> Path:
        return self.disk / "upper" / inside.lstrip("/")

    def write(self, inside: str, content: str | bytes, *, mode: int = 0o644) -> None:
        path = self.path(inside)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)

    def link(self, inside: str, target: str) -> None:
        path = self.path(inside)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    # ------------------------------------------------------------------ on and off
    def start(self) -> Self:
        """Boot; raise ``NotHereError`` where such a machine can't be made."""
        tools = [name for name in ("unshare", "nsenter") if not shutil.which(name)]
        if tools:
            raise NotHereError(f"{tools[0]} isn't installed")
        self._group = _control_group()
        script = self.disk / "boot.sh"
        script.write_text(BOOT)
        with (self.disk / "console").open("ab") as console:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "reprieve_cli.local.world.leash", str(os.getpid())),
                    *("/bin/sh", "-euc", ENTER),
                ],
                env={
                    "PATH": os.environ["PATH"],
                    "GROUP": str(self._group),
                    "BOOT": str(script),
                    "TREE": str(self.tree),
                    "DISK": str(self.disk),
                },
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        if not eventually(lambda: self.is_off() or self._booted(), BOOT_SECONDS) or self.is_off():
            said = (self.disk / "console").read_text(errors="replace").strip().splitlines()
            self.stop()
            raise NotHereError(f"no machine can be booted here: {(said or ['no word'])[-1]}")
        return self

    def stop(self) -> None:
        """Pull the plug; twice is fine."""
        if self._group is not None:
            for pid in (self._group / "cgroup.procs").read_text().split():
                processes.end(int(pid), grace_seconds=0)
        if self._process is not None:
            processes.end(self._process.pid, grace_seconds=0)
            self._process.wait(END_SECONDS)
        if self._group is not None:
            eventually(self._group_is_empty, END_SECONDS)
            _remove(self._group)
        self._process = self._group = None

    def is_off(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def wait_off(self, seconds: float) -> bool:
        """Wait until the machine has powered itself off."""
        return eventually(self.is_off, seconds)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        shutil.rmtree(self.disk, ignore_errors=True)

    # ------------------------------------------------------------------ inside
    def run(
        self, *command: str, env: dict[str, str] | None = None, seconds: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run *command* on the machine, as root with a system's environment."""
        init = self.init_pid()
        assert init is not None, "the machine is off"
        variables = [f"{name}={value}" for name, value in {"PATH": PATH, **(env or {})}.items()]
        return subprocess.run(
            [
                *("nsenter", f"--target={init}", *NAMESPACES, "--root", "--wd"),
                *("env", "-i", *variables, *command),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )

    def property(self, unit: str, name: str) -> str:
        """Return what systemd says of a unit."""
        return self.run("systemctl", "show", "--value", f"--property={name}", unit).stdout.strip()

    def wait_for(self, unit: str, state: str, *, seconds: float = 30.0) -> bool:
        return eventually(lambda: self.property(unit, "ActiveState") == state, seconds)

    def _booted(self) -> bool:
        if self.init_pid() is None:
            return False
        state = self.run("systemctl", "is-system-running").stdout.strip()
        return state in {"running", "degraded"}

    def init_pid(self) -> int | None:
        """Return our number of its first process; None while there is none."""
        if self._process is None:
            return None
        for pid in processes.descendants(self._process.pid):
            with contextlib.suppress(OSError, IndexError):
                status = Path(f"/proc/{pid}/status").read_text()
                numbers = status.partition("NSpid:")[2].split("\n")[0].split()
                if len(numbers) > 1 and numbers[-1] == "1" and "(sh)" not in _stat(pid):
                    return pid
        return None

    def _group_is_empty(self) -> bool:
        assert self._group is not None
        events = (self._group / "cgroup.events").read_text()
        return "populated 0" in events


def eventually(condition: Callable[[], object], seconds: float) -> bool:
    """Tell whether *condition* comes to hold within *seconds*."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _stat(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text()


def _control_group() -> Path:
    """Make a control group below ours, in the hierarchy that systemd needs."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    roots = [Path(one[1]) for one in mounts if one[2] == "cgroup2"]
    ours = next(
        line.removeprefix("0::")
        for line in Path("/proc/self/cgroup").read_text().splitlines()
        if line.startswith("0::")
    )
    if not roots:
        raise NotHereError("no control groups of version 2 are mounted here")
    group = roots[0] / ours.lstrip("/") / f"rehearsal-{os.getpid()}-{time.monotonic_ns()}"
    try:
        group.mkdir()
    except OSError as error:
        raise NotHereError(f"no control group can be made here: {error.strerror}") from error
    return group


def _remove(group: Path) -> None:
    """Remove *group* and those that the machine made in it; none holds a process."""
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()
