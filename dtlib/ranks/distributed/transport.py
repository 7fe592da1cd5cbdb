"""How ranks reach each other through a library that passes messages: what MPI and torch share.

A message is a record of fixed size, with the payload in it if that fits, and else a second message
with the payload. The library's own collectives do what the shared memory does on one machine; how
they move their bytes is the library's secret, so nothing is counted for them, and the trace has
nothing of them.
"""

from __future__ import annotations

import math
import struct
import time
from abc import abstractmethod
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from dtlib.formulas.partition import chunk_bounds
from dtlib.ranks.failures import disagreement
from dtlib.ranks.result import Counters
from dtlib.ranks.transport import Collectives, Message, Transport, sum_and_result_dtypes

__all__ = ["ALL", "LibraryTransport", "as_bytes"]

RECORD = struct.Struct("<qqq")  # tag, bytes of the payload, bytes of the meta that follows
RECORD_BYTES = 1024
LENGTH = struct.Struct("<q")
ALL = -1


class LibraryTransport(Transport):
    """The ranks of a library's group of processes; a subclass says how it does these things.

    ``data`` is always contiguous bytes. Messages of a channel between two ranks arrive in order.
    ``doing`` has, for all communicators of the run, whom this rank waits for (ALL, or nobody).
    """

    def __init__(self, rank: int, members: Sequence[int], counters: Counters, doing: dict) -> None:
        self.rank, self.members, self.counters, self.doing = rank, list(members), counters, doing
        self._arrived: defaultdict[tuple[int, int, int], deque[Message]] = defaultdict(deque)
        self._parts: list[LibraryTransport] = []

    @abstractmethod
    def _send(self, data: np.ndarray, destination: int, channel: int) -> None:
        """Begin to send, and keep ``data`` until it is sent."""

    @abstractmethod
    def _receive(self, data: np.ndarray, source: int, channel: int) -> None:
        """Wait until ``data`` is filled."""

    @abstractmethod
    def _part(self, members: list[int], color: int) -> LibraryTransport:
        """The transport of some of the members."""

    @abstractmethod
    def adds(self, dtype: np.dtype) -> bool:
        """Whether the library can add up arrays of this dtype."""

    @abstractmethod
    def library_all_reduce(self, array: np.ndarray) -> np.ndarray: ...
    @abstractmethod
    def library_reduce_scatter(self, array: np.ndarray, bounds: np.ndarray) -> np.ndarray: ...
    @abstractmethod
    def library_all_gather(self, data: np.ndarray) -> np.ndarray: ...
    @abstractmethod
    def library_all_to_all(
        self, data: np.ndarray, sent: list[int], received: list[int]
    ) -> np.ndarray: ...
    @abstractmethod
    def library_broadcast(self, data: np.ndarray, root: int) -> None: ...

    def close(self) -> None:
        """Let go of what belongs to the library."""
        for part in self._parts:
            part.close()

    # What a Transport promises

    def empty(self, shape: Any, dtype: Any) -> np.ndarray:
        return np.empty(shape, dtype)

    def post(
        self, destination: int, kind: int, tag: int, data: np.ndarray, meta: bytes = b""
    ) -> None:
        data, now_s = as_bytes(data), time.perf_counter()
        self.counters.sent_to(self.members[destination], data.size)
        if destination == self.rank:
            message = Message(data.copy(), meta, now_s, done=lambda: None)
            self._arrived[destination, kind, tag].append(message)
            return
        record = RECORD.pack(tag, data.size, len(meta)) + meta
        inline = len(record) + data.size <= RECORD_BYTES
        record += data.tobytes() if inline else b""
        padded = np.frombuffer(record.ljust(RECORD_BYTES, b"\0"), np.uint8)
        self._send(padded.copy(), destination, 2 * kind)
        if not inline:
            self._send(data.copy(), destination, 2 * kind + 1)

    def receive(self, source: int, kind: int, tag: int) -> Message:
        arrived = self._arrived[source, kind, tag]
        self.doing["waits_for"] = self.members[source]
        while not arrived:
            self._read(source, kind)
        self.doing["waits_for"] = None
        return arrived.popleft()

    def _read(self, source: int, kind: int) -> None:
        since_s, record = time.perf_counter(), np.empty(RECORD_BYTES, np.uint8)
        self._receive(record, source, 2 * kind)
        tag, size, meta_bytes = RECORD.unpack_from(record)
        start = RECORD.size + meta_bytes
        meta = record[RECORD.size : start].tobytes()
        if start + size <= RECORD_BYTES:
            data = record[start : start + size]
        else:
            data = np.empty(size, np.uint8)
            self._receive(data, source, 2 * kind + 1)
        # The clocks of two machines do not agree: a transfer starts when its receiver waits for it.
        self._arrived[source, kind, tag].append(Message(data, meta, since_s, done=lambda: None))

    def meet(self, call: str, data: bytes = b"") -> list[bytes]:
        said = [entry.split(b"\0", 1) for entry in self.exchange(call.encode() + b"\0" + data)]
        calls = [text.decode() for text, _ in said]
        if any(other != call for other in calls):
            raise disagreement(calls, self.members)
        return [brought for _, brought in said]

    def exchange(self, data: bytes) -> list[bytes]:
        """Everybody's bytes, by rank; in one round if they are few."""
        self.doing["waits_for"] = ALL
        record = (LENGTH.pack(len(data)) + data)[:RECORD_BYTES].ljust(RECORD_BYTES, b"\0")
        told = self.library_all_gather(np.frombuffer(record, np.uint8).copy())
        rows = told.reshape(self.size, -1)
        lengths = [LENGTH.unpack_from(row)[0] for row in rows]
        if max(lengths) > RECORD_BYTES - LENGTH.size:
            padded = np.frombuffer(data.ljust(max(lengths), b"\0"), np.uint8).copy()
            rows = self.library_all_gather(padded).reshape(self.size, -1)
        else:
            rows = rows[:, LENGTH.size :]
        self.doing["waits_for"] = None
        return [row[:length].tobytes() for row, length in zip(rows, lengths, strict=True)]

    def split(self, members: list[int], color: int) -> LibraryTransport:
        self._parts.append(self._part(members, color))
        return self._parts[-1]

    def own(self, collective: str, dtype: np.dtype | None) -> Collectives | None:
        """The library's, unless it would have to add up what it cannot."""
        sums = collective in ("all_reduce", "reduce_scatter")
        return None if sums and not self.adds(dtype) else LibraryCollectives(self)


