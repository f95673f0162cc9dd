"""
Make a synthesised cloud assembly fit for the embedded cloud, and say how it differs.

``localize`` writes a copy without what ministack can't take and with what must differ on one
machine. ``complete`` does by API, after the deployment, what the copy left out and what
ministack ignores without a word. Everything is listed, so that a test can hold the difference
from the production template to exactly what is expected.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprieve_cli.local.aws import client

if TYPE_CHECKING:
    from collections.abc import Callable

    from reprieve_cli.local.cloud import Cloud

CHECKOUT = Path(__file__).resolve().parents[3]
PACKAGES = ("-m", "infra.packages")
IMAGE = "ami-0123456789abcdef0"
_DOCUMENT = "AWS::SSM::Document"
_FUNCTION = "AWS::Lambda::Function"
_TEMPLATE = "AWS::EC2::LaunchTemplate"
_MAPPING = "AWS::Lambda::EventSourceMapping"
_FEWEST = 2  # Lambda takes no less
_TABLES = frozenset({"AWS::DynamoDB::Table", "AWS::DynamoDB::GlobalTable"})
_BUCKET = "AWS::S3::Bucket"
# ministack 1.5.33 refuses a stack that holds one of these.
UNSUPPORTED = frozenset(
    {
        _DOCUMENT,
        "AWS::FIS::ExperimentTemplate",
        "AWS::CloudWatch::CompositeAlarm",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::EC2::SecurityGroupEgress",
        "AWS::Logs::QueryDefinition",
        "AWS::Budgets::Budget",
    }
)
_IMAGE_PARAMETER = "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>"
_NOTICE_LINE = re.compile(r"^NOTICE_SECONDS=([0-9.]+)$", re.MULTILINE)
_BOOT_LIMIT = re.compile(r"(--unit=reprieve-boot-limit --on-active=)(\d+)")
# What each compiled layer holds, and the build of it for this interpreter: such a layer serves
# only one, and a function's every cold start would compile it again.
_COMPILED = {"pydantic_core": "local-layer", "reprieve": "local-core"}

Template = dict[str, Any]


class LocalizeError(Exception):
    """The assembly can't be made to fit: one line."""


@dataclass(frozen=True, slots=True)
class Localized:
    """A copy of an assembly, and how it differs from the original."""

    assembly_dir: Path
    stack: str
    removed: list[tuple[str, str]]
    """Logical id and type of each resource left out."""
    changed: list[str]
    """Each other difference, told in one line: ``RecordReport: ATTESTED_SENDER=off``."""
    original: Template
    """The template as it was synthesised: what ``complete`` makes up for is read from it."""


