"""
SSM Command documents, schema 2.2: kept, checked, and turned into scripts.

Only ``aws:runShellScript`` steps exist here. With ``interpolationType: ENV_VAR`` a parameter
reaches the script as the variable ``SSM_<name>``, never as text spliced into it.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from reprieve_cli.local.world.errors import AwsError
from reprieve_cli.local.world.timeline import now

if TYPE_CHECKING:
    import datetime as dt

_DEFAULT_STEP_SECONDS = 3600.0
_SCHEMA = "2.2"


@dataclass(frozen=True, slots=True)
class Script:
    """What runs on the host for one command."""

    text: str
    variables: dict[str, str]
    seconds: float
    step: str


@dataclass(frozen=True, slots=True)
class Document:
    name: str
    content: dict[str, Any]
    version: int = 1
    created_at: dt.datetime = field(default_factory=now)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        return {
            "Name": self.name,
            "Owner": "self",
            "CreatedDate": self.created_at.timestamp(),
            "Status": "Active",
            "DocumentVersion": str(self.version),
            "LatestVersion": str(self.version),
            "DefaultVersion": str(self.version),
            "DocumentType": "Command",
            "DocumentFormat": "JSON",
            "SchemaVersion": self.content["schemaVersion"],
            "Hash": self.sha256,
            "HashType": "Sha256",
            "PlatformTypes": ["Linux"],
            "Parameters": [
                {
                    "Name": name,
                    "Type": one.get("type", "String"),
                    "Description": one.get("description", ""),
                    **({"DefaultValue": str(one["default"])} if "default" in one else {}),
                }
                for name, one in self.content.get("parameters", {}).items()
            ],
        }

    def bind(self, given: dict[str, list[str]]) -> dict[str, str]:
        """Check *given* against the parameters and fill in defaults; SSM's error if wrong."""
        declared: dict[str, Any] = self.content.get("parameters", {})
        unknown = sorted(set(given) - set(declared))
        if unknown:
            raise AwsError("InvalidParameters", f"Parameters {unknown} are not in {self.name}")
        return {name: self._value(name, one, given) for name, one in declared.items()}

    def _value(self, name: str, declared: dict[str, Any], given: dict[str, list[str]]) -> str:
        if name in given:
            value = given[name][0]
        elif "default" in declared:
            value = str(declared["default"])
        else:
            raise AwsError("InvalidParameters", f"Parameter {name} of {self.name} is missing")
        pattern = declared.get("allowedPattern")
        # SSM matches from the start; a pattern without $ allows any tail.
        if pattern and not re.match(pattern, value):
            raise AwsError(
                "InvalidParameters", f"Parameter {name} doesn't match the pattern {pattern}"
            )
        allowed = declared.get("allowedValues")
        if allowed and value not in allowed:
            raise AwsError("InvalidParameters", f"Parameter {name} must be one of {allowed}")
        return value

    def script(self, parameters: dict[str, str]) -> Script:
        """Render the document's step for *parameters*."""
        (step,) = self.content["mainSteps"]
        inputs = step["inputs"]
        text = "\n".join(inputs["runCommand"])
        variables = {}
        declared = self.content.get("parameters", {})
        for name, value in parameters.items():
            if declared[name].get("interpolationType") == "ENV_VAR":
                variables[f"SSM_{name}"] = value
            else:
                text = _spliced(text, name, value)
        seconds = float(inputs.get("timeoutSeconds", _DEFAULT_STEP_SECONDS))
        return Script(text, variables, seconds, step["name"])


def _spliced(text: str, name: str, value: str) -> str:
    """Put *value* where the script says ``{{ name }}``: the old way, open to injection."""
    return re.sub(rf"\{{\{{\s*{re.escape(name)}\s*\}}\}}", lambda _: value, text)


class Documents:
    def __init__(self) -> None:
        self._documents: dict[str, Document] = {}

    def get(self, name: str) -> Document:
        """Find a document by its name or ARN."""
        found = self._documents.get(name.rpartition("/")[2])
        if found is None:
            raise AwsError("InvalidDocument", f"Document with name {name} does not exist.")
        return found

    def owns(self, name: str) -> bool:
        return name.rpartition("/")[2] in self._documents

    def create(self, parameters: dict[str, Any]) -> dict[str, Any]:
        name = parameters["Name"]
        if name in self._documents:
            raise AwsError("DocumentAlreadyExists", f"Document with name {name} already exists.")
        document = Document(name, _content(parameters))
        self._documents[name] = document
        return {"DocumentDescription": document.describe()}

    def update(self, parameters: dict[str, Any]) -> dict[str, Any]:
        old = self.get(parameters["Name"])
        document = Document(old.name, _content(parameters), old.version + 1, old.created_at)
        if document.sha256 == old.sha256:
            raise AwsError("DuplicateDocumentContent", "The content is that of another version")
        self._documents[old.name] = document
        return {"DocumentDescription": document.describe()}

    def describe(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return {"Document": self.get(parameters["Name"]).describe()}

    def fetch(self, parameters: dict[str, Any]) -> dict[str, Any]:
        document = self.get(parameters["Name"])
        return {
            "Name": document.name,
            "DocumentVersion": str(document.version),
            "Status": "Active",
            "Content": json.dumps(document.content),
            "DocumentType": "Command",
            "DocumentFormat": "JSON",
        }

    def delete(self, parameters: dict[str, Any]) -> dict[str, Any]:
        del self._documents[self.get(parameters["Name"]).name]
        return {}


def _content(parameters: dict[str, Any]) -> dict[str, Any]:
    """Read the content (JSON or YAML) and refuse what could never run."""
    try:
        content = yaml.safe_load(parameters["Content"])  # JSON is YAML
        schema = content["schemaVersion"]
        steps = content["mainSteps"]
        actions = [step["action"] for step in steps]
        commands = [step["inputs"]["runCommand"] for step in steps]
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise AwsError("InvalidDocumentContent", f"not a Command document: {error}") from error
    if schema != _SCHEMA or actions != ["aws:runShellScript"] or not commands[0]:
        raise AwsError(
            "InvalidDocumentContent",
            f"here a document has schema {_SCHEMA} and one aws:runShellScript step",
        )
    checked: dict[str, Any] = content
    return checked
