# ruff: noqa: INP001 - a script
"""
Cut botocore's models down to the operations that functions and the agent call.

``python layers/models/generate.py`` writes ``reprieve/adapters/service_models`` from the
botocore installed here, the version that ``requirements/`` pins; ``--check`` only compares.
Run it after adding an operation to ``OPERATIONS``, and after each change of that version:
``tests/models`` fails until then.

What is left out is documentation, operations nobody calls, and the shapes that only those
use; and of ``endpoints.json``, in every partition, services that nobody reaches. What stays,
stays word for word.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from botocore.loaders import Loader

TARGET = Path(__file__).resolve().parents[1] / "core/python/reprieve/adapters/service_models"

# As the adapters, the functions and the agent call them.
CALLED: dict[str, tuple[str, ...]] = {
    "dynamodb": (
        "BatchGetItem",
        "GetItem",
        "PutItem",
        "Query",
        "TransactWriteItems",
        "UpdateItem",
    ),
    "ec2": (
        "CreateFleet",
        "DescribeInstances",
        "DescribeSpotInstanceRequests",
        "DescribeSpotPriceHistory",
        "TerminateInstances",
    ),
    "logs": ("CreateLogStream", "PutLogEvents"),
    "s3": (
        "AbortMultipartUpload",
        "CompleteMultipartUpload",
        "CreateMultipartUpload",
        "DeleteObjects",
        "GetObject",
        "ListObjectsV2",
        "PutObject",
        "UploadPart",
    ),
    "secretsmanager": ("GetSecretValue",),
    "sqs": ("ChangeMessageVisibility", "DeleteMessage", "ReceiveMessage", "SendMessage"),
    "ssm": ("GetParameter", "SendCommand"),
    "sts": ("AssumeRole",),
}

# As botocore calls them on our behalf: where endpoints are discovered, where a bucket is in
# another region or a directory bucket, and for credentials.
IMPLIED: dict[str, tuple[str, ...]] = {
    "dynamodb": ("DescribeEndpoints",),
    "s3": ("CreateSession", "HeadBucket"),
    "sts": ("AssumeRoleWithWebIdentity",),
}

# As botocore calls them to get credentials: only their endpoints, their models stay botocore's.
CREDENTIALS = ("oidc", "portal.sso")

Model = dict[str, Any]


def main() -> int:
    """Write the models, or say whether those that stand there are as they would be written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if stale")
    if not parser.parse_args().check:
        write(TARGET)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        write(Path(scratch))
        if _contents(Path(scratch)) == _contents(TARGET):
            return 0
    sys.stderr.write(f"{TARGET} is stale: run python layers/models/generate.py\n")
    return 1


def write(target: Path) -> None:
    """Write a folder as botocore's loader reads it: ``<service>/<version>/service-2.json``."""
    loader = Loader()
    for service, called in CALLED.items():
        version = loader.determine_latest_version(service, "service-2")
        full = loader.load_service_model(service, "service-2", version)
        model = trim(full, (*called, *IMPLIED.get(service, ())))
        _store(target / service / version / "service-2.json", model)
    _store(target / "endpoints.json", trim_endpoints(loader.load_data("endpoints")))


def trim(full: Model, operations: tuple[str, ...]) -> Model:
    """Return the model of *operations* and of every shape that can be reached from them."""
    kept = {name: full["operations"][name] for name in sorted(operations)}
    shapes: dict[str, Any] = {}
    waiting = list(_references(list(kept.values())))
    while waiting:
        name = waiting.pop()
        if name not in shapes:
            shapes[name] = full["shapes"][name]
            waiting += _references(shapes[name])
    # Of the parameters of a client botocore wants the documentation, too.
    model = {key: value for key, value in full.items() if key != "documentation"}
    return model | {
        "operations": _undocumented(kept),
        "shapes": _undocumented({name: shapes[name] for name in sorted(shapes)}),
    }


def trim_endpoints(full: Model) -> Model:
    """Return the endpoints of the services that are reached, in every partition."""
    reached = {*CALLED, *CREDENTIALS}
    partitions = [
        partition | {"services": {k: v for k, v in partition["services"].items() if k in reached}}
        for partition in full["partitions"]
    ]
    return full | {"partitions": partitions}


def _references(node: Any) -> Iterator[str]:
    """Yield the names of the shapes that *node* refers to."""
    if isinstance(node, list):
        for item in node:
            yield from _references(item)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key == "shape" and isinstance(value, str):
                yield value
            else:
                yield from _references(value)


def _undocumented(node: Any) -> Any:
    """Return *node* without documentation: a text, where a member of that name is a dict."""
    if isinstance(node, list):
        return [_undocumented(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _undocumented(value)
        for key, value in node.items()
        if not (key == "documentation" and isinstance(value, str))
    }


def _store(path: Path, model: Model) -> None:
    """Write one line: plain, because unpacking costs more than reading."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(model, separators=(",", ":")) + "\n", encoding="utf-8")


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.json"))
    }


if __name__ == "__main__":
    raise SystemExit(main())
