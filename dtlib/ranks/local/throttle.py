"""A described network imposed on real ranks.

The sender books time on its own card and on the receiver's, and stamps the message with the time at
which the network delivers it; the receiver waits until then. The rules are those of the simulators'
``clock``: a card passes bytes one message after another, ranks that share it share its bandwidth,
and a rank pays the latency of each of its messages.

A busy machine wakes a rank later than it should. That delay is not the network's, and must not add
up from step to step: so a rank knows how far it is behind, and books its next message for the time
at which it would have sent it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import numpy as np

from dtlib.network import Network

__all__ = ["MachineClock", "Throttle", "file_lock"]

SPIN_S = 1e-4  # a sleep ends about so much late: the last bit is spent looking at the clock
LOOK_S = 0.05  # how often a rank that waits for the network asks whether the run has failed


class MachineClock:
    """The time of this machine, the same in all of its processes."""

    def now(self) -> float:
        return time.perf_counter()

    def sleep_until(self, time_s: float) -> None:
        """Sleep until just before, and spin the rest."""
        while (left_s := time_s - time.perf_counter()) > 0:
            if left_s > SPIN_S:
                time.sleep(left_s - SPIN_S)


@contextlib.contextmanager
def file_lock(descriptor: int) -> Iterator[None]:
    """Hold a file to oneself; the system lets go of it for a process that dies."""
    import fcntl  # not on Windows, which may import this

    fcntl.lockf(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN)


class Throttle:
    """One rank's view of the network.

    ``free_s`` are bookings, which all ranks share: until when by [tier, card or rank, out or in,
    its number]. ``lock()`` is a context in which no other rank changes them.
    """

    def __init__(
        self,
        network: Network,
        free_s: np.ndarray,
        lock: Callable[[], contextlib.AbstractContextManager[None]],
        clock: MachineClock | None = None,
    ) -> None:
        self.network, self._free_s, self._lock = network, free_s, lock
        self._clock = clock or MachineClock()
        self.behind_s = 0.0

    def book(self, source: int, destination: int, size: int) -> float:
        """Book ``size`` bytes from rank to rank; when the message will have been delivered."""
        ends = np.array([source]), np.array([destination])
        number = int(self.network.tier_of(*ends)[0])
        tier, places = self.network.tiers[number], [int(self.network.place(end)[0]) for end in ends]
        with self._lock():
            cards, ranks = self._free_s[number]
            due_s = now_s = self._clock.now() - self.behind_s
            for way, rank in enumerate((source, destination)):  # out of the one, into the other
                card = places[way] // tier.ranks_per_card
                start_s = max(now_s, cards[way, card], ranks[way, rank])
                cards[way, card] = start_s + size / tier.bandwidth_Bps
                ranks[way, rank] = cards[way, card] + tier.latency_s
                due_s = max(due_s, float(ranks[way, rank]))
        return due_s

    def deliver(self, due_s: float, waiting_since_s: float, check: Callable[[], None]) -> None:
        """Wait until ``due_s``, on behalf of a rank that has waited for it since another time."""
        while (now_s := self._clock.now()) < due_s:
            self._clock.sleep_until(min(due_s, now_s + LOOK_S))
            check()
        self.behind_s = self._clock.now() - max(due_s, waiting_since_s - self.behind_s)
