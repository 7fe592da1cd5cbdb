"""What the communicators of all engines have in common: MPI's vocabulary, the checks, and the
choice of an algorithm.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dtlib.arguments import choice, whole_number
from dtlib.simulators.ranks import frames
from dtlib.simulators.schedule import Schedule

if TYPE_CHECKING:
    from dtlib.simulators.ranks import steps

__all__ = ["Communicator", "Own", "as_message", "mean_dtypes"]

# What runs where an engine has no collective of its own.
DEFAULTS = {
    "all_reduce": "ring",
    "reduce_scatter": "ring",
    "all_gather": "ring",
    "broadcast": "tree",
    "all_to_all": "rotation",
}


class Own(Protocol):
    """An engine's own collectives, which need no schedule. Arrays are flat, except where all of
    them keep their shape.
    """

    def all_reduce(
        self, comm: Any, array: np.ndarray, op: str, out: np.ndarray | None
    ) -> np.ndarray: ...
    def reduce_scatter(self, comm: Any, array: np.ndarray, op: str) -> np.ndarray: ...
    def all_gather(self, comm: Any, array: np.ndarray) -> np.ndarray: ...
    def all_to_all(self, comm: Any, array: np.ndarray) -> np.ndarray: ...
    def broadcast(self, comm: Any, array: np.ndarray | None, root: int) -> np.ndarray: ...


class Communicator(ABC):
    """``rank`` of ``size`` ranks that can talk to each other.

    Every collective takes ``algorithm``: "fastest" (the engine's own), the name of a schedule in
    ``dtlib.simulators.collectives.ALGORITHMS``, or a ``Schedule``, such as one of your own, or for
    nodes of four ``make("all_reduce", "hierarchical", 8, node_size=4)``; the ranks then carry out
    its transfers. Inputs are not changed and need not be contiguous, and results are the same bits
    on all ranks. Sums are in the dtype of the arrays, and booleans are counted; a mean of integers is
    a float64, one of float16 is added up in float32.
    """

    rank: int
    size: int
    own: Own

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rank={self.rank}, size={self.size})"

    # What an engine provides

    @property
    @abstractmethod
    def sent_bytes(self) -> list[int]:
        """Payload bytes this rank has sent in this run, by rank of this communicator."""

    @property
    @abstractmethod
    def received_bytes(self) -> list[int]:
        """Payload bytes this rank has received in this run, by rank of this communicator."""

    @abstractmethod
    def empty(self, shape: int | tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
        """An uninitialized array in the memory that suits the engine's collectives best."""

    @abstractmethod
    def send(self, value: Any, destination: int, tag: int = 0) -> None:
        """Send an array, or anything that can be pickled. Returns at once; ``value`` may be changed
        afterwards.
        """

    @abstractmethod
    def recv(self, source: int, tag: int = 0) -> Any:
        """Wait for the next message from ``source`` with this ``tag``."""

    @abstractmethod
    def barrier(self) -> None:
        """Return when every rank is here."""

    @abstractmethod
    def split(self, color: int, key: int = 0) -> Communicator:
        """A communicator of all ranks with the same ``color``, ordered by ``key`` and then by rank."""

    @abstractmethod
    def meet_root(self, call: str, array: np.ndarray | None, root: int) -> tuple[Any, np.dtype]:
        """Meet, and learn the shape and dtype of the root's array."""

    @abstractmethod
    def has_own(self, collective: str, dtype: np.dtype | None) -> bool:
        """Whether the engine's own collective can be used for this dtype (None: not known yet)."""

    @abstractmethod
    def carry_out(
        self,
        call: str,
        parts: list[steps.Part],
        state: np.ndarray,
        chunks: list[np.ndarray],
        bounds: list[int],
    ) -> None:
        """Meet, and carry out this rank's part of a schedule on ``chunks``, which are ``state`` cut
        at ``bounds``.
        """

    # What follows from it

    def sendrecv(self, value: Any, destination: int, source: int, tag: int = 0) -> Any:
        """Send to one rank and receive from another."""
        self.send(value, destination, tag)
        return self.recv(source, tag)

    def all_reduce(
        self,
        array: Any,
        op: str = "sum",
        algorithm: str | Schedule = "fastest",
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """The sum or mean of everybody's ``array``, on every rank; into ``out`` if given, which may
        be ``array``.
        """
        array, op = _summable(array), choice("op", op, ("sum", "mean"))
        dtype, result_dtype = (
            mean_dtypes(array.dtype) if op == "mean" else (array.dtype, array.dtype)
        )
        if out is not None and not (isinstance(out, np.ndarray) and out.flags.writeable):
            raise TypeError(f"out must be an array that can be written to, got {out!r}")
        if out is not None and (out.shape, out.dtype) != (array.shape, result_dtype):
            raise ValueError(
                f"out must have shape {array.shape} and dtype {result_dtype}, "
                f"got {out.shape} and {out.dtype}"
            )
        schedule = self._schedule("all_reduce", algorithm, dtype, array.size * dtype.itemsize)
        if schedule is None:
            return self.own.all_reduce(self, array, op, out)
        result = self._execute(
            schedule, array.astype(dtype, copy=False), array.shape, dtype, f"{op}, "
        )
        return self.finish(result, op, result_dtype, out)

    def reduce_scatter(
        self, array: Any, op: str = "sum", algorithm: str | Schedule = "fastest"
    ) -> np.ndarray:
        """Chunk ``rank`` of the sum or mean of everybody's ``array``, flat; ``chunk_bounds`` cuts
        the chunks.
        """
        array, op = _summable(array), choice("op", op, ("sum", "mean"))
        dtype, result_dtype = (
            mean_dtypes(array.dtype) if op == "mean" else (array.dtype, array.dtype)
        )
        schedule = self._schedule("reduce_scatter", algorithm, dtype, array.size * dtype.itemsize)
        if schedule is None:
            return self.own.reduce_scatter(self, array.reshape(-1), op)
        result = self._execute(
            schedule, array.astype(dtype, copy=False), array.shape, dtype, f"{op}, "
        )
        return self.finish(result, op, result_dtype)

    def all_gather(self, array: Any, algorithm: str | Schedule = "fastest") -> np.ndarray:
        """Everybody's ``array``, flat, in a row by rank."""
        array = _movable(array)
        schedule = self._schedule("all_gather", algorithm, array.dtype, array.nbytes * self.size)
        if schedule is None:
            return self.own.all_gather(self, array.reshape(-1))
        return self._execute(schedule, array, array.shape, array.dtype)

    def all_to_all(self, array: Any, algorithm: str | Schedule = "fastest") -> np.ndarray:
        """Block ``rank`` of everybody's ``array``, flat, in a row; ``chunk_bounds`` cuts the
        blocks.
        """
        array = _movable(array)
        schedule = self._schedule("all_to_all", algorithm, array.dtype, array.nbytes)
        if schedule is None:
            return self.own.all_to_all(self, array.reshape(-1))
        return self._execute(schedule, array, array.shape, array.dtype)

    def broadcast(
        self, array: Any = None, root: int = 0, algorithm: str | Schedule = "fastest"
    ) -> np.ndarray:
        """The ``array`` of ``root``, on every rank; the others need not give one."""
        root = whole_number("root", root, at_least=0, at_most=self.size - 1)
        if array is not None or self.rank == root:
            array = _movable(array)
        schedule = self._schedule("broadcast", algorithm, None, root=root)
        if schedule is None:
            return self.own.broadcast(self, array, root)
        shape, dtype = self.meet_root(f"called broadcast(root={root})", array, root)
        return self._execute(schedule, array if self.rank == root else None, shape, dtype)

    def finish(
        self, total: np.ndarray, op: str, dtype: np.dtype, out: np.ndarray | None = None
    ) -> np.ndarray:
        """What ``op`` makes of a sum, in ``dtype``; in ``out`` if given."""
        if op == "mean":
            out = np.empty(total.shape, dtype) if out is None else out
            return np.divide(total, self.size, out=out, casting="same_kind")
        if out is None:
            return total
        out[...] = total
        return out

    def default(self, collective: str, payload_bytes: int | None, root: int) -> Schedule:
        """What runs where an engine has no collective of its own; the payload of a broadcast is not
        known here.
        """
        from dtlib.simulators.ranks import steps

        return steps.schedule_of(collective, DEFAULTS[collective], self.size, root=root)

    def _schedule(
        self,
        collective: str,
        algorithm: str | Schedule,
        dtype: np.dtype | None,
        payload_bytes: int | None = None,
        root: int = 0,
    ) -> Schedule | None:
        """The schedule to run; None for the engine's own collective."""
        if isinstance(algorithm, Schedule):
            if (algorithm.collective, algorithm.ranks, algorithm.root) != (
                collective,
                self.size,
                root,
            ):
                raise ValueError(
                    f"algorithm must be a schedule for {collective} on {self.size} ranks with root "
                    f"{root}, got {algorithm!r} with root {algorithm.root}"
                )
            return algorithm
        if isinstance(algorithm, str) and algorithm == "fastest":
            return (
                None
                if self.has_own(collective, dtype)
                else self.default(collective, payload_bytes, root)
            )
        from dtlib.simulators.collectives import (
            ALGORITHMS,
        )  # now: a rank that runs no schedule starts sooner
        from dtlib.simulators.ranks import steps

        choice("algorithm", algorithm, ("fastest", *ALGORITHMS[collective]))
        return steps.schedule_of(collective, algorithm, self.size, root=root)

    def _execute(
        self,
        schedule: Schedule,
        array: np.ndarray | None,
        shape: Any,
        dtype: np.dtype,
        op: str = "",
    ) -> np.ndarray:
        from dtlib.simulators.ranks import steps

        call = (
            f"called {schedule.collective}({op}algorithm={schedule.name!r}, "
            f"#{steps.fingerprint(schedule):08x})"
            f" with shape {shape} and dtype {dtype}"
        )
        return steps.execute(self, schedule, call, array, shape, dtype)


def as_message(value: Any, longest_meta: int) -> tuple[np.ndarray, bytes]:
    """A value as an array to send, and what its receiver must know to make an array of it (nothing:
    it is pickled).
    """
    if type(value) is np.ndarray and value.dtype.kind in "biufcSUmM":
        meta = pickle.dumps((value.dtype.str, value.shape))
        if len(meta) <= longest_meta:
            return value, meta
    return np.frombuffer(_pickled(value), np.uint8), b""


def mean_dtypes(dtype: np.dtype) -> tuple[np.dtype, np.dtype]:
    """What a mean is added up in, and its result, as ``numpy.mean`` has them."""
    if dtype.kind in "iu":
        return np.dtype(np.float64), np.dtype(np.float64)
    return (np.dtype(np.float32) if (dtype.kind, dtype.itemsize) == ("f", 2) else dtype), dtype


def _pickled(value: Any) -> bytes:
    try:
        return pickle.dumps(value, protocol=5)
    except (
        AttributeError,
        TypeError,
        pickle.PicklingError,
    ):  # such as something whose class was typed into a cell
        return frames.dumps(value)


def _movable(array: Any) -> np.ndarray:
    array = np.asarray(array)
    if array.dtype.kind not in "biufcSUmM":
        raise TypeError(
            f"array has dtype {array.dtype}, which ranks cannot exchange as bytes; "
            "send and recv take any object"
        )
    return array


def _summable(array: Any) -> np.ndarray:
    array = np.asarray(array)
    if array.dtype.kind == "b":
        return array.astype(
            np.int64
        )  # as numpy.sum has it; np.add of booleans says only whether there is any
    if array.dtype.kind not in "iufcm":
        raise TypeError(
            f"array has dtype {array.dtype}, which does not add up; "
            "use an integer, floating, complex or timedelta dtype"
        )
    return array
