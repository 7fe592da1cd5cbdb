"""The textbook collectives as schedules. Each algorithm is a generator of steps, and one line of
``ALGORITHMS``.

Costs are in ``dtlib.formulas.collectives``. Sources: Thakur, Rabenseifner and Gropp, *Optimization
of Collective Communication Operations in MPICH* (2005), for all but the double tree: Sanders, Speck
and Träff, *Two-tree algorithms for full bandwidth broadcast, reduction and scan* (2009), in the
shape that NCCL 2.4 gave it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from dtlib.arguments import choice, divisible, shown, whole_number
from dtlib.formulas.collectives import default_node_size
from dtlib.simulators.schedule import CONTRACTS, MOST_TRANSFERS, Schedule, Transfer

__all__ = ["ALGORITHMS", "Algorithm", "make"]

Steps = Iterator[Transfer]

MOST_PARTS = 2**15  # ranks, or pieces: a pipeline has a step for each


def ring_reduce_scatter(ranks: int) -> Steps:
    """Each chunk travels once around, growing by one contribution a hop, and ends at the rank of
    its number.
    """
    rank = np.arange(ranks)
    for step in range(ranks - 1):
        yield Transfer(rank, (rank + 1) % ranks, (rank - step - 1) % ranks, reduce=True)


def ring_all_gather(ranks: int) -> Steps:
    """Each chunk travels once around from the rank of its number, and everyone keeps a copy."""
    rank = np.arange(ranks)
    for step in range(ranks - 1):
        yield Transfer(rank, (rank + 1) % ranks, (rank - step) % ranks)


def ring_all_reduce(ranks: int) -> Steps:
    """Reduce-scatter, then all-gather: twice around."""
    yield from ring_reduce_scatter(ranks)
    yield from ring_all_gather(ranks)


def naive_all_reduce(ranks: int) -> Steps:
    """Everyone sends everything to rank 0, which sends everyone the sum."""
    if ranks > 1:
        others = np.arange(1, ranks)
        yield Transfer(others, 0, 0, reduce=True)
        yield Transfer(0, others, 0)


def tree_all_reduce(ranks: int) -> Steps:
    """Reduce up a binomial tree to rank 0, then broadcast down the same tree."""
    for broadcast in reversed(list(tree_broadcast(ranks))):
        yield Transfer(broadcast.destination, broadcast.source, 0, reduce=True)
    yield from tree_broadcast(ranks)


def tree_broadcast(ranks: int, root: int = 0) -> Steps:
    """Binomial tree: in every step each rank that has the payload hands it to one that has not."""
    holders = 1
    while holders < ranks:
        sender = np.arange(min(holders, ranks - holders))
        yield Transfer((sender + root) % ranks, (sender + holders + root) % ranks, 0)
        holders *= 2


def chain_broadcast(ranks: int, pieces: int, root: int = 0) -> Steps:
    """Pass the payload from neighbor to neighbor, cut into pieces so that all hops work at once."""
    for step in range(pieces + ranks - 2 if ranks > 1 else 0):
        hop = np.arange(
            max(0, step - pieces + 1), min(step + 1, ranks - 1)
        )  # those that have a piece to pass on
        yield Transfer((hop + root) % ranks, (hop + 1 + root) % ranks, step - hop)


def double_tree_all_reduce(ranks: int, pieces: int) -> Steps:
    """Two binary trees, each reducing and then broadcasting half of the payload, cut into
    ``pieces``.

    A rank with children in one tree is a leaf of the other (with an odd number of ranks, rank 0
    has children in both), so that every rank sends and receives at most two messages a step, and
    both directions of every port are busy. Chunk 2 * piece + tree belongs to that tree.
    """
    tree, depth, child, parent = two_trees(ranks)
    height = (ranks - 1).bit_length()
    steps = range(pieces + height - 1 if ranks > 1 else 0)
    for step in steps:
        piece = step - (height - depth)
        busy = (piece >= 0) & (piece < pieces)
        yield Transfer(child[busy], parent[busy], (2 * piece + tree)[busy], reduce=True)
    for step in steps:
        piece = step - (depth - 1)
        busy = (piece >= 0) & (piece < pieces)
        yield Transfer(parent[busy], child[busy], (2 * piece + tree)[busy])


def two_trees(ranks: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The edges of both trees as (tree 0 or 1, depth of the child, child, parent), one entry per
    edge.

    The first tree is over the positions 0 to ranks - 1: the root 0 has one child, and a position
    whose lowest set bit is b hangs under the nearest one with a higher lowest bit, so that odd
    positions are leaves. The second tree is the first one mirrored (an even number of ranks) or
    shifted by one (an odd number).
    """

    def parent_of(position: np.ndarray) -> np.ndarray:
        lowest = position & -position
        above = (position ^ lowest) | (lowest << 1)
        return np.where(above < ranks, above, position ^ lowest)

    child = np.arange(1, ranks)
    parent, depth, ancestor = parent_of(child), np.zeros_like(child), child
    while ancestor.any():
        depth, ancestor = depth + (ancestor > 0), parent_of(ancestor)

    def second(position: np.ndarray) -> np.ndarray:
        return (position + 1) % ranks if ranks % 2 else ranks - 1 - position

    return (
        np.repeat([0, 1], ranks - 1),
        np.tile(depth, 2),
        np.concatenate([child, second(child)]),
        np.concatenate([parent, second(parent)]),
    )


