"""
A second opinion: claim, seal, settle and the end of an attempt, in every interleaving.

Nothing here calls the product. One job; some hosts that may freeze, thaw, die, be replaced and
reboot at any moment; tickets that stay on the queue for ever, so that each may be delivered
again; functions that read now and commit later, several at once. ``explore`` visits every state
within the bounds and checks what must hold in each, and that from each one the job can still
end well. ``python -m tests.simulation.core`` prints the counts.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum, auto
from typing import NamedTuple

LIVE, SUCCEEDED, CANCELLED = "live", "succeeded", "cancelled"
FREE, HELD, DONE, CLOSED = "free", "held", "done", "closed"


class Phase(IntEnum):
    """How far a host is with an attempt."""

    GONE = auto()
    IDLE = auto()
    CLAIMED = auto()
    CHOSEN = auto()
    SEALED = auto()
    RUNNING = auto()
    COMMITTING = auto()  # it has looked at its lease and will write, whatever happens
    FINISHED = auto()


class Without(StrEnum):
    """A rule that is left out."""

    NOTHING = "nothing"
    CLAIM_FREE_ONLY = "claims only of free leases"
    SEAL = "the seal"
    CARRIED_SEAL = "the seal carried on to the next attempt"
    START_CHECK = "the check before the start"
    OUTCOME = "the outcome in the lease"
    STRONG_READ = "settle's strong read of the lease"
    CLOSED_BY_CANCEL = "the lease closed by a cancel"
    CONDITIONS = "the conditions of settle's commit"


class Lease(NamedTuple):
    """The row of one attempt."""

    state: str = FREE
    holder: tuple[int, int, int] | None = None  # host, its life, its boot
    beat: int = 0
    sealed: int = 0
    base: int = 0  # the attempt whose checkpoint it is; 0: from nothing
    finished: bool = False


class Host(NamedTuple):
    """
    One host; *fresh*: its lease was surely its own a moment ago.

    *life* counts the instances that took this place, *boot* what booted on this one.
    """

    phase: Phase = Phase.IDLE
    attempt: int = 0
    base: int = 0
    fresh: bool = False
    frozen: bool = False
    life: int = 0
    boot: int = 0

    @property
    def idle(self) -> Host:
        """The same host with nothing on it."""
        return Host(life=self.life, boot=self.boot)


class Snapshot(NamedTuple):
    """What a function read, and what it was told of the holder."""

    attempt: int
    claimed: bool
    lease: Lease
    gone: bool


class State(NamedTuple):
    """Everything."""

    status: str
    attempt: int
    claimed: bool  # the job's row says so
    leases: tuple[Lease, ...]
    hosts: tuple[Host, ...]
    commits: frozenset[int]  # attempts with a checkpoint in the bucket
    told: frozenset[int]  # those that committed while they held their lease
    tickets: frozenset[int]
    readers: tuple[Snapshot | None, ...]
    bases: tuple[int | None, ...]  # from what each attempt started
    faults: int
    done: bool = False  # some attempt finished, and was let release
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may happen; *freezes_only* leaves out deaths, reboots and people."""

    hosts: int = 2
    attempts: int = 3
    faults: int = 2
    readers: int = 1
    freezes_only: bool = False


@dataclass(frozen=True, slots=True)
class Explored:
    """What was found; *trail* leads to the first broken state."""

    states: int
    steps: int
    wrong: str = ""
    trail: tuple[str, ...] = ()


Step = tuple[str, State, bool]  # its name, where it leads, whether it is a fault


