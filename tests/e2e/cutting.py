"""Take a rule out of what is deployed: a patch that runs before the code of a function or agent."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.theatre import Theatre

FUNCTIONS = Path(__file__).resolve().parents[2] / "functions"
AGENT = "agent"
# Whatever runs on a host finds this module; only the agent itself is patched.
AT_ITS_START = 'import sys\nif sys.orig_argv[1:3] == ["-m", "reprieve_agent"]:\n    import cut\n'


@contextmanager
def deployed_with(theatre: Theatre, patches: Mapping[str, str]) -> Iterator[None]:
    """
    Deploy functions anew, each with its patch: Python source by the name of the function's folder.

    Their layers stay as they are. The patch of ``agent`` is for the hosts launched from now on. At
    the end their own code is back.
    """
    functions = [name for name in patches if name != AGENT]
    modules = theatre.agent_patches
    assert modules is not None, "this theatre's agents can't be patched"
    try:
        if AGENT in patches:
            (modules / "cut.py").write_text(patches[AGENT], encoding="utf-8")
            (modules / "sitecustomize.py").write_text(AT_ITS_START, encoding="utf-8")
        for name in functions:
            _deploy(theatre, name, patches[name])
        yield
    finally:
        for module in ("sitecustomize.py", "cut.py"):
            (modules / module).unlink(missing_ok=True)
        for name in functions:
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
