"""What must survive a redeploy: the jobs table, the checkpoints, and the queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config import Config, pascal

DEAD_LETTER_DAYS = 14  # SQS's longest: a dead letter waits for a person
QUEUE_DAYS = 4

LIVE_INDEX = "live"


@dataclass(frozen=True, slots=True)
class QueueClock:
    """Of one queue: how long a taken message stays away, and after how many takes it is dead."""

    visibility: Duration
    receives: int


# Visibility exceeds the consumer's timeout (enforced by Lambda) but stays near it: a function
# that dies loses the message for that long, and a notice lasts two minutes.
INTAKE = QueueClock(Duration.seconds(15), receives=10)
ORDERS = QueueClock(Duration.seconds(90), receives=10)
REPORTS = QueueClock(Duration.seconds(45), receives=10)
# Hosts that aren't ready put a ticket back at once, and such as can't hold its job after some
# seconds, so takes are many and prove little.
WORK = QueueClock(Duration.seconds(60), receives=200)


class State(Construct):
    """Table, bucket and queues; everything in here outlives the hosts."""

    def __init__(self, scope: Construct, construct_id: str, *, config: Config) -> None:
        super().__init__(scope, construct_id)
        self.table = self._table()
        self.bucket = self._bucket(config)
        self.dead_letters: dict[str, sqs.Queue] = {}
        self.intake = self._queue("Intake", INTAKE)
        self.orders = self._queue("Orders", ORDERS)
        self.reports = self._queue("Reports", REPORTS)
        self.work: Mapping[str, sqs.Queue] = {
            name: self._queue(f"Work{pascal(name)}", WORK) for name in config.pools
        }

    def _table(self) -> dynamodb.TableV2:
        return dynamodb.TableV2(
            self,
            "Jobs",
            partition_key=_text("pk"),
            sort_key=_text("sk"),
            billing=dynamodb.Billing.on_demand(),
            time_to_live_attribute="ttl",
            global_secondary_indexes=[
                dynamodb.GlobalSecondaryIndexPropsV2(
                    index_name=LIVE_INDEX,
                    partition_key=_text("live_pk"),
                    sort_key=_text("live_sk"),
                    # For lists and proposals: what is decided, the rows' own conditions prove.
                    projection_type=dynamodb.ProjectionType.ALL,
                )
            ],
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            # A stack that is deleted or mis-deployed must not take the jobs with it.
            removal_policy=RemovalPolicy.RETAIN,
            deletion_protection=True,
        )

    def _bucket(self, config: Config) -> s3.Bucket:
        """
        Return the checkpoints bucket.

        Hosts may write and not delete, yet a write over a committed key would be a deletion.
        Versions undo that, and a wrong collection, for ``undo_days``; they cost the storage
        of what was collected in that time.
        """
        rules = [
            s3.LifecycleRule(
                id="UploadsThatNeverEnded",
                abort_incomplete_multipart_upload_after=Duration.days(1),
            )
        ]
        if config.undo_days:
            rules.append(
                s3.LifecycleRule(
                    id="UndoWindow",
                    noncurrent_version_expiration=Duration.days(config.undo_days),
                    expired_object_delete_marker=True,
                )
            )
        return s3.Bucket(
            self,
            "Checkpoints",
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            versioned=bool(config.undo_days),
            lifecycle_rules=rules,
            removal_policy=RemovalPolicy.RETAIN,
        )

    def _queue(self, name: str, clock: QueueClock) -> sqs.Queue:
        dead = self.dead_letter_queue(name)
        return sqs.Queue(
            self,
            name,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            visibility_timeout=clock.visibility,
            retention_period=Duration.days(QUEUE_DAYS),
            # Long polls: an idle consumer costs a tenth, and no answer is empty by chance.
            receive_message_wait_time=Duration.seconds(20),
            dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=clock.receives),
        )

    def dead_letter_queue(self, name: str) -> sqs.Queue:
        """Return a new queue for what *name* couldn't handle; ``watch`` sets its alarm."""
        queue = sqs.Queue(
            self,
            f"{name}Dead",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(DEAD_LETTER_DAYS),
        )
        self.dead_letters[name] = queue
        return queue


def _text(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)
