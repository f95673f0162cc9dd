"""SSM Run Command: the second way to tell a host what EC2 announced."""

from __future__ import annotations

import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from reprieve.adapters.chunks import chunks
from reprieve.adapters.outcome import NO_ANSWER, code_of, is_unknown, message_of
from reprieve.domain.notice import Notice, NoticeKind
from reprieve.ports.cloud import Signalled

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient

IDS_PER_COMMAND = 50  # SendCommand's limit
DELIVERY_SECONDS = 30  # the shortest that SSM allows
TRIES = 3
PATIENCE_SECONDS = 3.0
LONGEST_FIRST_PAUSE_SECONDS = 0.4
INSTANCE_ID = re.compile(r"\bm?i-[0-9a-f]{8,17}\b")

Unreachable = dict[str, str]


class SsmSignals:
    """
    ``Signals``: one command for up to 50 hosts under one kind of notice and one deadline.

    *document* is None in a function that may send no commands: every host then counts as
    not reachable this way. Sending twice is harmless, since the agent joins requests by
    kind and instance; so a throttled or unanswered call is repeated, but not beyond
    `PATIENCE_SECONDS` in all: the caller still has to store what was announced.
    """

    def __init__(
        self,
        connect: Callable[[], SSMClient],
        document: str | None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._document = document
        self._sleep = sleep
        self._monotonic = monotonic

    def preempt(self, notices: Sequence[Notice]) -> Signalled:
        hosts = list(dict.fromkeys(notice.instance_id for notice in notices))
        if self._document is None:
            return Signalled(unreachable=dict.fromkeys(hosts, "no SSM document is configured"))
        round_ = _Round(
            self._connect,
            self._document,
            until=self._monotonic() + PATIENCE_SECONDS,
            sleep=self._sleep,
            monotonic=self._monotonic,
        )
        unreachable: Unreachable = {}
        for group in _groups(notices):
            for chunk in chunks(group, IDS_PER_COMMAND):
                unreachable |= round_.tell(chunk)
        return Signalled(tuple(i for i in hosts if i not in unreachable), unreachable)


@dataclass(frozen=True, slots=True)
class _Round:
    """The commands of one ``preempt``, all of them sent before *until*."""

    connect: Callable[[], SSMClient]
    document: str
    until: float
    sleep: Callable[[float], None]
    monotonic: Callable[[], float]

    def tell(self, notices: Sequence[Notice]) -> Unreachable:
        """Send one command; hosts that SSM doesn't know are taken out and don't sink the rest."""
        failure = self._send(notices)
        if failure is None:
            return {}
        if not isinstance(failure, ClientError) or code_of(failure) != "InvalidInstanceId":
            return {notice.instance_id: _reason(failure) for notice in notices}
        named = set(INSTANCE_ID.findall(message_of(failure)))
        unknown = [notice for notice in notices if notice.instance_id in named]
        rest = [notice for notice in notices if notice.instance_id not in named]
        if not unknown and len(notices) > 1:  # it didn't say which: halve
            middle = len(notices) // 2
            return self.tell(notices[:middle]) | self.tell(notices[middle:])
        refused = {notice.instance_id: _reason(failure) for notice in unknown or notices}
        return refused | (self.tell(rest) if unknown and rest else {})

    def _send(self, notices: Sequence[Notice]) -> Exception | None:
        """Send, repeat what may pass, and return what stood in the way at last."""
        failure: Exception | None = None
        for attempt in range(TRIES):
            if attempt:
                self.sleep(random.uniform(0, LONGEST_FIRST_PAUSE_SECONDS * 2 ** (attempt - 1)))
            if self.monotonic() >= self.until:
                return failure or TimeoutError("no time left")
            try:
                self._command(notices)
            except ClientError as error:
                failure = error
                if not is_unknown(error):
                    return error
            except NO_ANSWER as error:
                failure = error
            except BotoCoreError as error:
                return error
            else:
                return None
        return failure

    def _command(self, notices: Sequence[Notice]) -> None:
        first = notices[0]
        self.connect().send_command(
            DocumentName=self.document,
            InstanceIds=[notice.instance_id for notice in notices],
            Parameters={
                "RequestId": [first.kind.value],  # the agent adds its instance and attempt
                "Kind": [first.kind.value],
                "NoticedAt": [_text(min(notice.noticed_at for notice in notices))],
                "Deadline": [_text(first.reclaimed_at)],
            },
            TimeoutSeconds=DELIVERY_SECONDS,
            MaxConcurrency=str(IDS_PER_COMMAND),
            MaxErrors=str(IDS_PER_COMMAND),  # the default, 0, stops at the first host that fails
        )


def _groups(notices: Sequence[Notice]) -> list[list[Notice]]:
    """Return the notices that fit into one command, each host once per kind and deadline."""
    groups: defaultdict[tuple[NoticeKind, datetime | None], dict[str, Notice]]
    groups = defaultdict(dict)
    for notice in notices:
        groups[notice.kind, notice.reclaimed_at].setdefault(notice.instance_id, notice)
    return [list(group.values()) for group in groups.values()]


def _reason(failure: Exception) -> str:
    return code_of(failure) if isinstance(failure, ClientError) else type(failure).__name__


def _text(at: datetime | None) -> str:
    return at.isoformat(timespec="milliseconds") if at else ""
