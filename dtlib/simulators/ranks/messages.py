"""A communicator over any library that passes messages. Such a library is a ``Link``; see ``mpi``
and ``torch_dist``.
"""

from __future__ import annotations

import pickle
import struct
import time
from collections import defaultdict, deque
from typing import Any, NamedTuple, Protocol

import numpy as np

from dtlib.arguments import whole_number
from dtlib.simulators.ranks import native, transfers
from dtlib.simulators.ranks.communicator import Communicator, as_message
from dtlib.simulators.ranks.errors import disagreement
from dtlib.simulators.ranks.steps import Part
from dtlib.simulators.ranks.trace import Trace

__all__ = ["Account", "Link", "Lost", "MessageComm"]

RECORDS, PAYLOADS = 1, 2  # channels, which do not mix; transfers have one of their own
HEADER = struct.Struct("<qqq")
RECORD_BYTES = 1024  # the head of every message, with its payload if that fits
META_BYTES = 512
LENGTH = struct.Struct("<q")


class Lost(RuntimeError):
    """Another rank cannot be reached; why is known elsewhere."""


class Link(Protocol):
    """What a library must be able to do among ``size`` ranks. ``data`` is always contiguous bytes,
    as uint8.

    Messages with the same source, destination and channel arrive in order. What ``send`` and
    ``receive`` begin, ``wait`` ends; ``post`` needs no waiting, and keeps ``data`` until it is
    sent. The collectives are the library's own.
    """

    rank: int
    size: int

    def send(self, data: np.ndarray, destination: int, channel: int) -> Any: ...
    def receive(self, data: np.ndarray, source: int, channel: int) -> Any: ...
    def wait(self, pending: Any) -> None: ...
    def post(self, data: np.ndarray, destination: int, channel: int) -> None: ...
    def split(self, color: int, members: list[int]) -> Link: ...
    def close(self) -> None: ...
    def adds(self, dtype: np.dtype) -> bool: ...
    def all_reduce(self, array: np.ndarray) -> np.ndarray: ...
    def reduce_scatter(self, array: np.ndarray, bounds: np.ndarray) -> np.ndarray: ...
    def all_gather(self, data: np.ndarray) -> np.ndarray: ...
    def all_to_all(self, data: np.ndarray, sent: list[int], received: list[int]) -> np.ndarray: ...
    def broadcast(self, data: np.ndarray, root: int) -> None: ...


class Account:
    """What one rank has moved in this run, and whom it waits for, by rank of the whole run (its
    own: for all).
    """

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks
        self.sent, self.received = [0] * ranks, [0] * ranks
        self.messages_sent, self.messages_received = [0] * ranks, [0] * ranks
        self.trace = Trace(rank, time.perf_counter())
        self.call = 0
        self.waiting: int | None = None

    def note(
        self, step: int, source: int, chunk: int, reduce: bool, size: int, since_s: float
    ) -> None:
        """Count what was received, and add it to the trace."""
        self.received[source] += size
        self.trace.note(
            self.call, step, (source,), (chunk,), reduce, (size,), since_s, time.perf_counter()
        )


class Envelope(NamedTuple):
    """A message that has arrived."""

    meta: bytes
    body: np.ndarray
    since_s: float


