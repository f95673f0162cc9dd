"""The zip of a job's code: its name is its content, and its limits speak."""

from __future__ import annotations

import os
import socket
import zipfile
from pathlib import Path

import pytest

from reprieve_cli import bundle
from reprieve_cli.bundle import pack
from reprieve_cli.errors import BadInputError
from tests.cli.conftest import sha256


def test_the_same_files_give_the_same_bytes_wherever_and_whenever(
    code: Path, tmp_path: Path
) -> None:
    (code / "run.sh").write_text("#!/bin/sh\n")
    (code / "run.sh").chmod(0o700)
    first = pack(code, to=tmp_path / "1.zip")

    other = tmp_path / "elsewhere"
    other.mkdir()
    for name in ("run.sh", "train.py"):  # another order
        (other / name).write_bytes((code / name).read_bytes())
        os.utime(other / name, (1, 1))
    (other / "run.sh").chmod(0o755)
    (other / "__pycache__").mkdir()
    (other / "__pycache__" / "train.pyc").write_bytes(b"x")
    second = pack(other, to=tmp_path / "2.zip")

    assert first.sha256 == second.sha256 == sha256((tmp_path / "2.zip").read_bytes())
    assert first.files == {"run.sh", "train.py"}


def test_another_byte_or_an_executable_bit_gives_another_name(code: Path, tmp_path: Path) -> None:
    digests = {pack(code, to=tmp_path / "zip").sha256}
    (code / "train.py").chmod(0o755)
    digests.add(pack(code, to=tmp_path / "zip").sha256)
    (code / "train.py").write_text("import reprieve_job  # v2\n")
    digests.add(pack(code, to=tmp_path / "zip").sha256)

    assert len(digests) == 3


def test_modes_and_content_come_out_again(code: Path, tmp_path: Path) -> None:
    (code / "data").mkdir()
    (code / "data" / "x.bin").write_bytes(bytes(range(256)))
    (code / "linked.bin").symlink_to("data/x.bin")
    pack(code, to=tmp_path / "zip")

    with zipfile.ZipFile(tmp_path / "zip") as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["data/x.bin", "linked.bin", "train.py"]
        assert archive.read("linked.bin") == bytes(range(256))
        assert archive.getinfo("train.py").external_attr >> 16 & 0o777 == 0o644


def test_too_many_bytes_are_refused_and_the_largest_folder_is_named(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "MOST_BYTES", 2 * bundle.MIB)
    (code / "data").mkdir()
    (code / "data" / "big").write_bytes(bytes(3 * bundle.MIB))

    with pytest.raises(BadInputError, match=r"3 MiB, the limit is 2.*\(data alone is 3 MiB\)"):
        pack(code, to=tmp_path / "zip")


def test_too_many_files_are_refused(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "MOST_FILES", 1)
    (code / "more.py").write_text("")

    with pytest.raises(BadInputError, match="holds 2 files, the limit is 1"):
        pack(code, to=tmp_path / "zip")


def test_what_no_zip_carries_is_named(code: Path, tmp_path: Path) -> None:
    (code / "there").symlink_to("nowhere")
    with pytest.raises(BadInputError, match="there is a broken link"):
        pack(code, to=tmp_path / "zip")

    (code / "there").unlink()
    (code / "there").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(BadInputError, match="there is a link to a folder"):
        pack(code, to=tmp_path / "zip")

    (code / "there").unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(code / "there"))
        with pytest.raises(BadInputError, match="neither a file nor a folder"):
            pack(code, to=tmp_path / "zip")


def test_a_folder_that_is_missing_empty_or_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="doesn't exist"):
        pack(tmp_path / "nowhere", to=tmp_path / "zip")

    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match="is no folder"):
        pack(tmp_path / "file", to=tmp_path / "zip")

    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".env").write_text("TOKEN=x")
    with pytest.raises(BadInputError, match="is empty once"):
        pack(tmp_path / "empty", to=tmp_path / "zip")