@dataclass(frozen=True, slots=True)
class Core:
    """The rules, within *bounds*, less one."""

    bounds: Bounds = Bounds()
    without: Without = Without.NOTHING

    def first(self) -> State:
        """Return the state after a submit: the first attempt is armed, its ticket sent."""
        return State(
            status=LIVE,
            attempt=1,
            claimed=False,
            leases=(Lease(),),
            hosts=(Host(),) * self.bounds.hosts,
            commits=frozenset(),
            told=frozenset(),
            tickets=frozenset({1}),
            readers=(None,) * self.bounds.readers,
            bases=(None,),
            faults=self.bounds.faults,
        )

    def steps(self, state: State) -> Iterator[Step]:
        """Yield everything that can happen next."""
        for n, host in enumerate(state.hosts):
            yield from self._host(state, n, host)
        for n, read in enumerate(state.readers):
            yield from self._function(state, n, read)
        if state.status == LIVE and state.faults and not self.bounds.freezes_only:
            yield "a person cancels", self._cancel(state), True

    # Hosts ------------------------------------------------------------------------------------

    def _host(self, state: State, n: int, host: Host) -> Iterator[Step]:
        name = f"host {n}"
        if host.phase == Phase.GONE:
            yield f"{name} is replaced", _put(state, n, Host(life=host.life + 1)), False
            return
        if host.frozen:
            yield f"{name} thaws", _put(state, n, host._replace(frozen=False)), False
        else:
            yield from self._moves(state, n, host, name)
        if state.faults:
            less = state._replace(faults=state.faults - 1)
            if not host.frozen and host.phase != Phase.IDLE:
                frozen = host._replace(frozen=True, fresh=False)
                yield f"{name} freezes", _put(less, n, frozen), True
            if self.bounds.freezes_only:
                return
            dead = host.idle._replace(phase=Phase.GONE)
            yield f"{name} dies", _put(less, n, dead), True
            booted = host.idle._replace(boot=host.boot + 1)
            yield f"{name} reboots", _put(less, n, booted), True

    def _moves(self, state: State, n: int, host: Host, name: str) -> Iterator[Step]:
        match host.phase:
            case Phase.IDLE:
                yield from self._claim(state, n, host, name)
            case Phase.CLAIMED:
                for base in self._choices(state, host):
                    chosen = host._replace(phase=Phase.CHOSEN, base=base)
                    yield f"{name} chooses {base}", _put(state, n, chosen), False
            case Phase.CHOSEN:
                yield f"{name} seals", self._seal(state, n, host), False
            case Phase.SEALED if host.fresh or self.without is Without.START_CHECK:
                yield f"{name} starts", _start(state, n, host), False
            case Phase.SEALED:
                yield f"{name} renews", self._renew(state, n, host), False
            case Phase.FINISHED:
                yield f"{name} releases", self._release(state, n, host), False
            case _:
                yield from self._works(state, n, host, name)

    def _works(self, state: State, n: int, host: Host, name: str) -> Iterator[Step]:
        held = self._mine(state, n, host)
        if host.phase is Phase.COMMITTING:  # no condition can stand on this write
            wrote = state._replace(
                commits=state.commits | {host.attempt},
                told=state.told | ({host.attempt} if held else set()),
            )
            running = host._replace(phase=Phase.RUNNING)
            yield f"{name} commits", _put(wrote, n, running), False
            return
        if not host.fresh or not held:
            yield f"{name} renews", self._renew(state, n, host), False
        if host.fresh and host.attempt not in state.commits:
            writing = host._replace(phase=Phase.COMMITTING)
            yield f"{name} is about to commit", _put(state, n, writing), False
        done = host._replace(phase=Phase.FINISHED)
        yield f"{name} has done the work", _put(state, n, done), False

    def _claim(self, state: State, n: int, host: Host, name: str) -> Iterator[Step]:
        held = False
        for attempt, lease in enumerate(state.leases, 1):
            mine = lease.holder is not None and lease.holder[:2] == (n, host.life)
            if lease.state == HELD and mine:  # of another boot, or not run here: given back
                held = True
                given = lease._replace(state=DONE, beat=lease.beat + 1)
                yield f"{name} gives {attempt} back", _row(state, attempt, given), False
        for attempt in state.tickets:
            lease = state.leases[attempt - 1]
            over = self.without is Without.CLAIM_FREE_ONLY and lease.state == DONE
            if held or not (lease.state == FREE or over):
                continue
            me = (n, host.life, host.boot)
            taken = lease._replace(state=HELD, holder=me, beat=lease.beat + 1)
            won = host.idle._replace(phase=Phase.CLAIMED, attempt=attempt)
            yield f"{name} claims {attempt}", _put(_row(state, attempt, taken), n, won), False

    def _choices(self, state: State, host: Host) -> list[int]:
        """Return the checkpoints that the lineage allows; without a seal, whatever is there."""
        lease = state.leases[host.attempt - 1]
        if self.without is Without.SEAL:
            return sorted(c for c in state.commits if c < host.attempt) or [0]
        if lease.sealed == host.attempt:
            return [lease.base]
        return [lease.sealed if lease.sealed in state.commits else lease.base]

    def _seal(self, state: State, n: int, host: Host) -> State:
        if not self._mine(state, n, host):
            return _put(state, n, host.idle)
        lease = state.leases[host.attempt - 1]
        row = lease._replace(beat=lease.beat + 1)
        if self.without is not Without.SEAL:
            row = row._replace(sealed=host.attempt, base=host.base)
        sealed = host._replace(phase=Phase.SEALED, fresh=True)
        return _put(_row(state, host.attempt, row), n, sealed)

    def _renew(self, state: State, n: int, host: Host) -> State:
        if not self._mine(state, n, host):
            return _put(state, n, host.idle)
        lease = state.leases[host.attempt - 1]
        row = lease._replace(beat=lease.beat + 1)
        renewed = _put(_row(state, host.attempt, row), n, host._replace(fresh=True))
        if state.status != LIVE:
            return renewed._replace(wrong="a host renews for a job that is over")
        return renewed

    def _release(self, state: State, n: int, host: Host) -> State:
        if not self._mine(state, n, host):
            return _put(state, n, host.idle)
        lease = state.leases[host.attempt - 1]
        row = lease._replace(state=DONE, beat=lease.beat + 1, finished=True)
        if self.without is Without.OUTCOME:
            row = row._replace(finished=False)
        released = _row(state, host.attempt, row)._replace(done=True)
        return _put(released, n, host.idle)

    def _mine(self, state: State, n: int, host: Host) -> bool:
        lease = state.leases[host.attempt - 1]
        return lease.state == HELD and lease.holder == (n, host.life, host.boot)

    # Functions --------------------------------------------------------------------------------

    def _function(self, state: State, n: int, read: Snapshot | None) -> Iterator[Step]:
        if read is None:
            if state.status == LIVE:
                lease = state.leases[state.attempt - 1]
                seen = Snapshot(state.attempt, state.claimed, lease, self._evidence(state, lease))
                if self._means(state, seen):
                    yield f"function {n} reads", _reader(state, n, seen), False
            return
        yield f"function {n} commits", self._commit(_reader(state, n, None), read), False

    def _evidence(self, state: State, lease: Lease) -> bool:
        """Whether EC2 says that the holder is gone, or six sweeps saw it silent."""
        if lease.state != HELD or lease.holder is None:
            return False
        n, life, _ = lease.holder
        host = state.hosts[n]
        return host.phase == Phase.GONE or host.frozen or host.life > life

    def _means(self, state: State, seen: Snapshot) -> bool:
        """Whether anything follows from what was read."""
        lease = seen.lease
        if self.without is Without.STRONG_READ and not seen.claimed and lease.state == HELD:
            return False  # the row says that it waits, and its ticket is out
        if lease.state == FREE:
            return seen.attempt not in state.tickets
        if lease.state == HELD:
            return seen.gone or (not seen.claimed and self.without is not Without.STRONG_READ)
        return lease.state == DONE

    def _commit(self, state: State, seen: Snapshot) -> State:
        lease = state.leases[seen.attempt - 1]
        unchanged = (state.status, state.attempt, lease) == (LIVE, seen.attempt, seen.lease)
        if not unchanged and self.without is not Without.CONDITIONS:
            return state
        if state.status != LIVE:
            return state
        match seen.lease.state:
            case "free":
                return state._replace(tickets=state.tickets | {seen.attempt})
            case "held" if not seen.gone:
                return state._replace(claimed=True)
            case "done" if seen.lease.finished:
                return _row(state, seen.attempt, lease._replace(state=CLOSED))._replace(
                    status=SUCCEEDED
                )
            case _:
                return self._end(state, seen)

    def _end(self, state: State, seen: Snapshot) -> State:
        """Close the attempt and arm the next; its ticket follows, or is lost and sent anew."""
        old = state.leases[seen.attempt - 1]
        closed = _row(state, seen.attempt, old._replace(state=CLOSED, beat=old.beat + 1))
        if state.done:
            closed = closed._replace(wrong="an attempt that finished was ended and run again")
        carried = self.without is not Without.CARRIED_SEAL
        armed = Lease(sealed=old.sealed if carried else 0, base=old.base if carried else 0)
        return closed._replace(
            attempt=len(state.leases) + 1,
            claimed=False,
            leases=(*closed.leases, armed),
            bases=(*state.bases, None),
        )

    def _cancel(self, state: State) -> State:
        over = state._replace(status=CANCELLED, faults=state.faults - 1)
        if self.without is Without.CLOSED_BY_CANCEL:
            return over
        lease = state.leases[state.attempt - 1]
        return _row(over, state.attempt, lease._replace(state=CLOSED, beat=lease.beat + 1))

    # What must hold ---------------------------------------------------------------------------

    def wrong(self, state: State) -> str:
        """Return what is broken in *state*."""
        if state.wrong:
            return state.wrong
        if sum(lease.state == HELD for lease in state.leases) > 1:
            return "two leases of one job are held"
        return ""

    def good(self, state: State) -> bool:
        """Whether the job is over, and nothing of it runs or is held."""
        running = any(host.phase not in {Phase.IDLE, Phase.GONE} for host in state.hosts)
        held = any(lease.state == HELD for lease in state.leases)
        return state.status != LIVE and not running and not held

    def beyond(self, state: State) -> bool:
        """Whether *state* lies outside the bounds, where nothing is looked at any more."""
        return len(state.leases) > self.bounds.attempts


