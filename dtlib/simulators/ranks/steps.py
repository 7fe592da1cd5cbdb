"""Runs a schedule on real ranks: each rank carries out its own transfers, step by step.

A large chunk is not copied into a message: the message says that it is ready, and the receiver adds
or copies it from where it lies, then says that it has read it. Before a rank writes to a chunk, all
who read it must have said so.
"""

from __future__ import annotations

import itertools
import math
import time
import weakref
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dtlib.simulators.collectives import make
from dtlib.simulators.ranks.mailbox import INLINE_BYTES, Message
from dtlib.simulators.schedule import Schedule, Transfer

if TYPE_CHECKING:
    from dtlib.simulators.ranks.comm import Comm
    from dtlib.simulators.ranks.communicator import Communicator

__all__ = ["Part", "Runner", "execute", "fingerprint", "schedule_of"]

IN_PLACE, PACKED = b"s", b"p"


class Part(NamedTuple):
    """What one rank does in one step: chunks to send by destination, chunks to expect by source,
    and transfers to carry out in order, as (source, chunk, reduce). ``unsafe`` chunks are both sent
    and written.
    """

    sends: dict[int, list[int]]
    expects: dict[int, list[int]]
    writes: list[tuple[int, int, bool]]
    unsafe: set[int]


class Plan(NamedTuple):
    """The part of one rank in all steps; which chunks it ``held`` before and which are ``due``
    after; and the ``blank`` ones, which are zero before since nobody copies anything into them
    first.
    """

    parts: list[Part]
    held: list[int]
    due: list[int]
    blank: list[int]


schedule_of = lru_cache(make)
_plans: weakref.WeakKeyDictionary[Schedule, dict[int, Plan]] = weakref.WeakKeyDictionary()
_fingerprints: weakref.WeakKeyDictionary[Schedule, int] = weakref.WeakKeyDictionary()


def fingerprint(schedule: Schedule) -> int:
    """A number that two schedules share only if they are the same."""
    if schedule not in _fingerprints:
        code = 0
        for number, step in enumerate(schedule.steps):
            for column in step:
                code = zlib.crc32(column.tobytes(), code ^ number)
        _fingerprints[schedule] = code
    return _fingerprints[schedule]


def plan(schedule: Schedule, rank: int) -> Plan:
    """What ``rank`` has to do."""
    by_rank = _plans.setdefault(schedule, {})
    if rank not in by_rank:
        parts = [_part(step, rank) for step in schedule.steps]
        held, due = (
            np.flatnonzero(mask[rank]).tolist()
            for mask in (schedule.held_before(), schedule.due_after())
        )
        copied_first: dict[int, bool] = dict.fromkeys(held, True)
        for part in parts:
            for chunks in part.sends.values():
                for chunk in chunks:
                    copied_first.setdefault(chunk, False)
            for _, chunk, reduce in part.writes:
                copied_first.setdefault(chunk, not reduce)
        blank = [chunk for chunk in range(schedule.chunks) if not copied_first.get(chunk)]
        by_rank[rank] = Plan(parts, held, due, blank)
    return by_rank[rank]


def _part(step: Transfer, rank: int) -> Part:
    part = Part({}, {}, [], set())
    for source, destination, chunk, reduce in zip(
        *(column.tolist() for column in step), strict=True
    ):
        if source == rank:
            part.sends.setdefault(destination, []).append(chunk)
        if destination == rank:
            part.expects.setdefault(source, []).append(chunk)
            part.writes.append((source, chunk, reduce))
    sent = {chunk for chunks in part.sends.values() for chunk in chunks}
    part.unsafe.update(sent.intersection(chunk for _, chunk, _ in part.writes))
    return part


def execute(
    comm: Communicator,
    schedule: Schedule,
    call: str,
    array: np.ndarray | None,
    shape: tuple[int, ...],
    dtype: np.dtype,
) -> np.ndarray:
    """Run this rank's part; the result as ``simulators.execute`` has it. ``array`` is None where a
    rank has none.
    """
    elements = math.prod(shape)
    payload = elements * schedule.ranks if schedule.collective == "all_gather" else elements
    bounds = [0, *itertools.accumulate(schedule.chunk_sizes(payload).tolist())]
    state = comm.empty(bounds[-1], dtype)
    chunks = [state[start:stop] for start, stop in itertools.pairwise(bounds)]
    mine = plan(schedule, comm.rank)
    _fill(chunks, array, mine)
    comm.carry_out(call, mine.parts, state, chunks, bounds)
    if schedule.collective in ("all_reduce", "broadcast"):
        return state.reshape(shape)
    if schedule.collective == "all_gather":
        return state
    return np.concatenate([chunks[chunk] for chunk in mine.due], dtype=dtype)  # or it swaps bytes


