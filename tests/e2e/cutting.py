"""Take a rule out of what is deployed: a patch that runs before a function's own code."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.theatre import Theatre

FUNCTIONS = Path(__file__).resolve().parents[2] / "functions"


@contextmanager
def deployed_with(theatre: Theatre, patches: dict[str, str]) -> Iterator[None]:
    """
    Deploy functions anew, each with its patch: Python source by the name of the function's folder.

    Their layers stay as they are. At the end their own code is back.
    """
    try:
        for name, patch in patches.items():
            _deploy(theatre, name, patch)
        yield
    finally:
        for name in patches:
            _deploy(theatre, name)


def _deploy(theatre: Theatre, name: str, patch: str = "") -> None:
    """Upload the code and call it once without records, so that a cold start costs no notice."""
    output = "".join(part.capitalize() for part in name.split("_")) + "Function"
    function = theatre.stage.cloud.stack.outputs[output]
    client = theatre.client("lambda")
    client.update_function_code(FunctionName=function, ZipFile=_zipped(name, patch))
    answer = client.invoke(FunctionName=function, Payload=b'{"Records": []}')
    assert "FunctionError" not in answer, answer["Payload"].read()


def _zipped(name: str, patch: str) -> bytes:
    own = (FUNCTIONS / name / "handler.py").read_text(encoding="utf-8")
    files = {"handler.py": own}
    if patch:
        entry = "import cut\nfrom own import lambda_handler\n"
        files = {"own.py": own, "cut.py": patch, "handler.py": entry}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return buffer.getvalue()
