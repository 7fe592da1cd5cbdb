"""What an all-reduce costs on two tiers: fast links inside a node, slower ones across nodes.

K ranks make N = K / w nodes of w, the node size. A flat ring visits the ranks in order, so that one
rank of each node sends to the next node; its pace is that of its slowest hop. A hierarchical
all-reduce is a reduce-scatter inside each node, an all-reduce across the nodes between the ranks of
equal place, and an all-gather inside. The clock of ``dtlib.simulators`` walks both schedules and
arrives at the same times.

``payload_bytes`` and ``ranks`` may be arrays. A network has exactly two tiers, such as
``Network.of_nodes(8, ...)``, every rank its own card inside, and no ``members``: the formulas are
for ranks that fill the nodes in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dtlib.arguments import (
    broadcasting,
    choice,
    instance,
    plain,
    real_number,
    shown,
    whole_number,
)
from dtlib.formulas.collectives import Cost, Numbers
from dtlib.network import Network, Tier

__all__ = [
    "TierBytes",
    "TwoTierCost",
    "flat_ring_cost",
    "hierarchical_cost",
    "node_exit_Bps",
    "sent_by_tier",
]


@dataclass(frozen=True)
class TwoTierCost:
    """The time of a hierarchical all-reduce ``inside`` the nodes and ``across``."""

    inside: Cost
    across: Cost

    @property
    def total_s(self) -> Numbers:
        """One phase after the other: inside + across."""
        return self.inside.total_s + self.across.total_s

    @property
    def overlapped_s(self) -> Numbers:
        """The best that pipelining can do, one piece inside while another is across: the bytes of
        the slower phase.

        Every byte still goes through all phases, so the latencies add up: alpha_inside +
        alpha_across + max(bytes).
        """
        return plain(
            self.inside.latency_s
            + self.across.latency_s
            + np.maximum(self.inside.transfer_s, self.across.transfer_s)
        )


@dataclass(frozen=True)
class TierBytes:
    """What the busiest rank sends ``inside`` its node and ``across``, and what its whole node sends
    across.
    """

    inside: Numbers
    across: Numbers
    node_across: Numbers


@broadcasting
def flat_ring_cost(payload_bytes: Numbers, ranks: Any, network: Network) -> Cost:
    """A ring through all ranks: 2 (K - 1) steps at the pace of the slowest hop, alpha + S / (K B)
    of its tier.

    One rank of a node sends across, so it has the node's card to itself. Raises for a number of
    ranks that does not fill nodes.

    >>> nodes = Network.of_nodes(
    ...     8, inside_Bps=450e9, across_Bps=50e9, inside_latency_s=0, across_latency_s=0
    ... )
    >>> round(flat_ring_cost(8e9, 16, nodes).total_s, 9)
    0.3
    """
    inside, across = _two_tiers(network)
    payload_bytes, ranks, nodes = _sizes(payload_bytes, ranks, inside.node_size)
    steps, chunk = 2 * (ranks - 1), payload_bytes / ranks
    inside_s = inside.latency_s + chunk / inside.bandwidth_Bps
    across_s = across.latency_s + chunk / across.bandwidth_Bps
    leaves = (nodes > 1) & ((inside.node_size == 1) | (across_s >= inside_s))
    return Cost(
        plain(steps * np.where(leaves, across.latency_s, inside.latency_s)),
        plain(steps * np.where(leaves, chunk / across.bandwidth_Bps, chunk / inside.bandwidth_Bps)),
    )


@broadcasting
def hierarchical_cost(payload_bytes: Numbers, ranks: Any, network: Network) -> TwoTierCost:
    """2 (w - 1) steps inside on chunks of S / w, then 2 (N - 1) across on chunks of S / K by all w
    ranks at once.

    Inside: 2 (w - 1) alpha + 2 (w - 1)/w S / B. Across: 2 (N - 1) alpha + 2 (N - 1)/N S / (w B),
    times the ranks that share a card. Raises for a number of ranks that does not fill nodes.

    >>> nodes = Network.of_nodes(
    ...     8, inside_Bps=450e9, across_Bps=50e9, inside_latency_s=0, across_latency_s=0
    ... )
    >>> cost = hierarchical_cost(8e9, 16, nodes)
    >>> round(cost.inside.total_s, 6), round(cost.across.total_s, 6)
    (0.031111, 0.02)
    """
    inside, across = _two_tiers(network)
    payload_bytes, ranks, nodes = _sizes(payload_bytes, ranks, inside.node_size)
    sent = _hierarchical_bytes(payload_bytes, nodes, inside.node_size)
    rate_Bps = across.bandwidth_Bps / across.ranks_per_card
    return TwoTierCost(
        Cost(2 * (inside.node_size - 1) * inside.latency_s, sent.inside / inside.bandwidth_Bps),
        Cost(2 * (nodes - 1) * across.latency_s, sent.across / rate_Bps),
    )


@broadcasting
def sent_by_tier(algorithm: str, payload_bytes: Numbers, ranks: Any, node_size: Any) -> TierBytes:
    """The bytes of a ``"ring"`` or a ``"hierarchical"`` all-reduce on each tier.

    Ring: 2 (K - 1)/K S, inside by all ranks of a node but one, across by that one. Hierarchical: 2
    (w - 1)/w S inside and 2 (N - 1)/N S/w across, by every rank. Raises for ranks that do not fill
    nodes.

    >>> sent_by_tier("hierarchical", 8e9, 16, node_size=8)
    TierBytes(inside=14000000000.0, across=1000000000.0, node_across=8000000000.0)
    >>> sent_by_tier("ring", 8e9, 16, node_size=8).node_across
    15000000000.0
    """
    choice("algorithm", algorithm, ("ring", "hierarchical"))
    node_size = whole_number("node_size", node_size, array=True)
    payload_bytes, ranks, nodes = _sizes(payload_bytes, ranks, node_size)
    if algorithm == "hierarchical":
        return _hierarchical_bytes(payload_bytes, nodes, node_size)
    sent = 2 * (ranks - 1) / ranks * payload_bytes
    return TierBytes(sent * (node_size > 1), sent * (nodes > 1), sent * (nodes > 1))


def node_exit_Bps(network: Network) -> float:
    """What leaves a node each way when all its cards work at once: w / ranks_per_card x B.

    >>> node_exit_Bps(Network.named("H100-SXM", inside_latency_s=0, across_latency_s=0))
    400000000000.0
    """
    inside, across = _two_tiers(network)
    return inside.node_size / across.ranks_per_card * across.bandwidth_Bps


def _hierarchical_bytes(payload_bytes: Numbers, nodes: Any, node_size: Any) -> TierBytes:
    across = 2 * (nodes - 1) / nodes * payload_bytes / node_size
    return TierBytes(2 * (node_size - 1) / node_size * payload_bytes, across, across * node_size)


def _two_tiers(network: Network) -> tuple[Tier, Tier]:
    """The tiers inside and across; refuses what the formulas do not price."""
    instance("network", network, Network, such_as="Network.of_nodes(8, ...)")
    if len(network.tiers) != 2 or network.across.node_size is not None:
        raise ValueError(
            "network must have two tiers, inside a node and across all nodes, such as "
            f"Network.of_nodes(8, ...), got {network}"
        )
    if network.members is not None:
        raise ValueError(
            "network must not be placed, since the formulas are for ranks that fill nodes in "
            f"order (the clock takes any), got members={shown(network.members)}"
        )
    inside, across = network.tiers
    if inside.ranks_per_card > 1:
        raise ValueError(
            "network must have a card for each rank inside a node, got "
            f"ranks_per_card={inside.ranks_per_card}"
        )
    if inside.node_size % across.ranks_per_card:
        raise ValueError(
            f"network must have whole cards in a node: node_size={inside.node_size} is not "
            f"divisible by ranks_per_card={across.ranks_per_card}"
        )
    return inside, across


def _sizes(payload_bytes: Numbers, ranks: Any, node_size: Any) -> tuple[Numbers, Any, Any]:
    """The payload and the ranks, checked, and the number of nodes."""
    payload_bytes = real_number("payload_bytes", payload_bytes, unit="B")
    ranks = whole_number("ranks", ranks, array=True)
    if np.any(ranks % node_size):
        raise ValueError(f"ranks={shown(ranks)} is not divisible by node_size={shown(node_size)}")
    return payload_bytes, ranks, ranks // node_size
