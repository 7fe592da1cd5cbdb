"""The fastest collectives on shared memory: every rank reads what it needs where it lies.

In a large all-reduce each rank adds up its own slice of all arrays, block by block, and writes each
block back to everyone while it is still in the cache: about the memory traffic of one copy of the
array. In a small one everybody adds up everything, which saves a barrier. Sums are in the order of
the ranks.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from dtlib.simulators.ranks.communicator import mean_dtypes
from dtlib.simulators.ranks.meeting import SMALL_BYTES, described
from dtlib.simulators.schedule import chunk_bounds

if TYPE_CHECKING:
    from dtlib.simulators.ranks.comm import Comm

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter"]

BLOCK_BYTES = 256 << 10


def all_reduce(comm: Comm, array: np.ndarray, op: str, out: np.ndarray | None) -> np.ndarray:
    dtype, result_dtype = mean_dtypes(array.dtype) if op == "mean" else (array.dtype, array.dtype)
    call = f"called all_reduce({op})" + described(array.shape, array.dtype)
    start_s = time.perf_counter()
    if array.nbytes <= SMALL_BYTES:
        comm.meeting.meet(call, array)
        result = np.empty(array.shape, result_dtype) if out is None else out
        _fold(
            [comm.meeting.payload(member, array.shape, array.dtype) for member in range(comm.size)],
            result,
            dtype,
            op,
        )
        sizes = [array.nbytes] * comm.size
        comm.count_sent(sizes)
        comm.count_received(0, sizes, [0] * comm.size, True, start_s)
        return result
    if out is not None and np.may_share_memory(out, array) and not _same_place(out, array):
        array = array.copy()
    result = (
        out if out is not None and out.flags.c_contiguous else comm.empty(array.shape, result_dtype)
    )
    bounds = _bounds(array.size, comm.size)
    _reduce_slices(comm, call, array, result, bounds, dtype, op)
    reduced, copied = _sizes(bounds, array.itemsize), _sizes(bounds, result.itemsize)
    comm.count_sent(reduced)
    comm.count_received(0, [reduced[comm.rank]] * comm.size, [comm.rank] * comm.size, True, start_s)
    comm.count_sent([copied[comm.rank]] * comm.size)
    comm.count_received(1, copied, range(comm.size), False, start_s)
    if out is None or result is out:
        return result
    out[...] = result
    return out


def _reduce_slices(
    comm: Comm,
    call: str,
    array: np.ndarray,
    result: np.ndarray,
    bounds: list[int],
    dtype: np.dtype,
    op: str,
) -> None:
    """Add up one slice on each rank, and bring it into everybody's ``result``.

    Its owner writes a sum into all results that lie in shared memory. Where a result lies elsewhere
    its rank takes the sums itself, and has a place for those of its own slice.
    """
    start, stop = bounds[comm.rank : comm.rank + 2]
    place, flat, staged = _readable(comm, array, start, stop)
    target, elsewhere = comm.wires.memory.offset_of(result), None
    if target is None:
        published, elsewhere = (
            comm.empty(result.shape, result.dtype),
            np.asarray(result).reshape(-1),
        )
        target = ~comm.wires.memory.offset_of(
            published
        )  # below 0: only the sums of this rank's slice will lie there
    comm.meeting.meet(call, places=(place, target))
    places, view = (
        [comm.meeting.place(member) for member in range(comm.size)],
        comm.wires.memory.view,
    )
    targets = [target if target >= 0 else ~target for _, target in places]
    parts = [view(at, array.size, array.dtype) for at, _ in places]
    totals = [view(at, array.size, result.dtype) for at in targets]
    parts[comm.rank] = flat
    copies = [
        totals[member]
        for member, (_, target) in enumerate(places)
        if target >= 0 and member != comm.rank
    ]
    if elsewhere is not None:
        copies.append(elsewhere)
    for block in _blocks(start, stop, dtype):
        mine = totals[comm.rank][block]
        _fold([part[block] for part in parts], mine, dtype, op, in_place=place == target)
        for copy in copies:
            copy[block] = mine
    comm.meeting.wait()
    del staged
    if min(target for _, target in places) < 0:
        if elsewhere is not None:
            for member, (first, last) in enumerate(itertools.pairwise(bounds)):
                if member != comm.rank:
                    elsewhere[first:last] = totals[member][first:last]
        comm.meeting.wait()  # or a result could be changed that others have still to take


def _readable(
    comm: Comm, array: np.ndarray, start: int, stop: int
) -> tuple[int, np.ndarray, np.ndarray]:
    """Where others can read an array of which they need all but a slice; what this rank reads its
    slice from; and what keeps the place taken.
    """
    place = comm.wires.memory.offset_of(array)
    if place is not None or not array.flags.c_contiguous:
        place, array = comm.wires.place(array)
        return place, array.reshape(-1), array
    flat, staged = array.reshape(-1), comm.empty(array.size, array.dtype)
    staged[:start], staged[stop:] = flat[:start], flat[stop:]
    return comm.wires.memory.offset_of(staged), flat, staged


def reduce_scatter(comm: Comm, array: np.ndarray, op: str) -> np.ndarray:
    dtype, result_dtype = mean_dtypes(array.dtype) if op == "mean" else (array.dtype, array.dtype)
    bounds = _bounds(array.size, comm.size)
    sizes = _sizes(bounds, array.itemsize)
    start, stop = bounds[comm.rank : comm.rank + 2]
    start_s = time.perf_counter()
    parts, done = _share(comm, f"called reduce_scatter({op})", array)
    result = _result(comm, (stop - start,), result_dtype)
    for block in _blocks(start, stop, dtype):
        _fold(
            [part[block] for part in parts],
            result[block.start - start : block.stop - start],
            dtype,
            op,
        )
    done()
    comm.count_sent(sizes)
    comm.count_received(0, [sizes[comm.rank]] * comm.size, [comm.rank] * comm.size, True, start_s)
    return result


def all_gather(comm: Comm, array: np.ndarray) -> np.ndarray:
    start_s = time.perf_counter()
    parts, done = _share(comm, "called all_gather()", array)
    result = _result(comm, (array.size * comm.size,), array.dtype)
    for member, part in enumerate(parts):
        result[member * array.size : (member + 1) * array.size] = part
    done()
    comm.count_sent([array.nbytes] * comm.size)
    comm.count_received(0, [array.nbytes] * comm.size, range(comm.size), False, start_s)
    return result


def all_to_all(comm: Comm, array: np.ndarray) -> np.ndarray:
    bounds = _bounds(array.size, comm.size)
    sizes = _sizes(bounds, array.itemsize)
    start, stop = bounds[comm.rank : comm.rank + 2]
    start_s = time.perf_counter()
    parts, done = _share(comm, "called all_to_all()", array)
    result = _result(comm, ((stop - start) * comm.size,), array.dtype)
    for member, part in enumerate(parts):
        result[member * (stop - start) : (member + 1) * (stop - start)] = part[start:stop]
    done()
    comm.count_sent(sizes)
    comm.count_received(
        0, [sizes[comm.rank]] * comm.size, range(comm.rank, comm.size**2, comm.size), False, start_s
    )
    return result


def broadcast(comm: Comm, array: np.ndarray | None, root: int) -> np.ndarray:
    start_s = time.perf_counter()
    place = 0
    if comm.rank == root:
        place, array = comm.wires.place(array)
    shape, dtype = comm.meet_root(f"called broadcast(root={root})", array, root, place)
    result = _result(comm, shape, dtype)
    result[...] = comm.wires.memory.view(comm.meeting.place(root)[0], shape, dtype)
    comm.meeting.wait()
    if comm.rank == root:
        comm.count_sent([result.nbytes] * comm.size)
    else:
        comm.count_received(0, [result.nbytes], [0], False, start_s, source=root)
    return result


def _share(comm: Comm, call: str, array: np.ndarray) -> tuple[list[np.ndarray], Any]:
    """Everybody's array, flat, and what to call when it has been read."""
    call += described(array.shape, array.dtype)
    if array.nbytes <= SMALL_BYTES:
        comm.meeting.meet(call, array)
        return [
            comm.meeting.payload(member, array.size, array.dtype) for member in range(comm.size)
        ], lambda: None
    place, staged = comm.wires.place(array)

    def done() -> None:
        nonlocal staged
        comm.meeting.wait()
        staged = None

    comm.meeting.meet(call, places=(place, 0))
    return [
        comm.wires.memory.view(comm.meeting.place(member)[0], array.size, array.dtype)
        for member in range(comm.size)
    ], done


