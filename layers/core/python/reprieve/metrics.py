"""
Metric names, shared by the code that counts and the alarms that watch.

Powertools adds the dimension ``service`` (the function's name), so an alarm names both: a
metric and the one function that emits it.
"""

from __future__ import annotations

from enum import StrEnum

NAMESPACE = "Reprieve"


class Metric(StrEnum):
    """Counts unless the name carries a unit."""

    # handle_notice
    NOTICES = "NoticesReceived"
    STRANGERS = "StrangersIgnored"  # events of instances that aren't ours
    STALE = "NoticesStale"  # arrived after their own deadline: settled, not signalled
    SIGNALS_UNDELIVERED = "SignalsUndelivered"  # SSM wouldn't take the command

    # record_report
    CHECKPOINTS = "CheckpointsCommitted"
    CHECKPOINT_LEAD = "CheckpointLeadSeconds"  # left before the reclaim when the commit ended
    STEPS_LOST = "StepsLost"  # trained, and to be trained again
    NOTICE_WITHOUT_CHECKPOINT = "NoticeWithoutCheckpoint"
    LOSS_WITHOUT_NOTICE = "LossWithoutNotice"
    JOBS_SUCCEEDED = "JobsSucceeded"
    JOBS_FAILED = "JobsFailed"

    # replace_host
    LAUNCHED = "HostsLaunched"
    UNFILLED = "OrdersUnfilled"  # every tier said no
    PARKED = "JobsParked"

    # reconcile
    SWEEPS = "SweepsCompleted"
    RETIRED = "HostsRetired"
    ANOMALIES = "LeaseAnomalies"  # a lease whose holder has no row, another pool, or two leases
    CANNOT_TELL = "CannotTell"  # so many leases silent together that silence proves nothing
