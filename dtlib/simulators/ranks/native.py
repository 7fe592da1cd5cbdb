"""The collectives of the library that passes the messages, behind the checks that all engines
share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtlib.simulators.ranks.communicator import mean_dtypes
from dtlib.simulators.schedule import chunk_bounds

if TYPE_CHECKING:
    from dtlib.simulators.ranks.messages import MessageComm

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter"]


def all_reduce(comm: MessageComm, array: np.ndarray, op: str, out: np.ndarray | None) -> np.ndarray:
    dtype, result_dtype = mean_dtypes(array.dtype) if op == "mean" else (array.dtype, array.dtype)
    _meet(comm, f"all_reduce({op})", array)
    total = (
        comm.link.all_reduce(np.ascontiguousarray(array, dtype))
        if array.size
        else np.empty(array.shape, dtype)
    )
    return comm.finish(total.reshape(array.shape), op, result_dtype, out)


def reduce_scatter(comm: MessageComm, array: np.ndarray, op: str) -> np.ndarray:
    dtype, result_dtype = mean_dtypes(array.dtype) if op == "mean" else (array.dtype, array.dtype)
    _meet(comm, f"reduce_scatter({op})", array)
    bounds = chunk_bounds(array.size, comm.size)
    total = (
        comm.link.reduce_scatter(np.ascontiguousarray(array, dtype), bounds)
        if array.size
        else np.empty(0, dtype)
    )
    return comm.finish(total, op, result_dtype)


def all_gather(comm: MessageComm, array: np.ndarray) -> np.ndarray:
    _meet(comm, "all_gather()", array)
    if not array.nbytes:
        return np.empty(array.size * comm.size, array.dtype)
    return comm.link.all_gather(_flat_bytes(array)).reshape(-1).view(array.dtype)


def all_to_all(comm: MessageComm, array: np.ndarray) -> np.ndarray:
    _meet(comm, "all_to_all()", array)
    sizes = np.diff(chunk_bounds(array.size, comm.size)) * array.itemsize
    received = [int(sizes[comm.rank])] * comm.size
    if not array.nbytes:
        return np.empty(0, array.dtype)
    return comm.link.all_to_all(_flat_bytes(array), sizes.tolist(), received).view(array.dtype)


def broadcast(comm: MessageComm, array: np.ndarray | None, root: int) -> np.ndarray:
    shape, dtype = comm.meet_root(f"called broadcast(root={root})", array, root)
    result = np.array(array) if comm.rank == root else np.empty(shape, dtype)
    result = np.ascontiguousarray(result)
    if result.nbytes:
        comm.link.broadcast(result.reshape(-1).view(np.uint8), root)
    return result.reshape(shape)


def _meet(comm: MessageComm, call: str, array: np.ndarray) -> None:
    comm.meet(f"called {call} with shape {array.shape} and dtype {array.dtype}")


def _flat_bytes(array: np.ndarray) -> Any:
    return np.ascontiguousarray(array).view(np.uint8)
