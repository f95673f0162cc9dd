"""The template as the tests read it: one synth of the real ``app.py``, questions in plain words."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

FUNCTIONS = ("handle_notice", "replace_host", "record_report", "reconcile")

Resource = dict[str, Any]
Statement = dict[str, Any]

# What deploying fills in, so that a token reads like the value it stands for.
PSEUDO = {
    "AWS::Partition": "aws",
    "AWS::Region": "us-east-1",
    "AWS::AccountId": "123456789012",
    "AWS::URLSuffix": "amazonaws.com",
}


def run_app(
    outdir: Path, *, config: object = None, stack: str = "Reprieve", validate: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run ``app.py`` as ``cdk`` does, with *config* as the context ``reprieve``."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CDK_")}
    environment |= {
        "CDK_OUTDIR": str(outdir),
        "CDK_CONTEXT_JSON": json.dumps({"stack": stack, "reprieve": config or {}}),
        "CDK_VALIDATION": "true" if validate else "false",
    }
    return subprocess.run(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )


@dataclass(frozen=True)
class Template:
    """A synthesised template."""

    body: dict[str, Any]

    @classmethod
    def synthesise(cls, outdir: Path, **options: Any) -> Template:
        done = run_app(outdir, **options)
        assert done.returncode == 0, done.stderr
        (path,) = outdir.glob("*.template.json")
        return cls(json.loads(path.read_text()))

    @property
    def resources(self) -> dict[str, Resource]:
        found: dict[str, Resource] = self.body["Resources"]
        return found

    @property
    def outputs(self) -> dict[str, Any]:
        return {key: self.text(out["Value"]) for key, out in self.body["Outputs"].items()}

    def of(self, kind: str) -> dict[str, Any]:
        """Return the properties of each resource of *kind* by logical id."""
        return {
            name: resource.get("Properties", {})
            for name, resource in self.resources.items()
            if resource["Type"] == kind
        }

    def named(self, kind: str, word: str) -> Any:
        """Return the properties of the one resource of *kind* whose logical id holds *word*."""
        found = [properties for name, properties in self.of(kind).items() if word in name]
        assert len(found) == 1, f"{len(found)} of {kind} with {word}"
        return found[0]

    def text(self, value: Any) -> str:
        """Return *value* with references as logical ids and pseudo parameters filled in."""
        match value:
            case str():
                return value
            case {"Ref": name}:
                return PSEUDO.get(name, f"<{name}>")
            case {"Fn::GetAtt": [name, attribute]}:
                return f"<{name}.{attribute}>"
            case {"Fn::Join": [separator, parts]}:
                return str(separator).join(self.text(part) for part in parts)
            case {"Fn::Base64": inner}:
                return self.text(inner)
            case {"Fn::Sub": str(inner)}:
                return re.sub(r"\$\{(AWS::\w+)\}", lambda found: PSEUDO[found[1]], inner)
            case {"Fn::Select": [number, {"Fn::GetAZs": _}]}:
                return f"us-east-1{'abcdef'[int(number)]}"
            case _:
                return json.dumps(value)

    # Functions

    def function(self, name: str) -> Any:
        """Return the properties of the function *name*."""
        found = [
            properties
            for properties in self.of("AWS::Lambda::Function").values()
            if self.environment(properties)["POWERTOOLS_SERVICE_NAME"] == name
        ]
        assert len(found) == 1, name
        return found[0]

    def environment(self, function: Mapping[str, Any]) -> dict[str, str]:
        variables = function["Environment"]["Variables"]
        return {key: self.text(value) for key, value in variables.items()}

    def mapping(self, name: str) -> Any:
        """Return the event source mapping of the function *name*."""
        logical_id = self.logical_id(self.function(name))
        found = [
            properties
            for properties in self.of("AWS::Lambda::EventSourceMapping").values()
            if self.text(properties["FunctionName"]) == f"<{logical_id}>"
        ]
        assert len(found) == 1, name
        return found[0]

    def logical_id(self, properties: Mapping[str, Any]) -> str:
        (name,) = (
            name
            for name, resource in self.resources.items()
            if resource.get("Properties") is properties
        )
        return name

    def queue(self, reference: Any) -> Any:
        """Return the properties of the queue that an ARN or a URL refers to."""
        logical_id = self.text(reference).strip("<>").split(".")[0]
        return self.resources[logical_id]["Properties"]

    # Permissions

    def role_of(self, name: str) -> str:
        """Return the logical id of the function's role."""
        role: str = self.function(name)["Role"]["Fn::GetAtt"][0]
        return role

    def role_named(self, word: str) -> str:
        (name,) = (name for name in self.of("AWS::IAM::Role") if word in name)
        return name

    def statements(self, role: str) -> dict[str, Statement]:
        """Return what *role* may do, by statement id, with lists and plain texts throughout."""
        found: dict[str, Statement] = {}
        for policy in self.of("AWS::IAM::Policy").values():
            if {"Ref": role} in policy["Roles"]:
                for statement in self.read(policy["PolicyDocument"]):
                    assert statement["Sid"] not in found, statement["Sid"]
                    found[statement["Sid"]] = statement
        return found

    def read(self, document: Mapping[str, Any]) -> Iterator[Statement]:
        for statement in document["Statement"]:
            yield {
                "Sid": statement.get("Sid", ""),
                "Effect": statement["Effect"],
                "Action": _listed(statement["Action"]),
                "Resource": [self.text(one) for one in _listed(statement.get("Resource", []))],
                "Condition": statement.get("Condition", {}),
            }

    def all_statements(self) -> Iterator[tuple[str, Statement]]:
        """Return every statement that gives a role or a person a right, with its policy's id."""
        for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
            for name, policy in self.of(kind).items():
                for statement in self.read(policy["PolicyDocument"]):
                    yield name, statement


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
