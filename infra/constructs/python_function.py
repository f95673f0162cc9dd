"""How every function of ours is configured, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.constructs.grants import Conditions, statement
from reprieve.metrics import NAMESPACE

FUNCTIONS = Path(__file__).resolve().parents[2] / "functions"

# A changed pyc or an editor's file must not look like a changed function.
NOT_SHIPPED = ["**/__pycache__", "**/*.pyc", "**/.*"]

RETENTION = {
    1: logs.RetentionDays.ONE_DAY,
    3: logs.RetentionDays.THREE_DAYS,
    5: logs.RetentionDays.FIVE_DAYS,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    60: logs.RetentionDays.TWO_MONTHS,
    90: logs.RetentionDays.THREE_MONTHS,
    120: logs.RetentionDays.FOUR_MONTHS,
    150: logs.RetentionDays.FIVE_MONTHS,
    180: logs.RetentionDays.SIX_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
}


class PythonFunction(Construct):
    """
    ``functions/<name>/handler.py`` with its own role, its own log group and nothing shared.

    The role may write to its log group and no more: the caller grants the rest.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        description: str,
        environment: Mapping[str, str],
        layers: Sequence[lambda_.ILayerVersion],
        timeout: Duration,
        memory_mb: int,
        log_retention: logs.RetentionDays,
    ) -> None:
        super().__init__(scope, construct_id)
        self.log_group = logs.LogGroup(
            self, "Logs", retention=log_retention, removal_policy=RemovalPolicy.DESTROY
        )
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"Reprieve: what {name} may do",
        )
        self.role.add_to_policy(
            statement(
                "WriteOwnLog",
                ["logs:CreateLogStream", "logs:PutLogEvents"],
                [self.log_group.log_group_arn],
            )
        )
        self.function = lambda_.Function(
            self,
            "Function",
            description=description,
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            handler="handler.lambda_handler",
            code=lambda_.Code.from_asset(str(FUNCTIONS / name), exclude=NOT_SHIPPED),
            layers=list(layers),
            role=self.role.without_policy_updates(),
            log_group=self.log_group,
            timeout=timeout,
            memory_size=memory_mb,
            environment={
                "POWERTOOLS_SERVICE_NAME": name,
                "POWERTOOLS_METRICS_NAMESPACE": NAMESPACE,
                "AWS_SDK_UA_APP_ID": f"reprieve-{name}",
                # Otherwise each cold start looks for plugins in every package installed.
                "PYDANTIC_DISABLE_PLUGINS": "__all__",
                **environment,
            },
        )
        # Not before its permissions: a first event would fail and count as a try.
        self.function.node.add_dependency(self.role)

    def allow(
        self,
        sid: str,
        actions: Sequence[str],
        resources: Sequence[str],
        conditions: Conditions | None = None,
    ) -> None:
        """Add one statement to the function's role."""
        self.role.add_to_policy(statement(sid, actions, resources, conditions))