def halving_doubling_all_reduce(ranks: int) -> Steps:
    """Reduce-scatter by recursive halving, all-gather by recursive doubling, between partners a
    power of 2 apart.

    With ranks that are not a power of two, those beyond it first fold their payload into a partner
    and last get the result back.
    """
    power = halving_chunks(ranks)
    extra = np.arange(power, ranks)[:, None]
    everything = np.arange(power)
    if len(extra):
        yield Transfer(extra, extra - power, everything, reduce=True)
    rank, chunk = np.indices((power, power)).reshape(2, -1)
    distances = [2**bit for bit in range(power.bit_length() - 1)]
    for distance in reversed(distances):
        sent = (rank // (2 * distance) == chunk // (2 * distance)) & (
            rank // distance != chunk // distance
        )
        yield Transfer(rank[sent], rank[sent] ^ distance, chunk[sent], reduce=True)
    for distance in distances:
        held = rank // distance == chunk // distance
        yield Transfer(rank[held], rank[held] ^ distance, chunk[held])
    if len(extra):
        yield Transfer(extra - power, extra, everything)


def halving_chunks(ranks: int) -> int:
    """The largest power of two up to ``ranks``."""
    return 1 << (ranks.bit_length() - 1)


def inside(steps: Steps, nodes: int, node_size: int) -> Steps:
    """The steps of a collective on ``node_size`` ranks, carried out inside each of the ``nodes`` at
    once.

    Rank n * node_size + r plays rank r of node n. Each of its chunks is ``nodes`` chunks here,
    which travel together.
    """
    node, part = np.ogrid[:nodes, :nodes]
    first, part = node[..., None] * node_size, part[..., None]
    for step in steps:
        yield Transfer(
            first + step.source, first + step.destination, step.chunk * nodes + part, step.reduce
        )


def across(steps: Steps, nodes: int, node_size: int) -> Steps:
    """The steps of a collective on ``nodes`` ranks, carried out by the ranks of equal place in each
    node.

    Those of place r work on the chunks from r * nodes on, so that each place has a share of its
    own.
    """
    place = np.arange(node_size)[:, None]
    for step in steps:
        yield Transfer(
            step.source * node_size + place,
            step.destination * node_size + place,
            place * nodes + step.chunk,
            step.reduce,
        )


def hierarchical_all_reduce(ranks: int, node_size: int) -> Steps:
    """Reduce-scatter inside each node, all-reduce each share across the nodes, all-gather inside.

    Only 1 / node_size of the payload of a rank leaves its node.
    """
    nodes = ranks // node_size
    yield from inside(ring_reduce_scatter(node_size), nodes, node_size)
    yield from across(ring_all_reduce(nodes), nodes, node_size)
    yield from inside(ring_all_gather(node_size), nodes, node_size)


def rotation_all_to_all(ranks: int) -> Steps:
    """In step d every rank sends its block to the rank d further on."""
    rank = np.arange(ranks)
    for distance in range(1, ranks):
        destination = (rank + distance) % ranks
        yield Transfer(rank, destination, rank * ranks + destination)


