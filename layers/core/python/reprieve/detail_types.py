"""What arrives from EventBridge, by name: the rules select these, the parsers read these."""

from __future__ import annotations

from enum import StrEnum


class Source(StrEnum):
    """The ``source`` of an event."""

    EC2 = "aws.ec2"
    HEALTH = "aws.health"
    AUTO_SCALING = "aws.autoscaling"
    SSM = "aws.ssm"
    OPERATOR = "reprieve"  # a person, by way of the CLI: put on the queue without a rule


class DetailType(StrEnum):
    """The ``detail-type`` of an event."""

    SPOT_INTERRUPTION = "EC2 Spot Instance Interruption Warning"
    REBALANCE = "EC2 Instance Rebalance Recommendation"
    # Capacity Blocks and interruptible reservations announce themselves under two names.
    RESERVATION_INTERRUPTION = "EC2 Capacity Reservation Instance Interruption Warning"
    INTERRUPTIBLE_RESERVATION = (
        "EC2 Interruptible Capacity Reservation Instance Interruption Warning"
    )
    # Names the reservation, not its instances.
    BLOCK_EXPIRY = "Capacity Block Reservation Expiration Warning"
    STATE_CHANGE = "EC2 Instance State-change Notification"
    HEALTH = "AWS Health Event"
    SCALE_IN = "EC2 Instance-terminate Lifecycle Action"
    DRAIN = "Reprieve Host Drain"
    COMMAND_STATUS = "EC2 Command Invocation Status-change Notification"


# A host on its way out; pending and running say nothing that the agent doesn't say better.
STATES_OF_LEAVING = ("stopping", "stopped", "shutting-down", "terminated")

# What SSM says when a command is over.
COMMAND_ENDED = ("Success", "Failed", "TimedOut", "Cancelled")

HEALTH_SERVICE = "EC2"
HEALTH_CATEGORY = "scheduledChange"
HEALTH_CLOSED = "closed"

# Whoever tests a lifecycle hook sends another transition, and no instance.
TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"
