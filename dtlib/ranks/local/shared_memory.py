"""The memory that all ranks see: one anonymous mapping with a header and a region for each rank.

Linux has memory without a name (memfd); elsewhere an unlinked temporary file does. Either way there
is nothing to clean up: the memory goes when the last process that maps it does. It is sparse, so
that a page costs nothing before it is touched, and it is no part of /dev/shm.
"""

from __future__ import annotations

import contextlib
import gc
import math
import mmap
import os
import pickle
import tempfile
import weakref
from collections import deque
from typing import Any

import numpy as np

from dtlib.ranks.failures import RankError
from dtlib.units import binary

__all__ = [
    "ALL",
    "BUSY",
    "DONE",
    "MAX_RANKS",
    "MOST_TIERS",
    "Heap",
    "SharedMemory",
    "default_region_bytes",
]

MAX_RANKS, MOST_TIERS = 64, 4
PAGE = mmap.PAGESIZE
# What a rank does: it runs its program, or it has returned, or it waits for all others. From 0 on,
# it waits for that rank.
BUSY, DONE, ALL = -3, -2, -1
FAILURE_BYTES = 24 << 10

# ``posted`` and ``taken`` count the messages that each rank has put on their way and has read: a
# run whose ranks all wait while the two sums agree will never go on.
HEADER = np.dtype(
    [
        ("failed", np.uint8),
        ("failure_bytes", np.int64),
        ("failure", np.uint8, FAILURE_BYTES),
        ("state", np.int16, MAX_RANKS),
        ("posted", np.int64, MAX_RANKS),
        ("taken", np.int64, MAX_RANKS),
        ("card_free_s", np.float64, (MOST_TIERS, 2, 2, MAX_RANKS)),  # see throttle
    ],
    align=True,
)
HEADER_BYTES = -(-HEADER.itemsize // PAGE) * PAGE


def default_region_bytes(ranks: int) -> int:
    """What one rank may use at most: its part of three quarters of the machine's memory, or of a
    third of what the process may map (``ulimit -v``).
    """
    import resource  # not on Windows, which may import this

    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 3 // 4
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        most = min(most, limit // 3)
    return most // ranks // PAGE * PAGE


class SharedMemory:
    """The mapping, as this process sees it. Offsets into it mean the same on every rank."""

    def __init__(self, ranks: int, region_bytes: int, descriptor: int | None = None) -> None:
        """Map the memory of ``descriptor``; new memory, if it is None."""
        self.ranks, self.region_bytes = ranks, region_bytes
        size = HEADER_BYTES + ranks * region_bytes
        self.descriptor = self.create(size) if descriptor is None else descriptor
        try:
            self._map = mmap.mmap(self.descriptor, size)
        except (OSError, ValueError, OverflowError) as error:
            raise MemoryError(
                f"{ranks} ranks cannot share {binary(size)} of memory ({error}): pass a smaller "
                "memory_bytes (of each rank), or raise the limit of this process (ulimit -v)"
            ) from None
        self.header = np.ndarray((1,), HEADER, self._map)[0]
        self._size = size
        self._address = np.frombuffer(self._map, np.uint8, 1).__array_interface__["data"][0]

    @staticmethod
    def create(size: int) -> int:
        """A file descriptor of ``size`` bytes of memory that has no name."""
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("ranks")
        else:
            descriptor, path = tempfile.mkstemp(prefix="ranks-memory-")
            os.unlink(path)
        os.ftruncate(descriptor, size)
        return descriptor

    def region(self, rank: int) -> int:
        """Where the region of a rank begins."""
        return HEADER_BYTES + rank * self.region_bytes

    def view(self, offset: int, shape: Any, dtype: Any) -> np.ndarray:
        """An array at ``offset``, which does not keep the place taken."""
        return np.ndarray(shape, dtype, self._map, offset)

    def read(self, offset: int, size: int) -> bytes:
        """A copy of some bytes."""
        return self._map[offset : offset + size]

    def write(self, offset: int, data: bytes) -> None:
        """Put some bytes in their place."""
        self._map[offset : offset + len(data)] = data

    def offset_of(self, array: np.ndarray) -> int | None:
        """Where in the memory a contiguous array lies; None if it lies elsewhere."""
        offset = array.__array_interface__["data"][0] - self._address
        return offset if 0 <= offset < self._size and array.flags.c_contiguous else None

    def release_pages(self, start: int, stop: int) -> None:
        """Return whole pages to the system, where it takes them."""
        if stop > start and hasattr(mmap, "MADV_REMOVE"):
            self._map.madvise(mmap.MADV_REMOVE, start, stop - start)

    def close(self) -> None:
        """Unmap the memory, unless somebody still holds a view of it."""
        self.header = None
        with contextlib.suppress(BufferError):
            self._map.close()

    def post_failure(self, error: RankError) -> None:
        """Tell all ranks that the run has failed. They notice when they next wait, or are woken."""
        text = error.traceback[-FAILURE_BYTES // 8 :]
        data = pickle.dumps((error.rank, error.cause, error.exit_code, text))
        self.header["failure"][: len(data)] = np.frombuffer(data, np.uint8)
        self.header["failure_bytes"] = len(data)
        self.header["failed"] = 1

    def check(self) -> None:
        """Raise the error that the run has failed with, if it has."""
        if self.header["failed"]:
            data = self.header["failure"][: self.header["failure_bytes"]].tobytes()
            raise RankError(*pickle.loads(data))


class Heap:
    """Hands out pieces of one rank's region. Only that rank allocates in it; all read and write.

    First fit from the bottom, so that memory in use stays compact, and what is freed is used again
    while it is warm.
    """

    KEPT_BYTES = 256 << 20  # that stay warm for the next run

    def __init__(self, memory: SharedMemory, rank: int, reserved: int) -> None:
        self.memory, self.start = memory, memory.region(rank) + reserved
        self._free = [(self.start, memory.region(rank + 1))]
        self._capacity = memory.region(rank + 1) - self.start
        self._taken: dict[int, int] = {}
        self._top = self.start  # the end of what was ever taken
        self._dropped: deque[int] = deque()  # by garbage collection, which may interrupt anything
        self._arrays: dict[int, weakref.ref] = {}
        self._lent: list[int] = []  # until a reader has set the byte that lies there

    def empty(self, shape: Any, dtype: Any) -> np.ndarray:
        """An uninitialized array. Its place is free again when the last view of it is gone."""
        dtype = np.dtype(dtype)
        if dtype.hasobject:
            raise TypeError(f"dtype {dtype} holds Python objects, which cannot be in shared memory")
        shape = tuple(shape) if np.iterable(shape) else (shape,)
        offset = self.take(math.prod(shape) * dtype.itemsize)
        array = self.memory.view(offset, shape, dtype)
        self._arrays[offset] = weakref.ref(array, lambda _: self._dropped.append(offset))
        return array[
            ...
        ]  # a view: all further views refer to ``array``, which lives as long as they

    def take(self, size: int) -> int:
        """The offset of ``size`` free bytes, aligned to a page."""
        size = max(PAGE, -(-size // PAGE) * PAGE)
        piece = self._fit(size)
        if piece is None:
            gc.collect()
            piece = self._fit(size)
        if piece is None:
            largest = max((stop - start for start, stop in self._free), default=0)
            raise MemoryError(
                f"{binary(size)} of shared memory is needed in one piece, but of the "
                f"{binary(self._capacity)} that a rank may use {binary(largest)} is free in one "
                "piece: drop arrays and communicators that are done with, or raise memory_bytes"
            )
        start, stop = self._free[piece]
        self._free[piece : piece + 1] = [(start + size, stop)] if start + size < stop else []
        self._taken[start] = size
        self._top = max(self._top, start + size)
        return start

    def give(self, offset: int) -> None:
        """Take a piece back, and join it with its neighbors."""
        pieces = sorted([*self._free, (offset, offset + self._taken.pop(offset))])
        self._free = pieces[:1]
        for start, stop in pieces[1:]:
            if start == self._free[-1][1]:
                self._free[-1] = (self._free[-1][0], stop)
            else:
                self._free.append((start, stop))

    def lend(self, offset: int) -> None:
        """Take a piece back once another rank has set its first byte."""
        self._lent.append(offset)

    def trim(self) -> None:
        """Between runs: return the pages beyond ``KEPT_BYTES`` to the system, if none is in use."""
        self._reclaim()
        keep = max((at + size for at, size in self._taken.items()), default=self.start)
        keep = max(keep, self.start + self.KEPT_BYTES)
        self.memory.release_pages(keep, self._top)
        self._top = min(self._top, keep)

    def _fit(self, size: int) -> int | None:
        self._reclaim()
        return next((n for n, (start, stop) in enumerate(self._free) if stop - start >= size), None)

    def _reclaim(self) -> None:
        """Take back what garbage collection has dropped and what other ranks have read."""
        while self._dropped:
            offset = self._dropped.popleft()
            del self._arrays[offset]
            self.give(offset)
        read = [offset for offset in self._lent if self.memory.view(offset, (), np.uint8)]
        for offset in read:
            self._lent.remove(offset)
            self.give(offset)