def _fill(chunks: list[np.ndarray], array: np.ndarray | None, mine: Plan) -> None:
    start = 0
    for chunk in mine.held:
        chunks[chunk][...] = array.reshape(-1)[start : start + chunks[chunk].size]
        start += chunks[chunk].size
    for chunk in mine.blank:
        chunks[chunk][...] = 0


class Runner:
    """One rank, on its way through a schedule. ``places`` are where everybody's chunks lie."""

    def __init__(
        self, comm: Comm, chunks: list[np.ndarray], bounds: list[int], places: list[int]
    ) -> None:
        self.chunks, self.bounds, self.places, self.dtype = chunks, bounds, places, chunks[0].dtype
        self.wires, self.members, self.channel = (
            comm.wires,
            comm.meeting.members,
            comm.meeting.channel,
        )
        # Messages that their readers have not finished with, as (reader, step): all of them, with a
        # packed copy if there is one, and by chunk those that are read in place.
        self.unread: dict[tuple[int, int], np.ndarray | None] = {}
        self.readers: list[list[tuple[int, int]]] = [[] for _ in chunks]

    def run(self, parts: list[Part]) -> None:
        for step, part in enumerate(parts):
            for destination, chunks in part.sends.items():
                self._send(step, destination, chunks, safe=part.unsafe.isdisjoint(chunks))
            messages = {
                source: self.wires.receive(self.members[source], self.channel, 2 * step)
                for source in part.expects
            }
            arrived = {
                (source, chunk): piece
                for source, message in messages.items()
                for chunk, piece in self._pieces(source, message, part.expects[source])
            }
            for source, chunk, reduce in part.writes:
                self._write(chunk, arrived[source, chunk], reduce)
                self.wires.trace.note(
                    self.wires.call,
                    step,
                    (self.members[source],),
                    (chunk,),
                    reduce,
                    (self.chunks[chunk].nbytes,),
                    messages[source].sent_s,
                    time.perf_counter(),
                )
            for source, message in messages.items():
                if message.meta:
                    self.wires.mailbox.put(self.members[source], self.channel, 2 * step + 1)
        self._wait_for(list(self.unread))

    def _send(self, step: int, destination: int, chunks: list[int], safe: bool) -> None:
        size = sum(self.chunks[chunk].nbytes for chunk in chunks)
        if size <= INLINE_BYTES:
            payload = {"body": b"".join([self.chunks[chunk].tobytes() for chunk in chunks])}
        elif safe:
            payload = {"meta": IN_PLACE}
            self.unread[destination, step] = None
            for chunk in chunks:
                self.readers[chunk].append((destination, step))
        else:
            place, copy = self.wires.place(
                np.concatenate([self.chunks[chunk] for chunk in chunks], dtype=self.dtype)
            )
            payload = {"meta": PACKED, "offset": place}
            self.unread[destination, step] = copy
        self.wires.send(self.members[destination], size, self.channel, 2 * step, **payload)

    def _pieces(
        self, source: int, message: Message, chunks: list[int]
    ) -> list[tuple[int, np.ndarray]]:
        """The chunks that a message brings, where they lie."""
        memory, itemsize = self.wires.memory, self.dtype.itemsize
        if message.meta == IN_PLACE:
            return [
                (
                    chunk,
                    memory.view(
                        self.places[source] + self.bounds[chunk] * itemsize,
                        self.chunks[chunk].size,
                        self.dtype,
                    ),
                )
                for chunk in chunks
            ]
        flat = (
            memory.view(message.offset, message.size // itemsize, self.dtype)
            if message.meta == PACKED
            else np.frombuffer(message.body, self.dtype)
        )
        ends = itertools.accumulate((self.chunks[chunk].size for chunk in chunks), initial=0)
        return [
            (chunk, flat[start:stop])
            for chunk, (start, stop) in zip(chunks, itertools.pairwise(ends), strict=True)
        ]

    def _write(self, chunk: int, piece: np.ndarray, reduce: bool) -> None:
        self._wait_for(self.readers[chunk])
        target = self.chunks[chunk]
        if reduce:
            np.add(target, piece, out=target)
        else:
            target[...] = piece

    def _wait_for(self, messages: list[tuple[int, int]]) -> None:
        """Wait until these messages have been read, and forget them."""
        for reader, step in messages:
            if (reader, step) in self.unread:
                self.wires.mailbox.get(self.members[reader], self.channel, 2 * step + 1)
                del self.unread[reader, step]
        messages.clear()
