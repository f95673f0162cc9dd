"""
What IAM is asked when a call is made: one question for each action and resource it touches.

The world's log says who called what, on which resources, with which tags and table keys. What
a call means to IAM is written down here from the service authorization reference; a call that
isn't in it can't be judged, and that is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.rehearsal.iam import CannotJudgeError, Context, Request

Call = Mapping[str, Any]
Tags = Mapping[str, str]

NOT_FOUND = 404

WRITES = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "Get": "GetItem"}
# In a transaction each item asks for its own right; in a batch, the batch does.
BATCHES = frozenset({"BatchGetItem", "BatchWriteItem"})

QUEUE_ACTIONS = {
    "SendMessageBatch": "SendMessage",
    "DeleteMessageBatch": "DeleteMessage",
    "ChangeMessageVisibilityBatch": "ChangeMessageVisibility",
}
OBJECT_ACTIONS = {
    "GetObject": "GetObject",
    "HeadObject": "GetObject",
    "PutObject": "PutObject",
    "CreateMultipartUpload": "PutObject",
    "UploadPart": "PutObject",
    "CompleteMultipartUpload": "PutObject",
    "AbortMultipartUpload": "AbortMultipartUpload",
    "DeleteObject": "DeleteObject",
}
LISTS = frozenset({"ListObjects", "ListObjectsV2", "HeadBucket"})


@dataclass(frozen=True, slots=True)
class LaunchTemplate:
    """The parts of a template that decide whether a launch is allowed; *data* is EC2's own."""

    data: Mapping[str, Any]
    host_role: str
    """ARN of the role behind its instance profile."""
    image_owner: str

    def tags(self, kind: str) -> Tags:
        return _tags_for(self.data.get("TagSpecifications", []), kind)

    @property
    def groups(self) -> list[str]:
        own = self.data.get("SecurityGroupIds", [])
        cards = self.data.get("NetworkInterfaces", [])
        return [*own, *(group for card in cards for group in card.get("Groups", []))]


