"""The textbook algorithm that takes the least time on a described network, by the clock."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from dtlib.arguments import choice, instance, whole_number
from dtlib.network import Network
from dtlib.simulators.clock import time_s
from dtlib.simulators.collectives import ALGORITHMS, make
from dtlib.simulators.schedule import Schedule

__all__ = ["fastest"]


def fastest(collective: str, ranks: int, payload_bytes: int, network: Network) -> Schedule:
    """The fastest schedule of a collective for this payload; a hierarchical one in groups of each
    tier that fits.

    >>> from dtlib.network import Tier
    >>> two_tiers = Network((Tier("inside", 450e9, 1e-6, node_size=4), Tier("across", 50e9, 5e-6)))
    >>> fastest("all_reduce", 8, 10**9, two_tiers)
    Schedule('hierarchical', 'all_reduce', ranks=8, chunks=8, 8 steps)
    >>> fastest("all_reduce", 8, 10, two_tiers).name
    'halving_doubling'
    """
    choice("collective", collective, ALGORITHMS)
    ranks, payload_bytes = (
        whole_number("ranks", ranks),
        whole_number("payload_bytes", payload_bytes, at_least=0),
    )
    instance("network", network, Network, such_as="Network.flat(50e9, 5e-6)")
    return _fastest(collective, ranks, payload_bytes, network)


@lru_cache
def _fastest(collective: str, ranks: int, payload_bytes: int, network: Network) -> Schedule:
    return min(
        _schedules(collective, ranks, network),
        key=lambda schedule: time_s(schedule, network, payload_bytes),
    )


def _schedules(collective: str, ranks: int, network: Network) -> Iterator[Schedule]:
    for name, algorithm in ALGORITHMS[collective].items():
        if algorithm.group is None:
            yield make(collective, name, ranks)
        else:
            groups = {tier.node_size for tier in network.tiers if tier.node_size}
            yield from (
                make(collective, name, ranks, group=group)
                for group in sorted(groups)
                if ranks % group == 0
            )
