"""The fastest collectives on shared memory: every rank reads what it needs where it lies.

In a large all-reduce each rank adds up its own slice of everybody's array, block by block, and
writes each block of sums to everybody while it is still in the cache: about the memory traffic of
one copy of the array. In a small one everybody adds up everything, which saves a barrier. Sums are
in the order of the ranks. The bytes counted are those that a rank reads from the others' arrays,
and those that it writes to them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dtlib.formulas.partition import chunk_bounds
from dtlib.ranks.local.synchronization import SMALL_BYTES
from dtlib.ranks.result import Call
from dtlib.ranks.transport import sum_and_result_dtypes

if TYPE_CHECKING:
    from dtlib.ranks.local.transport import LocalTransport

__all__ = ["SharedCollectives"]

BLOCK_BYTES = 256 << 10  # that stay in a core's cache


class SharedCollectives:
    """The ``Collectives`` of the ranks of a transport; see ``Communicator`` for what each does."""

    def __init__(self, transport: LocalTransport) -> None:
        self._transport, self._rendezvous = transport, transport.rendezvous
        self._rank, self._ranks = transport.rank, range(transport.size)

    def all_reduce(self, array: np.ndarray, op: str, out: np.ndarray | None) -> np.ndarray:
        dtype, result_dtype = sum_and_result_dtypes(array.dtype, op)
        said, since_s = f"called all_reduce({op}){_described(array)}", time.perf_counter()
        call = self._transport.counters.begin("all_reduce", self._transport.members)
        if array.nbytes <= SMALL_BYTES:
            arrays, _ = self._gather(said, array)
            result = np.empty(array.shape, result_dtype) if out is None else out
            result[...] = self._sum(arrays, op, dtype)
            all_sizes = [array.nbytes] * len(self._ranks)
            self._account(call, 0, all_sizes, all_sizes, [0] * len(self._ranks), True, since_s)
            return result
        result = out
        if out is None or not self._can_write_to(out, array):
            result = self._transport.empty(array.shape, result_dtype)
        self._reduce_slices(said, call, array, result, op, dtype)
        if out is None or out is result:
            return result
        out[...] = result
        return out

    def _reduce_slices(
        self,
        said: str,
        call: Call,
        array: np.ndarray,
        result: np.ndarray,
        op: str,
        dtype: np.dtype,
    ) -> None:
        """Add up one slice on each rank, and bring it into everybody's ``result``."""
        memory, since_s = self._transport.memory, time.perf_counter()
        shared = self._in_shared_memory(array)
        offsets = memory.offset_of(shared), memory.offset_of(result)
        self._rendezvous.meet(said, offsets=offsets)
        places = [self._rendezvous.offsets(rank) for rank in self._ranks]
        arrays = [memory.view(source, array.size, array.dtype) for source, _ in places]
        results = [memory.view(target, array.size, result.dtype) for _, target in places]
        bounds = chunk_bounds(array.size, len(self._ranks)).tolist()
        for block in _blocks(*bounds[self._rank : self._rank + 2], dtype):
            sums = self._sum([one[block] for one in arrays], op, dtype)
            for one in results:
                one[block] = sums
        self._rendezvous.wait()
        added, copied = _sizes(bounds, array.itemsize), _sizes(bounds, result.itemsize)
        mine, every = [self._rank] * len(self._ranks), list(self._ranks)
        self._account(call, 0, added, _mine(added, self._rank), mine, True, since_s)
        self._account(call, 1, _mine(copied, self._rank), copied, every, False, since_s)

    def reduce_scatter(self, array: np.ndarray, op: str) -> np.ndarray:
        dtype, result_dtype = sum_and_result_dtypes(array.dtype, op)
        since_s = time.perf_counter()
        call = self._transport.counters.begin("reduce_scatter", self._transport.members)
        arrays, done = self._gather(f"called reduce_scatter({op}){_described(array)}", array)
        rows, sizes = self._rows(array)
        result = np.empty((rows.stop - rows.start, *array.shape[1:]), result_dtype)
        flat, slices = result.reshape(-1), [one[rows].reshape(-1) for one in arrays]
        for block in _blocks(0, flat.size, dtype):
            flat[block] = self._sum([one[block] for one in slices], op, dtype)
        done()
        mine = [self._rank] * len(self._ranks)
        self._account(call, 0, sizes, _mine(sizes, self._rank), mine, True, since_s)
        return result

    def all_gather(self, array: np.ndarray) -> np.ndarray:
        since_s = time.perf_counter()
        call = self._transport.counters.begin("all_gather", self._transport.members)
        arrays, done = self._gather(f"called all_gather(){_described(array)}", array)
        result = np.concatenate(arrays, dtype=array.dtype)
        done()
        sizes = [array.nbytes] * len(self._ranks)
        self._account(call, 0, sizes, sizes, list(self._ranks), False, since_s)
        return result

    def all_to_all(self, array: np.ndarray) -> np.ndarray:
        since_s = time.perf_counter()
        call = self._transport.counters.begin("all_to_all", self._transport.members)
        arrays, done = self._gather(f"called all_to_all(){_described(array)}", array)
        rows, sizes = self._rows(array)
        result = np.concatenate([one[rows] for one in arrays], dtype=array.dtype)
        done()
        blocks = [source * len(self._ranks) + self._rank for source in self._ranks]
        self._account(call, 0, sizes, _mine(sizes, self._rank), blocks, False, since_s)
        return result

    def broadcast(self, array: np.ndarray, root: int) -> np.ndarray:
        memory, since_s = self._transport.memory, time.perf_counter()
        call = self._transport.counters.begin("broadcast", self._transport.members)
        shared = self._in_shared_memory(array) if self._rank == root else None
        offset = 0 if shared is None else memory.offset_of(shared)
        self._rendezvous.meet(f"called broadcast(root={root})", offsets=(offset, 0))
        offset, _ = self._rendezvous.offsets(root)
        result = memory.view(offset, array.shape, array.dtype).copy()
        self._rendezvous.wait()
        sent = [array.nbytes * (self._rank == root)] * len(self._ranks)
        received = [array.nbytes * (rank == root) for rank in self._ranks]
        self._account(call, 0, sent, received, [0] * len(self._ranks), False, since_s)
        return result

    # What they have in common

    def _gather(self, said: str, array: np.ndarray) -> tuple[list[np.ndarray], Callable[[], None]]:
        """Everybody's array, to read; and what to call when it has been read."""
        if array.nbytes <= SMALL_BYTES:
            self._rendezvous.meet(said, array)
            arrays = [self._rendezvous.payload(r, array.shape, array.dtype) for r in self._ranks]
            return arrays, lambda: None
        memory, shared = self._transport.memory, self._in_shared_memory(array)
        self._rendezvous.meet(said, offsets=(memory.offset_of(shared), 0))
        offsets = [self._rendezvous.offsets(rank)[0] for rank in self._ranks]
        arrays = [memory.view(offset, array.shape, array.dtype) for offset in offsets]
        arrays[self._rank] = shared  # which keeps its place taken
        return arrays, self._rendezvous.wait

    def _in_shared_memory(self, array: np.ndarray) -> np.ndarray:
        """The array itself if it lies there, or else a copy."""
        if self._transport.memory.offset_of(array) is not None:
            return array
        copy = self._transport.empty(array.shape, array.dtype)
        copy[...] = array
        return copy

    def _can_write_to(self, out: np.ndarray, array: np.ndarray) -> bool:
        """Whether all ranks can write to ``out`` while they read ``array``: slice by slice, if the
        two are one.
        """
        offset = self._transport.memory.offset_of(out)
        is_array = offset == self._transport.memory.offset_of(array) and out.dtype == array.dtype
        return offset is not None and (is_array or not np.may_share_memory(out, array))

    def _sum(self, arrays: Sequence[np.ndarray], op: str, dtype: np.dtype) -> np.ndarray:
        """Their sum or mean, added up in ``dtype`` from the first to the last."""
        total = arrays[0].astype(dtype)
        for array in arrays[1:]:
            np.add(total, array, out=total)
        return (
            np.divide(total, len(arrays), out=total, casting="same_kind") if op == "mean" else total
        )

    def _rows(self, array: np.ndarray) -> tuple[slice, list[int]]:
        """The rows that are this rank's, and the bytes of everybody's."""
        bounds = chunk_bounds(len(array), len(self._ranks)).tolist()
        row_bytes = array.nbytes // max(1, len(array))
        return slice(*bounds[self._rank : self._rank + 2]), _sizes(bounds, row_bytes)

    def _account(
        self,
        call: Call,
        step: int,
        sent: Sequence[int],
        received: Sequence[int],
        chunks: Sequence[int],
        reduce: bool,
        since_s: float,
    ) -> None:
        """Count bytes to and from each member, and trace the chunks that came from each."""
        counters = self._transport.counters
        for rank, size in enumerate(sent):
            counters.sent_to(self._transport.members[rank], size)
        for rank, (size, chunk) in enumerate(zip(received, chunks, strict=True)):
            if size or sum(received) == 0:
                member = self._transport.members[rank]
                counters.received_from(member, size, call, step, chunk, reduce, since_s)


def _described(array: np.ndarray) -> str:
    return f" with shape {array.shape} and dtype {array.dtype}"


def _sizes(bounds: list[int], item_bytes: int) -> list[int]:
    return [(stop - start) * item_bytes for start, stop in pairwise(bounds)]


def _mine(sizes: list[int], rank: int) -> list[int]:
    """As many bytes from (or to) every member: the size of this rank's chunk."""
    return [sizes[rank]] * len(sizes)


def _blocks(start: int, stop: int, dtype: np.dtype) -> Iterator[slice]:
    length = max(1, BLOCK_BYTES // dtype.itemsize)
    for first in range(start, stop, length):
        yield slice(first, min(first + length, stop))
