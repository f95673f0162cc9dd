"""What is shipped to functions and hosts is whole: each imports with nothing else around."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from infra import packages, user_data
from infra.packages import (
    HOST_SERVICES,
    PackageError,
    core_layer,
    host_bundle,
    local_target,
    runtime_layer,
)
from tests.infra.synthesised import FUNCTIONS, ROOT

pytestmark = pytest.mark.deep


def _python(path: list[Path], code: str) -> subprocess.CompletedProcess[str]:
    """Run *code* in an interpreter that sees the standard library and *path*, nothing else."""
    setup = f"import sys; sys.path += {[str(one) for one in path]!r}\n"
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", setup + code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture(scope="module")
def host() -> Path:
    return host_bundle().folder


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_imports_from_its_layers_and_the_sdk_alone(host: Path, name: str) -> None:
    """The host bundle stands in for the SDK that Lambda brings: it has boto3 and little else."""
    layer = runtime_layer(local_target()).folder / "python"
    core = core_layer(local_target()).folder / "python"

    done = _python(
        [layer, core, ROOT / "functions" / name, host / "site"],
        "import handler; print(handler.lambda_handler.__name__)",
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


SPY = """
from importlib._bootstrap_external import SourceLoader
compiled, original = [], SourceLoader.source_to_code
def spy(self, data, path, **options):
    compiled.append(str(path))
    return original(self, data, path, **options)