class MessageComm(Communicator):
    """The ranks of a ``link``, which are the ranks ``members`` of the run.

    The bytes of messages and of schedules are counted. How the library's own collectives move
    theirs is its secret, so nothing is counted for them, and the trace has nothing of them. A
    transfer in the trace starts when its receiver began to wait for it: the clocks of two machines
    do not agree. "fastest" is the library's own collective, or where it cannot add up a dtype, the
    ring.
    """

    own = native

    def __init__(self, link: Link, account: Account, members: list[int]) -> None:
        self.link, self.account, self.members = link, account, members
        self.rank, self.size = link.rank, link.size
        self._arrived: defaultdict[tuple[int, int], deque[Envelope]] = defaultdict(deque)
        self._messages = 0
        self._parts: list[MessageComm] = []

    @property
    def sent_bytes(self) -> list[int]:
        return [self.account.sent[member] for member in self.members]

    @property
    def received_bytes(self) -> list[int]:
        return [self.account.received[member] for member in self.members]

    def empty(self, shape: int | tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
        return np.empty(shape, dtype)

    def send(self, value: Any, destination: int, tag: int = 0) -> None:
        destination = whole_number("destination", destination, at_least=0, at_most=self.size - 1)
        tag = whole_number("tag", tag, at_least=0)
        array, meta = as_message(value, META_BYTES)
        self.account.sent[self.members[destination]] += array.nbytes
        self.account.messages_sent[self.members[destination]] += 1
        if destination == self.rank:
            self._arrived[destination, tag].append(
                Envelope(meta, as_bytes(array.copy()), time.perf_counter())
            )
            return
        record = bytearray(HEADER.pack(tag, array.nbytes, len(meta)) + meta)
        inline = len(record) + array.nbytes <= RECORD_BYTES
        record += array.tobytes() if inline else b""
        self.link.post(np.frombuffer(record.ljust(RECORD_BYTES), np.uint8), destination, RECORDS)
        if not inline:
            self.link.post(as_bytes(array.copy()), destination, PAYLOADS)

    def recv(self, source: int, tag: int = 0) -> Any:
        source = whole_number("source", source, at_least=0, at_most=self.size - 1)
        arrived = self._arrived[source, whole_number("tag", tag, at_least=0)]
        while not arrived:
            self._read(source)
        message = arrived.popleft()
        member = self.members[source]
        self.account.messages_received[member] += 1
        self.account.note(self._messages, member, tag, False, message.body.size, message.since_s)
        self._messages += 1
        if not message.meta:
            return pickle.loads(message.body)
        dtype, shape = pickle.loads(message.meta)
        return (
            message.body.view(dtype).reshape(shape) if message.body.size else np.empty(shape, dtype)
        )

    def barrier(self) -> None:
        self.meet("called barrier()")

    def split(self, color: int, key: int = 0) -> MessageComm:
        color, key = (
            whole_number("color", color, at_least=-(2**62)),
            whole_number("key", key, at_least=-(2**62)),
        )
        table = [
            struct.unpack("<qq", entry)
            for entry in self.meet("called split()", struct.pack("<qq", color, key))
        ]
        members = sorted(
            (member for member in range(self.size) if table[member][0] == color),
            key=lambda member: (table[member][1], member),
        )
        number = sorted({entry[0] for entry in table}).index(color)
        part = MessageComm(
            self.link.split(number, members),
            self.account,
            [self.members[member] for member in members],
        )
        self._parts.append(part)
        return part

    def close(self) -> None:
        for part in self._parts:
            part.close()
        self.link.close()

    # What the collectives need

    def has_own(self, collective: str, dtype: np.dtype | None) -> bool:
        return collective not in ("all_reduce", "reduce_scatter") or self.link.adds(dtype)

    def meet(self, call: str, data: bytes = b"") -> list[bytes]:
        """Wait for all; an error on every rank if they did not call the same. What everybody
        brought, by rank.
        """
        self.account.call += 1
        said = [entry.split(b"\0", 1) for entry in self.exchange(call.encode() + b"\0" + data)]
        notes = [note.decode() for note, _ in said]
        if any(note != call for note in notes):
            raise disagreement(notes, self.members)
        return [brought for _, brought in said]

    def exchange(self, data: bytes) -> list[bytes]:
        """Everybody's bytes, by rank; in one round if they are few."""
        self.account.waiting = self.account.rank
        record = bytearray((LENGTH.pack(len(data)) + data)[:RECORD_BYTES].ljust(RECORD_BYTES))
        told = self.link.all_gather(np.frombuffer(record, np.uint8)).reshape(self.size, -1)
        lengths = [LENGTH.unpack_from(row)[0] for row in told]
        longest = max(lengths)
        if longest > RECORD_BYTES - LENGTH.size:
            told = self.link.all_gather(
                np.frombuffer(bytearray(data.ljust(longest)), np.uint8)
            ).reshape(self.size, -1)
        else:
            told = told[:, LENGTH.size :]
        self.account.waiting = None
        return [row[:length].tobytes() for row, length in zip(told, lengths, strict=True)]

    def meet_root(self, call: str, array: np.ndarray | None, root: int) -> tuple[Any, np.dtype]:
        known = b"" if array is None else pickle.dumps((array.shape, array.dtype.str))
        shape, dtype = pickle.loads(self.meet(call, known)[root])
        if array is not None and (array.shape, array.dtype.str) != (shape, dtype):
            raise ValueError(
                f"broadcast: this rank has an array with shape {array.shape} and dtype "
                f"{array.dtype}, but the"
                f" root's is with shape {shape} and dtype {np.dtype(dtype)}; only the root has to "
                "give one"
            )
        return shape, np.dtype(dtype)

    def carry_out(
        self,
        call: str,
        parts: list[Part],
        state: np.ndarray,
        chunks: list[np.ndarray],
        bounds: list[int],
    ) -> None:
        self.meet(call)
        transfers.carry_out(self, parts, chunks)

    def wait(self, pending: Any, peer: int) -> None:
        """End what a send or a receive began."""
        self.account.waiting = self.members[peer]
        self.link.wait(pending)
        self.account.waiting = None

    def _read(self, source: int) -> None:
        since_s = time.perf_counter()
        record = np.empty(RECORD_BYTES, np.uint8)
        self.wait(self.link.receive(record, source, RECORDS), source)
        tag, size, length = HEADER.unpack_from(record)
        meta = record[HEADER.size : HEADER.size + length].tobytes()
        if HEADER.size + length + size <= RECORD_BYTES:
            body = record[HEADER.size + length : HEADER.size + length + size].copy()
        else:
            body = np.empty(size, np.uint8)
            self.wait(self.link.receive(body, source, PAYLOADS), source)
        self._arrived[source, tag].append(Envelope(meta, body, since_s))


def as_bytes(array: np.ndarray) -> np.ndarray:
    """The bytes of an array, without a copy if it is contiguous."""
    if not array.nbytes:
        return np.empty(0, np.uint8)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
