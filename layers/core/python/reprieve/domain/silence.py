"""
Silence: what the sweep heard of each host, how often unchanged, and what that proves.

It is counted by the observer. A host's own clock and the moments it writes are never
compared with ours: only whether its beat has moved since the last sweep.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reprieve.domain.clock import NoticeClock

TOGETHER = 2  # so few silent hosts can fall silent by chance


@dataclass(frozen=True, slots=True)
class Sight:
    """How often *beat* was seen in a row, and when it was last counted."""

    beat: str
    count: int
    seen: datetime


@dataclass(frozen=True, slots=True)
class Sights:
    """
    What the sweep remembers of one pool, by subject.

    *left_off* names the piece of work at which a sweep ran out of time; the next one
    begins there.
    """

    by_subject: dict[str, Sight] = field(default_factory=dict)
    left_off: str = ""

    def count(self, subject: str) -> int:
        """Return how often the present beat of *subject* was seen; 0 for one never seen."""
        sight = self.by_subject.get(subject)
        return sight.count if sight else 0

    def seeing(
        self,
        beats: Mapping[str, str],
        *,
        now: datetime,
        min_gap: timedelta,
        max_gap: timedelta,
    ) -> Sights:
        """
        Return what is remembered after seeing *beats*, and nothing of other subjects.

        A count starts anew on another beat, or if the last sight is longer ago than
        *max_gap*: a sweep that didn't run must not make hosts look silent. A sight sooner
        than *min_gap* after the last counted one counts nothing: two sweeps at once must
        not count twice.
        """
        seen: dict[str, Sight] = {}
        for subject, beat in beats.items():
            known = self.by_subject.get(subject)
            if known is None or known.beat != beat or now - known.seen > max_gap:
                seen[subject] = Sight(beat, 1, now)
            elif now - known.seen < min_gap:
                seen[subject] = known
            else:
                seen[subject] = Sight(beat, known.count + 1, now)
        return Sights(seen)


@dataclass(frozen=True, slots=True)
class Silence:
    """
    What the counts prove, by subject.

    *unheard*: a whole lease without a word, which proves nothing yet. *proven*: evidence.
    *doubtful*: silent as long as the proven ones, but together with so many others that
    the fault may be ours.
    """

    unheard: frozenset[str] = frozenset()
    proven: frozenset[str] = frozenset()
    doubtful: frozenset[str] = frozenset()


def judge(counts: Mapping[str, int], *, holding: Collection[str], clock: NoticeClock) -> Silence:
    """
    Return what the silence of the pool's hosts proves; *holding* are those with a job.

    When two or more, and half of those with a job, are silent together, it is more likely
    that we can't be reached than that all of them died. Then silence counts only once a
    live host would have left by itself, and idle hosts are left alone too.
    """
    silent = {subject for subject, count in counts.items() if count > clock.silent_sweeps}
    with_job = silent.intersection(holding)
    doubtful: set[str] = set()
    if len(with_job) >= TOGETHER and 2 * len(with_job) >= len(holding):
        doubtful = {subject for subject in silent if counts[subject] <= clock.certain_sweeps}
    unheard = {subject for subject, count in counts.items() if count > clock.unheard_sweeps}
    return Silence(
        unheard=frozenset(unheard - silent),
        proven=frozenset(silent - doubtful),
        doubtful=frozenset(doubtful),
    )