SourceLoader.source_to_code = spy
"""


def test_a_layer_that_came_by_zip_is_not_compiled_again(host: Path, tmp_path: Path) -> None:
    """Where the zip is unpacked, file times differ; and in Lambda nothing may be written."""
    layers = {"core": core_layer(local_target()), "runtime": runtime_layer(local_target())}
    for name, built in layers.items():
        archive = shutil.make_archive(str(tmp_path / name), "zip", built.folder)
        shutil.unpack_archive(archive, tmp_path / name)
        for path in (tmp_path / name).rglob("*.py"):
            os.utime(path, (0, 0))

    done = _python(
        [*(tmp_path / name / "python" for name in layers), host / "site"],
        f"sys.dont_write_bytecode = True\n{SPY}"
        "import reprieve.edge.wiring\n"
        f"print([path for path in compiled if path.startswith({str(tmp_path)!r})])",
    )

    assert done.stdout.strip() == "[]", done.stderr


def test_the_core_layer_is_our_package_and_nothing_else() -> None:
    site = core_layer().folder / "python"
    ours = ROOT / "layers" / "core" / "python"

    assert [path.name for path in core_layer().folder.iterdir()] == ["python"]
    for path in ours.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert (site / path.relative_to(ours)).read_bytes() == path.read_bytes()


def test_the_layer_for_lambda_is_for_its_processor_and_its_python() -> None:
    site = runtime_layer().folder / "python"
    binaries = [path.name for path in site.rglob("*.so")]

    assert binaries
    assert all("cpython-313-aarch64-linux-gnu" in name for name in binaries)
    assert not (site / "bin").exists()


def test_the_host_bundle_is_pure_python(host: Path) -> None:
    assert not list(host.rglob("*.so"))
    assert (host / "install.sh").is_file()
    assert (host / "systemd" / "reprieve-imds-guard.service").is_file()


def test_the_agent_imports_from_the_host_bundle_alone(host: Path) -> None:
    done = _python(
        [host / "site"],
        "import boto3, reprieve.domain.clock, reprieve_agent, reprieve_agent.config; "
        "assert 'pydantic' not in sys.modules; print(reprieve_agent.__file__)",
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(host))


def test_the_bundle_knows_the_services_that_a_host_calls(host: Path) -> None:
    sources = [*(ROOT / "agent" / "reprieve_agent").glob("*.py")]
    called = {
        name
        for source in sources
        for name in re.findall(r'sdk\.client[(,][^"\n]*"(\w+)"', source.read_text())
    } | {"s3"}  # made by the adapter, with its own switches

    assert called == HOST_SERVICES
    done = _python(
        [host / "site"],
        "import boto3\n"
        f"for name in {sorted(HOST_SERVICES)}: boto3.client(name, region_name='us-east-1')",
    )
    assert done.returncode == 0, done.stderr


def test_a_host_installs_the_bundle_as_it_arrives_by_zip(host: Path, tmp_path: Path) -> None:
    """The zip loses file modes, and the image may have no pip: neither matters."""
    archive = tmp_path / "bundle.zip"
    with zipfile.ZipFile(archive, "w") as bundle:
        for path in host.rglob("*"):
            bundle.write(path, path.relative_to(host))
    unpacked, prefix = tmp_path / "unpacked", tmp_path / "opt"
    subprocess.run([sys.executable, "-m", "zipfile", "-e", archive, unpacked], check=True)

    base = Path(sysconfig.get_config_var("BINDIR")) / "python3"
    subprocess.run(
        ["bash", "-c", f'source {unpacked}/install.sh; install_agent "$1"', "install", base],
        check=True,
        env={"PATH": "/usr/bin:/bin", "PREFIX": str(prefix)},
        capture_output=True,
    )

    agent = subprocess.run(
        [
            prefix / "bin" / "python",
            "-c",
            "import boto3, reprieve_agent.config as c; print(c.__file__)",
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert agent.stdout.startswith(str(prefix))
    assert Path(agent.stdout.strip()).with_suffix("").parent.joinpath("__pycache__").is_dir()
    usage = subprocess.run(
        ["reprieve-ctl", "bogus"],
        env={"PATH": f"{prefix}/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert usage.returncode == 2
    assert "reprieve-ctl preempt" in usage.stderr


def test_the_agents_unit_starts_what_a_host_installs(host: Path) -> None:
    unit = (host / "systemd" / "reprieve-agent.service").read_text()

    assert "ExecStart=/opt/reprieve/bin/python -m reprieve_agent\n" in unit
    assert f"EnvironmentFile={user_data.ENV_FILE}\n" in unit
    assert "RuntimeDirectory=reprieve\n" in unit  # /run/reprieve, where `ready` appears


def test_units_are_enabled_before_the_agent_starts(host: Path, tmp_path: Path) -> None:
    commands, units = tmp_path / "bin", tmp_path / "units"
    commands.mkdir()
    units.mkdir()
    systemctl = commands / "systemctl"
    systemctl.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/calls\n')
    systemctl.chmod(0o755)

    subprocess.run(
        ["bash", "-c", f"source {host}/install.sh; enable_units"],
        check=True,
        env={"PATH": f"{commands}:/usr/bin:/bin", "UNITS": str(units)},
    )

    installed = {path.name for path in units.iterdir()}
    reload, enable, start = (tmp_path / "calls").read_text().splitlines()
    assert installed == {
        "reprieve-agent.service",
        "reprieve-imds-guard.service",
        "var-lib-reprieve.mount",
    }
    assert reload == "daemon-reload"
    assert set(enable.split()) == {"enable", "--quiet"} | installed
    assert start == "start reprieve-agent.service"


@pytest.mark.parametrize(
    ("version", "new_enough"),
    [("3.3.2746.0", True), ("3.3.4121.0", True), ("3.10.0.0", True), ("3.3.2299.0", False)],
)
def test_an_old_ssm_agent_is_recognised(version: str, new_enough: bool) -> None:  # noqa: FBT001
    script = ROOT / "infra" / "host" / "install.sh"

    done = subprocess.run(["bash", "-c", f"source {script}; is_new_enough {version}"], check=False)

    assert (done.returncode == 0) is new_enough


def test_an_unchanged_lock_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = runtime_layer()

    def fail(command: list[str]) -> None:
        raise AssertionError(command)

    monkeypatch.setattr(packages, "_run", fail)

    assert runtime_layer() == first


def test_a_failed_build_is_one_line_and_leaves_nothing_to_find(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(packages, "BUILD", tmp_path / "build")
    monkeypatch.setattr(packages, "_uv", lambda: "false")

    with pytest.raises(PackageError, match=r"^false pip install --quiet failed \(1\)") as caught:
        runtime_layer()

    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "build").iterdir())


def test_old_builds_are_forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(packages, "BUILD", tmp_path)

    for number in range(packages.KEPT_BUILDS + 2):
        packages._cached("thing", f"{number:02d}", lambda folder: (folder / "x").touch())

    assert len(list(tmp_path.glob("thing-*"))) == packages.KEPT_BUILDS
