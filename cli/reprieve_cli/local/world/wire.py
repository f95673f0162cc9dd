"""
What an HTTP request means to AWS: service, action, parameters, caller.

The service comes from the signature's scope, the action from wherever the service's protocol
puts it: a header, a form field, a path. The body is read only where it is small; S3's is not.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from reprieve_cli.local.world import models, query
from reprieve_cli.local.world.errors import AwsError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Signing names that differ from botocore's service names.
_SERVICES = {"monitoring": "cloudwatch", "tagging": "resourcegroupstaggingapi"}
_FORM_SERVICES = frozenset({"ec2", "sts", "iam", "sns", "cloudformation", "autoscaling"})
_PATH_SERVICES = frozenset({"s3", "lambda", "scheduler"})
_SCOPE = re.compile(r"Credential=([^/]+)/\d{8}/([^/]+)/([^/]+)/aws4_request")
_CALLER = re.compile(r"\bapp/([^\s]+)")
_RPC_PATH = re.compile(r"^/service/[^/]+/operation/(\w+)$")
_LARGEST_READ = 1_000_000  # a function's code is no parameter worth keeping
_LABEL = re.compile(r"\{(\w+)(\+?)\}")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one AWS service."""

    service: str
    action: str
    caller: str | None = None
    """The SDK's application id, from the User-Agent."""
    access_key: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    protocol: str = "json"
    """How errors are written: json, ec2, query or rest-xml."""
    json_version: str = "1.1"


@dataclass(frozen=True, slots=True)
class Head:
    """An HTTP request without its body."""

    method: str
    raw_path: str
    headers: Mapping[str, str]

    @property
    def path(self) -> str:
        return unquote(self.raw_path.partition("?")[0])

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.raw_path.partition("?")[2], keep_blank_values=True))


def service_of(head: Head) -> tuple[str, str | None]:
    """Name the service and the access key that signed; S3 for whatever is not signed."""
    credential = head.query.get("X-Amz-Credential", "")
    authorization = head.headers.get("Authorization", "") or f"Credential={credential}"
    found = _SCOPE.search(authorization)
    if found is None:
        return "s3", None
    key, _region, name = found.groups()
    return _SERVICES.get(name, name), key


def caller_of(head: Head) -> str | None:
    found = _CALLER.search(head.headers.get("User-Agent", ""))
    return found[1] if found else None


def reads_body(service: str) -> bool:
    """Whether the call's meaning needs the body; S3's bodies stream through unread."""
    return service != "s3"


def understand(head: Head, body: bytes) -> Call:
    """Name the call; what can't be named has action ``?``."""
    service, access_key = service_of(head)
    action, parameters, protocol = _meaning(service, head, body)
    return Call(
        service=service,
        action=action,
        caller=caller_of(head),
        access_key=access_key,
        parameters=parameters,
        protocol=protocol,
        json_version=_json_version(head),
    )


def _json_version(head: Head) -> str:
    return "1.0" if head.headers.get("Content-Type", "").endswith("-1.0") else "1.1"


def _meaning(service: str, head: Head, body: bytes) -> tuple[str, dict[str, Any], str]:
    target = head.headers.get("X-Amz-Target")
    if target:
        return target.rpartition(".")[2], _json(body), "json"
    rpc = _RPC_PATH.match(head.path)
    if rpc:
        return rpc[1], {}, "cbor"
    if service in _FORM_SERVICES:
        return _form_meaning(service, head, body)
    if service in _PATH_SERVICES:
        name, parameters = routes(service).match(head)
        own = _json(body) if service != "s3" and len(body) < _LARGEST_READ else {}
        return name, {**own, **parameters}, "rest-xml" if service == "s3" else "rest-json"
    return "?", {}, "json"


