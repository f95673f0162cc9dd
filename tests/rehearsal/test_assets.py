"""
Every asset of the assembly that goes to AWS, unpacked and started as its machine would.

Lambda's processor isn't this machine's: its compiled files are looked at, and everything else
is imported together with a build of the same lock for this one, by Lambda's own Python where
that is installed.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from infra import packages
from infra.packages import LAMBDA, Target, runtime_layer
from reprieve_cli.local.deploy import zipped
from reprieve_cli.provision import STACK
from tests.infra.synthesised import FUNCTIONS, Template

pytestmark = [pytest.mark.deep, pytest.mark.rehearsal, pytest.mark.timeout(300)]

ARM64 = 183  # e_machine of an ELF file
HOST_PYTHONS = ("3.11", "3.12", "3.13")
# What Lambda's own image has beside the standard library.
SDK = ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "six", "urllib3")


@cache
def interpreter(version: str) -> str | None:
    """Find a working Python of *version*: ours, one on PATH, or one that pyenv keeps."""
    if sys.version.startswith(f"{version}."):
        return sys.executable
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    candidates = [shutil.which(f"python{version}"), *map(str, reversed(kept))]
    return next((one for one in candidates if one and _works(one, version)), None)


def _works(path: str, version: str) -> bool:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    probe = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
    return probe.stdout.strip() == version


def run(
    python: str,
    code: str,
    *,
    path: list[Path],
    environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run *code* where nothing is but the standard library and *path*."""
    start = f"import sys; sys.path += {[str(one) for one in path]!r}\n"
    return subprocess.run(
        [python, "-I", "-S", "-c", start + code],
        env={"PATH": "/usr/bin:/bin", "AWS_REGION": "us-east-1", **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture(scope="module")
def template(original: Path) -> Template:
    return Template(json.loads((original / f"{STACK}.template.json").read_text()))


class Assets:
    """The assembly's zips, each unpacked once."""

    def __init__(self, assembly: Path, target: Path) -> None:
        self._assembly = assembly
        self._target = target
        self._files = json.loads((assembly / f"{STACK}.assets.json").read_text())["files"]

    def zips(self) -> dict[str, Any]:
        return {
            digest: file
            for digest, file in self._files.items()
            if file["source"]["packaging"] == "zip"
        }

    def unpacked(self, digest: str) -> Path:
        folder = self._target / digest[:12]
        if not folder.exists():
            archive = zipped(self._assembly / self._files[digest]["source"]["path"])
            zipfile.ZipFile(io.BytesIO(archive)).extractall(folder)
        return folder

    def of(self, properties: dict[str, Any]) -> Path:
        """Unpack what a function's ``Code`` or a layer's ``Content`` names."""
        where = properties.get("Code") or properties["Content"]
        return self.unpacked(where["S3Key"].removesuffix(".zip"))

    def named(self, word: str) -> Path:
        (digest,) = (d for d, file in self.zips().items() if word in file["displayName"])
        return self.unpacked(digest)


@pytest.fixture(scope="module")
def assets(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Assets:
    return Assets(original, tmp_path_factory.mktemp("assets"))


@pytest.fixture(scope="module")
def python() -> tuple[str, Target]:
    """Return Lambda's Python where it is installed, else ours, and what to build for it."""
    found = interpreter(LAMBDA.python)
    if found is not None:
        return found, Target(LAMBDA.python, "x86_64-manylinux2014" if _is_x86_64() else None)
    return sys.executable, packages.local_target()


def _is_x86_64() -> bool:
    return os.uname().machine == "x86_64"


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the SDK alone."""
    folder = tmp_path_factory.mktemp("sdk")
    for name in SDK:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        origin = Path(spec.origin)
        source = origin.parent if origin.name == "__init__.py" else origin
        (folder / source.name).symlink_to(source)
    return folder


@pytest.fixture(scope="module")
def own_layer(python: tuple[str, Target]) -> Path:
    """Build the runtime layer for this machine's processor."""
    return runtime_layer(python[1]).folder / "python"


@dataclass(frozen=True)
class Runtime:
    """What a function finds in Lambda, with a runtime layer for this machine's processor."""

    python: str
    template: Template
    assets: Assets
    layer: Path
    sdk: Path

    def path(self, name: str, *, without: str | None = None) -> list[Path]:
        """Return the search path of the function *name*, in Lambda's order."""
        properties = self.template.function(name)
        layers = [
            self.layer if "RuntimeLayer" in one else self._site(one)
            for one in (reference["Ref"] for reference in properties["Layers"])
            if without is None or without not in one
        ]
        return [self.assets.of(properties), *layers, self.sdk]

    def _site(self, layer: str) -> Path:
        return self.assets.of(self.template.resources[layer]["Properties"]) / "python"

    def run(self, name: str, code: str, *, path: list[Path]) -> subprocess.CompletedProcess[str]:
        variables = self.template.environment(self.template.function(name))
        return run(self.python, code, path=path, environment=variables)


@pytest.fixture(scope="module")
def runtime(
    python: tuple[str, Target], template: Template, assets: Assets, own_layer: Path, sdk: Path
) -> Runtime:
    return Runtime(python[0], template, assets, own_layer, sdk)


def test_every_asset_is_one_that_something_uses(template: Template, assets: Assets) -> None:
    text = json.dumps(template.resources)

    assert len(assets.zips()) == len(FUNCTIONS) + 3  # two layers, the host's bundle
    for digest, file in assets.zips().items():
        assert digest in text, file["displayName"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_imports_with_its_layers_and_the_sdk_alone(runtime: Runtime, name: str) -> None:
    module, _, attribute = runtime.template.function(name)["Handler"].partition(".")
    path = runtime.path(name)

    done = runtime.run(
        name,
        f"import {module}; assert callable({module}.{attribute}); print({module}.__file__)",
        path=path,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(path[0] / f"{module}.py")


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("layer", ["CoreLayer", "RuntimeLayer"])
def test_a_function_cannot_do_without_a_layer(runtime: Runtime, name: str, layer: str) -> None:
    """Otherwise the import above would prove nothing about that layer."""
    done = runtime.run(name, "import handler", path=runtime.path(name, without=layer))

    assert "ModuleNotFoundError" in done.stderr


def test_the_layer_for_lambda_differs_in_compiled_files_alone(
    assets: Assets, own_layer: Path
) -> None:
    ours = {_common_name(path, own_layer) for path in _modules(own_layer)}
    theirs_at = assets.named("RuntimeLayer") / "python"
    theirs = {_common_name(path, theirs_at) for path in _modules(theirs_at)}

    assert theirs == ours


def _modules(site: Path) -> Iterator[Path]:
    return (path for path in site.rglob("*") if path.suffix in {".py", ".so", ".json"})


def _common_name(path: Path, site: Path) -> str:
    """Return the path within *site*, without what names Python and processor."""
    within = path.relative_to(site)
    return str(within.with_name(within.name.partition(".")[0] + within.suffix))


def test_compiled_files_are_for_lambdas_processor_and_python(assets: Assets) -> None:
    compiled = list(assets.named("RuntimeLayer").rglob("*.so"))

    assert compiled
    for path in compiled:
        head = path.read_bytes()[:20]
        assert head[:4] == b"\x7fELF"
        assert struct.unpack_from("<H", head, 18) == (ARM64,), path.name
        assert "cpython-313-aarch64" in path.name


@pytest.mark.parametrize("version", HOST_PYTHONS)
def test_the_agent_starts_from_the_bundle_alone(assets: Assets, version: str) -> None:
    found = interpreter(version)
    if found is None:
        pytest.skip(f"no Python {version} here")

    done = run(
        found,
        "import runpy; runpy.run_module('reprieve_agent', run_name='__main__')",
        path=[assets.named("HostBundle") / "site"],
    )

    assert done.returncode == 1
    assert "not set: STACK, POOL, JOBS_TABLE" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


FRAMEWORKS = {"lightning", "optuna", "torch", "transformers"}


@pytest.mark.parametrize("version", HOST_PYTHONS)
def test_every_module_of_the_agent_imports_from_the_bundle_alone(
    assets: Assets, version: str
) -> None:
    found = interpreter(version)
    if found is None:
        pytest.skip(f"no Python {version} here")

    done = run(
        found,
        "import importlib, pkgutil, reprieve_agent, reprieve_job\n"
        "for package in (reprieve_agent, reprieve_job):\n"
        "    for one in pkgutil.iter_modules(package.__path__, package.__name__ + '.'):\n"
        "        if one.name.endswith('__main__'): continue\n"
        "        try: print(importlib.import_module(one.name))\n"
        "        except ModuleNotFoundError as missing:\n"
        "            # An adapter needs its framework, which the job brings.\n"
        f"            if missing.name not in {FRAMEWORKS}: raise\n",
        path=[assets.named("HostBundle") / "site"],
    )

    assert done.returncode == 0, done.stderr
    assert "reprieve_agent.machine" in done.stdout


@pytest.mark.parametrize("version", HOST_PYTHONS)
@pytest.mark.parametrize(
    ("words", "status"),
    [
        ((), 2),
        (("status",), 40),
        (("preempt", "--request-id", "interruption", "--kind", "interruption"), 11),
    ],
    ids=["usage", "status without an agent", "preempt without agent and job"],
)
def test_reprieve_ctl_answers_with_its_documented_exit_code(
    assets: Assets, tmp_path: Path, version: str, words: tuple[str, ...], status: int
) -> None:
    found = interpreter(version)
    if found is None:
        pytest.skip(f"no Python {version} here")
    program = assets.named("HostBundle") / "site" / "reprieve_agent" / "bin" / "reprieve-ctl"
    nobody = {"REPRIEVE_SOCKET": f"{tmp_path}/agent.sock", "REPRIEVE_STATE_DIR": str(tmp_path)}

    done = subprocess.run(
        [found, "-I", "-S", program, *words],
        env={"PATH": "/usr/bin:/bin", **nobody},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == status, done.stderr
