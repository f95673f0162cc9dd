"""What GPU hosts are launched from: network, role, one launch template a pool, the SSM document."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import AssetHashType, Aws, CfnTag, Fn, RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra import user_data
from infra.config import Config, ImageConfig, PoolConfig, pascal
from infra.constructs.grants import (
    POOL_TAG,
    STACK_TAG,
    below,
    leading_keys,
    statement,
)
from infra.constructs.python_function import RETENTION
from infra.constructs.state import State
from infra.packages import host_bundle
from reprieve.domain.clock import NoticeClock

# ssmmessages carries commands; ec2messages serves agents that cannot keep its connection.
SSM_CHANNEL_ACTIONS = (
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
    "ec2messages:AcknowledgeMessage",
    "ec2messages:DeleteMessage",
    "ec2messages:FailMessage",
    "ec2messages:GetEndpoint",
    "ec2messages:GetMessages",
    "ec2messages:SendReply",
)
SSM_INSTANCE_ACTIONS = (
    "ssm:UpdateInstanceInformation",
    "ssm:ListAssociations",
    "ssm:ListInstanceAssociations",
    "ssm:UpdateInstanceAssociationStatus",
)

INTERFACE_ENDPOINTS = {
    "Ssm": ec2.InterfaceVpcEndpointAwsService.SSM,
    "SsmMessages": ec2.InterfaceVpcEndpointAwsService.SSM_MESSAGES,
    "Sqs": ec2.InterfaceVpcEndpointAwsService.SQS,
    "Logs": ec2.InterfaceVpcEndpointAwsService.CLOUDWATCH_LOGS,
}
# Where jobs have a role: to assume it, and to read their secrets in it.
JOB_ROLE_ENDPOINTS = {
    "Sts": ec2.InterfaceVpcEndpointAwsService.STS,
    "SecretsManager": ec2.InterfaceVpcEndpointAwsService.SECRETS_MANAGER,
}

_SCRIPT = """\
if [ -z "${SSM_RequestId:-}" ]; then
  echo '{"error": "parameters did not arrive: this SSM agent is older than 3.3.2746.0"}'
  exit 2
fi
export PATH="/opt/reprieve/bin:$PATH"
exec reprieve-ctl preempt --request-id "$SSM_RequestId" --kind "$SSM_Kind" \
--noticed-at "$SSM_NoticedAt" --deadline "$SSM_Deadline" --wait 20 --json"""

_INSTANT = r"^(\d{4}-\d{2}-\d{2}T[0-9:.]{5,15}(Z|[+-]\d{2}:?\d{2}))?$"

# The service checks the patterns and the agent passes the values as environment variables, so
# none of them is ever part of the script's text.
PREEMPT_DOCUMENT: dict[str, Any] = {
    "schemaVersion": "2.2",
    "description": "Ask the Reprieve agent to checkpoint its job; asking twice changes nothing.",
    "parameters": {
        "RequestId": {
            "type": "String",
            "description": "Identity of the request: kind and instance.",
            "allowedPattern": r"^[A-Za-z0-9][A-Za-z0-9._:#/-]{0,199}$",
            "interpolationType": "ENV_VAR",
        },
        "Kind": {
            "type": "String",
            "description": "What was announced.",
            "allowedPattern": r"^[a-z][a-z_-]{0,39}$",
            "interpolationType": "ENV_VAR",
        },
        "NoticedAt": {
            "type": "String",
            "description": "When it was announced, ISO 8601.",
            "allowedPattern": _INSTANT,
            "interpolationType": "ENV_VAR",
        },
        "Deadline": {
            "type": "String",
            "description": "When the instance goes, ISO 8601; empty if nobody said.",
            "default": "",
            "allowedPattern": _INSTANT,
            "interpolationType": "ENV_VAR",
        },
    },
    "mainSteps": [
        {
            "name": "preempt",
            "action": "aws:runShellScript",
            "precondition": {"StringEquals": ["platformType", "Linux"]},
            "inputs": {"timeoutSeconds": "60", "runCommand": _SCRIPT.split("\n")},
        }
    ],
}


@dataclass(frozen=True, slots=True)
class Template:
    """One pool's launch template: the version is explicit, so a fleet never meets a newer one."""

    id: str
    version: str


