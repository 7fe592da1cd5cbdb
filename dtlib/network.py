"""A network, described once: tiers from the innermost to the outermost, and who stands where.

What it costs to use it is asked elsewhere, of closed forms, of the clock, and of real ranks that
are slowed down to it. They share one model, alpha-beta with a card per direction: a rank sends and
receives at the same time, the messages that leave (or reach) one card share its bandwidth, and each
message costs ``latency_s + bytes / bandwidth_Bps``.

    >>> h100 = Network.named("H100-SXM", inside_latency_s=1e-6, across_latency_s=5e-6)
    >>> h100.inside.bandwidth_Bps, h100.inside.node_size, h100.across.bandwidth_Bps
    (450000000000.0, 8, 50000000000.0)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from dtlib.arguments import instance, real_number, shown, store, whole_number
from dtlib.facts.registry import accelerator

__all__ = ["Network", "Tier"]


@dataclass(frozen=True)
class Tier:
    """One level of a network, such as the links inside a node or those across nodes.

    ``node_size`` consecutive ranks reach each other through it (None: all ranks do).
    ``bandwidth_Bps`` is that of one card in each direction, and ``ranks_per_card`` neighbors share
    a card: 1 where every rank has its own, 8 where a node of eight has a single one. ``latency_s``
    is paid by every message.
    """

    name: str
    bandwidth_Bps: float
    latency_s: float
    node_size: int | None = None
    ranks_per_card: int = 1

    def __post_init__(self) -> None:
        rate = real_number("bandwidth_Bps", self.bandwidth_Bps, unit="B/s", zero=False, array=False)
        store(
            self,
            name=instance("name", self.name, str),
            bandwidth_Bps=rate,
            latency_s=real_number("latency_s", self.latency_s, unit="s", array=False),
            ranks_per_card=whole_number("ranks_per_card", self.ranks_per_card),
        )
        if self.node_size is not None:
            store(self, node_size=whole_number("node_size", self.node_size))

    def joins(self, source: np.ndarray, destination: np.ndarray) -> np.ndarray:
        """Whether each pair of places is in one node of this tier."""
        if self.node_size is None:
            return np.ones(np.shape(source), dtype=bool)
        return source // self.node_size == destination // self.node_size

    def transfer_s(self, place: np.ndarray, message_bytes: np.ndarray) -> np.ndarray:
        """How long the card at each message's end moves bytes; its messages share it."""
        card = place // self.ranks_per_card
        return np.bincount(card, message_bytes)[card] / self.bandwidth_Bps

    def busy_s(self, place: np.ndarray, message_bytes: np.ndarray) -> np.ndarray:
        """The same, and the latencies of the messages that one rank handles in turn."""
        return np.bincount(place)[place] * self.latency_s + self.transfer_s(place, message_bytes)