class LibraryCollectives:
    """The library's collectives, behind the checks that all engines share."""

    def __init__(self, transport: LibraryTransport) -> None:
        self._transport = transport

    def all_reduce(self, array: np.ndarray, op: str, out: np.ndarray | None) -> np.ndarray:
        dtype, result_dtype = sum_and_result_dtypes(array.dtype, op)
        self._meet(f"all_reduce({op})", array)
        total = np.ascontiguousarray(array, dtype)
        total = self._transport.library_all_reduce(total) if array.size else total.copy()
        return self._finished(total.reshape(array.shape), op, result_dtype, out)

    def reduce_scatter(self, array: np.ndarray, op: str) -> np.ndarray:
        dtype, result_dtype = sum_and_result_dtypes(array.dtype, op)
        self._meet(f"reduce_scatter({op})", array)
        rows, row_shape = chunk_bounds(len(array), self._transport.size), array.shape[1:]
        flat, bounds = np.ascontiguousarray(array, dtype).reshape(-1), rows * math.prod(row_shape)
        total = self._transport.library_reduce_scatter(flat, bounds) if array.size else flat
        mine = int(np.diff(rows)[self._transport.rank])
        return self._finished(total.reshape(mine, *row_shape), op, result_dtype)

    def all_gather(self, array: np.ndarray) -> np.ndarray:
        self._meet("all_gather()", array)
        rows = (len(array) * self._transport.size, *array.shape[1:])
        if not array.nbytes:
            return np.empty(rows, array.dtype)
        gathered = self._transport.library_all_gather(as_bytes(array))
        return gathered.view(array.dtype).reshape(rows)

    def all_to_all(self, array: np.ndarray) -> np.ndarray:
        self._meet("all_to_all()", array)
        row_bytes = array.nbytes // max(1, len(array))
        rows = np.diff(chunk_bounds(len(array), self._transport.size))
        shape = int(rows[self._transport.rank]) * self._transport.size, *array.shape[1:]
        if not array.nbytes:
            return np.empty(shape, array.dtype)
        sizes = (rows * row_bytes).tolist()
        received = [sizes[self._transport.rank]] * self._transport.size
        together = self._transport.library_all_to_all(as_bytes(array), sizes, received)
        return together.view(array.dtype).reshape(shape)

    def broadcast(self, array: np.ndarray, root: int) -> np.ndarray:
        result = np.array(array, order="C")
        if result.nbytes:
            self._transport.library_broadcast(as_bytes(result), root)
        return result

    def _meet(self, said: str, array: np.ndarray) -> None:
        call = f"called {said} with shape {array.shape} and dtype {array.dtype}"
        self._transport.meet(call)

    def _finished(
        self, total: np.ndarray, op: str, dtype: np.dtype, out: np.ndarray | None = None
    ) -> np.ndarray:
        out = np.empty(total.shape, dtype) if out is None else out
        if op == "mean":
            return np.divide(total, self._transport.size, out=out, casting="same_kind")
        out[...] = total
        return out


def as_bytes(array: np.ndarray) -> np.ndarray:
    """The bytes of an array, without a copy if it is contiguous."""
    if not array.nbytes:
        return np.empty(0, np.uint8)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
