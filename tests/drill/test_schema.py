"""The JSON Schema of scenarios takes what we take, and what it can see is wrong it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cfnlint.jsonschema import StandardValidator  # type: ignore[import-untyped]

from reprieve_cli.drill.form import SHAPE, schema
from reprieve_cli.drill.shape import INVALID, read
from tests.drill.test_document import LEAST, SCENARIOS

PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "drill.schema.json"


def wrong(text: str) -> list[str]:
    plain = yaml.load(text, Loader=_Dateless)
    return [error.message for error in StandardValidator(schema()).iter_errors(plain)]


class _Dateless(yaml.SafeLoader):
    """Times stay text, as the engine reads them."""


_Dateless.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if not tag.endswith(":timestamp")]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def test_the_published_schema_is_the_one_of_the_engine() -> None:
    anew = "write it anew: reprieve drill --schema | python -m json.tool --indent 1"
    assert json.loads(PUBLISHED.read_text()) == schema(), anew


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_scenario_of_ours_passes(path: Path) -> None:
    assert wrong(path.read_text()) == []


@pytest.mark.parametrize(
    "more",
    [
        "",
        "steps: [{wait: {seconds: 3}}]",
        "steps: [{at: 3, host: {nth: 1, do: kill, events: false}}]",
        "steps: [{when: {job: train, status: [RUNNING, DRAINING]}, wait: {hosts: {at_least: 1}}}]",
        "steps: [{fault: {service: s3, action: '*', then: {drop: during}}}]",
        "steps: [{fault: {service: s3, action: '*', then: [{pass: true}, {kill: after}]}}]",
        "steps: [{pools: [{zone: us-east-1a, capacity: null}]}]",
        "world: {registration_seconds: 30, spot_vcpus: null}",
    ],
)
def test_what_the_engine_reads_passes(more: str) -> None:
    text = f"{LEAST}{more}\n"
    assert read(text, SHAPE)[0] is not INVALID
    assert wrong(text) == []


@pytest.mark.parametrize(
    "more",
    [
        "stepz: []",
        "steps: [{at: 1}]",
        "steps: [{at: -1, wait: {seconds: 3}}]",
        "steps: [{at: 1, when: {hosts: 1}, wait: {seconds: 3}}]",
        "steps: [{wait: {seconds: 3}, host: {nth: 1, do: kill}}]",
        "steps: [{host: {do: kill}}]",
        "steps: [{host: {nth: 1, do: kill, channels: [event]}}]",
        "steps: [{host: {nth: 0, do: kill}}]",
        "steps: [{host: {nth: 1, do: explode}}]",
        "steps: [{wait: {seconds: 0}}]",
        "steps: [{wait: {job: train, hosts: 1}}]",
        "steps: [{fault: {service: s3, action: '*', then: []}}]",
        "steps: [{fault: {service: s3, action: '*', then: {explode: true}}}]",
        "steps: [{message: {queue: nobody, body: 1}}]",
        "steps: 3",
        "world: {spot_vcpus: 1.5}",
    ],
)
def test_what_the_schema_refuses_the_engine_refuses_too(more: str) -> None:
    text = f"{LEAST}{more}\n"
    assert wrong(text) != []
    assert read(text, SHAPE)[0] is INVALID


def _names(described: Any) -> int:
    """Count the mappings in a schema that take unknown names."""
    if isinstance(described, list):
        return sum(map(_names, described))
    if not isinstance(described, dict):
        return 0
    opened = described.get("type") == "object" and "additionalProperties" not in described
    return int(opened) + sum(map(_names, described.values()))


def test_no_mapping_takes_names_that_nobody_knows() -> None:
    assert _names(schema()) == 0
