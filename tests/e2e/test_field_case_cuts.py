"""Cases whose rule is cut out of the deployed code: what can't fail proves nothing."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from reprieve_cli.drill.engine import Patience
from tests.e2e.cutting import AGENT, deployed_with
from tests.e2e.theatre import Theatre, story

pytestmark = [pytest.mark.e2e, pytest.mark.deep, pytest.mark.timeout(300)]

SHORT = Patience(step=15, end=3, rest=0)
TO_THE_END = Patience(step=15, end=20, rest=0)  # where the job ends well, and something is amiss

ERRORS_FIRST = """
from dataclasses import replace
from reprieve.adapters import ec2_fleet

read = ec2_fleet.read_answer

def errors_first(answer, plan):
    found = read(answer, plan)
    return replace(found, instances=()) if found.errors else found

ec2_fleet.read_answer = errors_first
"""

TOKEN_OF_THE_JOB = """
from reprieve.domain.order import Plan

Plan.client_token = property(lambda plan: f"{plan.job}#{plan.attempt}")
"""

ADVICE_IS_A_VERDICT = """
from dataclasses import replace
from reprieve.domain.notice import NoticeKind
from reprieve.usecases.handle_notice import HandleNotice

handle = HandleNotice.__call__

def verdict(self, notices, **more):
    taken = [
        replace(n, kind=NoticeKind.INTERRUPTION, reclaimed_at=n.noticed_at + self.clock.notice)
        if n.kind is NoticeKind.REBALANCE else n
        for n in notices
    ]
    return handle(self, taken, **more)

HandleNotice.__call__ = verdict
"""

COMMANDS_ALONE = """
from reprieve_agent.metadata import MetadataWatcher

MetadataWatcher.start = lambda self: None
"""

NOBODY_ASKS = """
from reprieve_agent import contract

contract.write_request = lambda *_given, **_named: None
"""

TOKEN_FOR_LIFE = """
from reprieve_agent.metadata import UNAUTHORISED, MetadataClient, MetadataError

ask, refused = MetadataClient._authorised, set()

def once(self, path):
    if self in refused:
        raise MetadataError(f"{path}: status {UNAUTHORISED}")
    status, body = ask(self, path)
    if status == UNAUTHORISED:
        refused.add(self)
    return status, body

MetadataClient._authorised = once
"""

# A digest that equals whatever it is compared with.
DIGESTS_BELIEVED = """
from dataclasses import replace
from reprieve.domain.checkpoint import Manifest

class Believed(str):
    __hash__ = str.__hash__
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False

read = Manifest.from_json.__func__

def believing(cls, *given, **named):
    manifest = read(cls, *given, **named)
    files = tuple(replace(file, sha256=Believed(file.sha256)) for file in manifest.files)
    return replace(manifest, files=files)

Manifest.from_json = classmethod(believing)
"""

OLD_ONES_MAKE_ROOM = """
from reprieve.adapters.s3_checkpoints import S3Checkpoints

put = S3Checkpoints.put_file

def rotating(self, key, *given, **named):
    _, job, _, attempt, _ = key.split("/", 4)
    for old in self.manifests(job, int(attempt)):
        self._client.delete_object(Bucket=self._bucket, Key=old)
    return put(self, key, *given, **named)

S3Checkpoints.put_file = rotating
"""

IN_THE_ORDER_OF_THE_TEXT = """
from reprieve.adapters import s3_checkpoints

def last_word(key):
    return key.rpartition("-")[2].lstrip("0")

s3_checkpoints.own_manifests = lambda keys, _attempt: sorted(keys, key=last_word, reverse=True)
"""

# As a unit's default KillMode has it.
EVERYBODY_IS_STOPPED = """
from reprieve_agent import actions as do
from reprieve_agent import notices

stop = notices.stop

def at_once(rules, state, now):
    tenure = state.tenure
    state, decided = stop(rules, state, now)
    return state, (*decided, do.Kill(tenure.key, tenure.process)) if tenure else decided

notices.stop = at_once
"""


@dataclass(frozen=True)
class Cut:
    story: str
    broken: frozenset[str]
    """Findings that must not hold, without the words *job …:*."""
    patches: dict[str, str]
    patience: Patience = TO_THE_END


CUTS = {
    "OP-04, advice is a verdict": Cut(
        "op_04_advice_that_nothing_follows",
        frozenset({"instances launched"}),
        patches={
            "handle_notice": ADVICE_IS_A_VERDICT,
            "record_report": ADVICE_IS_A_VERDICT,
        },
    ),
    "OP-09, errors count first": Cut(
        "op_09_errors_and_an_instance",
        frozenset({"different ClientToken in calls ec2 CreateFleet"}),
        patches={"replace_host": ERRORS_FIRST},
        patience=SHORT,
    ),
    "OP-10, the token is the job's": Cut(
        "op_10_same_token_other_parameters",
        frozenset({"status"}),
        patches={"replace_host": TOKEN_OF_THE_JOB},
        patience=SHORT,
    ),
    "OP-13, the command is the only word": Cut(
        "op_13_command_never_arrives",
        frozenset({"attempt 2 restored_step"}),
        patches={AGENT: COMMANDS_ALONE},
    ),
    "OP-15, nobody asks the trainer": Cut(
        "op_15_wrapper_swallows_the_signal",
        frozenset({"attempt 2 restored_step", "steps_lost"}),
        patches={AGENT: NOBODY_ASKS},
    ),
    "OP-16, SIGTERM comes first": Cut(
        "op_16_killed_too_early_or_never",
        frozenset({"attempt 2 restored_step", "steps_lost"}),
        patches={AGENT: NOBODY_ASKS},
    ),
    "OP-17, everybody is stopped with the agent": Cut(
        "op_17_systemd_kills_the_children_first",
        frozenset({"attempt 2 restored_step", "steps_lost"}),
        patches={AGENT: EVERYBODY_IS_STOPPED},
    ),
    "OP-18, one token for life": Cut(
        "op_18_metadata_answers_401",
        frozenset({"attempt 2 restored_step"}),
        patches={AGENT: TOKEN_FOR_LIFE},
    ),
    "OP-19, digests are believed": Cut(
        "op_19_newest_checkpoint_is_not_whole",
        frozenset({"attempt 2 restored_step"}),
        patches={AGENT: DIGESTS_BELIEVED},
    ),
    "OP-20, the old ones make room first": Cut(
        "op_20_old_one_stays_until_the_new_exists",
        frozenset({"status"}),
        patches={AGENT: OLD_ONES_MAKE_ROOM},
        patience=SHORT,
    ),
    "OP-21, names in the order of their text": Cut(
        "op_21_900_is_not_newer_than_1000",
        frozenset({"attempt 2 restored_step", "event tmp.json set aside"}),
        patches={AGENT: IN_THE_ORDER_OF_THE_TEXT},
    ),
}


@pytest.mark.parametrize("name", CUTS)
def test_the_case_fails_without_its_rule(theatre: Theatre, name: str) -> None:
    cut = CUTS[name]
    with deployed_with(theatre, cut.patches):
        outcome = theatre.play(story(cut.story), patience=cut.patience)
    broken = {f.what.partition(": ")[2] or f.what for f in outcome.findings if not f.holds}
    assert broken >= cut.broken, theatre.explain(outcome)
