"""What collectives cost in closed form, in the alpha-beta model.

A message costs alpha + bytes / B: the latency, and the time its bytes take through a port. A port
has one direction and handles one message at a time; each rank has one to send and one to receive,
and both work at once. The time of an algorithm then needs two numbers only: how many messages
follow one another on the longest path, and how many payloads' worth of bytes. ``FORMULAS`` has both
for each algorithm of ``dtlib.simulators.collectives``, whose clock arrives at the same times by
walking through the steps.

The network is flat: one tier, the same between all ranks. Two tiers are in ``hierarchy``.

The payload S is one rank's full buffer, as nccl-tests counts it: the gathered result of an
all_gather, the input of a reduce_scatter, everything one rank has to send (and keep) in an
all_to_all. Chunks are S / n exactly; a real payload that does not divide has chunks up to a byte
longer. ``payload_bytes``, ``ranks``, ``time_s`` may be arrays.

Sources: Thakur, Rabenseifner and Gropp, *Optimization of Collective Communication Operations in
MPICH* (2005); bandwidths: ``doc/PERFORMANCE.md`` of NVIDIA's nccl-tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dtlib.arguments import (
    LARGEST_COUNT,
    broadcasting,
    choice,
    instance,
    plain,
    real_number,
    shown,
    whole_number,
)
from dtlib.network import Network, Tier

__all__ = [
    "BUS_FACTORS",
    "FORMULAS",
    "Cost",
    "Formula",
    "algorithm_bandwidth_Bps",
    "best_pieces",
    "bus_bandwidth_Bps",
    "bytes_sent",
    "cost",
    "default_node_size",
    "messages",
]

Numbers = Any  # a float or an array of floats


@dataclass(frozen=True)
class Cost:
    """A time in its two parts: ``latency_s`` rules small payloads, ``transfer_s`` large ones."""

    latency_s: Numbers
    transfer_s: Numbers

    @property
    def total_s(self) -> Numbers:
        return self.latency_s + self.transfer_s


class Formula(NamedTuple):
    """An algorithm on n ranks, in units of the payload S.

    ``messages`` follow one another on the longest path and carry ``payloads``; both take (n), or
    (n, m) for a pipeline in m pieces. ``sent`` (n) is what the busiest rank sends in all. Only a
    pipeline has ``best_m2`` (n), the square of its best m over S / (alpha B).
    """

    messages: Callable[..., Numbers]
    payloads: Callable[..., Numbers]
    sent: Callable[[Numbers], Numbers]
    best_m2: Callable[[Numbers], Numbers] | None = None


def height(n: Numbers) -> Numbers:
    """ceil(log2 n), exactly; an int64, since frexp's own int32 would overflow in a product."""
    return np.frexp(n - 1)[1].astype(np.int64)


def power(n: Numbers) -> Numbers:
    """The largest power of two up to n."""
    return np.ldexp(1.0, np.frexp(n)[1] - 1)


def folded(n: Numbers) -> Numbers:
    """1 where n is not a power of two, else 0."""
    return np.not_equal(n, power(n)) * 1


def default_node_size(n: Numbers) -> Numbers:
    """The node size w of a hierarchical all-reduce that is given none: the largest divisor of n up
    to its square root.

    On a flat network this takes the fewest messages, 2 (w - 1) + 2 (n / w - 1). For up to 10**10
    ranks.

    >>> default_node_size(48), default_node_size(17)
    (6, 1)
    """
    n = whole_number("ranks", n, at_most=10**10, array=True)

    def largest(n: int) -> int:
        sizes = np.arange(1, math.isqrt(n) + 1)
        return int(sizes[n % sizes == 0][-1])

    return np.vectorize(largest, otypes=[np.int64])(n) if np.ndim(n) else largest(n)


