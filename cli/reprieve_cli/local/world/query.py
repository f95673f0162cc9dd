"""
The EC2 wire format: dotted form fields in, XML out, both led by botocore's shapes.

``parse`` reads ``Filter.1.Value.2=x`` into ``{"Filters": [{"Values": [..., "x"]}]}``;
``response`` writes the dict a boto3 caller would see.
"""

from __future__ import annotations

import base64
import datetime as dt
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from botocore.model import ListShape, OperationModel, Shape, StructureShape

NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"

Node = dict[str, Any]


def form(body: bytes) -> dict[str, str]:
    return dict(parse_qsl(body.decode(), keep_blank_values=True))


def parse(operation: OperationModel, fields: dict[str, str]) -> dict[str, Any]:
    """Read the parameters of *operation* from its form *fields*; unknown fields are ignored."""
    shape = operation.input_shape
    if shape is None:
        return {}
    return cast("dict[str, Any]", _read(shape, _tree(fields)))


def _tree(fields: dict[str, str]) -> Node:
    root: Node = {}
    for name, value in fields.items():
        node = root
        *path, leaf = name.split(".")
        for part in path:
            node = node.setdefault(part, {})
        node[leaf] = value
    return root


def _read(shape: Shape, node: Any) -> Any:
    match shape.type_name:
        case "structure":
            members = cast("StructureShape", shape).members
            found = {
                name: (member, node.get(_field(name, member))) for name, member in members.items()
            }
            return {
                name: _read(member, value)
                for name, (member, value) in found.items()
                if value is not None
            }
        case "list":
            member = cast("ListShape", shape).member
            return [_read(member, node[index]) for index in sorted(node, key=int)]
        case "integer" | "long":
            return int(node)
        case "double" | "float":
            return float(node)
        case "boolean":
            return node.lower() == "true"
        case "timestamp":
            return dt.datetime.fromisoformat(node)
        case "blob":
            return base64.b64decode(node)
        case _:
            return node


def _field(name: str, member: Shape) -> str:
    """Name *member* as EC2's query protocol does: queryName, else the name with a capital."""
    serialization = member.serialization
    if "queryName" in serialization:
        return cast("str", serialization["queryName"])
    wire = cast("str", serialization.get("name", name))
    return wire[0].upper() + wire[1:]


def response(operation: OperationModel, result: dict[str, Any], *, request_id: str) -> bytes:
    """Write *result* as the answer to *operation*; keys that its shape lacks are an error."""
    shape = operation.output_shape
    body = _write(shape, result) if shape is not None else ""
    name = f"{operation.name}Response"
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{name} xmlns="{NAMESPACE}">'
        f"<requestId>{request_id}</requestId>{body}</{name}>"
    ).encode()


def error(code: str, message: str, *, request_id: str) -> bytes:
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<Response><Errors><Error>'
        f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
        f"</Error></Errors><RequestID>{request_id}</RequestID></Response>"
    ).encode()


def _write(shape: Shape, value: Any) -> str:
    match shape.type_name:
        case "structure":
            members = cast("StructureShape", shape).members
            return "".join(
                _element(_tag(name, members[name]), _write(members[name], item))
                for name, item in value.items()
                if item is not None
            )
        case "list":
            member = cast("ListShape", shape).member
            tag = cast("str", member.serialization.get("name", "item"))
            return "".join(_element(tag, _write(member, item)) for item in value)
        case "boolean":
            return "true" if value else "false"
        case "timestamp":
            return timestamp(value)
        case "blob":
            return base64.b64encode(value).decode()
        case _:
            return escape(str(value))


def _tag(name: str, member: Shape) -> str:
    return cast("str", member.serialization.get("name", name))


def _element(tag: str, content: str) -> str:
    return f"<{tag}>{content}</{tag}>"


def timestamp(moment: dt.datetime) -> str:
    """Write *moment* as EC2 does: UTC, milliseconds, Z."""
    return (
        moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.")
        + f"{moment.microsecond // 1000:03d}Z"
    )
