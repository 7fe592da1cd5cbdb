"""What one rank has in its hands: shared memory, messages, the state it shows, and the account of
what it moved.
"""

from __future__ import annotations

import pickle
import struct
import time

import numpy as np

from dtlib.simulators.ranks.errors import RankError
from dtlib.simulators.ranks.mailbox import Mailbox, Message
from dtlib.simulators.ranks.memory import Heap, Memory
from dtlib.simulators.ranks.throttle import Throttle
from dtlib.simulators.ranks.trace import Trace

__all__ = ["DONE", "FLAG", "STATES", "WAITING", "Wires", "post_failure"]

# The header of the memory: a flag that the run has failed, the state of each rank, hints that it
# has mail, and what the failure was.
FLAG, STATES, HINTS, FAILURE = 0, 64, 128, 4096
FAILURE_BYTES = 24 << 10
MAX_RANKS = 64
BUSY, DONE, WAITING = (
    0,
    1,
    2,
)  # a rank's state; WAITING + r is waiting for rank r (its own number: for all of them)
SIZE = struct.Struct("<I")


def post_failure(memory: Memory, error: RankError) -> None:
    """Tell all ranks that the run has failed. They notice when they next wait, or are woken."""
    data = pickle.dumps(
        (error.rank, error.cause, error.exit_code, error.traceback[-FAILURE_BYTES // 8 :])
    )
    memory.map[FAILURE : FAILURE + 4 + len(data)] = SIZE.pack(len(data)) + data
    memory.map[FLAG] = 1


class Wires:
    """Everything below the communicator, for one rank of a cluster."""

    def __init__(
        self,
        rank: int,
        ranks: int,
        memory: Memory,
        inbox: int,
        outboxes: list[int],
        tickets: tuple[int, int],
        lock: tuple[int, int],
        reserved: int,
    ) -> None:
        self.rank, self.ranks, self.memory, self.lock = rank, ranks, memory, lock
        self.slots = memory.region(rank)
        self.heap = Heap(memory, self.slots + reserved, memory.region(rank + 1))
        self.mailbox = Mailbox(
            rank,
            inbox,
            outboxes,
            tickets,
            memoryview(memory.map)[HINTS : HINTS + ranks],
            self._waiting,
            self._woken,
        )
        self.kept: list[int] = []  # places in the heap to give back when the next run begins
        self.run = 0
        self.begin(0.0, None)

    def begin(self, start_s: float, throttle: Throttle | None) -> None:
        """Start a new account for a new run."""
        self.throttle, self.trace = throttle, Trace(self.rank, start_s)
        self.run += 1
        self.sent, self.received = [0] * self.ranks, [0] * self.ranks
        self.call = self.splits = 0
        for offset in self.kept:
            self.heap.give(offset)
        self.kept = []
        self.memory.map[STATES + self.rank] = BUSY

    def send(self, destination: int, size: int, channel: int, tag: int, **payload: object) -> None:
        """Send ``size`` bytes of payload as a message, and account for them."""
        self.sent[destination] += size
        now = due = time.perf_counter()
        if self.throttle is not None and destination != self.rank:
            due = self.throttle.reserve(self.rank, destination, size)
        self.mailbox.put(destination, channel, tag, size=size, sent_s=now, due_s=due, **payload)

    def receive(self, source: int, channel: int, tag: int) -> Message:
        """Wait for a message, and until the network delivers it."""
        self.check()
        since_s = time.perf_counter()
        message = self.mailbox.get(source, channel, tag)
        self.received[source] += message.size
        if self.throttle is not None and source != self.rank:
            self.throttle.deliver(message.due_s, since_s, self.check)
        return message

    def check(self) -> None:
        """Raise the error that the run has failed with, if it has."""
        if self.memory.map[FLAG]:
            (size,) = SIZE.unpack_from(self.memory.map, FAILURE)
            raise RankError(*pickle.loads(self.memory.map[FAILURE + 4 : FAILURE + 4 + size]))

    def place(self, array: np.ndarray) -> tuple[int, np.ndarray]:
        """Where a copy of ``array`` lies in shared memory, or the array itself if it lies there
        already; and the array that keeps the place taken.
        """
        offset = self.memory.offset_of(array)
        if offset is None:
            staged = self.heap.empty(array.shape, array.dtype)
            staged[...] = array
            array, offset = staged, self.memory.offset_of(staged)
        return offset, array

    def borrowed(self, offset: int, shape: object, dtype: object) -> np.ndarray:
        """The payload of a message that another rank lends; it is returned with the last view of
        it.
        """

        def give_back() -> None:
            self.memory.map[offset] = 1

        return self.memory.owned(offset + Heap.HEAD, shape, dtype, give_back)

    def _waiting(self, source: int) -> None:
        self.check()
        self.memory.map[STATES + self.rank] = WAITING + source

    def _woken(self) -> None:
        self.memory.map[STATES + self.rank] = BUSY
        self.check()
