"""
Metric names, shared by the code that counts and the alarms that watch.

Every one carries the dimension ``service`` = the stack's name, because any function may be the
one that finds a loss and the alarm must see it wherever it was found. Powertools adds the
dimension; an alarm without it watches nothing.
"""

from __future__ import annotations

from enum import StrEnum

NAMESPACE = "Reprieve"


class Metric(StrEnum):
    """Counts unless the name carries a unit."""

    NOTICES = "NoticesReceived"
    STRANGERS = "StrangersIgnored"  # events of instances that aren't ours
    STALE = "NoticesStale"  # arrived after their own deadline: settled, not signalled
    SIGNALS_UNDELIVERED = "SignalsUndelivered"  # SSM wouldn't take the command
    NOTICE_WITHOUT_CHECKPOINT = "NoticeWithoutCheckpoint"
    LOSS_WITHOUT_NOTICE = "LossWithoutNotice"

    CHECKPOINTS = "CheckpointsCommitted"
    CHECKPOINT_LEAD = "CheckpointLeadSeconds"  # left before the reclaim when the commit ended
    STEPS_LOST = "StepsLost"  # trained, and to be trained again

    JOBS_SUCCEEDED = "JobsSucceeded"
    JOBS_FAILED = "JobsFailed"
    PARKED = "JobsParked"

    LAUNCHED = "HostsLaunched"
    RETIRED = "HostsRetired"
    UNFILLED = "OrdersUnfilled"  # every tier said no

    SWEEPS = "SweepsCompleted"
    ANOMALIES = "LeaseAnomalies"  # a lease whose holder has no row, another pool, or two leases
    CANNOT_TELL = "CannotTell"  # so many leases silent together that silence proves nothing