class Algorithm(NamedTuple):
    """How to make a schedule: ``steps(ranks)`` and the ``chunks`` it is written for.

    A pipelined algorithm is ``steps(ranks, pieces)`` and has a default number of ``pieces``; a
    hierarchical one is ``steps(ranks, node_size)`` and has a default ``node_size`` for each number
    of ranks.
    """

    steps: Callable[..., Steps]
    chunks: Callable[..., int]
    pieces: int | None = None
    node_size: Callable[[int], int] | None = None

    def size(self, ranks: int, pieces: int | None, node_size: int | None) -> tuple[int, ...]:
        """The arguments of ``steps`` and ``chunks``."""
        if self.pieces is not None:
            return ranks, self.pieces if pieces is None else whole_number(
                "pieces", pieces, at_most=MOST_PARTS
            )
        if self.node_size is not None:
            if node_size is None:
                return ranks, self.node_size(ranks)
            divisible("ranks", ranks, "node_size", whole_number("node_size", node_size))
            return ranks, int(node_size)
        return (ranks,)


ALGORITHMS: dict[str, dict[str, Algorithm]] = {
    "all_reduce": {
        "ring": Algorithm(ring_all_reduce, chunks=lambda ranks: ranks),
        "naive": Algorithm(naive_all_reduce, chunks=lambda ranks: 1),
        "tree": Algorithm(tree_all_reduce, chunks=lambda ranks: 1),
        "double_tree": Algorithm(
            double_tree_all_reduce, chunks=lambda ranks, pieces: 2 * pieces, pieces=4
        ),
        "halving_doubling": Algorithm(halving_doubling_all_reduce, chunks=halving_chunks),
        "hierarchical": Algorithm(
            hierarchical_all_reduce,
            chunks=lambda ranks, node_size: ranks,
            node_size=default_node_size,
        ),
    },
    "reduce_scatter": {"ring": Algorithm(ring_reduce_scatter, chunks=lambda ranks: ranks)},
    "all_gather": {"ring": Algorithm(ring_all_gather, chunks=lambda ranks: ranks)},
    "broadcast": {
        "tree": Algorithm(tree_broadcast, chunks=lambda ranks: 1),
        "chain": Algorithm(chain_broadcast, chunks=lambda ranks, pieces: pieces, pieces=4),
    },
    "all_to_all": {"rotation": Algorithm(rotation_all_to_all, chunks=lambda ranks: ranks**2)},
}


def make(
    collective: str,
    algorithm: str,
    ranks: int,
    *,
    pieces: int | None = None,
    node_size: int | None = None,
    root: int = 0,
) -> Schedule:
    """The schedule of a textbook algorithm.

    ``pieces`` is for pipelines, ``node_size`` for hierarchical ones, ``root`` for broadcasts.
    At most 32,768 ranks and pieces, and 50 million transfers.

    >>> make("all_reduce", "ring", 8)
    Schedule('ring', 'all_reduce', ranks=8, chunks=8, 14 steps)
    """
    algorithms = ALGORITHMS[choice("collective", collective, ALGORITHMS)]
    entry = algorithms[choice("algorithm", algorithm, algorithms)]
    ranks = whole_number("ranks", ranks, at_most=MOST_PARTS)
    root = whole_number("root", root, at_least=0, at_most=ranks - 1)
    if entry.pieces is None and pieces is not None:
        raise ValueError(
            f"pieces is for pipelined algorithms, {algorithm} is not one, got {shown(pieces)}"
        )
    if entry.node_size is None and node_size is not None:
        raise ValueError(
            f"node_size is for hierarchical algorithms, {algorithm} is not one, got "
            f"{shown(node_size)}"
        )
    if collective != "broadcast" and root:
        raise ValueError(f"root is for broadcast, {collective} has none, got {root}")
    size = entry.size(ranks, pieces, node_size)
    transfers = entry.chunks(*size) * CONTRACTS[collective].transfers(ranks)
    whole_number(
        f"transfers of {algorithm} on {ranks} ranks", transfers, at_least=0, at_most=MOST_TRANSFERS
    )
    rooted = {"root": root} if collective == "broadcast" else {}
    return Schedule(
        algorithm, collective, ranks, entry.chunks(*size), entry.steps(*size, **rooted), root
    )
