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


def hierarchical(ranks, group):
    groups = ranks // group
    yield from inside(ring_reduce_scatter(group), groups, group)
    yield from across(ring_all_reduce(groups), groups, group)
    yield from inside(ring_all_gather(group), groups, group)


def nothing_across(ranks, group):
    groups = ranks // group
    yield from inside(ring_reduce_scatter(group), groups, group)
    yield from inside(ring_all_gather(group), groups, group)


def no_gather(ranks, group):
    groups = ranks // group
    yield from inside(ring_reduce_scatter(group), groups, group)
    yield from across(ring_all_reduce(groups), groups, group)


def all_reduces_inside_twice(ranks, group):
    groups = ranks // group
    yield from inside(ring_all_reduce(group), groups, group)
    yield from across(ring_all_reduce(groups), groups, group)
    yield from inside(ring_all_reduce(group), groups, group)


def swapped(ranks, group):
    groups = ranks // group
    yield from inside(ring_reduce_scatter(groups), groups, group)
    yield from across(ring_all_reduce(group), groups, group)
    yield from inside(ring_all_gather(groups), groups, group)


def all_reduce_then_gather(ranks, group):
    """Right, and dear inside."""
    groups = ranks // group
    yield from inside(ring_all_reduce(group), groups, group)
    yield from across(ring_all_reduce(groups), groups, group)
    yield from inside(ring_all_gather(group), groups, group)


def flat(ranks, group):
    """Right, and dear across."""
    yield from ring_all_reduce(ranks)


def nothing(ranks, group):
    yield from ()


def only_across(ranks, group):
    yield from across(ring_all_reduce(ranks // group), ranks // group, group)


def one_step_a_piece(ranks, group):
    groups = ranks // group
    yield inside(ring_reduce_scatter(group), groups, group)
    yield across(ring_all_reduce(groups), groups, group)
    yield inside(ring_all_gather(group), groups, group)


def scatters_across(ranks, group):
    groups = ranks // group
    yield from inside(ring_reduce_scatter(group), groups, group)
    yield from across(ring_reduce_scatter(groups), groups, group)
    yield from inside(ring_all_gather(group), groups, group)


# Each wrong schedule, and a part of the hint that is its own.
WRONG = {
    nothing_across: "something has to run across",
    no_gather: "one piece is still to run inside",
    all_reduces_inside_twice: "counted twice",
    swapped: "which number is the groups",
    all_reduce_then_gather: "inside its node: more than is needed",
    flat: "Only a share has to leave",
    nothing: "no steps",
    only_across: "Sum inside before you sum across",
    one_step_a_piece: "with yield from",
    scatters_across: "in some nodes only",
}


def busiest_across(events, group):
    sent = {}
    for source, destination, size in events:
        if source // group != destination // group:
            sent[source] = sent.get(source, 0) + size
    return max(sent.values(), default=0)


def island(payload_bytes):
    return {256 * MiB: 8, 64 * MiB: 16, MiB: 32}[payload_bytes]
