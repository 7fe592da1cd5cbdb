"""Answers to the all-reduce exercises, right and wrong: for the tests only."""

from __future__ import annotations

import numpy as np

from dtlib.simulators.schedule import Transfer

NUMBERS = {
    "check_ring_steps": 126,
    "check_ring_bytes": 2 * 127 / 128 * 2 * 405e9 / 128,
    "check_bus_bandwidth": 237.21,
    "check_balance": 16e6,
}


def ring(ranks):
    """As most would write it: one transfer at a time, to the right."""
    for step in range(ranks - 1):
        yield [Transfer(r, (r + 1) % ranks, (r - step) % ranks, reduce=True) for r in range(ranks)]
    for step in range(ranks - 1):
        yield [Transfer(r, (r + 1) % ranks, (r + 1 - step) % ranks) for r in range(ranks)]


def ring_to_the_left(ranks):
    """Arrays, and the other way around."""
    rank = np.arange(ranks)
    for phase in (0, 1):
        for step in range(ranks - 1):
            yield Transfer(
                rank, (rank - 1) % ranks, (rank + step - phase) % ranks, reduce=phase == 0
            )


def choose(payload_bytes):
    return "tree" if payload_bytes < 2**18 else "double_tree" if payload_bytes < 2**26 else "ring"


def no_all_gather(ranks):
    yield from list(ring(ranks))[: ranks - 1]


def adds_always(ranks):
    for step in ring(ranks):
        yield [t._replace(reduce=True) for t in step]


def copies_always(ranks):
    for step in ring(ranks):
        yield [t._replace(reduce=False) for t in step]


def chunk_zero(ranks):
    for step in ring(ranks):
        yield [t._replace(chunk=0) for t in step]


def open_ends(ranks):
    for step in range(ranks - 1):
        yield [Transfer(r, r + 1, (r - step) % ranks, reduce=True) for r in range(ranks)]


def own_chunk_again(ranks):
    for step in range(2 * (ranks - 1)):
        yield [Transfer(r, (r + 1) % ranks, r, reduce=step < ranks - 1) for r in range(ranks)]


def runs_ahead(ranks):
    for step in range(ranks - 1):
        yield [Transfer(r, (r + 1) % ranks, (r + step) % ranks, reduce=True) for r in range(ranks)]
    for step in range(ranks - 1):
        yield [Transfer(r, (r + 1) % ranks, (r + 1 - step) % ranks) for r in range(ranks)]


def gathers_off_by_one_chunk(ranks):
    yield from no_all_gather(ranks)
    for step in range(ranks - 1):
        yield [Transfer(r, (r + 1) % ranks, (r - step) % ranks) for r in range(ranks)]


def one_step_short_of_a_sum(ranks):
    steps = list(ring(ranks))
    yield from steps[: ranks - 2] + steps[ranks - 1 :]


def one_step_too_many_in_a_sum(ranks):
    for step in range(ranks):
        yield [Transfer(r, (r + 1) % ranks, (r - step) % ranks, reduce=True) for r in range(ranks)]
    for step in range(ranks - 1):
        yield [Transfer(r, (r + 1) % ranks, (r - step) % ranks) for r in range(ranks)]


def both_ways(ranks):
    """Sends each chunk to the left as well, so that a sum meets what it contains."""
    for step in no_all_gather(ranks):
        yield step + [t._replace(destination=(t.source - 1) % ranks) for t in step]
    yield from list(ring(ranks))[ranks - 1 :]


def one_copy_short(ranks):
    yield from list(ring(ranks))[:-1]


def one_copy_too_many(ranks):
    yield from ring(ranks)
    yield [Transfer(r, (r + 1) % ranks, (r + 1 - (ranks - 1)) % ranks) for r in range(ranks)]


def naive(ranks):
    """Right, and dear."""
    if ranks > 1:
        yield [
            Transfer(r, 0, chunk, reduce=True) for r in range(1, ranks) for chunk in range(ranks)
        ]
        yield [Transfer(0, r, chunk) for r in range(1, ranks) for chunk in range(ranks)]


def everything_around(ranks):
    """The whole payload goes around, one rank at a time."""
    for reduce in (True, False):
        for step in range(ranks - 1):
            source = (step - (not reduce)) % ranks
            yield [Transfer(source, (source + 1) % ranks, chunk, reduce) for chunk in range(ranks)]


def one_at_a_time(ranks):
    for step in ring(ranks):
        yield from ([transfer] for transfer in step)


def directly(ranks):
    """Right, and in as few bytes, but everyone talks to everyone."""
    for reduce in (True, False):
        for far in range(1, ranks):
            yield [
                Transfer(r, (r + far) % ranks, (r + far) % ranks if reduce else r, reduce)
                for r in range(ranks)
            ]


# Each wrong ring, and a part of the hint that is its own.
WRONG_RINGS = {
    no_all_gather: "this is a reduce-scatter",
    adds_always: "adds in every step",
    copies_always: "nothing is added",
    chunk_zero: "Only chunk 0 ever travels",
    open_ends: "A ring is closed",
    own_chunk_again: "rank 0 sends chunk 0, which it has not just received",
    runs_ahead: "rank 0 sends chunk 1, which it has not just received",
    both_ways: "a part of that sum already",
    gathers_off_by_one_chunk: "of which it holds",
    one_step_short_of_a_sum: "too few",
    one_step_too_many_in_a_sum: "too many",
    one_copy_short: "somebody lacks a chunk",
    one_copy_too_many: "a loop runs once too often",
    naive: "the busiest one sends 3 S",
    one_at_a_time: "all ranks can send in every one",
    directly: "everyone sends to the same side",
}
