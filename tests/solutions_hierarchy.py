"""Answers to the exercises on the hierarchy, right and wrong: for the tests only."""

from __future__ import annotations

from dtlib.simulators.collectives import (
    across,
    inside,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
)
from dtlib.units import MiB

NUMBERS = {
    "check_ratio": 18,
    "check_leaving": 2 * 15 / 16 * 10e9 / 8,
    "check_two_tiers": 1e3 * (14e9 / 450e9 + 1.5e9 / 50e9),
}


def hierarchical(ranks, node_size):
    nodes = ranks // node_size
    yield from inside(ring_reduce_scatter(node_size), nodes, node_size)
    yield from across(ring_all_reduce(nodes), nodes, node_size)
    yield from inside(ring_all_gather(node_size), nodes, node_size)


def nothing_across(ranks, node_size):
    nodes = ranks // node_size
    yield from inside(ring_reduce_scatter(node_size), nodes, node_size)
    yield from inside(ring_all_gather(node_size), nodes, node_size)


def no_gather(ranks, node_size):
    nodes = ranks // node_size
    yield from inside(ring_reduce_scatter(node_size), nodes, node_size)
    yield from across(ring_all_reduce(nodes), nodes, node_size)


def all_reduces_inside_twice(ranks, node_size):
    nodes = ranks // node_size
    yield from inside(ring_all_reduce(node_size), nodes, node_size)
    yield from across(ring_all_reduce(nodes), nodes, node_size)
    yield from inside(ring_all_reduce(node_size), nodes, node_size)


def swapped(ranks, node_size):
    nodes = ranks // node_size
    yield from inside(ring_reduce_scatter(nodes), nodes, node_size)
    yield from across(ring_all_reduce(node_size), nodes, node_size)
    yield from inside(ring_all_gather(nodes), nodes, node_size)


def all_reduce_then_gather(ranks, node_size):
    """Right, and dear inside."""
    nodes = ranks // node_size
    yield from inside(ring_all_reduce(node_size), nodes, node_size)
    yield from across(ring_all_reduce(nodes), nodes, node_size)
    yield from inside(ring_all_gather(node_size), nodes, node_size)


def flat(ranks, node_size):
    """Right, and dear across."""
    yield from ring_all_reduce(ranks)


def nothing(ranks, node_size):
    yield from ()


def only_across(ranks, node_size):
    yield from across(ring_all_reduce(ranks // node_size), ranks // node_size, node_size)


def one_step_a_piece(ranks, node_size):
    nodes = ranks // node_size
    yield inside(ring_reduce_scatter(node_size), nodes, node_size)
    yield across(ring_all_reduce(nodes), nodes, node_size)
    yield inside(ring_all_gather(node_size), nodes, node_size)


def scatters_across(ranks, node_size):
    nodes = ranks // node_size
    yield from inside(ring_reduce_scatter(node_size), nodes, node_size)
    yield from across(ring_reduce_scatter(nodes), nodes, node_size)
    yield from inside(ring_all_gather(node_size), nodes, node_size)


# Each wrong schedule, and a part of the hint that is its own.
WRONG = {
    nothing_across: "something has to run across",
    no_gather: "one piece is still to run inside",
    all_reduces_inside_twice: "counted twice",
    swapped: "which number is the nodes",
    all_reduce_then_gather: "inside its node: more than is needed",
    flat: "Only a share has to leave",
    nothing: "no steps",
    only_across: "Sum inside before you sum across",
    one_step_a_piece: "with yield from",
    scatters_across: "in some nodes only",
}


def busiest_across(events, node_size):
    sent = {}
    for source, destination, size in events:
        if source // node_size != destination // node_size:
            sent[source] = sent.get(source, 0) + size
    return max(sent.values(), default=0)


def smallest_node(payload_bytes):
    return {256 * MiB: 8, 64 * MiB: 16, MiB: 32}[payload_bytes]
