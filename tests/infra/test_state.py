"""What is kept, for how long, and from whom."""

from __future__ import annotations

from tests.infra.synthesised import Template


def test_a_removed_stack_leaves_jobs_and_checkpoints(template: Template) -> None:
    for kind in ("AWS::DynamoDB::GlobalTable", "AWS::S3::Bucket"):
        (logical_id,) = template.of(kind)
        resource = template.resources[logical_id]
        assert resource["DeletionPolicy"] == "Retain"
        assert resource["UpdateReplacePolicy"] == "Retain"


def test_the_table_can_be_restored_and_not_dropped_by_mistake(template: Template) -> None:
    (table,) = template.of("AWS::DynamoDB::GlobalTable").values()
    (replica,) = table["Replicas"]

    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert table["TimeToLiveSpecification"] == {"AttributeName": "ttl", "Enabled": True}
    assert replica["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"] is True
    assert replica["DeletionProtectionEnabled"] is True


def test_the_index_of_live_things_holds_keys_alone(template: Template) -> None:
    (table,) = template.of("AWS::DynamoDB::GlobalTable").values()
    (index,) = table["GlobalSecondaryIndexes"]

    assert index["IndexName"] == "live"
    assert [key["AttributeName"] for key in index["KeySchema"]] == ["live_pk", "live_sk"]
    assert index["Projection"] == {"ProjectionType": "ALL"}


def test_uploads_that_never_ended_do_not_bill_for_ever(
    template: Template, own_network: Template
) -> None:
    for one in (template, own_network):
        (bucket,) = one.of("AWS::S3::Bucket").values()
        rules = {rule["Id"]: rule for rule in bucket["LifecycleConfiguration"]["Rules"]}
        aborted = rules["UploadsThatNeverEnded"]["AbortIncompleteMultipartUpload"]
        assert aborted == {"DaysAfterInitiation": 1}


def test_no_lifecycle_rule_expires_a_current_checkpoint(template: Template) -> None:
    (bucket,) = template.of("AWS::S3::Bucket").values()

    for rule in bucket["LifecycleConfiguration"]["Rules"]:
        assert not {"ExpirationInDays", "ExpirationDate", "Transitions"} & set(rule)


def test_an_overwrite_can_be_undone_for_as_long_as_was_chosen(
    template: Template, own_network: Template
) -> None:
    (bucket,) = template.of("AWS::S3::Bucket").values()
    (bare,) = own_network.of("AWS::S3::Bucket").values()
    rules = {rule["Id"]: rule for rule in bucket["LifecycleConfiguration"]["Rules"]}

    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    assert rules["UndoWindow"]["NoncurrentVersionExpiration"] == {"NoncurrentDays": 1}
    assert "VersioningConfiguration" not in bare


def test_the_bucket_is_private_and_encrypted(template: Template) -> None:
    (bucket,) = template.of("AWS::S3::Bucket").values()

    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["OwnershipControls"]["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]
    assert bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]


def test_every_queue_is_encrypted(template: Template) -> None:
    for queue in template.of("AWS::SQS::Queue").values():
        assert queue["SqsManagedSseEnabled"] is True
