"""
What functions and hosts run, put together during synth: no Docker, no Node package.

Each build lands in ``build/`` under a name that is the hash of everything it depends on, so
a second synth costs nothing and a changed lock never meets an old build.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
RECIPE = Path(__file__).resolve()
LAYER_LOCK = ROOT / "requirements" / "layer.txt"
HOST_LOCK = ROOT / "requirements" / "host.txt"
CORE = ROOT / "layers" / "core"
OUR_SOURCES = ("layers/core/python/reprieve", "agent", "cli/reprieve_cli")
AGENT_UNITS = ROOT / "agent" / "systemd"
HOST_FILES = ROOT / "infra" / "host"
# What the agent calls. botocore describes 400 services more, which
# are nine tenths of its bytes, fetched and unpacked while a job waits for its host.
HOST_SERVICES = frozenset({"dynamodb", "logs", "s3", "secretsmanager", "sqs", "ssm", "sts"})
# Of Powertools, functions use the logger and the metrics; of pydantic, its second version. What
# is left out here is most of the files that a new copy of a function unpacks before it starts.
UNUSED = ("aws_lambda_powertools/event_handler", "pydantic/v1")
UTILITIES = frozenset({"jmespath_utils", "metadata", "typing"})
KEPT_BUILDS = 4
UNIT_SUFFIXES = {".service", ".mount", ".timer", ".socket"}


class PackageError(Exception):
    """A build failed; the message is one line."""


@dataclass(frozen=True, slots=True)
class Target:
    """The interpreter that will import the packages."""

    python: str
    platform: str | None  # None: this machine

    @property
    def flags(self) -> list[str]:
        """What uv needs to know of it."""
        return ["--python-version", self.python] + (
            ["--python-platform", self.platform] if self.platform else []
        )


LAMBDA = Target("3.13", "aarch64-manylinux2014")
# Only pure Python is installed on hosts, so one build serves every image; 3.11 is the oldest.
HOST = Target("3.11", "x86_64-manylinux2014")


def local_target() -> Target:
    """Return the running interpreter: the embedded cloud runs functions with it."""
    return Target(f"{sys.version_info.major}.{sys.version_info.minor}", None)


@dataclass(frozen=True, slots=True)
class Built:
    """A finished build: its folder, and the hash that names it."""

    folder: Path
    digest: str


def runtime_layer(target: Target = LAMBDA) -> Built:
    """
    Return the layer with Powertools and pydantic for *target*.

    Modules are compiled ahead, which halves the import time of a cold start, if an
    interpreter of the target's version is at hand (its byte code serves every CPU).
    """
    compiler = _interpreter(target.python)
    digest = _digest([RECIPE, LAYER_LOCK], repr(target), "compiled" if compiler else "plain")

    def build(folder: Path) -> None:
        site = folder / "python"
        _install(site, target, ["--require-hashes", "-r", str(LAYER_LOCK)])
        shutil.rmtree(site / "bin", ignore_errors=True)  # scripts, for this machine's interpreter
        for name in UNUSED:
            shutil.rmtree(site / name)
        _keep(site / "aws_lambda_powertools" / "utilities", UTILITIES)
        _compile(site, target, compiler)

    return _cached("layer", digest, build)


def core_layer(target: Target = LAMBDA) -> Built:
    """Return the layer with our own package: a copy, compiled as the runtime layer is."""
    compiler = _interpreter(target.python)
    sources = _files(CORE)
    digest = _digest([RECIPE, *sources], repr(target), "compiled" if compiler else "plain")

    def build(folder: Path) -> None:
        for source in sources:
            copy = folder / source.relative_to(CORE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)
        _compile(folder / "python", target, compiler)

    return _cached("core", digest, build)


def host_bundle() -> Built:
    """
    Return what a GPU host unpacks at boot: the agent, boto3 and the systemd units.

    Everything in it is pure Python and already installed, so that booting needs no
    package index, no pip and no compiler.
    """
    sources = [path for name in OUR_SOURCES for path in _files(ROOT / name)] + _files(HOST_FILES)
    digest = _digest([RECIPE, HOST_LOCK, ROOT / "pyproject.toml", *sources], repr(HOST))

    def build(folder: Path) -> None:
        site = folder / "site"
        _install(site, HOST, ["--require-hashes", "-r", str(HOST_LOCK)])
        _install(site, HOST, ["--no-build-isolation", "--reinstall-package", "reprieve", str(ROOT)])
        shutil.rmtree(site / "bin", ignore_errors=True)  # scripts of this machine's interpreter
        _keep(site / "botocore" / "data", HOST_SERVICES)
        foreign = [path.name for path in site.rglob("*.so")]
        if foreign:
            raise PackageError(
                f"host bundle: {foreign[0]} isn't pure Python: one bundle can't serve every image"
            )
        units = folder / "systemd"
        units.mkdir()
        for path in [*_files(HOST_FILES), *_files(AGENT_UNITS)]:
            shutil.copy(path, units if path.suffix in UNIT_SUFFIXES else folder)

    return _cached("host", digest, build)


def _compile(site: Path, target: Target, compiler: str | None) -> None:
    if compiler is None:
        _say(f"no python{target.python} here: a layer ships without byte code")
        return
    # Hash-checked-never: the zip resets file times, which would void timestamps.
    options = ["-q", "--invalidation-mode", "unchecked-hash", "-s", str(site)]
    _run([compiler, "-m", "compileall", *options, "-p", "/opt/python", str(site)])


def _keep(folder: Path, names: frozenset[str]) -> None:
    """Remove each folder in *folder* that isn't named."""
    for found in folder.iterdir():
        if found.is_dir() and found.name not in names:
            shutil.rmtree(found)