def _form_meaning(service: str, head: Head, body: bytes) -> tuple[str, dict[str, Any], str]:
    fields = query.form(body) or head.query
    action = fields.get("Action", "?")
    if service != "ec2":
        return action, dict(fields), "query"
    operation = models.operation("ec2", action)
    return action, query.parse(operation, fields) if operation else dict(fields), "ec2"


def _json(body: bytes) -> dict[str, Any]:
    try:
        read = json.loads(body or b"{}")
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


@dataclass(frozen=True, slots=True)
class _Route:
    action: str
    method: str
    pattern: re.Pattern[str]
    fixed: frozenset[tuple[str, str]]
    """Query fields that must be there; an empty value matches any."""
    headers: frozenset[str]
    queries: frozenset[str]

    @property
    def weight(self) -> int:
        return 2 * len(self.fixed) + len(self.headers) + len(self.queries)


class Routes:
    """Finds the action of a REST call by method, path, query and required headers."""

    def __init__(self, service: str) -> None:
        model = models.service_model(service)
        found = [_route(model.operation_model(name)) for name in model.operation_names]
        self._routes = sorted(found, key=lambda route: -route.weight)

    def match(self, head: Head) -> tuple[str, dict[str, str]]:
        path, fields = head.path, head.query
        given = {name.lower() for name in head.headers}
        for route in self._routes:
            if route.method != head.method or not route.headers <= given:
                continue
            if not route.queries <= set(fields):
                continue
            if not all(
                name in fields and (not value or fields[name] == value)
                for name, value in route.fixed
            ):
                continue
            found = route.pattern.match(path)
            if found:
                return route.action, dict(found.groupdict())
        return "?", {}


@cache
def routes(service: str) -> Routes:
    return Routes(service)


def _route(operation: Any) -> _Route:
    path, _, fixed = operation.http["requestUri"].partition("?")
    shape = operation.input_shape
    required = set(shape.required_members) if shape else set()
    places: dict[str, set[str]] = {"header": set(), "querystring": set()}
    for name in required:
        member = shape.members[name].serialization
        if member.get("location") in places:
            places[member["location"]].add(member["name"])
    return _Route(
        action=operation.name,
        method=operation.http["method"],
        pattern=_pattern(path),
        fixed=frozenset(parse_qsl(fixed, keep_blank_values=True)),
        headers=frozenset(name.lower() for name in places["header"]),
        queries=frozenset(places["querystring"]),
    )


def _pattern(path: str) -> re.Pattern[str]:
    pattern, end = "", 0
    for label in _LABEL.finditer(path):
        name, greedy = label.groups()
        pattern += re.escape(path[end : label.start()])
        pattern += f"(?P<{name}>.+)" if greedy else f"(?P<{name}>[^/]+)"
        end = label.end()
    return re.compile(f"^{pattern}{re.escape(path[end:])}/?$")


def error_body(call: Call, error: AwsError, *, request_id: str) -> tuple[bytes, str]:
    """Write *error* as *call*'s service would; return the body and its content type."""
    code, message = error.code, error.message
    match call.protocol:
        case "ec2":
            return query.error(code, message, request_id=request_id), "text/xml;charset=UTF-8"
        case "query":
            body = (
                f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code>"
                f"<Message>{message}</Message></Error><RequestId>{request_id}</RequestId>"
                "</ErrorResponse>"
            )
            return body.encode(), "text/xml"
        case "rest-xml":
            body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
            return body.encode(), "application/xml"
        case "cbor":
            return _cbor_error(code, message), "application/cbor"
        case _:
            body = json.dumps({"__type": code, "message": message, **error.fields})
            return body.encode(), f"application/x-amz-json-{call.json_version}"


def _cbor_error(code: str, message: str) -> bytes:
    """Write {"__type": code, "message": message}: the only CBOR that we ever send."""

    def text(value: str) -> bytes:
        raw = value.encode()
        return b"\x79" + len(raw).to_bytes(2, "big") + raw

    return b"\xa2" + text("__type") + text(code) + text("message") + text(message)
