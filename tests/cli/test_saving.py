"""Which code is warned of: judged from the script that the command starts."""

from __future__ import annotations

import pytest

from reprieve_cli.saving import saves

HELPER = b"import reprieve_job\n"
NONE = b"import torch  # no reprieve_job here\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HELPER, True),
        (b"    from reprieve_job import connect\n", True),
        (b"folder = os.environ['REPRIEVE_CKPT_DIR']\n", True),
        (NONE, False),
        (b"import reprieve_jobs\n", False),
    ],
)
def test_a_script_that_can_save_is_told_from_one_that_cannot(
    text: bytes, *, expected: bool
) -> None:
    assert saves({"train.py": text}, ["train.py"]) is expected


def test_another_script_in_the_folder_does_not_speak_for_the_one_that_runs() -> None:
    texts = {"train.py": NONE, "interruptible.py": HELPER}

    assert not saves(texts, ["train.py"])
    assert saves(texts, ["interruptible.py"])


@pytest.mark.parametrize(
    "script",
    [
        b"import loop\n",
        b"import os, loop\n",
        b"from loop import train\n",
        b"from .loop import train\n",
        b"from package import loop\n",
        b"from package.loop import train\n",
        b"subprocess.run([sys.executable, 'loop.py'])\n",
    ],
)
def test_what_the_script_imports_or_starts_speaks_for_it(script: bytes) -> None:
    texts = {"train.py": script, "package/loop.py": HELPER, "loop.py": HELPER}

    assert saves(texts, ["train.py"])


def test_the_way_may_be_long_and_go_in_circles() -> None:
    texts = {
        "run.sh": b"exec python app/main.py --config app/config.yaml\n",
        "app/main.py": b"from app import model\n",
        "app/model/__init__.py": b"import main\n",
        "app/config.yaml": b"output: ${REPRIEVE_CKPT_DIR}\n",
    }

    assert saves(texts, ["run.sh"])
    assert not saves({**texts, "app/config.yaml": b"output: out\n"}, ["run.sh"])


def test_without_a_script_to_start_from_every_file_counts() -> None:
    assert saves({"a.jl": NONE, "b.jl": b'ENV["REPRIEVE_CKPT_DIR"]'}, [])
    assert not saves({"a.jl": NONE}, [])
