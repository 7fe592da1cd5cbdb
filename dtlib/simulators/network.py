"""A described network: tiers of ports, and how long the messages of one step take on it.

The model is alpha-beta with one port per direction: a rank can send and receive at the same time, but the messages
that one port has to send (or to receive) share it. A message costs latency_s + bytes / bandwidth_Bps of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dtlib.arguments import count, quantity

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
        quantity("bandwidth_Bps", self.bandwidth_Bps, unit="B/s", zero=False, array=False)
        quantity("latency_s", self.latency_s, unit="s", array=False)
        count("ranks_per_port", self.ranks_per_port)
        if self.group_size is not None:
            count("group_size", self.group_size)

    def joins(self, source: np.ndarray, destination: np.ndarray) -> np.ndarray:
        """Whether each pair of ranks is in one group of this tier."""
        if self.group_size is None:
            return np.ones(len(source), dtype=bool)
        return source // self.group_size == destination // self.group_size

    def busy_s(self, rank: np.ndarray, message_bytes: np.ndarray) -> np.ndarray:
        """How long the port of each message is busy, given the rank of each message at this end."""
        messages = np.bincount(rank)[rank]
        port = rank // self.ranks_per_port
        return messages * self.latency_s + np.bincount(port, message_bytes)[port] / self.bandwidth_Bps


@dataclass(frozen=True)
class Network:
    """Tiers from the innermost to the outermost; a message takes the first one that contains both of its ends.

    >>> Network((Tier("NVLink", 450e9, 1e-6, group_size=8), Tier("Ethernet", 50e9, 5e-6))).tiers[0].name
    'NVLink'
    """

    tiers: tuple[Tier, ...]

    def __post_init__(self) -> None:
        tiers = tuple(self.tiers)
        object.__setattr__(self, "tiers", tiers)
        if not tiers or not all(isinstance(tier, Tier) for tier in tiers):
            raise TypeError(f"tiers must be one Tier or more, from the innermost to the outermost, got {tiers!r}")
        sizes = [float("inf") if tier.group_size is None else tier.group_size for tier in tiers]
        if any(outer <= inner or outer % inner and outer != float("inf")
               for inner, outer in zip(sizes, sizes[1:], strict=False)):
            raise ValueError(f"group_size must grow by whole factors from tier to tier, got "
                             f"{[tier.group_size for tier in tiers]}")

    @classmethod
    def flat(cls, bandwidth_Bps: float, latency_s: float) -> Network:
        """Every rank reaches every other one through its own port, at the same cost."""
        return cls((Tier("flat", bandwidth_Bps, latency_s),))

    def durations_s(self, source: np.ndarray, destination: np.ndarray, message_bytes: np.ndarray) -> np.ndarray:
        """How long each of some simultaneous messages takes: until the busier one of its two ports is done."""
        duration = np.zeros(len(source))
        waiting = np.ones(len(source), dtype=bool)
        for tier in self.tiers:
            carried = np.flatnonzero(waiting & tier.joins(source, destination))
            waiting[carried] = False
            if len(carried):
                duration[carried] = np.maximum(tier.busy_s(source[carried], message_bytes[carried]),
                                               tier.busy_s(destination[carried], message_bytes[carried]))
        if waiting.any():
            lost = np.flatnonzero(waiting)[0]
            raise ValueError(f"no tier joins ranks {source[lost]} and {destination[lost]}: the outermost group_size "
                             f"is {self.tiers[-1].group_size}")
        return duration