def hierarchical_messages(n: Numbers) -> Numbers:
    """Around the ranks of a node and around the nodes, twice each."""
    node_size = default_node_size(n)
    return 2 * (node_size - 1) + 2 * (n // node_size - 1)


def double_tree_messages(n: Numbers, m: Numbers) -> Numbers:
    """Reducing and broadcasting, each m + height - 1 steps of two messages, but the one next to the
    root of one.

    With three ranks both trees share an edge, and its two messages are one; with two there is
    nothing to double. In one piece and with 2^k + 1 ranks, the deepest leaf is alone and saves a
    message each way.
    """
    alone = (m == 1) & (height(n) > height(n - 1))
    return np.select(
        [n == 1, n == 2, n == 3], [0, 2 * m, 2 * m + 2], 2 * (2 * m + 2 * height(n) - 3 - alone)
    )


def double_tree_payloads(n: Numbers, m: Numbers) -> Numbers:
    """Every message is half of the payload in m pieces."""
    return np.where(n == 3, 2.0, double_tree_messages(n, m) / (2 * m))


def chain_messages(n: Numbers, m: Numbers) -> Numbers:
    """n - 1 hops, and m - 1 pieces behind the first."""
    return np.where(n > 1, m + n - 2, 0)


FORMULAS: dict[str, dict[str, Formula]] = {
    "all_reduce": {
        "ring": Formula(
            lambda n: 2 * (n - 1), lambda n: 2 * (n - 1) / n, sent=lambda n: 2 * (n - 1) / n
        ),
        "naive": Formula(lambda n: 2 * (n - 1), lambda n: 2 * (n - 1), sent=lambda n: n - 1),
        "tree": Formula(lambda n: 2 * height(n), lambda n: 2 * height(n), sent=height),
        "double_tree": Formula(
            double_tree_messages,
            double_tree_payloads,
            sent=lambda n: np.select([n == 1, n == 2, n == 3], [0, 1, 1.5], 2),
            best_m2=lambda n: np.where(n > 3, (2 * height(n) - 3) / 4, 0),
        ),
        "halving_doubling": Formula(
            lambda n: 2 * height(power(n)) + 2 * folded(n),
            lambda n: 2 * (power(n) - 1) / power(n) + 2 * folded(n),
            sent=lambda n: 2 * (power(n) - 1) / power(n) + folded(n),
        ),
        "hierarchical": Formula(
            hierarchical_messages, lambda n: 2 * (n - 1) / n, sent=lambda n: 2 * (n - 1) / n
        ),
    },
    "reduce_scatter": {
        "ring": Formula(lambda n: n - 1, lambda n: (n - 1) / n, sent=lambda n: (n - 1) / n)
    },
    "all_gather": {
        "ring": Formula(lambda n: n - 1, lambda n: (n - 1) / n, sent=lambda n: (n - 1) / n)
    },
    "broadcast": {
        "tree": Formula(height, height, sent=height),
        "chain": Formula(
            chain_messages,
            lambda n, m: chain_messages(n, m) / m,
            sent=lambda n: np.minimum(n - 1, 1),
            best_m2=lambda n: np.maximum(n - 2, 0),
        ),
    },
    "all_to_all": {
        "rotation": Formula(lambda n: n - 1, lambda n: (n - 1) / n, sent=lambda n: (n - 1) / n)
    },
}

BUS_FACTORS: dict[str, Callable[[Numbers], Numbers]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
}


@broadcasting
def cost(
    collective: str,
    algorithm: str,
    payload_bytes: Numbers,
    ranks: Numbers,
    network: Network,
    pieces: Numbers | None = None,
) -> Cost:
    """Time of ``algorithm``: messages x alpha + payloads x S / B, the two parts apart.

    alpha and B are those of ``network``, which must be flat. A pipeline is cut into ``pieces``, or
    the best number.

    >>> flat = Network.flat(bandwidth_Bps=50e9, latency_s=5e-6)
    >>> ring = cost("all_reduce", "ring", 1e9, 8, flat)
    >>> round(ring.latency_s, 9), round(ring.transfer_s, 9)
    (7e-05, 0.035)
    """
    formula, link = _formula(collective, algorithm), _link(network)
    payload_bytes = real_number("payload_bytes", payload_bytes, unit="B")
    if formula.best_m2 and pieces is None:
        ranks = whole_number("ranks", ranks, array=True)
        pieces = _best_pieces(formula, payload_bytes, ranks, link)
    return _cost(formula, payload_bytes, _size(formula, ranks, pieces), link)


@broadcasting
def messages(
    collective: str, algorithm: str, ranks: Numbers, pieces: Numbers | None = None
) -> Numbers:
    """How many messages follow one another on the longest path; in a ring these are its steps, 2(n
    - 1).

    >>> messages("all_reduce", "ring", 16_384), messages("all_reduce", "tree", 16_384)
    (32766, 28)
    """
    formula = _formula(collective, algorithm)
    return plain(formula.messages(*_size(formula, ranks, pieces)))


@broadcasting
def bytes_sent(collective: str, algorithm: str, payload_bytes: Numbers, ranks: Numbers) -> Numbers:
    """The bytes that the busiest rank sends. In a ring all ranks send (and receive) 2(n - 1)/n S.

    >>> bytes_sent("all_reduce", "ring", 1e9, 8)
    1750000000.0
    """
    sent = _formula(collective, algorithm).sent(whole_number("ranks", ranks, array=True))
    return plain(sent * real_number("payload_bytes", payload_bytes, unit="B"))


@broadcasting
def best_pieces(
    collective: str, algorithm: str, payload_bytes: Numbers, ranks: Numbers, network: Network
) -> Numbers:
    """The number of pieces that makes a pipeline fastest on a flat ``network``: the better neighbor
    of m* where the derivative is zero.

    A double tree takes 2(2m + c)(alpha + S/2mB) with c = 2 ceil(log2 n) - 3, so m* = sqrt(c S / 4
    alpha B); a chain takes (m + n - 2)(alpha + S/mB), so m* = sqrt((n - 2) S / alpha B). No piece
    is smaller than a byte, and there are at most 2**53.

    >>> flat = Network.flat(bandwidth_Bps=50e9, latency_s=5e-6)
    >>> best_pieces("all_reduce", "double_tree", 1e9, 64, flat)
    95
    """
    formula, link = _formula(collective, algorithm), _link(network)
    if formula.best_m2 is None:
        raise ValueError(f"algorithm must be pipelined to have pieces, got {shown(algorithm)}")
    ranks = whole_number("ranks", ranks, array=True)
    payload_bytes = real_number("payload_bytes", payload_bytes, unit="B")
    return _best_pieces(formula, payload_bytes, ranks, link)


@broadcasting
def algorithm_bandwidth_Bps(payload_bytes: Numbers, time_s: Numbers) -> Numbers:
    """S / t: what the caller sees.

    >>> algorithm_bandwidth_Bps(1e9, 0.010)
    100000000000.0
    """
    return real_number("payload_bytes", payload_bytes, unit="B") / real_number(
        "time_s", time_s, unit="s", zero=False
    )


@broadcasting
def bus_bandwidth_Bps(
    collective: str, payload_bytes: Numbers, time_s: Numbers, ranks: Numbers
) -> Numbers:
    """S / t times what a port has to move per byte of payload: comparable with its rate, for any
    number of ranks.

    The factor is 2(n - 1)/n for all_reduce, 1 for broadcast, (n - 1)/n for the others. A network
    that sums on the way moves less than that, and its bus bandwidth can then exceed the rate of the
    wire.

    >>> bus_bandwidth_Bps("all_reduce", 1e9, 0.010, 8)
    175000000000.0
    """
    factor = BUS_FACTORS[choice("collective", collective, BUS_FACTORS)]
    ranks = whole_number("ranks", ranks, array=True)
    return plain(algorithm_bandwidth_Bps(payload_bytes, time_s) * factor(ranks))


def _formula(collective: str, algorithm: str) -> Formula:
    formulas = FORMULAS[choice("collective", collective, FORMULAS)]
    return formulas[choice("algorithm", algorithm, formulas)]


def _link(network: Network) -> Tier:
    """The one tier of a flat network; the formulas know of no other, and of no shared cards."""
    such_as = "Network.flat(bandwidth_Bps=50e9, latency_s=5e-6)"
    tiers = instance("network", network, Network, such_as=such_as).tiers
    if len(tiers) > 1 or tiers[0].node_size is not None or tiers[0].ranks_per_card > 1:
        raise ValueError(
            "network must be flat: one tier that joins all ranks, each with a card of its own, "
            f"such as {such_as}, got {network}"
        )
    return tiers[0]


def _cost(formula: Formula, payload_bytes: Numbers, size: tuple[Numbers, ...], link: Tier) -> Cost:
    return Cost(
        plain(formula.messages(*size) * link.latency_s),
        plain(formula.payloads(*size) * payload_bytes / link.bandwidth_Bps),
    )


def _best_pieces(formula: Formula, payload_bytes: Numbers, ranks: Numbers, link: Tier) -> Numbers:
    most = np.clip(payload_bytes // 1, 1, LARGEST_COUNT)
    square = formula.best_m2(ranks) * payload_bytes / link.bandwidth_Bps
    # without latency, pieces cost nothing
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        fewer = np.clip(np.sqrt(np.nan_to_num(square / np.float64(link.latency_s))), 1, most) // 1
    more = np.minimum(fewer + 1, most)
    fewer, more = fewer.astype(np.int64), more.astype(np.int64)
    fewer_s, more_s = (
        _cost(formula, payload_bytes, (ranks, pieces), link).total_s for pieces in (fewer, more)
    )
    best = np.where(more_s < fewer_s, more, fewer)
    return best if best.ndim else int(best)


def _size(formula: Formula, ranks: Numbers, pieces: Numbers | None) -> tuple[Numbers, ...]:
    """The arguments of a formula: (n), or (n, m) for a pipeline."""
    ranks = whole_number("ranks", ranks, array=True)
    if formula.best_m2:
        return ranks, whole_number("pieces", pieces, array=True)
    if pieces is not None:
        raise ValueError(
            f"pieces must be left out, the algorithm is not pipelined, got {shown(pieces)}"
        )
    return (ranks,)