def localize(
    assembly: Path, stack: str, target: Path, *, notice_seconds: float, layer: Path | None = None
) -> Localized:
    """
    Write the local copy of *assembly* for *stack* into *target*.

    *layer* is the runtime layer for this interpreter; it is built from the lock when None
    (cached under ``build/``). Raise ``LocalizeError`` when something doesn't fit.
    """
    path = assembly / f"{stack}.template.json"
    try:
        original: Template = json.loads(path.read_text(encoding="utf-8"))
        assets = json.loads((assembly / f"{stack}.assets.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise LocalizeError(f"{assembly} holds no stack {stack}: synthesise it first") from error
    template = deepcopy(original)
    removed = _remove_unsupported(template)
    changed = [
        *_fix_image(template),
        *_set_variables(template, notice_seconds),
        *_set_user_data(template, notice_seconds),
        *_run_few_at_a_time(template),
    ]
    target.mkdir(parents=True, exist_ok=True)
    changed += _leave_out_what_hosts_download(template, assets["files"])
    for file in assets["files"].values():
        changed += _place(assembly, target, file, layer)
    (target / path.name).write_text(json.dumps(template, separators=(",", ":")), encoding="utf-8")
    (target / f"{stack}.assets.json").write_text(json.dumps(assets), encoding="utf-8")
    for paper in assembly.iterdir():  # the CDK CLI reads these
        if paper.is_file() and not (target / paper.name).exists():
            shutil.copy(paper, target)
    return Localized(target, stack, removed, changed, original)


# ---------------------------------------------------------------------- the template
def _remove_unsupported(template: Template) -> list[tuple[str, str]]:
    resources = template["Resources"]
    removed = [(name, one["Type"]) for name, one in resources.items() if _refused(one)]
    names = {}
    for name, kind in removed:
        properties = resources.pop(name)["Properties"]
        if kind == _DOCUMENT:
            if "Name" not in properties:
                raise LocalizeError(f"{name}: the document needs an explicit Name")
            names[name] = properties["Name"]
    gone = {name for name, _ in removed}
    for part in ("Resources", "Outputs"):
        template[part] = _without(template.get(part, {}), gone, names)
    return removed


def _refused(resource: dict[str, Any]) -> bool:
    kind = resource["Type"]
    math = kind == "AWS::CloudWatch::Alarm" and "Metrics" in resource["Properties"]
    return kind in UNSUPPORTED or math


def _without(node: Any, gone: set[str], names: dict[str, str]) -> Any:
    """Replace references to what is *gone* by its literal name, and drop dependencies on it."""
    if isinstance(node, list):
        return [_without(item, gone, names) for item in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("Ref"), str) and node["Ref"] in gone:
        if node["Ref"] not in names:
            raise LocalizeError(f"{node['Ref']} is left out, but something refers to it")
        return names[node["Ref"]]
    result = {key: _without(value, gone, names) for key, value in node.items()}
    depends = result.get("DependsOn")
    if isinstance(depends, list):
        result["DependsOn"] = [name for name in depends if name not in gone]
    elif isinstance(depends, str) and depends in gone:
        del result["DependsOn"]
    return result


def _fix_image(template: Template) -> list[str]:
    """Public image parameters exist on AWS only: any image will do, nothing boots from it."""
    changed = []
    for name, parameter in template.get("Parameters", {}).items():
        if parameter["Type"] == _IMAGE_PARAMETER:
            changed.append(f"image of {parameter['Default']}: {IMAGE}")
            template["Parameters"][name] = {"Type": "String", "Default": IMAGE}
    return changed


def _set_variables(template: Template, notice_seconds: float) -> list[str]:
    wanted = {
        # ministack names the account as the sender of every message, not the host's session.
        "ATTESTED_SENDER": "off",
        "NOTICE_SECONDS": str(notice_seconds),
    }
    changed = []
    for name, resource in _of_type(template, _FUNCTION):
        variables = resource["Properties"].get("Environment", {}).get("Variables", {})
        for variable, value in wanted.items():
            if variable in variables and variables[variable] != value:
                variables[variable] = value
                changed.append(f"{name}: {variable}={value}")
    return changed


def _set_user_data(template: Template, notice_seconds: float) -> list[str]:
    changed = []
    for name, resource in _of_type(template, _TEMPLATE):
        data = resource["Properties"]["LaunchTemplateData"]
        before = data.get("UserData")
        found = _NOTICE_LINE.search("\n".join(_strings(before)))
        if found is None or float(found[1]) == notice_seconds:
            continue
        scale = notice_seconds / float(found[1])
        data["UserData"] = _in_strings(before, partial(_rescaled, scale=scale))
        changed.append(f"{name}: NOTICE_SECONDS={notice_seconds}, and its boot limit with it")
    return changed


def _rescaled(user_data: str, scale: float) -> str:
    """Scale what derives from the notice: the agent's clock and the limit for its first boot."""

    def notice(found: re.Match[str]) -> str:
        return f"NOTICE_SECONDS={float(found[1]) * scale}"

    def limit(found: re.Match[str]) -> str:
        return f"{found[1]}{math.ceil(int(found[2]) * scale)}"

    return _BOOT_LIMIT.sub(limit, _NOTICE_LINE.sub(notice, user_data))


def _strings(node: Any) -> list[str]:
    if isinstance(node, str):
        return [node]
    if isinstance(node, dict):
        node = list(node.values())
    return [text for item in node for text in _strings(item)] if isinstance(node, list) else []


def _run_few_at_a_time(template: Template) -> list[str]:
    """Spare a small machine the cold starts of many copies of a function."""
    changed = []
    for name, resource in _of_type(template, _MAPPING):
        scaling = resource["Properties"].get("ScalingConfig", {})
        if scaling.get("MaximumConcurrency", 0) > _FEWEST:
            scaling["MaximumConcurrency"] = _FEWEST
            changed.append(f"{name}: MaximumConcurrency={_FEWEST}")
    return changed


def _in_strings(node: Any, change: Callable[[str], str]) -> Any:
    if isinstance(node, str):
        return change(node)
    if isinstance(node, list):
        return [_in_strings(item, change) for item in node]
    if isinstance(node, dict):
        return {key: _in_strings(value, change) for key, value in node.items()}
    return node


def _of_type(template: Template, *kinds: str) -> list[tuple[str, dict[str, Any]]]:
    return [(name, one) for name, one in template["Resources"].items() if one["Type"] in kinds]


# ---------------------------------------------------------------------- the assets
def _leave_out_what_hosts_download(template: Template, files: dict[str, Any]) -> list[str]:
    """Hosts run the installed agent: what is no function's code and no layer is never fetched."""
    named = json.dumps(template["Resources"])
    unused = [
        digest
        for digest, file in files.items()
        if file["source"].get("packaging") == "zip" and f'"S3Key": "{digest}' not in named
    ]
    dropped = [files.pop(digest) for digest in unused]
    return [
        f"{file.get('displayName', '?')}: not uploaded, hosts run it from here" for file in dropped
    ]


def _place(assembly: Path, target: Path, file: dict[str, Any], layer: Path | None) -> list[str]:
    """Link one asset into the copy; a compiled layer is swapped for the local build."""
    name = file["source"]["path"]
    if file["source"].get("packaging") != "zip":
        return []  # the template itself: the copy has its own
    source = (assembly / name).resolve()
    link = target / name
    link.unlink(missing_ok=True)
    held = next((one for one in _COMPILED if (source / "python" / one).is_dir()), None)
    if held is None:
        link.symlink_to(source)
        return []
    build = _COMPILED[held]
    local = layer if layer and build == "local-layer" else build_layer(build)
    link.symlink_to(local.resolve())
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return [f"{file.get('displayName', name)}: built for Python {version} of this machine"]


def build_layer(build: str = "local-layer") -> Path:
    """Build a layer for this interpreter, or find it built; return its folder."""
    done = subprocess.run(
        [sys.executable, *PACKAGES, build],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise LocalizeError(f"the {build} can't be built: {lines[-1]}")
    return Path(done.stdout.strip().splitlines()[-1])


# ---------------------------------------------------------------------- after the deployment
def complete(cloud: Cloud, localized: Localized) -> list[str]:
    """
    Do by API what the local template could not, and start every function once.

    That is documents, and what ministack ignores. Return one line for each; raise
    ``LocalizeError`` if a function doesn't start.
    """
    answer = client(cloud, "cloudformation").describe_stack_resources(StackName=localized.stack)
    physical = {
        one["LogicalResourceId"]: one["PhysicalResourceId"] for one in answer["StackResources"]
    }
    done = [_register(cloud, resource) for _, resource in _of_type(localized.original, _DOCUMENT)]
    for name, resource in _of_type(localized.original, *_TABLES):
        done += _finish_table(cloud, physical[name], resource["Properties"])
    for name, resource in _of_type(localized.original, _BUCKET):
        done += _finish_bucket(cloud, physical[name], resource["Properties"])
    functions = _of_type(localized.original, _FUNCTION)
    for name, resource in functions:
        done += _finish_function(cloud, physical[name], resource["Properties"])
    with ThreadPoolExecutor() as pool:
        calls = [pool.submit(_warm, cloud, physical[name]) for name, _ in functions]
        done += [call.result() for call in calls]
    return done


def _warm(cloud: Cloud, function: str) -> str:
    """Start *function* once with no records: its first real call should not wait for imports."""
    began = time.monotonic()
    answer = client(cloud, "lambda").invoke(FunctionName=function, Payload=b'{"Records": []}')
    said = answer["Payload"].read().decode(errors="replace")
    if "FunctionError" in answer:
        raise LocalizeError(f"{function} does not start: {said[:300]}")
    return f"function {function}: started in {time.monotonic() - began:.1f} s"


def _register(cloud: Cloud, resource: dict[str, Any]) -> str:
    properties = resource["Properties"]
    ssm = client(cloud, "ssm")
    try:
        ssm.create_document(
            Name=properties["Name"],
            Content=json.dumps(properties["Content"]),
            DocumentType=properties.get("DocumentType", "Command"),
            DocumentFormat="JSON",
        )
    except ssm.exceptions.DocumentAlreadyExists:
        try:
            ssm.update_document(
                Name=properties["Name"],
                Content=json.dumps(properties["Content"]),
                DocumentVersion="$LATEST",
            )
        except ssm.exceptions.DuplicateDocumentContent:
            return f"document {properties['Name']}: as it was"
    return f"document {properties['Name']}"


def _finish_table(cloud: Cloud, table: str, properties: dict[str, Any]) -> list[str]:
    lifetime = properties.get("TimeToLiveSpecification")
    if not lifetime or not lifetime.get("Enabled"):
        return []
    dynamodb = client(cloud, "dynamodb")
    now = dynamodb.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
    if now["TimeToLiveStatus"] != "ENABLED":
        dynamodb.update_time_to_live(
            TableName=table,
            TimeToLiveSpecification={
                "AttributeName": lifetime["AttributeName"],
                "Enabled": True,
            },
        )
    return [f"table {table}: time to live by {lifetime['AttributeName']}"]


def _finish_bucket(cloud: Cloud, bucket: str, properties: dict[str, Any]) -> list[str]:
    lifecycle = properties.get("LifecycleConfiguration")
    if not lifecycle:
        return []
    client(cloud, "s3").put_bucket_lifecycle_configuration(
        Bucket=bucket,
        LifecycleConfiguration={"Rules": [_rule(one) for one in lifecycle["Rules"]]},
    )
    return [f"bucket {bucket}: {len(lifecycle['Rules'])} lifecycle rules"]


def _rule(described: dict[str, Any]) -> dict[str, Any]:
    """Turn a template's lifecycle rule into the API's: names and nesting differ a little."""
    rule = {"Filter": {"Prefix": described.get("Prefix", "")}, "Status": described["Status"]}
    if "Id" in described:
        rule["ID"] = described["Id"]
    same = ("AbortIncompleteMultipartUpload", "NoncurrentVersionExpiration")
    rule |= {name: described[name] for name in same if name in described}
    expiration = {}
    if "ExpirationInDays" in described:
        expiration["Days"] = described["ExpirationInDays"]
    if described.get("ExpiredObjectDeleteMarker"):
        expiration["ExpiredObjectDeleteMarker"] = True
    return rule | ({"Expiration": expiration} if expiration else {})


def _finish_function(cloud: Cloud, function: str, properties: dict[str, Any]) -> list[str]:
    reserved = properties.get("ReservedConcurrentExecutions")
    if reserved is None:
        return []
    client(cloud, "lambda").put_function_concurrency(
        FunctionName=function, ReservedConcurrentExecutions=reserved
    )
    return [f"function {function}: {reserved} at a time"]
