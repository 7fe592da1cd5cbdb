"""Carries out a schedule on real ranks, the same way on every engine.

Each rank does its own transfers, step by step. All transfers of a step from one rank to another are
one message, which leaves with what its sender held when the step began; so what is received can be
written at once.
"""

from __future__ import annotations

import itertools
import weakref
import zlib
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dtlib.ranks.transport import TRANSFER, Transport
from dtlib.simulators.collectives import make
from dtlib.simulators.schedule import Schedule, Transfer

__all__ = ["Part", "Plan", "carry_out", "fingerprint", "plan", "schedule_of"]


class Part(NamedTuple):
    """What one rank does in one step: chunks to send, by destination, and the transfers to receive,
    as (chunk, reduce), by source.
    """

    sends: dict[int, list[int]]
    receives: dict[int, list[tuple[int, bool]]]


class Plan(NamedTuple):
    """The part of one rank in every step; the chunks it holds before and must hold after; and those
    that are to be 0 before, since they are read or added to before anything is copied into them.

    It has no room for ``others``: an all_to_all has n^2 chunks, of which a rank sees 2n - 1.
    """

    parts: list[Part]
    held: list[int]
    due: list[int]
    blank: list[int]
    others: list[int]


schedule_of = lru_cache(make)  # a training loop asks for the same schedule again and again
_plans: weakref.WeakKeyDictionary[Schedule, dict[int, Plan]] = weakref.WeakKeyDictionary()
_fingerprints: weakref.WeakKeyDictionary[Schedule, int] = weakref.WeakKeyDictionary()


def fingerprint(schedule: Schedule) -> int:
    """A checksum of the steps: two schedules that differ almost surely have others."""
    if schedule not in _fingerprints:
        code = 0
        for number, step in enumerate(schedule.steps):
            for column in step:
                code = zlib.crc32(column.tobytes(), code ^ number)
        _fingerprints[schedule] = code
    return _fingerprints[schedule]


def plan(schedule: Schedule, rank: int) -> Plan:
    """What ``rank`` has to do.

    >>> plan(make("all_reduce", "ring", 4), rank=0).parts[0]
    Part(sends={1: [3]}, receives={3: [(2, True)]})
    """
    by_rank = _plans.setdefault(schedule, {})
    if rank not in by_rank:
        masks = schedule.held_before(), schedule.due_after()
        held, due = (np.flatnonzero(mask[rank]).tolist() for mask in masks)
        parts = [_part(step, rank) for step in schedule.steps]
        seen = dict.fromkeys(held, False)  # whether a chunk has to be blank, by its first use
        for part in parts:
            for chunk in (chunk for chunks in part.sends.values() for chunk in chunks):
                seen.setdefault(chunk, True)
            for chunk, reduce in (entry for entries in part.receives.values() for entry in entries):
                seen.setdefault(chunk, reduce)
        for chunk in due:
            seen.setdefault(chunk, True)
        blank = [chunk for chunk, first in seen.items() if first]
        others = sorted(set(range(schedule.chunks)) - set(seen))
        by_rank[rank] = Plan(parts, held, due, blank, others)
    return by_rank[rank]


def _part(step: Transfer, rank: int) -> Part:
    part = Part({}, {})
    mine = np.flatnonzero((step.source == rank) | (step.destination == rank))
    for source, destination, chunk, reduce in zip(
        *(column[mine].tolist() for column in step), strict=True
    ):
        if source == rank:
            part.sends.setdefault(destination, []).append(chunk)
        else:
            part.receives.setdefault(source, []).append((chunk, reduce))
    return part


def carry_out(transport: Transport, schedule: Schedule, array: np.ndarray) -> np.ndarray:
    """Run this rank's part of ``schedule`` on its ``array``; what its collective promises.

    ``array`` has the shape of the payload on every rank, also where it holds nothing of it.
    """
    mine = plan(schedule, transport.rank)
    sizes = schedule.chunk_elements(array.shape)
    sizes[mine.others] = 0
    bounds = [0, *itertools.accumulate(sizes.tolist())]
    buffer = transport.empty(bounds[-1], array.dtype)
    chunks = [buffer[start:stop] for start, stop in itertools.pairwise(bounds)]
    start, flat = 0, array.reshape(-1)
    for chunk in mine.held:
        chunks[chunk][...] = flat[start : start + chunks[chunk].size]
        start += chunks[chunk].size
    for chunk in mine.blank:
        chunks[chunk][...] = 0
    counters = transport.counters
    call = counters.begin(schedule.collective, transport.members)
    for step, part in enumerate(mine.parts):
        for destination, wanted in part.sends.items():
            transport.post(destination, TRANSFER, step, _together([chunks[c] for c in wanted]))
        for source, wanted in part.receives.items():
            message = transport.receive(source, TRANSFER, step)
            arrived = message.data.view(array.dtype)
            for chunk, reduce in wanted:
                target = chunks[chunk]
                piece, arrived = arrived[: target.size], arrived[target.size :]
                if reduce:
                    np.add(target, piece, out=target)
                else:
                    target[...] = piece
                counters.received_from(
                    transport.members[source],
                    target.nbytes,
                    call,
                    step,
                    chunk,
                    reduce,
                    message.sent_s,
                )
            message.done()
    whole = len(mine.due) == schedule.chunks
    result = buffer if whole else _together([chunks[chunk] for chunk in mine.due])
    return result.reshape(schedule.result_shape(array.shape, mine.due))


def _together(pieces: list[np.ndarray]) -> np.ndarray:
    if len(pieces) == 1:
        return pieces[0]
    return np.concatenate(pieces, dtype=pieces[0].dtype)  # or a foreign order of bytes is lost
