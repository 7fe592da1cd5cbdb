"""A described network: tiers of ports, and how long the messages of one step take on it.

The model is alpha-beta with one port per direction: a rank can send and receive at the same time, but the messages
that one port has to send (or to receive) share it. A message costs latency_s + bytes / bandwidth_Bps of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from dtlib.arguments import count, instance, quantity, shown, store

__all__ = ["Network", "Tier"]


@dataclass(frozen=True)
class Tier:
    """One level of a network, such as the links inside a node or those between nodes.

    ``group_size`` consecutive ranks reach each other through it (None: all ranks). ``bandwidth_Bps`` is that of one
    port in each direction, and ``ranks_per_port`` neighbors share a port: 1 where every rank has its own, 8 where a
    node of eight has one network card. ``latency_s`` is paid by every message.
    """

    name: str
    bandwidth_Bps: float
    latency_s: float
    group_size: int | None = None
    ranks_per_port: int = 1

    def __post_init__(self) -> None:
        store(self, name=instance("name", self.name, str),
              bandwidth_Bps=quantity("bandwidth_Bps", self.bandwidth_Bps, unit="B/s", zero=False, array=False),
              latency_s=quantity("latency_s", self.latency_s, unit="s", array=False),
              ranks_per_port=count("ranks_per_port", self.ranks_per_port))
        if self.group_size is not None:
            store(self, group_size=count("group_size", self.group_size))

    def joins(self, source: np.ndarray, destination: np.ndarray) -> np.ndarray:
        """Whether each pair of ranks is in one group of this tier."""
        if self.group_size is None:
            return np.ones(len(source), dtype=bool)
        return source // self.group_size == destination // self.group_size

    def transfer_s(self, rank: np.ndarray, message_bytes: np.ndarray) -> np.ndarray:
        """How long the port of each message moves bytes, given the rank of each message at this end."""
        port = rank // self.ranks_per_port
        return np.bincount(port, message_bytes)[port] / self.bandwidth_Bps

    def busy_s(self, rank: np.ndarray, message_bytes: np.ndarray) -> np.ndarray:
        """The same, with the latencies of the messages that this rank handles one after another."""
        return np.bincount(rank)[rank] * self.latency_s + self.transfer_s(rank, message_bytes)


@dataclass(frozen=True)
class Network:
    """Tiers from the innermost to the outermost; a message takes the first one that contains both of its ends.

    >>> Network((Tier("NVLink", 450e9, 1e-6, group_size=8), Tier("Ethernet", 50e9, 5e-6))).tiers[0].name
    'NVLink'
    """

    tiers: tuple[Tier, ...]

    def __post_init__(self) -> None:
        tiers = tuple(self.tiers) if isinstance(self.tiers, Iterable) else ()
        if not tiers or not all(isinstance(tier, Tier) for tier in tiers):
            raise TypeError("tiers must be one Tier or more in a tuple, from the innermost to the outermost, got "
                            f"{shown(self.tiers)}")
        store(self, tiers=tiers)
        sizes = [float("inf") if tier.group_size is None else tier.group_size for tier in tiers]
        if any(outer <= inner or outer % inner and outer != float("inf")
               for inner, outer in zip(sizes, sizes[1:], strict=False)):
            raise ValueError(f"group_size must grow by whole factors from tier to tier, got "
                             f"{[tier.group_size for tier in tiers]}")

    @classmethod
    def flat(cls, bandwidth_Bps: float, latency_s: float) -> Network:
        """Every rank reaches every other one through its own port, at the same cost."""
        return cls((Tier("flat", bandwidth_Bps, latency_s),))

    def tier_of(self, source: np.ndarray, destination: np.ndarray) -> np.ndarray:
        """Which of ``tiers`` carries a message between each pair of ranks, by its position."""
        joined = np.array([tier.joins(source, destination) for tier in self.tiers])
        if not joined.any(axis=0).all():
            lost = np.flatnonzero(~joined.any(axis=0))[0]
            raise ValueError(f"no tier joins ranks {source[lost]} and {destination[lost]}: the outermost group_size "
                             f"is {self.tiers[-1].group_size}")
        return joined.argmax(axis=0)

    def durations_s(self, source: np.ndarray, destination: np.ndarray, message_bytes: np.ndarray) -> np.ndarray:
        """How long each of some simultaneous messages takes: until the busier one of its two ports is done."""
        return self._slower_end(Tier.busy_s, source, destination, message_bytes)

    def transfers_s(self, source: np.ndarray, destination: np.ndarray, message_bytes: np.ndarray) -> np.ndarray:
        """The part of ``durations_s`` that is bytes."""
        return self._slower_end(Tier.transfer_s, source, destination, message_bytes)

    def latencies_s(self, source: np.ndarray, destination: np.ndarray) -> np.ndarray:
        """The latency of one message between each pair of ranks."""
        return np.array([tier.latency_s for tier in self.tiers])[self.tier_of(source, destination)]

    def _slower_end(self, seconds: Callable[[Tier, np.ndarray, np.ndarray], np.ndarray], source: np.ndarray,
                    destination: np.ndarray, message_bytes: np.ndarray) -> np.ndarray:
        result, carrier = np.zeros(len(source)), self.tier_of(source, destination)
        for number in np.unique(carrier):
            tier, carried = self.tiers[number], np.flatnonzero(carrier == number)
            result[carried] = np.maximum(*(seconds(tier, end[carried], message_bytes[carried])
                                           for end in (source, destination)))
        return result
