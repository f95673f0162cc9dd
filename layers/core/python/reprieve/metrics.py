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
    FOREIGN = "NoticesForeign"  # of another region or account, or replayed: never acted on
    UNKNOWN_EVENTS = "EventsUnknown"  # of kinds that nobody here reads
    STALE = "NoticesStale"  # arrived after their own deadline: settled, not signalled
    MALFORMED = "MessagesMalformed"  # records that nobody can read
    SIGNALS_UNDELIVERED = "SignalsUndelivered"  # SSM wouldn't take the command
    NOTICE_WITHOUT_CHECKPOINT = "NoticeWithoutCheckpoint"
    LOSS_WITHOUT_NOTICE = "LossWithoutNotice"

    CHECKPOINTS = "CheckpointsCommitted"
    CHECKPOINT_LEAD = "CheckpointLeadSeconds"  # left before the reclaim when the commit ended
    FOUND = "CheckpointsFound"  # commits in the bucket whose report was lost
    QUARANTINED = "CheckpointsQuarantined"  # bad ones that a restore passed over
    STEPS_LOST = "StepsLost"  # trained, and to be trained again

    JOBS_SUCCEEDED = "JobsSucceeded"
    JOBS_FAILED = "JobsFailed"
    PARKED = "JobsParked"
    NEEDS_YOU = "JobsNeedYou"  # parked until a person says so
    NO_VALID_CHECKPOINT = "JobsWithoutValidCheckpoint"
    NO_PROGRESS = "JobsWithoutProgress"  # moved to their fallback pool, or parked

    LAUNCHED = "HostsLaunched"
    RETIRED = "HostsRetired"
    NEVER_READY = "HostsNeverReady"  # their agent wasn't heard within the boot limit
    SILENT = "HostsSilent"  # given up after six sweeps without a word
    STRAYS = "StraysFound"  # instances with our tag that no row knew
    UNFILLED = "OrdersUnfilled"  # every tier said no
    RUNG_AGAIN = "OrdersRungAgain"  # nobody had touched them for two notices
    OVER_QUOTA = "LaunchesOverQuota"  # EC2 named a limit of the account
    MISCONFIGURED = "LaunchesMisconfigured"  # a parameter, a permission or a defect of ours
    SUBNETS_FULL = "SubnetsFull"  # no address left
    AT_CAP = "PoolsAtCap"  # max_hosts or max_usd_per_hour kept an order from a host

    SWEEPS = "SweepsCompleted"
    SWEEP_TIME = "SweepSeconds"
    ANOMALIES = "LeaseAnomalies"  # a lease whose holder has no row, another pool, or two leases
    FORGED = "ReportsForged"  # the sender isn't the host that the report speaks for
    CANNOT_TELL = "CannotTell"  # so many leases silent together that silence proves nothing
