"""What an all-reduce costs on two tiers: fast links inside a node, slower ones between nodes.

K ranks make N = K / w nodes of w. A flat ring visits the ranks in order, so that one rank of each
node sends to the next node; its pace is that of its slowest hop. A hierarchical all-reduce is a
reduce-scatter inside each node, an all-reduce between the ranks of equal place in their nodes, and
an all-gather inside. The clock of ``dtlib.simulators`` walks both schedules and arrives at the same
times.
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
    store,
    whole_number,
)
from dtlib.formulas.collectives import Cost, Numbers

__all__ = [
    "TierBytes",
    "TwoTierCost",
    "TwoTiers",
    "flat_ring_cost",
    "hierarchical_cost",
    "node_exit_Bps",
    "sent_by_tier",
]


@dataclass(frozen=True)
class TwoTiers:
    """The links inside a node and those between nodes; bandwidths are those of one port, each way.

    ``ranks_per_card`` ranks share a port to the outside: 1 where each has a network card of its
    own, the width of the node where it has a single one.
    """

    inner_Bps: float
    inner_latency_s: float
    outer_Bps: float
    outer_latency_s: float
    ranks_per_card: int = 1

    def __post_init__(self) -> None:
        for name in ("inner_Bps", "outer_Bps"):
            store(
                self,
                **{
                    name: real_number(
                        name, getattr(self, name), unit="B/s", zero=False, array=False
                    )
                },
            )
        for name in ("inner_latency_s", "outer_latency_s"):
            store(self, **{name: real_number(name, getattr(self, name), unit="s", array=False)})
        store(self, ranks_per_card=whole_number("ranks_per_card", self.ranks_per_card))


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

        Every byte still goes through all phases, so the latencies add up: alpha_in + alpha_out +
        max(bytes).
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
def flat_ring_cost(payload_bytes: Numbers, ranks: Any, group: Any, tiers: TwoTiers) -> Cost:
    """A ring through all ranks: 2 (K - 1) steps at the pace of the slowest hop, alpha + S / (K B)
    of its tier.

    One rank of a node sends across, so it has the node's port to itself. ``group`` is the width w
    of a node.

    >>> tiers = TwoTiers(inner_Bps=450e9, inner_latency_s=0, outer_Bps=50e9, outer_latency_s=0)
    >>> round(flat_ring_cost(8e9, 16, 8, tiers).total_s, 9)
    0.3
    """
    instance("tiers", tiers, TwoTiers)
    payload_bytes, ranks, group, nodes = _sizes(payload_bytes, ranks, group)
    steps, chunk = 2 * (ranks - 1), payload_bytes / ranks
    inner = tiers.inner_latency_s + chunk / tiers.inner_Bps
    outer = tiers.outer_latency_s + chunk / tiers.outer_Bps
    leaves = (nodes > 1) & ((group == 1) | (outer >= inner))
    return Cost(
        plain(steps * np.where(leaves, tiers.outer_latency_s, tiers.inner_latency_s)),
        plain(steps * np.where(leaves, chunk / tiers.outer_Bps, chunk / tiers.inner_Bps)),
    )


@broadcasting
def hierarchical_cost(
    payload_bytes: Numbers, ranks: Any, group: Any, tiers: TwoTiers
) -> TwoTierCost:
    """2 (w - 1) steps inside on chunks of S / w, then 2 (N - 1) across on chunks of S / K by all w
    ranks at once.

    Inside: 2 (w - 1) alpha + 2 (w - 1)/w S / B. Across: 2 (N - 1) alpha + 2 (N - 1)/N S / (w B),
    times the ranks that share a port.

    >>> tiers = TwoTiers(inner_Bps=450e9, inner_latency_s=0, outer_Bps=50e9, outer_latency_s=0)
    >>> cost = hierarchical_cost(8e9, 16, 8, tiers)
    >>> round(cost.inside.total_s, 6), round(cost.across.total_s, 6)
    (0.031111, 0.02)
    """
    payload_bytes, ranks, group, nodes = _sizes(payload_bytes, ranks, group)
    sent = sent_by_tier("hierarchical", payload_bytes, ranks, group)
    sharing = _sharing(group, tiers)
    return TwoTierCost(
        Cost(2 * (group - 1) * tiers.inner_latency_s, sent.inside / tiers.inner_Bps),
        Cost(2 * (nodes - 1) * tiers.outer_latency_s, sent.across * sharing / tiers.outer_Bps),
    )


@broadcasting
def sent_by_tier(algorithm: str, payload_bytes: Numbers, ranks: Any, group: Any) -> TierBytes:
    """The bytes of a ``"ring"`` or a ``"hierarchical"`` all-reduce on each tier.

    Ring: 2 (K - 1)/K S, inside by all ranks of a node but one, across by that one. Hierarchical: 2
    (w - 1)/w S inside and 2 (N - 1)/N S/w across, by every rank.

    >>> sent_by_tier("hierarchical", 8e9, 16, 8)
    TierBytes(inside=14000000000.0, across=1000000000.0, node_across=8000000000.0)
    >>> sent_by_tier("ring", 8e9, 16, 8).node_across
    15000000000.0
    """
    choice("algorithm", algorithm, ("ring", "hierarchical"))
    payload_bytes, ranks, group, nodes = _sizes(payload_bytes, ranks, group)
    if algorithm == "ring":
        sent = 2 * (ranks - 1) / ranks * payload_bytes
        return TierBytes(sent * (group > 1), sent * (nodes > 1), sent * (nodes > 1))
    across = 2 * (nodes - 1) / nodes * payload_bytes / group
    return TierBytes(2 * (group - 1) / group * payload_bytes, across, across * group)


def node_exit_Bps(group: Any, tiers: TwoTiers) -> Numbers:
    """What leaves a node each way when all its ports work at once: w / ranks_per_card x B.

    >>> node_exit_Bps(8, TwoTiers(450e9, 0, 50e9, 0))
    400000000000.0
    """
    group = whole_number("group", group, array=True)
    return group / _sharing(group, tiers) * tiers.outer_Bps


def _sharing(group: Any, tiers: TwoTiers) -> Any:
    """How many ranks of a node share a port."""
    return plain(np.minimum(instance("tiers", tiers, TwoTiers).ranks_per_card, group))


def _sizes(payload_bytes: Numbers, ranks: Any, group: Any) -> tuple[Numbers, Any, Any, Any]:
    """The arguments, checked, and the number of nodes."""
    payload_bytes = real_number("payload_bytes", payload_bytes, unit="B")
    ranks, group = (
        whole_number("ranks", ranks, array=True),
        whole_number("group", group, array=True),
    )
    if np.any(ranks % group):
        raise ValueError(f"ranks={shown(ranks)} is not divisible by group={shown(group)}")
    return payload_bytes, ranks, group, ranks // group
