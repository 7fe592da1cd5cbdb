"""Messages between processes: every rank has one pipe to read from, which all others write to.

A pipe passes on whole messages of up to PIPE_BUF bytes, in order, from many writers. So a message
is a header and, if it is small, its payload; a large payload stays in shared memory and the header
says where. A rank that cannot write because the other's pipe is full reads its own meanwhile: so
everybody may send first, as much as they like.
"""

from __future__ import annotations

import os
import select
import struct
from collections import defaultdict, deque
from typing import NamedTuple

from dtlib.ranks.local.shared_memory import BUSY, SharedMemory

__all__ = ["INLINE_BYTES", "WAKE", "Envelope", "Mailbox"]

# The length of the message, its source, the length of its meta; channel, kind, tag; offset, size;
# when it was sent and when it is due.
HEADER = struct.Struct("<IhHqqqqqdd")
INLINE_BYTES = (select.PIPE_BUF if hasattr(select, "PIPE_BUF") else 512) - HEADER.size
NOBODY = -1  # the source of a message that only wakes its reader, to see that the run has failed
WAKE = HEADER.pack(HEADER.size, NOBODY, 0, 0, 0, 0, -1, 0, 0.0, 0.0)

Key = tuple[int, int, int, int]  # source, channel, kind, tag


class Envelope(NamedTuple):
    """A message. Its payload of ``size`` bytes is ``body``, or lies at ``offset`` if not -1.

    ``meta`` says what the payload is; ``sent_s`` and ``due_s`` are when it was sent, and when the
    network delivers it.
    """

    offset: int
    size: int
    sent_s: float
    due_s: float
    meta: bytes
    body: bytes


class Mailbox:
    """One rank's end of all pipes: it reads from ``inbox`` and writes to ``outboxes``, by rank."""

    def __init__(self, rank: int, memory: SharedMemory, inbox: int, outboxes: list[int]) -> None:
        self.rank, self._memory, self._inbox, self._outboxes = rank, memory, inbox, outboxes
        header = memory.header
        self._state, self._posted, self._taken = header["state"], header["posted"], header["taken"]
        self._unread = b""
        self._arrived: defaultdict[Key, deque[Envelope]] = defaultdict(deque)

    def put(self, destination: int, channel: int, kind: int, tag: int, envelope: Envelope) -> None:
        """Send a message; its meta and body together have at most INLINE_BYTES."""
        offset, size, sent_s, due_s, meta, body = envelope
        length = HEADER.size + len(meta) + len(body)
        head = HEADER.pack(
            length, self.rank, len(meta), channel, kind, tag, offset, size, sent_s, due_s
        )
        self._posted[self.rank] += 1
        self._write(destination, head + meta + body)

    def get(
        self, source: int, channel: int, kind: int, tag: int, waiting_for: int | None = None
    ) -> Envelope:
        """The next message with these four; ``waiting_for`` is the state to show meanwhile."""
        arrived = self._arrived[source, channel, kind, tag]
        while not arrived:
            self._read(waiting_for=source if waiting_for is None else waiting_for)
        return arrived.popleft()

    def _write(self, destination: int, data: bytes) -> None:
        while True:
            try:
                os.write(self._outboxes[destination], data)
                return
            except BlockingIOError:
                self._read(waiting_for=destination, or_writable=self._outboxes[destination])
            except BrokenPipeError:  # that rank is gone, and the news will be here soon
                self._read(waiting_for=destination)

    def _read(self, waiting_for: int, or_writable: int | None = None) -> None:
        """Sleep until there is something to read, and read it; or until a pipe can be written."""
        self._memory.check()
        self._state[self.rank] = waiting_for
        data = b""
        if or_writable is None or self._inbox in _ready(self._inbox, or_writable):
            data = os.read(self._inbox, 1 << 16)
        self._state[self.rank] = (
            BUSY  # before what came is counted, or all would seem to wait in vain
        )
        self._sort(data)
        self._memory.check()

    def _sort(self, data: bytes) -> None:
        data, start = self._unread + data, 0
        while len(data) - start >= HEADER.size:
            length, source, meta, channel, kind, tag, *rest = HEADER.unpack_from(data, start)
            if len(data) - start < length:
                break
            if source != NOBODY:
                body = start + HEADER.size + meta
                envelope = Envelope(
                    *rest, data[start + HEADER.size : body], data[body : start + length]
                )
                self._arrived[source, channel, kind, tag].append(envelope)
                self._taken[self.rank] += 1
            start += length
        self._unread = data[start:]


def _ready(readable: int, writable: int) -> set[int]:
    poll = select.poll()
    poll.register(readable, select.POLLIN)
    poll.register(writable, select.POLLOUT)
    return {descriptor for descriptor, _ in poll.poll()}