@dataclass(frozen=True)
class Network:
    """Tiers from the innermost to the outermost; a message takes the first that joins its ends.

    Rank r stands at place ``members[r]``, or at place r where there are no ``members``: so a group
    of some of the ranks of a run is on the same network, with ranks of its own (``placed``).

    >>> nodes = Network((Tier("inside", 450e9, 1e-6, node_size=8), Tier("across", 50e9, 5e-6)))
    >>> nodes.tier_of(np.array([0, 7]), np.array([7, 8])).tolist()
    [0, 1]
    """

    tiers: tuple[Tier, ...]
    members: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        tiers = tuple(self.tiers) if isinstance(self.tiers, Iterable) else ()
        if not tiers or not all(isinstance(tier, Tier) for tier in tiers):
            raise TypeError(
                "tiers must be one Tier or more in a tuple, from the innermost to the outermost, "
                f"got {shown(self.tiers)}"
            )
        sizes = [float("inf") if tier.node_size is None else tier.node_size for tier in tiers]
        if any(
            outer <= inner or outer % inner and outer != float("inf")
            for inner, outer in pairwise(sizes)
        ):
            raise ValueError(
                "node_size must grow by whole factors from tier to tier, got "
                f"{[tier.node_size for tier in tiers]}"
            )
        store(self, tiers=tiers)
        if self.members is not None:
            places = [whole_number("members", place, at_least=0) for place in self.members]
            if len(set(places)) < len(places):
                raise ValueError(f"members must be different places, got {shown(places)}")
            store(self, members=tuple(places))

    @classmethod
    def flat(cls, bandwidth_Bps: float, latency_s: float) -> Network:
        """Every rank reaches every other through its own card, at the same cost."""
        return cls((Tier("flat", bandwidth_Bps, latency_s),))

    @classmethod
    def of_nodes(
        cls,
        node_size: int,
        *,
        inside_Bps: float,
        across_Bps: float,
        inside_latency_s: float,
        across_latency_s: float,
        ranks_per_card: int = 1,
    ) -> Network:
        """Two tiers: links inside nodes of ``node_size`` ranks, and cards that reach across."""
        inside = Tier("inside", inside_Bps, inside_latency_s, node_size=node_size)
        across = Tier("across", across_Bps, across_latency_s, ranks_per_card=ranks_per_card)
        return cls((inside, across))

    @classmethod
    def named(
        cls,
        name: str,
        *,
        inside_latency_s: float,
        across_latency_s: float,
        node_size: int | None = None,
        ranks_per_card: int = 1,
    ) -> Network:
        """The two tiers of an accelerator of the registry, at nominal rates, with these latencies.

        ``node_size`` is the accelerator's scale-up domain unless said otherwise.
        """
        chip = accelerator(name)
        return cls.of_nodes(
            chip.scaleup_domain if node_size is None else node_size,
            inside_Bps=chip.scaleup_Bps,
            across_Bps=chip.nic_Bps,
            inside_latency_s=inside_latency_s,
            across_latency_s=across_latency_s,
            ranks_per_card=ranks_per_card,
        )

    @property
    def inside(self) -> Tier:
        """The innermost tier of several."""
        if len(self.tiers) == 1:
            raise ValueError(f"network must have an inside and an across, got one tier: {self}")
        return self.tiers[0]

    @property
    def across(self) -> Tier:
        """The outermost tier of several."""
        if len(self.tiers) == 1:
            raise ValueError(f"network must have an inside and an across, got one tier: {self}")
        return self.tiers[-1]

    def placed(self, members: Sequence[int]) -> Network:
        """The same network for a group of ranks: its rank r is rank ``members[r]`` of this one.

        >>> nodes = Network((Tier("inside", 450e9, 1e-6, node_size=2), Tier("across", 50e9, 5e-6)))
        >>> nodes.placed([0, 2, 3]).tier_of(np.array([0, 1]), np.array([1, 2])).tolist()
        [1, 0]
        """
        if self.members is not None:
            members = [self.members[member] for member in members]
        return replace(self, members=tuple(members))

    def place(self, rank: np.ndarray) -> np.ndarray:
        """Where each rank stands."""
        return rank if self.members is None else np.array(self.members)[rank]

    def tier_of(self, source: np.ndarray, destination: np.ndarray) -> np.ndarray:
        """Which of ``tiers`` carries a message between each pair of ranks, by its position."""
        ends = self.place(source), self.place(destination)
        joined = np.array([tier.joins(*ends) for tier in self.tiers])
        if not joined.any(axis=0).all():
            lost = np.flatnonzero(~joined.any(axis=0))[0]
            raise ValueError(
                f"no tier joins ranks {source[lost]} and {destination[lost]}: the outermost "
                f"node_size is {self.tiers[-1].node_size}"
            )
        return joined.argmax(axis=0)

    def durations_s(
        self, source: np.ndarray, destination: np.ndarray, message_bytes: np.ndarray
    ) -> np.ndarray:
        """How long each of some simultaneous messages takes: until its busier end is done."""
        return self._slower_end(Tier.busy_s, source, destination, message_bytes)

    def transfers_s(
        self, source: np.ndarray, destination: np.ndarray, message_bytes: np.ndarray
    ) -> np.ndarray:
        """The part of ``durations_s`` that is bytes."""
        return self._slower_end(Tier.transfer_s, source, destination, message_bytes)

    def latencies_s(self, source: np.ndarray, destination: np.ndarray) -> np.ndarray:
        """The latency of one message between each pair of ranks."""
        return np.array([tier.latency_s for tier in self.tiers])[self.tier_of(source, destination)]

    def _slower_end(
        self,
        seconds: Callable[[Tier, np.ndarray, np.ndarray], np.ndarray],
        source: np.ndarray,
        destination: np.ndarray,
        message_bytes: np.ndarray,
    ) -> np.ndarray:
        result, carrier = np.zeros(len(source)), self.tier_of(source, destination)
        ends = self.place(source), self.place(destination)
        for number in np.unique(carrier):
            tier, carried = self.tiers[number], np.flatnonzero(carrier == number)
            result[carried] = np.maximum(
                *(seconds(tier, end[carried], message_bytes[carried]) for end in ends)
            )
        return result
