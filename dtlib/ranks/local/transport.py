"""How ranks that share memory reach each other: see ``Transport`` for what each method promises.

``Endpoint`` is what the process of one rank has of the machinery, made once and renewed for each
run. ``LocalTransport`` is one communicator's use of it.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np

from dtlib.network import Network
from dtlib.ranks.local.collectives import SharedCollectives
from dtlib.ranks.local.mailbox import INLINE_BYTES, Envelope, Mailbox
from dtlib.ranks.local.shared_memory import Heap, SharedMemory
from dtlib.ranks.local.synchronization import SLOTS_BYTES, SMALL_BYTES, Rendezvous
from dtlib.ranks.local.throttle import Throttle, file_lock
from dtlib.ranks.result import Counters
from dtlib.ranks.transport import Collectives, Message, Transport

__all__ = ["Endpoint", "LocalTransport"]

FLAG_BYTES = 64  # before a lent payload: its reader sets the first one when it is done


class Endpoint:
    """What one rank's process has of the shared memory, the messages and the run it is in."""

    def __init__(self, rank: int, memory: SharedMemory, inbox: int, outboxes: list[int]) -> None:
        self.rank, self.memory = rank, memory
        self.heap = Heap(memory, rank, reserved=SLOTS_BYTES)
        self.mailbox = Mailbox(rank, memory, inbox, outboxes)
        self.run = self.splits = 0
        self._slots: list[int] = []

    def begin(self, began_s: float, network: Network | None) -> LocalTransport:
        """A new run: the transport among all ranks."""
        memory = self.memory
        self.run += 1
        self.splits = 0
        self.counters = Counters(self.rank, memory.ranks, began_s)
        lock = functools.partial(file_lock, memory.descriptor)
        self.throttle = network and Throttle(network, memory.header["card_free_s"], lock)
        while self._slots:  # of the communicators of the last run
            self.heap.give(self._slots.pop())
        everybody = range(memory.ranks)
        slots = [memory.region(rank) for rank in everybody]
        return LocalTransport(
            self, Rendezvous(memory, self.mailbox, everybody, self.rank, slots, channel=0)
        )

    def new_slots(self) -> int:
        """A place for a new rendezvous, kept until the run ends, since others may look at it."""
        self.splits += 1
        self._slots.append(self.heap.take(SLOTS_BYTES))
        return self._slots[-1]


class LocalTransport(Transport):
    """The members of a ``rendezvous``, in the memory that their processes share."""

    def __init__(self, endpoint: Endpoint, rendezvous: Rendezvous) -> None:
        self._endpoint, self.rendezvous, self._run = endpoint, rendezvous, endpoint.run
        self.rank, self.members = rendezvous.rank, rendezvous.members
        self.counters = endpoint.counters
        self.memory, self.heap = endpoint.memory, endpoint.heap
        if endpoint.throttle:
            self.network = endpoint.throttle.network.placed(self.members)

    def empty(self, shape: Any, dtype: Any) -> np.ndarray:
        return self.heap.empty(shape, dtype)

    def post(
        self, destination: int, kind: int, tag: int, data: np.ndarray, meta: bytes = b""
    ) -> None:
        self._check()
        endpoint, member, size = self._endpoint, self.members[destination], data.nbytes
        self.counters.sent_to(member, size)
        sent_s = due_s = time.perf_counter()
        if endpoint.throttle and member != endpoint.rank:
            due_s = endpoint.throttle.book(endpoint.rank, member, size)
        offset, body = -1, b""
        if size + len(meta) <= INLINE_BYTES:
            body = data.tobytes()
        else:
            offset = self.heap.take(FLAG_BYTES + size)
            self.memory.write(offset, b"\0")
            self.memory.view(offset + FLAG_BYTES, data.shape, data.dtype)[...] = data
            self.heap.lend(offset)
        envelope = Envelope(offset, size, sent_s, due_s, meta, body)
        endpoint.mailbox.put(member, self.rendezvous.channel, kind, tag, envelope)

    def receive(self, source: int, kind: int, tag: int) -> Message:
        self._check()
        endpoint, member, since_s = self._endpoint, self.members[source], time.perf_counter()
        envelope = endpoint.mailbox.get(member, self.rendezvous.channel, kind, tag)
        if endpoint.throttle and member != endpoint.rank:
            endpoint.throttle.deliver(envelope.due_s, since_s, self.memory.check)
        if envelope.offset < 0:
            data = np.frombuffer(envelope.body, np.uint8)
            return Message(data, envelope.meta, envelope.sent_s, done=lambda: None)
        data = self.memory.view(envelope.offset + FLAG_BYTES, envelope.size, np.uint8)
        done = functools.partial(self.memory.write, envelope.offset, b"\1")
        return Message(data, envelope.meta, envelope.sent_s, done)

    def meet(self, call: str, data: bytes = b"") -> list[bytes]:
        self._check()
        if len(data) > SMALL_BYTES - 8:
            raise ValueError(f"data must have at most {SMALL_BYTES - 8} bytes, got {len(data)}")
        length = np.array([len(data)]).view(np.uint8)
        self.rendezvous.meet(call, np.concatenate([length, np.frombuffer(data, np.uint8)]))
        if self._endpoint.throttle:
            self._endpoint.throttle.behind_s = 0.0  # all are up to date again
        lengths = [self.rendezvous.payload(m, 1, np.int64)[0] for m in range(self.size)]
        return [
            self.rendezvous.payload(member, 8 + length, np.uint8)[8:].tobytes()
            for member, length in enumerate(lengths)
        ]

    def split(self, members: list[int], color: int) -> LocalTransport:
        endpoint = self._endpoint
        mine = np.array([endpoint.new_slots(), endpoint.splits])
        self.rendezvous.meet("called split()", mine)
        slots = [int(self.rendezvous.payload(member, 2, np.int64)[0]) for member in members]
        # The first member's count of its splits makes a number that nobody else has given out.
        number = int(self.rendezvous.payload(members[0], 2, np.int64)[1])
        ranks = [self.members[member] for member in members]
        channel = number * self.memory.ranks + ranks[0]
        rendezvous = Rendezvous(
            self.memory, endpoint.mailbox, ranks, members.index(self.rank), slots, channel
        )
        return LocalTransport(endpoint, rendezvous)

    def own(self, collective: str, dtype: np.dtype | None) -> Collectives | None:
        """Those of shared memory, which a described network does not have."""
        self._check()
        return None if self._endpoint.throttle else SharedCollectives(self)

    def _check(self) -> None:
        """An error if the run has failed, or if this is left from a run that is over."""
        self.memory.check()
        if self._run != self._endpoint.run:
            raise RuntimeError("this communicator belongs to a run that is over")
