"""
The main job with IAM enforcement and TLS on, and every call of it judged by its policy.

Functions run under their roles, the host's credentials come from its metadata service, and the
job is submitted by a user who holds the submit policy alone. The emulator enforces services and
ARNs; what it can't judge (EC2, SSM, tags, leading keys, PassRole) is judged here, call by call,
from the world's log.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from reprieve_cli.assembly import ROOT
from reprieve_cli.drill import report
from reprieve_cli.drill.engine import Drill, Outcome
from reprieve_cli.drill.scenario import Scenario
from reprieve_cli.drill.stage import Stage, open_stage
from reprieve_cli.local import cloud as embedded
from reprieve_cli.local.aws import client
from reprieve_cli.local.cloud import Cloud
from reprieve_cli.local.control import ControlError
from reprieve_cli.local.localize import Localized
from reprieve_cli.provision import STACK, provision
from tests.e2e.theatre import raw_story, read
from tests.infra.synthesised import FUNCTIONS, Template
from tests.rehearsal.asked import Asked, LaunchTemplate
from tests.rehearsal.conftest import NOTICE_SECONDS
from tests.rehearsal.debian import BUILD
from tests.rehearsal.iam import Policies, Request

pytestmark = [pytest.mark.deep, pytest.mark.rehearsal, pytest.mark.timeout(600)]

USER = "somebody"
SUBMIT_POLICY = f"{STACK}-submit"
PREFIX = "reprieve-"
BUSY = (f"{PREFIX}reconcile", f"{PREFIX}agent")  # on their own, every few seconds
SERVICES = ("cloudformation", "dynamodb", "ec2", "s3", "sqs", "ssm")
# Every look a person takes with the CLI; doctor is for whoever deploys.
LOOKS = (
    ("queue",),
    ("hosts",),
    ("status", "{job}"),
    ("why", "{job}"),
    ("logs", "{job}"),
    ("checkpoints", "ls", "{job}"),
)


@dataclass(frozen=True)
class Rehearsal:
    cloud: Cloud
    outcome: Outcome
    calls: list[dict[str, Any]]
    looks: dict[str, subprocess.CompletedProcess[str]]
    rights: dict[str, Policies]
    """By caller."""
    bound: dict[str, bool]
    """By caller that calls without being asked: whether a denial in its role binds it."""
    asked: Asked
    person: dict[str, str]
    """The environment of whoever submitted."""


@pytest.fixture(scope="module")
def rehearsal(localized: Localized) -> Iterator[Rehearsal]:
    with embedded.start(notice_seconds=NOTICE_SECONDS, tls=True, auth=True) as cloud:
        provision(cloud, localized)
        person = cloud.env | user_with(cloud, SUBMIT_POLICY)
        began = last(cloud)
        drill = Drill(story(), stage_of(cloud, person))
        outcome = drill.run()
        calls = cloud.control.calls(since=began)
        heard = last(cloud)
        job = drill.ids["train"]
        looks = {look[0]: cli(person, *(word.format(job=job) for word in look)) for look in LOOKS}
        looks |= {
            "submit": cli(person, "submit", "--name", "other", "--json", "--", "sleep", "600")
        }
        other = json.loads(looks["submit"].stdout)["id"]
        # While there is work, there is a host that calls.
        bound = {caller: is_bound(cloud, caller) for caller in BUSY}
        looks |= {"cancel": cli(person, "cancel", other)}
        calls += cloud.control.calls(since=heard, caller=f"{PREFIX}cli")
        yield Rehearsal(
            cloud,
            outcome,
            [call for call in calls if call["service"] in SERVICES],
            looks,
            rights_by_caller(cloud),
            bound,
            Asked(cloud.account, cloud.region, templates(cloud)),
            person,
        )


def last(cloud: Cloud) -> int:
    """Return the number of the newest call."""
    return int(cloud.control.calls()[-1]["n"])


def story() -> Scenario:
    """
    Return the main job; that its last host leaves is waited for elsewhere.

    The event alone tells of the notice: a host that reads it itself spares the function some of
    the calls that are to be judged.
    """
    raw = raw_story("interruption")
    (step,) = raw["steps"]
    step["host"]["channels"] = ["event"]
    del raw["expect"]["instances"]
    return read(raw, "interruption")


def stage_of(cloud: Cloud, person: dict[str, str]) -> Stage:
    """Have *person* submit and look; what the judge reads besides, it reads as root."""
    theirs = open_stage(person, cloud.control, notice_seconds=NOTICE_SECONDS)
    looked_at = {name: client(cloud, name) for name in ("s3", "sqs", "logs", "cloudformation")}
    return replace(theirs, **looked_at)


def user_with(cloud: Cloud, policy: str) -> dict[str, str]:
    """Make a user who holds *policy* alone; return the SDK variables that make one that user."""
    iam = client(cloud, "iam")
    iam.create_user(UserName=USER)
    (arn,) = (
        one["Arn"]
        for one in iam.list_policies(Scope="Local")["Policies"]
        if one["PolicyName"] == policy
    )
    iam.attach_user_policy(UserName=USER, PolicyArn=arn)
    key = iam.create_access_key(UserName=USER)["AccessKey"]
    return {
        "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
    }


def cli(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``reprieve`` with nothing in its environment but a PATH and the SDK's variables."""
    return subprocess.run(
        [sys.executable, "-m", "reprieve_cli", *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def is_bound(cloud: Cloud, caller: str) -> bool:
    """Deny the table to *caller*'s role for a moment, and tell whether its calls are refused."""
    iam, role, began = client(cloud, "iam"), roles(cloud)[caller], last(cloud)
    document = {"Statement": {"Effect": "Deny", "Action": "dynamodb:*", "Resource": "*"}}
    iam.put_role_policy(RoleName=role, PolicyName="moment", PolicyDocument=json.dumps(document))
    try:
        cloud.control.wait_for(
            f"a refusal of {caller}",
            lambda: any(_denied(call) for call in cloud.control.calls(since=began, caller=caller)),
            seconds=30,
        )
    except ControlError:
        return False
    finally:
        iam.delete_role_policy(RoleName=role, PolicyName="moment")
    return True


def _denied(call: dict[str, Any]) -> bool:
    return "AccessDenied" in (call["error"] or "")


def roles(cloud: Cloud) -> dict[str, str]:
    """Return the name of each caller's role."""
    functions = client(cloud, "lambda").list_functions()["Functions"]
    found = {
        f"{PREFIX}{one['Environment']['Variables']['POWERTOOLS_SERVICE_NAME']}": one["Role"]
        for one in functions
    }
    arns = {**found, f"{PREFIX}agent": _host_role(cloud)}
    return {caller: arn.rpartition("/")[2] for caller, arn in arns.items()}


def rights_by_caller(cloud: Cloud) -> dict[str, Policies]:
    """Read the deployed policies: the synthesised ones, with every reference filled in."""
    iam = client(cloud, "iam")
    found = {caller: _of_role(iam, role) for caller, role in roles(cloud).items()}
    (policy,) = iam.list_attached_user_policies(UserName=USER)["AttachedPolicies"]
    version = iam.get_policy(PolicyArn=policy["PolicyArn"])["Policy"]["DefaultVersionId"]
    document = iam.get_policy_version(PolicyArn=policy["PolicyArn"], VersionId=version)
    found[f"{PREFIX}cli"] = Policies.of([_document(document["PolicyVersion"]["Document"])])
    return found


def _of_role(iam: Any, role: str) -> Policies:
    assert not iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]
    names = iam.list_role_policies(RoleName=role)["PolicyNames"]
    return Policies.of(
        _document(iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"])
        for name in names
    )


def _document(document: Any) -> Any:
    return json.loads(document) if isinstance(document, str) else document


def _host_role(cloud: Cloud) -> str:
    (profile,) = client(cloud, "iam").list_instance_profiles()["InstanceProfiles"]
    arn: str = profile["Roles"][0]["Arn"]
    return arn


def templates(cloud: Cloud) -> dict[str, LaunchTemplate]:
    """Read what hosts are launched from. The image's owner is the default image's: Amazon."""
    ec2, role = client(cloud, "ec2"), _host_role(cloud)
    return {
        version["LaunchTemplateId"]: LaunchTemplate(version["LaunchTemplateData"], role, "amazon")
        for template in ec2.describe_launch_templates()["LaunchTemplates"]
        for version in ec2.describe_launch_template_versions(
            LaunchTemplateId=template["LaunchTemplateId"]
        )["LaunchTemplateVersions"]
    }


def refused(rehearsal: Rehearsal) -> Iterator[str]:
    for call in rehearsal.calls:
        for request in questions(rehearsal, call):
            verdict = rehearsal.rights[call["caller"]].judge(request)
            if not verdict.allowed:
                yield f"{call['caller']}: {request} ({verdict.by or 'no statement allows it'})"


def questions(rehearsal: Rehearsal, call: dict[str, Any]) -> list[Request]:
    return rehearsal.asked(call) if call["caller"] in rehearsal.rights else []


def write_unused(rehearsal: Rehearsal) -> None:
    """Leave a list of what this one job never used: a right may be for another day."""
    used = {
        (call["caller"], rehearsal.rights[call["caller"]].judge(request).by, request.action)
        for call in rehearsal.calls
        for request in questions(rehearsal, call)
    }
    lines = [
        f"{caller.removeprefix(PREFIX):15}{statement.sid:30}{action}"
        for caller, policies in sorted(rehearsal.rights.items())
        for statement in policies.statements
        for action in statement.actions
        if statement.allows and (caller, statement.sid, action) not in used
    ]
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "unused-permissions.txt").write_text("\n".join([*lines, ""]))


def test_the_main_job_survives_with_every_permission_enforced(rehearsal: Rehearsal) -> None:
    assert rehearsal.outcome.holds, "\n".join(report.lines(rehearsal.outcome))


def test_the_emulator_refused_no_call_of_ours(rehearsal: Rehearsal) -> None:
    denied = [
        f"{call['caller']}: {call['service']}:{call['action']} on {call['resources']}"
        for call in rehearsal.calls
        if call["caller"] in rehearsal.rights and _denied(call)
    ]

    assert not denied


@pytest.mark.parametrize("caller", BUSY)
def test_a_role_binds_who_has_it(rehearsal: Rehearsal, caller: str) -> None:
    """Otherwise the job's success says nothing about the policies."""
    assert rehearsal.bound[caller]


def test_who_submits_may_do_no_more(rehearsal: Rehearsal) -> None:
    stage = open_stage(rehearsal.person, rehearsal.cloud.control, notice_seconds=NOTICE_SECONDS)

    with pytest.raises(ClientError, match="AccessDenied"):
        stage.sqs.receive_message(QueueUrl=stage.cloud.stack.orders_url)


def test_every_call_is_allowed_by_the_policy_of_its_caller(rehearsal: Rehearsal) -> None:
    assert not sorted(set(refused(rehearsal)))


def test_nobody_calls_without_saying_who(rehearsal: Rehearsal) -> None:
    """A call of an unknown caller would be judged by nobody."""
    known = {*rehearsal.rights, "reprieve-local"}

    assert {call["caller"] for call in rehearsal.calls} <= known


@pytest.mark.parametrize("look", [*(look[0] for look in LOOKS), "submit", "cancel"])
def test_who_may_submit_may_look_and_cancel(rehearsal: Rehearsal, look: str) -> None:
    done = rehearsal.looks[look]

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("caller", "sid"),
    [
        ("agent", "LeasesThatExist"),
        ("agent", "CheckOwnState"),
        ("replace_host", "LaunchTaggedAsOurs"),
        ("replace_host", "TagWhileLaunching"),
        ("replace_host", "GiveHostsTheirRole"),
        ("handle_notice", "OnOurHosts"),
        ("cli", "WriteJobs"),
    ],
)
def test_a_job_without_one_of_its_permissions_is_found_out(
    rehearsal: Rehearsal, caller: str, sid: str
) -> None:
    """What the emulator lets pass, the judge must not."""
    caller = f"{PREFIX}{caller}"
    left = tuple(one for one in rehearsal.rights[caller].statements if one.sid != sid)
    poorer = {**rehearsal.rights, caller: Policies(left)}

    found = list(refused(replace(rehearsal, rights=poorer)))

    assert found
    assert all(line.startswith(f"{caller}: ") for line in found)


