"""The memory that all ranks see: one anonymous mapping with a header and a region for each rank.

Linux has memory without a name (memfd); elsewhere an unlinked temporary file does. Either way there
is nothing to clean up: the memory goes when the last process that maps it does. It is sparse, so
that a page costs nothing before it is touched. It is not part of /dev/shm, whose size does not
matter.
"""

from __future__ import annotations

import bisect
import gc
import math
import mmap
import os
import weakref
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from dtlib.units import binary

__all__ = ["HEADER_BYTES", "Heap", "Memory", "create", "default_region_bytes"]

HEADER_BYTES = 1 << 16
PAGE = mmap.PAGESIZE
VIEWS = 1024  # that are remembered


def create(size: int) -> int:
    """A file descriptor of ``size`` bytes of memory that has no name."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("ranks")
    else:
        import tempfile

        descriptor, path = tempfile.mkstemp(prefix="ranks-memory-")
        os.unlink(path)
    os.ftruncate(descriptor, size)
    return descriptor


def default_region_bytes(ranks: int) -> int:
    """What one rank may use at most: its part of three quarters of the machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 3 // 4 // ranks


class Memory:
    """The mapping, as this process sees it. Offsets into it mean the same on every rank."""

    def __init__(self, descriptor: int, ranks: int, region_bytes: int) -> None:
        self.region_bytes = region_bytes
        self.size = self.total_bytes(ranks, region_bytes)
        self.map = mmap.mmap(descriptor, self.size)
        self.address = np.frombuffer(self.map, np.uint8, 1).__array_interface__["data"][0]
        self._owned: dict[int, weakref.ref] = {}
        # A training loop looks at the same places again and again, and making an array takes longer
        # than finding it.
        self.view = lru_cache(VIEWS)(self._view)

    @staticmethod
    def total_bytes(ranks: int, region_bytes: int) -> int:
        return HEADER_BYTES + ranks * region_bytes

    def region(self, rank: int) -> int:
        return HEADER_BYTES + rank * self.region_bytes

    def close(self) -> None:
        """Unmap it. There must be no views left."""
        self.view.cache_clear()
        self.map.close()

    def _view(self, offset: int, shape: Any, dtype: Any) -> np.ndarray:
        """An array at ``offset``, which does not keep the place taken. It is shared: not to be
        reshaped in place.
        """
        return np.ndarray(shape, dtype, self.map, offset)

    def offset_of(self, array: np.ndarray) -> int | None:
        """Where in the memory a contiguous array lies; None if it lies elsewhere."""
        offset = array.__array_interface__["data"][0] - self.address
        return offset if 0 <= offset < self.size and array.flags.c_contiguous else None

    def owned(
        self, offset: int, shape: Any, dtype: Any, when_gone: Callable[[], Any]
    ) -> np.ndarray:
        """An array at ``offset``, and a call to ``when_gone`` when neither it nor any view of it is
        left.
        """
        base = np.ndarray(shape, dtype, self.map, offset)
        self._owned[offset] = weakref.ref(base, lambda _: (self._owned.pop(offset), when_gone()))
        return base[...]


class Heap:
    """Hands out and takes back pieces of one rank's region. Only that rank allocates in it; all may
    read and write.

    First fit from the bottom, so that memory in use stays compact and what is freed is used again
    while warm.
    """

    HEAD = 64  # before a message that is lent: the flag with which its receiver returns it

    def __init__(self, memory: Memory, start: int, stop: int) -> None:
        self.memory, self.capacity = memory, stop - start
        self._starts, self._sizes = [start], [stop - start]  # the free pieces, by offset
        self._taken: dict[int, int] = {}
        self._start, self._peak = start, start
        self._returned: deque[int] = deque()  # by garbage collection, which may interrupt anything
        self._lent: list[
            int
        ] = []  # messages, until their receivers have set the flag they begin with

    def empty(self, shape: Any, dtype: Any = np.float64) -> np.ndarray:
        """An uninitialized array in shared memory. Its place is free again when the last view of it
        is gone.
        """
        dtype = np.dtype(dtype)
        if dtype.hasobject:
            raise TypeError(f"dtype {dtype} holds Python objects, which cannot be in shared memory")
        shape = tuple(shape) if np.iterable(shape) else (shape,)
        offset = self.take(math.prod(shape) * dtype.itemsize)
        return self.memory.owned(offset, shape, dtype, lambda: self._returned.append(offset))

    def take(self, size: int) -> int:
        """The offset of ``size`` free bytes, aligned to a page."""
        size = max(PAGE, -(-size // PAGE) * PAGE)
        self.collect()
        piece = self._fit(size)
        if piece is None:
            gc.collect()
            self.collect()
            piece = self._fit(size)
        if piece is None:
            raise MemoryError(
                f"{binary(size)} of shared memory is needed in one piece, but of the "
                f"{binary(self.capacity)} that a rank may use "
                f"{binary(max(self._sizes, default=0))} is "
                "free in one piece: drop arrays that are done with, or raise memory_bytes"
            )
        offset = self._starts[piece]
        self._starts[piece] += size
        self._sizes[piece] -= size
        if not self._sizes[piece]:
            del self._starts[piece], self._sizes[piece]
        self._taken[offset] = size
        self._peak = max(self._peak, offset + size)
        return offset

    def give(self, offset: int) -> None:
        size = self._taken.pop(offset)
        piece = bisect.bisect(self._starts, offset)
        self._starts.insert(piece, offset)
        self._sizes.insert(piece, size)
        for left in (piece, piece - 1):  # join with the neighbor above, then with the one below
            if (
                0 <= left < len(self._starts) - 1
                and self._starts[left] + self._sizes[left] == self._starts[left + 1]
            ):
                self._sizes[left] += self._sizes.pop(left + 1)
                del self._starts[left + 1]

    def lend(self, offset: int) -> None:
        """Free ``offset`` once another rank has set the byte that lies there."""
        self._lent.append(offset)

    def collect(self) -> None:
        """Take back what garbage collection and other ranks have returned."""
        while self._returned:
            self.give(self._returned.popleft())
        if self._lent:
            done = {offset for offset in self._lent if self.memory.map[offset]}
            self._lent = [offset for offset in self._lent if offset not in done]
            for offset in done:
                self.give(offset)

    def trim(self, keep: int) -> None:
        """Return free pages beyond the first ``keep`` bytes to the system, where it takes them."""
        if self._peak <= self._start + keep or not hasattr(mmap, "MADV_REMOVE"):
            return
        self.collect()
        for start, size in zip(self._starts, self._sizes, strict=True):
            first, last = max(start, self._start + keep), min(start + size, self._peak)
            if first < last:
                self.memory.map.madvise(mmap.MADV_REMOVE, first, last - first)
        self._peak = max(
            (offset + size for offset, size in self._taken.items()), default=self._start
        )

    def _fit(self, size: int) -> int | None:
        return next((piece for piece, free in enumerate(self._sizes) if free >= size), None)