def _fold(
    parts: Sequence[np.ndarray], out: np.ndarray, dtype: np.dtype, op: str, in_place: bool = False
) -> None:
    """Add up ``parts`` from the first to the last in ``dtype``, into ``out``, which is one of them
    if ``in_place``.
    """
    dtype = dtype.newbyteorder("=")
    in_dtype = None if dtype.kind == "m" else dtype  # numpy chooses units of time by itself
    total, *others = parts
    scratch = (
        np.empty(out.shape, dtype) if (in_place and len(others) > 1) or dtype != out.dtype else out
    )
    for number, part in enumerate(others, 1):
        to_out = number == len(others) and dtype == out.dtype
        total = np.add(total, part, out=out if to_out else scratch, dtype=in_dtype)
    if op == "mean":
        np.divide(total, len(parts), out=out, casting="same_kind")
    elif total is not out:
        out[...] = total


@lru_cache
def _bounds(size: int, chunks: int) -> list[int]:
    return chunk_bounds(size, chunks).tolist()


def _sizes(bounds: list[int], itemsize: int) -> list[int]:
    return [(stop - start) * itemsize for start, stop in itertools.pairwise(bounds)]


def _blocks(start: int, stop: int, dtype: np.dtype) -> list[slice]:
    length = max(1, BLOCK_BYTES // dtype.itemsize)
    return [slice(first, min(first + length, stop)) for first in range(start, stop, length)]


def _result(comm: Comm, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Memory for a result: small ones from the process, large ones from shared memory, which is
    warm.
    """
    if math.prod(shape) * dtype.itemsize <= SMALL_BYTES:
        return np.empty(shape, dtype)
    return comm.empty(shape, dtype)


def _same_place(one: np.ndarray, other: np.ndarray) -> bool:
    return (
        one.__array_interface__["data"] == other.__array_interface__["data"]
        and one.strides == other.strides
        and one.dtype == other.dtype
    )