def _put(state: State, n: int, host: Host) -> State:
    return state._replace(hosts=(*state.hosts[:n], host, *state.hosts[n + 1 :]))


def _row(state: State, attempt: int, lease: Lease) -> State:
    leases = (*state.leases[: attempt - 1], lease, *state.leases[attempt:])
    return state._replace(leases=leases)


def _reader(state: State, n: int, read: Snapshot | None) -> State:
    return state._replace(readers=(*state.readers[:n], read, *state.readers[n + 1 :]))


def _start(state: State, n: int, host: Host) -> State:
    """Start the job, and see whether that may be."""
    bases = list(state.bases)
    bases[host.attempt - 1] = host.base
    started = _put(state._replace(bases=tuple(bases)), n, host._replace(phase=Phase.RUNNING))
    if state.done:
        return started._replace(wrong="a finished job ran again")
    if state.status == CANCELLED and not host.fresh:  # for one renewal at most it may
        return started._replace(wrong="a cancelled job started")
    before = [a for a in range(1, host.attempt) if state.bases[a - 1] is not None]
    last = before[-1] if before else 0
    lineage: set[int] = {last}
    ancestor = state.bases[last - 1] if last else 0
    while ancestor:
        lineage.add(ancestor)
        ancestor = state.bases[ancestor - 1]
    if last and not state.told & lineage:
        lineage.add(0)
    if host.base not in lineage:
        return started._replace(wrong=f"resumed from {host.base}, outside the lineage of {last}")
    durable = max((a for a in lineage if a in state.told), default=0)
    if host.base < durable:
        return started._replace(wrong=f"resumed from {host.base}, though {durable} was committed")
    return started


