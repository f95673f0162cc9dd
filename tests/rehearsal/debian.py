"""
A root tree of a Debian release, and single programs out of Debian's packages.

Nothing is installed on this machine: what is fetched lies below ``build/``, from the mirror that
apt is set up with. Where that can't be had (no root, no apt, no network), ``NotHereError``
says why, and the tests that need it are skipped with those words.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reprieve_cli.assembly import ROOT

BUILD = ROOT / "build" / "rehearsal"
# What a host's image has of what user data uses, beside the base system.
PACKAGES = ("systemd", "systemd-sysv", "iptables", "python3", "python3-venv")
TREE_SECONDS = 900
FETCH_SECONDS = 120


class NotHereError(Exception):
    """It can't be had on this machine: one line."""


def tree(suite: str) -> Path:
    """Return the folder of *suite*'s root tree, made once; takes a minute or two then."""
    if os.geteuid() != 0:
        raise NotHereError("a root tree needs root")
    final = BUILD / suite
    with _one_at_a_time(suite):
        if not final.is_dir():
            debootstrap = program("debootstrap", "usr/sbin/debootstrap")
            mirror = _mirror()
            draft = BUILD / f".{suite}-{os.getpid()}"
            try:
                _make(draft, suite, debootstrap, mirror)
                draft.rename(final)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return final


@contextmanager
def _one_at_a_time(what: str) -> Iterator[None]:
    """Keep the workers of a run from making *what* twice: who waits finds it made."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / f".{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(draft: Path, suite: str, debootstrap: Path, mirror: str) -> None:
    scripts = debootstrap.parents[2] / "usr" / "share" / "debootstrap"
    variables = {
        "DEBOOTSTRAP_DIR": str(scripts),
        "DPKG_FORCE": "unsafe-io",  # a tree that a crash spoils is made again
    }
    options = ("--variant=minbase", f"--include={','.join(PACKAGES)}")
    draft.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [debootstrap, *options, suite, draft, mirror],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=TREE_SECONDS,
    )
    if done.returncode:
        raise NotHereError(f"debootstrap {suite}: {_last_line(done.stdout + done.stderr)}")


def program(package: str, path: str) -> Path:
    """Return the program at *path* of Debian's *package*: ours if it is installed, else fetched."""
    installed = Path("/") / path
    if installed.exists():
        return installed
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise NotHereError(f"{package} isn't installed, and there is no apt to fetch it with")
    folder = BUILD / package
    with _one_at_a_time(package):
        if not (folder / path).exists():
            _fetch(package, folder)
    return folder / path


def _fetch(package: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["apt-get", "download", "--quiet", package],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=FETCH_SECONDS,
    )
    if done.returncode:
        raise NotHereError(f"{package}: {_last_line(done.stderr)} (apt-get install {package})")
    for archive in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", archive, folder], check=True)
        archive.unlink()


def _mirror() -> str:
    """Return where apt has Debian's packages from."""
    asked = ("apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI)")
    listed = subprocess.run(
        [*asked, "Created-By: Packages"], capture_output=True, text=True, check=False
    ).stdout
    for line in listed.splitlines():
        origin, _, address = line.partition(" ")
        if origin == "Debian" and "security" not in address:
            return address
    raise NotHereError("apt has no lists of Debian's packages here (apt-get update)")


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
