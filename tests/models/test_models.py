"""Our cut of botocore's models says what the full models say, about all that we call."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from botocore import xform_name
from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, OperationModel, ServiceModel, Shape, StructureShape

from reprieve.adapters.sdk import TrimmedLoader

ROOT = Path(__file__).resolve().parents[2]
GENERATOR = ROOT / "layers" / "models" / "generate.py"
CALLERS = ("layers/core/python/reprieve", "agent/reprieve_agent", "functions")


def _load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = _load_generator()
CALLED: dict[str, tuple[str, ...]] = generate.CALLED
IMPLIED: dict[str, tuple[str, ...]] = generate.IMPLIED
OPERATIONS = [
    (service, operation)
    for table in (CALLED, IMPLIED)
    for service, operations in table.items()
    for operation in operations
]


@cache
def _full(service: str) -> ServiceModel:
    return ServiceModel(Loader().load_service_model(service, "service-2"), service)


@cache
def _trimmed(service: str) -> ServiceModel:
    return ServiceModel(TrimmedLoader().load_service_model(service, "service-2"), service)


# ------------------------------------------------------------------ the same as the full models
def test_the_models_are_those_of_the_botocore_installed_here() -> None:
    done = subprocess.run(
        [sys.executable, GENERATOR, "--check"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("service", "operation"), OPERATIONS)
def test_an_operation_has_its_full_signature_shapes_and_errors(
    service: str, operation: str
) -> None:
    ours = _trimmed(service).operation_model(operation)
    theirs = _full(service).operation_model(operation)

    assert _described(ours) == _described(theirs)


@pytest.mark.parametrize("service", CALLED)
def test_a_service_is_spoken_to_as_the_full_model_says(service: str) -> None:
    assert _trimmed(service).metadata == _full(service).metadata
    assert _trimmed(service).client_context_parameters == _full(service).client_context_parameters
    assert sorted(_trimmed(service).operation_names) == sorted(
        (*CALLED[service], *IMPLIED.get(service, ()))
    )


@pytest.mark.parametrize(
    "damage",
    [
        lambda m: m["shapes"]["SendMessageRequest"]["required"].pop(),
        lambda m: m["shapes"]["SendMessageRequest"]["members"].pop("DelaySeconds"),
        lambda m: m["shapes"]["QueueDoesNotExist"]["error"].update(code="Other"),
        lambda m: m["shapes"]["NullableInteger"].update(type="string"),
        lambda m: m["operations"]["SendMessage"]["errors"].pop(),
        lambda m: m["operations"]["SendMessage"]["http"].update(requestUri="/other"),
    ],
    ids=["required", "member", "error code", "type", "error", "address"],
)
def test_a_damaged_model_is_noticed(damage: Any) -> None:
    """The test above would see each of these; otherwise it would prove nothing."""
    model = json.loads(json.dumps(Loader().load_service_model("sqs", "service-2")))
    whole = _described(ServiceModel(json.loads(json.dumps(model))).operation_model("SendMessage"))
    model["shapes"]["QueueDoesNotExist"].setdefault("error", {})

    damage(model)

    assert _described(ServiceModel(model).operation_model("SendMessage")) != whole


def test_what_botocore_adds_to_a_model_is_in_ours() -> None:
    """Extras are merged by the generator, not again by each cold start."""
    folder = Path(Loader.BUILTIN_DATA_PATH)

    extras = {
        (path.parent.parent.name, path.name.partition(".")[0])
        for service in CALLED
        for path in folder.glob(f"{service}/*/*-extras.json")
    }

    assert extras <= {(service, "service-2") for service in CALLED} | {
        # Pages of operations that aren't ours.
        ("ec2", "paginators-1"),
        ("logs", "paginators-1"),
        ("s3", "paginators-1"),
    }


# ---------------------------------------------------------------------- all that is called
def test_every_operation_that_our_code_calls_is_in_the_models() -> None:
    called = _called(path for folder in CALLERS for path in (ROOT / folder).rglob("*.py"))

    assert _left_out(called) == [], f"add them to {GENERATOR}, and run it"


def test_a_call_that_the_models_leave_out_is_noticed(tmp_path: Path) -> None:
    source = tmp_path / "adapter.py"
    source.write_text(
        "client.send_message()\n"
        "client.purge_queue()\n"
        "client.get_paginator('describe_volumes')\n"
        "client.get_waiter('table_exists')\n"
    )

    assert _left_out(_called([source])) == ["describe_volumes", "purge_queue", "table_exists"]


def test_the_models_hold_nothing_that_nobody_calls() -> None:
    called = _called(path for folder in CALLERS for path in (ROOT / folder).rglob("*.py"))
    ours = {xform_name(operation) for operations in CALLED.values() for operation in operations}

    assert ours - called == set()


def _called(sources: Iterable[Path]) -> set[str]:
    """Return the names of methods called in *sources*, and of the pages that they turn."""
    return {
        name
        for source in sources
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        for name in _names(node, node.func)
    }


def _names(call: ast.Call, method: ast.Attribute) -> Iterator[str]:
    yield method.attr
    if method.attr in {"get_paginator", "get_waiter"} and isinstance(call.args[0], ast.Constant):
        yield str(call.args[0].value)


def _left_out(called: set[str]) -> list[str]:
    """Return those of *called* that are operations or waiters of our services, and not ours."""
    known = {
        xform_name(operation) for service in CALLED for operation in _full(service).operation_names
    }
    waiters = {xform_name(name) for service in CALLED for name in _waiters(service)}
    ours = {xform_name(operation) for _, operation in OPERATIONS}
    return sorted(called & (known | waiters) - ours)


def _waiters(service: str) -> list[str]:
    try:
        return list(Loader().load_service_model(service, "waiters-2")["waiters"])
    except Exception:  # noqa: BLE001 - a service without waiters
        return []


# ------------------------------------------------------------------- what a model says
OPERATION_FACTS = (
    "name",
    "wire_name",
    "http",
    "deprecated",
    "endpoint",
    "endpoint_discovery",
    "is_endpoint_discovery_operation",
    "auth",
    "auth_type",
    "unsigned_payload",
    "idempotent_members",
    "http_checksum",
    "http_checksum_required",
    "request_compression",
    "static_context_parameters",
    "context_parameters",
    "operation_context_parameters",
    "has_event_stream_input",
    "has_event_stream_output",
    "has_streaming_input",
    "has_streaming_output",
)


def _described(operation: OperationModel) -> dict[str, Any]:
    """Return everything about *operation* that botocore acts on, its shapes by name."""
    shapes: dict[str, Any] = {}
    roots = [operation.input_shape, operation.output_shape, *operation.error_shapes]
    for shape in roots:
        if shape is not None:
            _describe(shape, shapes)
    facts = {fact: _plain(getattr(operation, fact)) for fact in OPERATION_FACTS}
    return facts | {
        "roots": [shape.name if shape else None for shape in roots],
        "shapes": shapes,
    }


def _describe(shape: Shape, found: dict[str, Any]) -> None:
    if shape.name in found:
        return
    facts: dict[str, Any] = {
        "type": shape.type_name,
        "metadata": shape.metadata,
        "enum": getattr(shape, "enum", None),
    }
    found[shape.name] = facts
    for role, part in _parts(shape):
        # How a member is written belongs to the reference, not to the shape.
        facts[role] = (part.name, dict(part.serialization), part.metadata)
        _describe(part, found)
    if isinstance(shape, StructureShape):
        facts["error_code"] = shape.error_code
        facts["tagged_union"] = shape.is_tagged_union


def _parts(shape: Shape) -> list[tuple[str, Shape]]:
    if isinstance(shape, StructureShape):
        return [(f"member {name}", member) for name, member in shape.members.items()]
    if isinstance(shape, ListShape):
        return [("item", shape.member)]
    if isinstance(shape, MapShape):
        return [("key", shape.key), ("value", shape.value)]
    return []


def _plain(value: Any) -> Any:
    """Make comparable what botocore hands out as its own named tuples."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return dict(vars(value)) if hasattr(value, "__dict__") else value
