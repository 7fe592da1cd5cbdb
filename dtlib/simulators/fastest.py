"""The textbook algorithm that takes the least time on a described network, by the clock."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import gcd

import numpy as np

from dtlib.arguments import choice, whole_number
from dtlib.network import Network, Tier
from dtlib.simulators.clock import has_places, time_s
from dtlib.simulators.collectives import ALGORITHMS, make
from dtlib.simulators.schedule import Schedule

__all__ = ["fastest"]


def fastest(collective: str, ranks: int, payload_bytes: int, network: Network) -> Schedule:
    """The fastest schedule of a collective for this payload, with the ranks where ``network`` has
    placed them.

    A hierarchical one is tried for each tier with the largest nodes, of consecutive ranks, that lie
    each in one node of the tier. Raises for a placed network with another number of members.

    >>> nodes = Network.of_nodes(
    ...     4, inside_Bps=450e9, across_Bps=50e9, inside_latency_s=1e-6, across_latency_s=5e-6
    ... )
    >>> fastest("all_reduce", 8, 10**9, nodes)
    Schedule('hierarchical', 'all_reduce', ranks=8, chunks=8, 8 steps)
    >>> fastest("all_reduce", 8, 10, nodes).name
    'halving_doubling'
    >>> fastest("all_reduce", 2, 10**9, nodes.placed([0, 4])).name  # one rank a node
    'ring'
    """
    choice("collective", collective, ALGORITHMS)
    ranks = whole_number("ranks", ranks)
    payload_bytes = whole_number("payload_bytes", payload_bytes, at_least=0)
    return _fastest(collective, ranks, payload_bytes, has_places(network, ranks))


@lru_cache
def _fastest(collective: str, ranks: int, payload_bytes: int, network: Network) -> Schedule:
    return min(
        _schedules(collective, ranks, network),
        key=lambda schedule: time_s(schedule, network, payload_bytes),
    )


def _schedules(collective: str, ranks: int, network: Network) -> Iterator[Schedule]:
    for name, algorithm in ALGORITHMS[collective].items():
        if algorithm.node_size is None:
            yield make(collective, name, ranks)
        else:
            place = network.place(np.arange(ranks))
            sizes = {_together(place, tier) for tier in network.tiers if tier.node_size}
            yield from (
                make(collective, name, ranks, node_size=size)
                for size in sorted(sizes)
                if 1 < size < ranks  # one node, or nodes of one rank, make a ring of it
            )


def _together(place: np.ndarray, tier: Tier) -> int:
    """The largest number such that each so many consecutive ranks are in one node of the tier."""
    starts = np.flatnonzero(~tier.joins(place[:-1], place[1:])) + 1  # where the next node begins
    return gcd(len(place), *starts.tolist())