@dataclass(frozen=True, slots=True)
class Asked:
    """Turns calls of one account and region into questions."""

    account: str
    region: str
    templates: Mapping[str, LaunchTemplate] = field(default_factory=dict)

    def __call__(self, call: Call) -> list[Request]:
        """Return the questions; raise ``CannotJudgeError``."""
        match call["service"]:
            case "dynamodb":
                return list(self._table(call))
            case "ec2":
                return list(self._ec2(call))
            case "ssm":
                return list(self._ssm(call))
            case "sqs":
                action = QUEUE_ACTIONS.get(call["action"], call["action"])
                return [Request(f"sqs:{action}", self._arn("sqs", q)) for q in call["resources"]]
            case "s3":
                return list(self._bucket(call))
            case "cloudformation" if call["action"] == "DescribeStacks":
                name = call["parameters"]["StackName"]
                stack = self._arn("cloudformation", f"stack/{name}/0")
                return [Request("cloudformation:DescribeStacks", stack)]
            case _:
                raise _unknown(call)

    def _arn(self, service: str, resource: str) -> str:
        return f"arn:aws:{service}:{self.region}:{self.account}:{resource}"

    # DynamoDB

    def _table(self, call: Call) -> Iterator[Request]:
        keys = call["keys"]
        if not keys or any(key["pk"] is None for key in keys):
            raise _unknown(call)
        if call["action"] in BATCHES:
            leading = tuple(sorted({key["pk"] for key in keys}))
            for table in sorted({key["table"] for key in keys}):
                yield self._items(call["action"], f"table/{table}", leading)
            return
        for key in keys:
            op = WRITES.get(key["op"], key["op"])
            if op == "ConditionCheck":
                op = "ConditionCheckItem"
            index = f"/index/{key['index']}" if key.get("index") else ""
            yield self._items(op, f"table/{key['table']}{index}", (key["pk"],))

    def _items(self, action: str, resource: str, leading: tuple[str, ...]) -> Request:
        arn = self._arn("dynamodb", resource)
        return Request(f"dynamodb:{action}", arn, {"dynamodb:LeadingKeys": leading})

    # EC2 and SSM

    def _ec2(self, call: Call) -> Iterator[Request]:
        action = call["action"]
        if action.startswith("Describe"):
            yield self._of_ec2(action, "*", {})
        elif action == "TerminateInstances":
            yield from (
                self._of_ec2(action, self._arn("ec2", f"instance/{found}"), _owned(tags))
                for found, tags in self._hosts(call)
            )
        elif action == "CreateFleet":
            yield from self._fleet(call["parameters"])
        else:
            raise _unknown(call)

    def _of_ec2(self, action: str, resource: str, context: Context) -> Request:
        return Request(
            f"ec2:{action}", resource, {"aws:RequestedRegion": (self.region,), **context}
        )

    def _fleet(self, given: Mapping[str, Any]) -> Iterator[Request]:
        """
        Ask for an instant fleet: it creates itself, and runs instances in the caller's name.

        EC2 checks CreateFleet against the resources that the request names, RunInstances
        against all that a launch uses or makes; asking both about all is at least as strict.
        """
        fleet = _tags_for(given.get("TagSpecifications", []), "fleet")
        yield self._of_ec2("CreateFleet", self._arn("ec2", "fleet/*"), _requested(fleet))
        yield from self._tagging("fleet", fleet, because="CreateFleet")
        for configuration in given["LaunchTemplateConfigs"]:
            named = configuration["LaunchTemplateSpecification"]["LaunchTemplateId"]
            if named not in self.templates:
                raise CannotJudgeError(f"CreateFleet names the template {named}, which isn't ours")
            template = self.templates[named]
            for resource, context in self._used(named, template, configuration, given):
                yield self._of_ec2("CreateFleet", resource, context)
                yield self._of_ec2("RunInstances", resource, context)
            for kind in ("instance", "volume", "network-interface"):
                yield from self._tagging(
                    kind, self._launch_tags(kind, template, given), because="RunInstances"
                )
            yield Request(
                "iam:PassRole", template.host_role, {"iam:PassedToService": ("ec2.amazonaws.com",)}
            )

    def _used(
        self,
        template_id: str,
        template: LaunchTemplate,
        configuration: Mapping[str, Any],
        given: Mapping[str, Any],
    ) -> Iterator[tuple[str, Context]]:
        overrides = configuration.get("Overrides", [])
        image = f"arn:aws:ec2:{self.region}::image/{template.data['ImageId']}"
        yield image, {"ec2:Owner": (template.image_owner,)}
        yield self._arn("ec2", f"launch-template/{template_id}"), {}
        for group in template.groups:
            yield self._arn("ec2", f"security-group/{group}"), {}
        for subnet in sorted({one["SubnetId"] for one in overrides}):
            yield self._arn("ec2", f"subnet/{subnet}"), {}
        market = given["TargetCapacitySpecification"].get("DefaultTargetCapacityType", "on-demand")
        if market == "spot":
            yield self._arn("ec2", "spot-instances-request/*"), {}
        tokens = template.data.get("MetadataOptions", {}).get("HttpTokens", "optional")
        for kind in ("instance", "volume", "network-interface"):
            tags = _requested(self._launch_tags(kind, template, given))
            facts = {"ec2:MetadataHttpTokens": (tokens,)} if kind == "instance" else {}
            yield self._arn("ec2", f"{kind}/*"), {**tags, **facts}

    @staticmethod
    def _launch_tags(kind: str, template: LaunchTemplate, given: Mapping[str, Any]) -> Tags:
        """Join what the template says with what the request says: IAM sees both as its tags."""
        return {**template.tags(kind), **_tags_for(given.get("TagSpecifications", []), kind)}

    def _tagging(self, kind: str, tags: Tags, *, because: str) -> Iterator[Request]:
        if tags:
            context = {"ec2:CreateAction": (because,), **_requested(tags)}
            yield self._of_ec2("CreateTags", self._arn("ec2", f"{kind}/*"), context)

    def _ssm(self, call: Call) -> Iterator[Request]:
        if call["action"] != "SendCommand":
            raise _unknown(call)
        document = call["parameters"]["DocumentName"]
        yield Request("ssm:SendCommand", self._arn("ssm", f"document/{document}"))
        for found, tags in self._hosts(call):
            seen = {f"ssm:resourceTag/{key}": (value,) for key, value in tags.items()}
            yield Request(
                "ssm:SendCommand", self._arn("ec2", f"instance/{found}"), {**seen, **_owned(tags)}
            )

    @staticmethod
    def _hosts(call: Call) -> list[tuple[str, Tags]]:
        named = call["parameters"].get("InstanceIds", [])
        known = call["resource_tags"]
        if not named or set(named) - set(known):
            raise _unknown(call)
        return [(found, known[found]) for found in named]

    # S3

    def _bucket(self, call: Call) -> Iterator[Request]:
        bucket, _, key = call["resources"][0].partition("/")
        arn = f"arn:aws:s3:::{bucket}"
        if call["action"] in LISTS:
            prefix = call["parameters"].get("Prefix", call["parameters"].get("prefix"))
            context = {} if prefix is None else {"s3:prefix": (prefix,)}
            yield Request("s3:ListBucket", arn, context)
        elif call["action"] in OBJECT_ACTIONS and key:
            action = OBJECT_ACTIONS[call["action"]]
            yield Request(f"s3:{action}", f"{arn}/{key}")
            if action == "GetObject" and call["status"] == NOT_FOUND:
                # Without this right S3 answers "access denied" instead of "no such key".
                yield Request("s3:ListBucket", arn)
        else:
            raise _unknown(call)


def _tags_for(specifications: list[Mapping[str, Any]], kind: str) -> Tags:
    return {
        tag["Key"]: tag["Value"]
        for specification in specifications
        if specification["ResourceType"] == kind
        for tag in specification["Tags"]
    }


def _requested(tags: Tags) -> dict[str, tuple[str, ...]]:
    return {f"aws:RequestTag/{key}": (value,) for key, value in tags.items()}


def _owned(tags: Tags) -> dict[str, tuple[str, ...]]:
    return {f"aws:ResourceTag/{key}": (value,) for key, value in tags.items()}


def _unknown(call: Call) -> CannotJudgeError:
    return CannotJudgeError(
        f"{call['caller']}: {call['service']}:{call['action']} on {call['resources']}"
    )