class Fleet(Construct):
    """Everything that a ``CreateFleet`` call names."""

    def __init__(
        self, scope: Construct, construct_id: str, *, config: Config, stack_name: str, state: State
    ) -> None:
        super().__init__(scope, construct_id)
        self._config = config
        self._stack_name = stack_name
        self._state = state
        self.vpc, self.subnets = self._network()
        self.security_group = ec2.SecurityGroup(
            self,
            "Hosts",
            vpc=self.vpc,
            description="Reprieve hosts: out to AWS and to what jobs need, nothing in",
        )
        built = host_bundle()
        self.bundle = assets.Asset(
            self,
            "HostBundle",
            path=str(built.folder),
            # Named by what it was made from, so that nobody has to read it again.
            asset_hash=built.digest,
            asset_hash_type=AssetHashType.CUSTOM,
        )
        self.document_name = f"{stack_name}-preempt"
        ssm.CfnDocument(
            self,
            "PreemptDocument",
            name=self.document_name,
            document_type="Command",
            document_format="JSON",
            content=PREEMPT_DOCUMENT,
            target_type="/AWS::EC2::Instance",
            update_method="NewVersion",
        )
        # What jobs print; their copy in the bucket is what `reprieve logs` reads.
        self.job_logs = logs.LogGroup(
            self,
            "JobLogs",
            retention=RETENTION[config.log_days],
            removal_policy=RemovalPolicy.DESTROY,
        )
        self.host_role = self._host_role()
        profile = iam.CfnInstanceProfile(self, "HostProfile", roles=[self.host_role.role_name])
        self.templates: Mapping[str, Template] = {
            name: self._launch_template(name, pool, profile) for name, pool in config.pools.items()
        }

    @property
    def document_arn(self) -> str:
        """ARN of the preempt document, which has a name of its own choosing."""
        return (
            f"arn:{Aws.PARTITION}:ssm:{Aws.REGION}:{Aws.ACCOUNT_ID}:document/{self.document_name}"
        )

    def _network(self) -> tuple[ec2.IVpc, dict[str, str]]:
        """Return the network and its subnets by zone, one each: a fleet takes no more."""
        network = self._config.network
        if network.vpc_id:
            zones = sorted(network.subnets)
            vpc = ec2.Vpc.from_vpc_attributes(
                self,
                "YourNetwork",
                vpc_id=network.vpc_id,
                availability_zones=zones,
                public_subnet_ids=[network.subnets[zone] for zone in zones],
            )
            return vpc, {zone: network.subnets[zone] for zone in zones}
        kind = ec2.SubnetType.PRIVATE_ISOLATED if network.private else ec2.SubnetType.PUBLIC
        vpc = ec2.Vpc(
            self,
            "Network",
            ip_addresses=ec2.IpAddresses.cidr(network.cidr),
            availability_zones=[Fn.select(n, Fn.get_azs()) for n in range(network.zones)],
            nat_gateways=0,
            subnet_configuration=[ec2.SubnetConfiguration(name="Hosts", subnet_type=kind)],
            # Emptying the default group takes a custom resource; no host is ever in it.
            restrict_default_security_group=False,
            # Free, and the difference between 5 Gb/s and the whole card for uploads.
            gateway_endpoints={
                "S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3),
                "DynamoDb": ec2.GatewayVpcEndpointOptions(
                    service=ec2.GatewayVpcEndpointAwsService.DYNAMODB
                ),
            },
        )
        if network.private:
            self._interface_endpoints(vpc)
        subnets = vpc.isolated_subnets if network.private else vpc.public_subnets
        return vpc, {subnet.availability_zone: subnet.subnet_id for subnet in subnets}

    def _interface_endpoints(self, vpc: ec2.Vpc) -> None:
        group = ec2.SecurityGroup(
            self,
            "Endpoints",
            vpc=vpc,
            description="Reprieve: hosts reach AWS services without an address of their own",
            allow_all_outbound=False,
        )
        group.add_ingress_rule(
            ec2.Peer.ipv4(self._config.network.cidr), ec2.Port.tcp(443), "HTTPS from hosts"
        )
        needed = INTERFACE_ENDPOINTS | (JOB_ROLE_ENDPOINTS if self._config.job_role_arn else {})
        for name, service in needed.items():
            vpc.add_interface_endpoint(name, service=service, security_groups=[group], open=False)

    def _host_role(self) -> iam.Role:
        """
        Return what hosts may do: their leases, their checkpoints, their queues.

        A job that broke out of its user is the host, so nothing here can delete a checkpoint,
        write the state of a job or read a secret.
        """
        table, bucket = self._state.table, self._state.bucket
        role = iam.Role(
            self,
            "HostRole",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            description="Reprieve: what a GPU host may do",
        )
        statements = [
            statement(
                "LeasesThatExist",
                ["dynamodb:UpdateItem"],
                [table.table_arn],
                leading_keys("LEASE#*"),
            ),
            statement(
                "CheckOwnState",
                ["dynamodb:ConditionCheckItem"],
                [table.table_arn],
                leading_keys("HOST#*"),
            ),
            statement(
                "WriteCheckpoints",
                ["s3:PutObject", "s3:AbortMultipartUpload"],
                [bucket.arn_for_objects("jobs/*")],
            ),
            statement(
                "ReadCheckpointsAndCode",
                ["s3:GetObject"],
                [bucket.arn_for_objects("jobs/*"), bucket.arn_for_objects("code/*")],
            ),
            statement("ListCheckpoints", ["s3:ListBucket"], [bucket.bucket_arn], below("jobs/*")),
            statement(
                "FetchTheAgent",
                ["s3:GetObject"],
                [self.bundle.bucket.arn_for_objects(self.bundle.s3_object_key)],
            ),
            statement(
                "TakeTickets",
                ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"],
                [queue.queue_arn for queue in self._state.work.values()],
            ),
            statement(
                "WriteJobLogs",
                ["logs:CreateLogStream", "logs:PutLogEvents"],
                [self.job_logs.log_group_arn],
            ),
            statement("Report", ["sqs:SendMessage"], [self._state.reports.queue_arn]),
            statement("TakeCommands", [*SSM_CHANNEL_ACTIONS, *SSM_INSTANCE_ACTIONS], ["*"]),
        ]
        if self._config.job_role_arn:
            statements.append(
                statement("ActForJobs", ["sts:AssumeRole"], [self._config.job_role_arn])
            )
        for one in statements:
            role.add_to_policy(one)
        return role

    def _launch_template(
        self, name: str, pool: PoolConfig, profile: iam.CfnInstanceProfile
    ) -> Template:
        """
        Return the pool's template.

        It names neither a market nor a type nor a subnet: the fleet request decides those,
        and the on-demand tier reuses the same template.
        """
        tags = [
            CfnTag(key="Name", value=f"{self._stack_name}-{name}"),
            CfnTag(key=STACK_TAG, value=self._stack_name),
            CfnTag(key=POOL_TAG, value=name),
            *(CfnTag(key=key, value=value) for key, value in self._config.tags.items()),
        ]
        spec = ec2.CfnLaunchTemplate.TagSpecificationProperty
        network = self._config.network
        template = ec2.CfnLaunchTemplate(
            self,
            f"Template{pascal(name)}",
            version_description=f"Hosts of pool {name}",
            launch_template_data=ec2.CfnLaunchTemplate.LaunchTemplateDataProperty(
                image_id=self._image(pool.image),
                iam_instance_profile=ec2.CfnLaunchTemplate.IamInstanceProfileProperty(
                    arn=profile.attr_arn
                ),
                user_data=Fn.base64(self._user_data(name)),
                instance_initiated_shutdown_behavior="terminate",
                metadata_options=ec2.CfnLaunchTemplate.MetadataOptionsProperty(
                    http_endpoint="enabled",
                    http_tokens="required",
                    http_put_response_hop_limit=1,  # a container on a bridge is one hop too far
                    instance_metadata_tags="enabled",
                ),
                network_interfaces=[
                    ec2.CfnLaunchTemplate.NetworkInterfaceProperty(
                        device_index=0,
                        groups=[self.security_group.security_group_id],
                        delete_on_termination=True,
                        # With subnets of yours, their own setting stands.
                        associate_public_ip_address=(
                            None if network.vpc_id else not network.private
                        ),
                    )
                ],
                block_device_mappings=[
                    ec2.CfnLaunchTemplate.BlockDeviceMappingProperty(
                        device_name=pool.image.root_device,
                        ebs=ec2.CfnLaunchTemplate.EbsProperty(
                            volume_type="gp3",
                            volume_size=pool.volume_gb,
                            throughput=pool.volume_mib_per_second,
                            # gp3 gives at most 0.25 MiB/s for each of its operations.
                            iops=max(3000, 4 * pool.volume_mib_per_second),
                            encrypted=True,
                            delete_on_termination=True,
                        ),
                    )
                ],
                # No spot-instances-request: its tags fail a fleet that ends on-demand.
                tag_specifications=[
                    spec(resource_type=kind, tags=tags)
                    for kind in ("instance", "volume", "network-interface")
                ],
            ),
        )
        return Template(template.ref, template.attr_latest_version_number)

    def _image(self, image: ImageConfig) -> str:
        if image.id:
            return image.id
        # Resolved at deploy time and fixed until the next one: EC2 fleets take no parameter,
        # and two hosts of one deployment should not differ.
        return ssm.StringParameter.value_for_typed_string_parameter_v2(
            self, image.parameter, ssm.ParameterValueType.AWS_EC2_IMAGE_ID
        )

    def _user_data(self, pool: str) -> str:
        clock = NoticeClock.of_seconds(self._config.notice_seconds)
        return user_data.render(
            region=Aws.REGION,
            bundle=user_data.Bundle(self.bundle.s3_bucket_name, self.bundle.s3_object_key),
            boot_limit_seconds=math.ceil(clock.boot.total_seconds()),
            environment={
                "STACK": self._stack_name,
                "POOL": pool,
                "JOBS_TABLE": self._state.table.table_name,
                "CHECKPOINTS_BUCKET": self._state.bucket.bucket_name,
                "WORK_QUEUE_URL": self._state.work[pool].queue_url,
                "REPORTS_QUEUE_URL": self._state.reports.queue_url,
                "NOTICE_SECONDS": str(self._config.notice_seconds),
                "AWS_REGION": Aws.REGION,
                "STATE_DIR": "/var/lib/reprieve",
                "RUN_DIR": "/run/reprieve",
                "JOB_USER": "reprieve-job",
                "SUPERVISOR": "systemd",
                "JOB_PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "AWS_SDK_UA_APP_ID": "reprieve-agent",
                "LOG_GROUP": self.job_logs.log_group_name,
                **({"JOB_ROLE_ARN": role} if (role := self._config.job_role_arn) else {}),
            },
        )