def _install(site: Path, target: Target, what: list[str]) -> None:
    binary = [] if "--no-build-isolation" in what else ["--only-binary", ":all:"]
    options = ["--quiet", "--no-deps", "--no-config", "--target", str(site), *target.flags]
    _run([_uv(), "pip", "install", *options, *binary, *what])


def _cached(name: str, digest: str, build: Callable[[Path], None]) -> Built:
    """Build into a folder beside the final one and rename it: a broken build is never found."""
    final = BUILD / f"{name}-{digest}"
    if not final.is_dir():
        BUILD.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILD, prefix=f".{name}-") as scratch:
            folder = Path(scratch) / "new"
            folder.mkdir()
            build(folder)
            try:
                folder.rename(final)
            except OSError:
                if not final.is_dir():  # otherwise a second synth was faster
                    raise
        _forget_old(name)
    return Built(final, digest)


def _forget_old(name: str) -> None:
    """Keep the newest few: sources change often, and a running synth may still read the last."""
    builds = sorted(BUILD.glob(f"{name}-*"), key=lambda path: path.stat().st_mtime)
    for path in builds[:-KEPT_BUILDS]:
        shutil.rmtree(path, ignore_errors=True)


def _digest(files: Iterable[Path], *words: str) -> str:
    digest = hashlib.sha256("\0".join(words).encode())
    for path in sorted(files):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _files(folder: Path) -> list[Path]:
    return [
        path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]


def _interpreter(version: str) -> str | None:
    """Return a working interpreter of *version*; a shim on PATH may name one that isn't there."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" == version:
        return sys.executable
    name = f"python{version}"
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/{name}"))
    candidates = [shutil.which(name), *map(str, reversed(kept))]
    return next((path for path in candidates if path and _works(path)), None)


def _works(path: str) -> bool:
    return subprocess.run([path, "-c", ""], check=False, capture_output=True).returncode == 0


def _uv() -> str:
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise PackageError(f"uv is neither beside {sys.executable} nor on PATH: run `make setup`")
    return found


def _run(command: list[str]) -> None:
    # Byte code is part of a layer, so a switch that suppresses it must not reach the compiler.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=ROOT, env=environment
    )
    if done.returncode:
        reason = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise PackageError(f"{' '.join(command[:4])} failed ({done.returncode}): {reason[-1]}")


def _say(line: str) -> None:
    sys.stderr.write(f"reprieve: {line}\n")


def main() -> int:
    """Build one package and print its folder; for the embedded cloud, and for the curious."""
    parser = argparse.ArgumentParser(prog="python -m infra.packages", description=__doc__)
    parser.add_argument("what", choices=["layer", "core", "local-layer", "local-core", "host"])
    builders: dict[str, Callable[[], Built]] = {
        "layer": runtime_layer,
        "core": core_layer,
        "local-layer": lambda: runtime_layer(local_target()),
        "local-core": lambda: core_layer(local_target()),
        "host": host_bundle,
    }
    try:
        built = builders[parser.parse_args().what]()
    except PackageError as error:
        _say(str(error))
        return 1
    sys.stdout.write(f"{built.folder}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