def test_the_deployed_policies_are_the_synthesised_ones(
    rehearsal: Rehearsal, original: Path
) -> None:
    template = Template(json.loads((original / f"{STACK}.template.json").read_text()))
    synthesised = {
        f"{PREFIX}{name}": set(template.statements(template.role_of(name))) for name in FUNCTIONS
    }
    synthesised[f"{PREFIX}agent"] = set(template.statements(template.role_named("FleetHostRole")))
    (people,) = (
        policy
        for policy in template.of("AWS::IAM::ManagedPolicy").values()
        if policy["ManagedPolicyName"] == SUBMIT_POLICY
    )
    document = template.read(people["PolicyDocument"])
    synthesised[f"{PREFIX}cli"] = {statement["Sid"] for statement in document}

    deployed = {
        caller: {statement.sid for statement in policies.statements}
        for caller, policies in rehearsal.rights.items()
    }

    assert deployed == synthesised


def test_the_judged_calls_are_those_of_the_whole_job(rehearsal: Rehearsal) -> None:
    judged = Counter(
        (call["caller"].removeprefix(PREFIX), request.action)
        for call in rehearsal.calls
        for request in questions(rehearsal, call)
    )
    write_unused(rehearsal)
    needed = {
        ("cli", "dynamodb:PutItem"),
        ("cli", "dynamodb:UpdateItem"),
        ("cli", "dynamodb:Query"),
        ("cli", "s3:PutObject"),
        ("cli", "sqs:SendMessage"),
        ("replace_host", "ec2:CreateFleet"),
        ("replace_host", "ec2:RunInstances"),
        ("replace_host", "ec2:CreateTags"),
        ("replace_host", "iam:PassRole"),
        ("handle_notice", "ssm:SendCommand"),
        ("handle_notice", "dynamodb:UpdateItem"),
        ("record_report", "dynamodb:UpdateItem"),
        ("reconcile", "dynamodb:Query"),
        ("reconcile", "ec2:DescribeInstances"),
        ("agent", "dynamodb:UpdateItem"),
        ("agent", "dynamodb:ConditionCheckItem"),
        ("agent", "sqs:ReceiveMessage"),
        ("agent", "s3:PutObject"),
        ("agent", "s3:GetObject"),
    }

    assert needed <= set(judged)