def explore(core: Core) -> Explored:
    """Visit every state within the bounds; stop at the first that is broken."""
    first = core.first()
    before: dict[State, tuple[State, str] | None] = {first: None}
    back: dict[State, list[State]] = {}
    good: list[State] = []
    queue, steps = deque([first]), 0
    while queue:
        state = queue.popleft()
        if core.good(state) or core.beyond(state):
            good.append(state)  # what lies beyond the bounds is given the benefit of the doubt
        if core.beyond(state):
            continue
        for name, then, fault in core.steps(state):
            steps += 1
            if then not in before:
                before[then] = (state, name)
                queue.append(then)
                wrong = core.wrong(then)
                if wrong:
                    return Explored(len(before), steps, wrong, _trail(before, then))
            if not fault:
                back.setdefault(then, []).append(state)
    lost = _hopeless(before, back, good)
    if lost:
        return Explored(len(before), steps, "a job that can't end any more", _trail(before, lost))
    return Explored(len(before), steps)


def _hopeless(
    states: dict[State, tuple[State, str] | None], back: dict[State, list[State]], good: list[State]
) -> State | None:
    """Return a state from which, without one more fault, the job can't end well."""
    fine, queue = set(good), deque(good)
    while queue:
        for earlier in back.get(queue.popleft(), ()):
            if earlier not in fine:
                fine.add(earlier)
                queue.append(earlier)
    return next((state for state in states if state not in fine), None)


def _trail(before: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    names: list[str] = []
    step = before[state]
    while step:
        state, name = step
        names.append(name)
        step = before[state]
    return tuple(reversed(names))


def main() -> int:
    """Explore with every rule, and without each."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.core")
    for name, value in (("hosts", 2), ("attempts", 3), ("faults", 2), ("readers", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--all-rules-only", action="store_true")
    options = parser.parse_args()
    bounds = Bounds(options.hosts, options.attempts, options.faults, options.readers)
    status = 0
    for without in list(Without)[: 1 if options.all_rules_only else None]:
        began = time.process_time()
        found = explore(Core(bounds, without))
        spent = time.process_time() - began
        sys.stdout.write(
            f"without {without}: {found.states} states, {found.steps} steps, {spent:.1f} s"
            f" {found.wrong}\n" + "".join(f"    {step}\n" for step in found.trail)
        )
        status |= bool(found.wrong) != (without is not Without.NOTHING)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
