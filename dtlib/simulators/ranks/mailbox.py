"""Messages between ranks: every rank has one pipe to read from, which all others write to.

A pipe passes on whole messages of up to PIPE_BUF bytes, in order, from many writers. So a message
is a header and, if it is small, its payload; a large payload stays in shared memory and the header
says where. A rank that cannot write because the other's pipe is full reads its own meanwhile: so
everybody may send first, as much as they like.
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["INLINE_BYTES", "WAKE", "Mailbox", "Message", "open_tickets", "unread"]

HEADER = struct.Struct("<IHHqqqqdd")
INLINE_BYTES = select.PIPE_BUF * 3 // 4 if hasattr(select, "PIPE_BUF") else 384
GLANCES = 60  # at a hint that mail is coming, letting others run in between, before going to sleep
NOBODY = 0xFFFF  # the source of messages that carry nothing
WAKE = HEADER.pack(
    HEADER.size, NOBODY, 0, 0, 0, -1, 0, 0.0, 0.0
)  # wakes whoever waits, to see that the run failed
RELEASE = HEADER.pack(HEADER.size, NOBODY, 0, 0, 1, -1, 0, 0.0, 0.0)  # ends a wait in a barrier


class Message(NamedTuple):
    """``offset`` is where a payload of ``size`` bytes lies in shared memory, or -1 if ``body`` is
    the payload.

    ``meta`` says what the payload is; ``sent_s`` and ``due_s`` are when it was sent and when the
    network delivers it.
    """

    source: int
    channel: int
    tag: int
    offset: int
    size: int
    sent_s: float
    due_s: float
    meta: bytes
    body: bytes


yield_processor = getattr(os, "sched_yield", lambda: time.sleep(0))


def open_tickets(ranks: int) -> tuple[int, int]:
    """The pipe of tickets that a barrier of all ranks needs, as (read, write)."""
    take, put = os.pipe()
    os.set_blocking(take, False)
    os.write(put, b"." * (ranks - 1))
    return take, put


def unread(pipe: int) -> bool:
    """Whether something is in a pipe, given either of its ends."""
    import fcntl
    import termios

    return fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)) != bytes(4)


class Mailbox:
    """One rank's end of all pipes. ``waiting(source)`` and ``woken()`` are called around every
    sleep; ``hints`` is a byte for each rank in shared memory, which says that a message for it is
    on its way.
    """

    def __init__(
        self,
        rank: int,
        inbox: int,
        outboxes: list[int],
        tickets: tuple[int, int],
        hints: memoryview,
        waiting: Callable[[int], None],
        woken: Callable[[], None],
    ) -> None:
        self.rank, self._inbox, self._outboxes = rank, inbox, outboxes
        self._take_ticket, self._put_tickets = tickets
        self._hints, self._releases = hints, 0
        self._waiting, self._woken = waiting, woken
        self._unread = b""
        self._arrived: defaultdict[tuple[int, int, int], deque[Message]] = defaultdict(deque)

    def put(
        self,
        destination: int,
        channel: int,
        tag: int,
        offset: int = -1,
        size: int = 0,
        sent_s: float = 0.0,
        due_s: float = 0.0,
        meta: bytes = b"",
        body: bytes = b"",
    ) -> None:
        """Send a message. ``meta`` and ``body`` together must fit: see INLINE_BYTES."""
        length = HEADER.size + len(meta) + len(body)
        self._write(
            destination,
            HEADER.pack(length, self.rank, len(meta), channel, tag, offset, size, sent_s, due_s)
            + meta
            + body,
        )

    def get(self, source: int, channel: int, tag: int) -> Message:
        """The next message with this source, channel and tag."""
        arrived = self._arrived[source, channel, tag]
        while not arrived:
            self._read(source)
        return arrived.popleft()

    def left_over(self) -> list[Message]:
        """Messages that arrived and were not asked for; they are dropped."""
        while _ready(0, (self._inbox, select.POLLIN)):
            self._read(self.rank)
        left = [message for queue in self._arrived.values() for message in queue]
        self._arrived.clear()
        return left

    def barrier(self) -> None:
        """Return when every rank has called this.

        All but the last to arrive take a ticket and wait. The last one finds no ticket, puts them
        all back, and releases the others.
        """
        others = len(self._outboxes) - 1
        try:
            if others:
                os.read(self._take_ticket, 1)
        except BlockingIOError:
            os.write(self._put_tickets, b"." * others)
            for rank in range(len(self._outboxes)):
                if rank != self.rank:
                    self._write(rank, RELEASE)
            return
        if others:
            while not self._releases:
                self._read(self.rank)
            self._releases -= 1

    def _write(self, destination: int, data: bytes) -> None:
        try:
            while True:
                try:
                    self._hints[destination] = 1
                    os.write(self._outboxes[destination], data)
                    return
                except BlockingIOError:
                    self._read_until_writable(destination)
        except BrokenPipeError:  # that rank is gone, and the news will be here soon
            while True:
                self._read(destination)

    def _read(self, source: int) -> None:
        self._waiting(source)
        for _ in range(
            GLANCES
        ):  # waking a processor that has gone to sleep takes far longer than the message
            if self._hints[self.rank]:
                break
            yield_processor()
        self._hints[self.rank] = 0
        data = self._unread + os.read(self._inbox, 1 << 16)
        self._woken()
        start = 0
        while len(data) - start >= HEADER.size:
            length, sender, meta, channel, *fields = HEADER.unpack_from(data, start)
            if len(data) - start < length:
                break
            if sender == NOBODY:
                self._releases += fields[0]
            else:
                body = start + HEADER.size + meta
                message = Message(
                    sender,
                    channel,
                    *fields,
                    data[start + HEADER.size : body],
                    data[body : start + length],
                )
                self._arrived[sender, channel, message.tag].append(message)
            start += length
        self._unread = data[start:]

    def _read_until_writable(self, destination: int) -> None:
        self._waiting(destination)
        ready = _ready(
            None, (self._inbox, select.POLLIN), (self._outboxes[destination], select.POLLOUT)
        )
        self._woken()
        if self._inbox in ready:
            self._read(destination)


def _ready(timeout_ms: int | None, *wanted: tuple[int, int]) -> set[int]:
    poll = select.poll()
    for descriptor, event in wanted:
        poll.register(descriptor, event)
    return {descriptor for descriptor, _ in poll.poll(timeout_ms)}
