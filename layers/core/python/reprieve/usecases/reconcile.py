"""
The sweep: the table, EC2 and the queues agree again.

Third of three detectors, and the one that needs nobody's word: whatever message was
lost, whichever process died between two calls, the next sweeps find it.

It reads a pool in batches, decides on what it read, and then works through what has to be
done, piece by piece: so a pool where nothing happened costs a handful of calls, whatever
its size, one piece that fails keeps no other from being done, and a sweep that runs out
of time leaves the rest to the next, which begins there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from reprieve.domain.capacity import Pool
from reprieve.domain.clock import NoticeClock
from reprieve.domain.host import Host, HostState, InstanceState, Market
from reprieve.domain.notice import Act, Channel, Notice, NoticeKind, react
from reprieve.ports.cloud import Fleet
from reprieve.ports.hosts import Watch
from reprieve.usecases.adopt_strays import AdoptStrays
from reprieve.usecases.handle_notice import HandleNotice
from reprieve.usecases.sweep_view import Look, Part, Piece, Swept, View


def never() -> bool:
    """Answer *out_of_time* for a sweep that may take as long as it needs."""
    return False


@dataclass(frozen=True, slots=True)
class Reconcile:
    """The use case; *parts* are what it looks after in each pool."""

    pools: Mapping[str, Pool]
    look: Look
    adopt_strays: AdoptStrays
    handle_notice: HandleNotice
    parts: Sequence[Part]
    watch: Watch
    fleet: Fleet
    clock: NoticeClock
    now: Callable[[], datetime]

    def __call__(self, out_of_time: Callable[[], bool] = never) -> Swept:
        """Sweep the instances that no row knows, then every pool; stop when *out_of_time*."""
        swept = Swept()
        with swept.keeping():
            swept.strays = self.adopt_strays()
            swept.retired |= swept.strays.retired
        for pool in self._in_turn():
            with swept.keeping():
                self._sweep(pool, swept, out_of_time)
        return swept

    def _in_turn(self) -> list[Pool]:
        """Return the pools, another one first each time: a full one must not starve others."""
        pools = list(self.pools.values())
        nth = int(self.now().timestamp() / self.clock.sweep.total_seconds())
        first = nth % len(pools) if pools else 0
        return pools[first:] + pools[:first]

    def _sweep(self, pool: Pool, swept: Swept, out_of_time: Callable[[], bool]) -> None:
        view = self.look(pool, swept)
        swept.jobs += len(view.jobs())
        swept.hosts += len(view.known_hosts())
        with swept.keeping():
            self._announce(view, swept)
        pieces: list[Piece] = []
        for part in self.parts:
            with swept.keeping():
                pieces += part(view, swept)
        self._work(view, pieces, swept, out_of_time)

    def _work(
        self, view: View, pieces: list[Piece], swept: Swept, out_of_time: Callable[[], bool]
    ) -> None:
        """Do the pieces, beginning where the last sweep ran out of time."""
        pieces.sort(key=lambda piece: piece.name)
        done = [piece for piece in pieces if piece.name < view.sights.left_off]
        turn = pieces[len(done) :] + done
        for nth, piece in enumerate(turn):
            if out_of_time():
                swept.unfinished += len(turn) - nth
                self.watch.leave_off(view.pool.name, piece.name)
                return
            with swept.keeping():
                piece.do()

    def _announce(self, view: View, swept: Swept) -> None:
        """
        Act on what only the Spot requests say, and on maintenance whose time has come.

        The first is the third detector. It also serves a host whose notice came before its
        row did, and was dropped as a stranger's.
        """
        now = self.now()
        ready = [host for host in view.known_hosts() if host.state is HostState.READY]
        notices = [
            host.notice
            for host in ready
            if host.notice and react(host.notice, now=now, clock=self.clock).act is Act.DRAIN
        ]
        with swept.keeping():
            notices += [self._notice(instance_id, now) for instance_id in self._marked(ready, view)]
        handled = self.handle_notice(notices) if notices else []
        swept.unannounced += [result.notice.instance_id for result in handled]
        swept.failures += [result.failure for result in handled if result.failure]

    def _notice(self, instance_id: str, now: datetime) -> Notice:
        reclaimed = now + self.clock.notice
        return Notice(NoticeKind.INTERRUPTION, instance_id, now, Channel.SWEEP, reclaimed)

    def _marked(self, ready: Sequence[Host], view: View) -> list[str]:
        spot = [
            host.instance_id
            for host in ready
            if host.capacity.market is Market.SPOT
            and view.states.get(host.instance_id) is InstanceState.ALIVE
        ]
        marked = self.fleet.marked(spot) if spot else frozenset()
        # A request says "terminated" too, and the host may have died since the sweep began: then
        # it is a loss, which nobody announced.
        alive = self.fleet.states(marked) if marked else {}
        return sorted(i for i in marked if alive.get(i) is InstanceState.ALIVE)
