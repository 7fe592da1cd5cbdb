"""A described network imposed on real ranks.

The sender reserves time on its own port and on the receiver's, and stamps the message with the time
at which the network delivers it; the receiver waits until then. The rules are those of ``clock``: a
port passes bytes one after another, ranks that share it share its bandwidth, and a rank pays the
latency of each of its messages.

A busy machine wakes a rank later than it should. That delay is not the network's, and must not add
up from step to step: so a rank knows how far it is behind, and books its next message for the time
at which it would have sent it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np

from dtlib.network import Network, Tier
from dtlib.simulators.ranks.memory import HEADER_BYTES, Memory

__all__ = ["Throttle", "forget_bookings"]

CLOCKS = 32 << 10  # where in the header of the memory the ports are booked
SPIN_S = 1e-4
GLANCE_S = 0.05


def forget_bookings(memory: Memory) -> None:
    memory.map[CLOCKS:HEADER_BYTES] = bytes(HEADER_BYTES - CLOCKS)


class Throttle:
    """Bookings by [tier, port or rank, out or in, its number], which all ranks share and one at a
    time changes.
    """

    def __init__(self, network: Network, ranks: int, memory: Memory, lock: tuple[int, int]) -> None:
        self.network, self._lock = network, lock
        self.behind_s = 0.0
        self.free_s = memory.view(CLOCKS, (len(network.tiers), 2, 2, ranks), np.float64)

    def reserve(self, source: int, destination: int, size: int) -> float:
        """Book ``size`` bytes on both ports; when the message will have been delivered."""
        number, tier = self._tier(source, destination)
        take, put = self._lock
        os.read(take, 1)
        try:
            due = start = time.perf_counter() - self.behind_s
            for direction, rank in enumerate((source, destination)):
                ports, ranks = self.free_s[number, :, direction]
                port = rank // tier.ranks_per_card
                start = max(start, ports[port], ranks[rank])
                ports[port] = start + size / tier.bandwidth_Bps
                ranks[rank] = ports[port] + tier.latency_s
                due = max(due, float(ranks[rank]))
            return due
        finally:
            os.write(put, b".")

    def deliver(self, due_s: float, since_s: float, check: Callable[[], None]) -> None:
        """Sleep until just before ``due_s``, and spin the rest, on behalf of a rank that has waited
        since ``since_s``.
        """
        while (left_s := due_s - time.perf_counter()) > 0:
            if left_s > SPIN_S:
                time.sleep(min(left_s - SPIN_S, GLANCE_S))
                check()
        self.behind_s = time.perf_counter() - max(due_s, since_s - self.behind_s)

    def _tier(self, source: int, destination: int) -> tuple[int, Tier]:
        ends = np.array([source]), np.array([destination])
        for number, tier in enumerate(self.network.tiers):
            if tier.joins(*ends)[0]:
                return number, tier
        raise ValueError(
            f"no tier joins ranks {source} and {destination}: the outermost node_size is "
            f"{self.network.tiers[-1].node_size}"
        )
