"""What a program on real ranks holds: MPI's vocabulary, the same on every engine.

A ``Communicator`` checks what it is given, decides which algorithm runs, and keeps shapes and
dtypes in order. Below it lies a ``Transport``: how the ranks of one engine reach each other. There
are two ways through a collective. A *schedule* is carried out transfer by transfer over messages
(``plan``), on any engine. An engine's *own* collectives (``Collectives``) need no schedule: those
of shared memory, or those of an MPI or NCCL library.

The examples below are programs of two ranks; ``run`` returns what each of them returned::

    run(lambda comm: comm.all_reduce(np.array([1, 10]) * (comm.rank + 1)), ranks=2)
    # [array([ 3, 30]), array([ 3, 30])]
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dtlib.arguments import choice, instance, shown, whole_number
from dtlib.ranks import plan, serialization
from dtlib.ranks.result import Call
from dtlib.ranks.transport import MESSAGE, Message, Transport, sum_and_result_dtypes
from dtlib.simulators.collectives import ALGORITHMS
from dtlib.simulators.fastest import fastest
from dtlib.simulators.schedule import Schedule, rows_of

__all__ = ["Communicator"]

# What runs where an engine has no collective of its own and nothing is known of the network.
DEFAULTS = {
    "all_reduce": "ring",
    "reduce_scatter": "ring",
    "all_gather": "ring",
    "broadcast": "tree",
    "all_to_all": "rotation",
}
MOVABLE, SUMMABLE = "biufcSUmM", "iufcm"  # kinds of numpy dtypes
LARGEST_COLOR = 2**62


class Communicator:
    """``rank`` of ``size`` ranks that talk to each other.

    Every collective takes ``algorithm``: "fastest" (the engine's own; on a described network the
    schedule that takes least time by the clock), the name of a schedule in
    ``dtlib.simulators.collectives.ALGORITHMS``, or a ``Schedule``, such as one of your own, or for
    nodes of four ``make("all_reduce", "hierarchical", 8, node_size=4)``.

    Inputs are numpy arrays or what becomes one; they are not changed and need not be contiguous.
    All ranks must call the same collective with the same shape and dtype, or every rank gets a
    ``RankError`` that names the first one that is unlike most others. The results of an engine's
    own collectives, and of the textbook schedules, are the same bits on all ranks.
    Sums are in the dtype of the arrays; booleans are counted in int64; a mean of integers is a
    float64, and one of float16 is added up in float32.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._received = 0

    def __repr__(self) -> str:
        return f"Communicator(rank={self.rank}, size={self.size})"

    @property
    def rank(self) -> int:
        """The number of this rank, from 0."""
        return self._transport.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._transport.size

    @property
    def sent_bytes(self) -> list[int]:
        """Payload bytes this rank has sent in this run, by rank of this communicator.

        What the collectives of an MPI or NCCL library move is not known, and not counted.
        """
        return [self._transport.counters.sent[member] for member in self._transport.members]

    @property
    def received_bytes(self) -> list[int]:
        """Payload bytes this rank has received in this run, by rank of this communicator."""
        return [self._transport.counters.received[member] for member in self._transport.members]

    # One rank to another

    def send(self, value: Any, destination: int, tag: int = 0) -> None:
        """Send an array, or anything that can be pickled; ``value`` may be changed afterwards.

        It does not wait for ``recv``, unless thousands of messages are on their way there.

        Errors: ``destination`` must be a rank, ``tag`` a whole number from 0.

        >>> from dtlib.ranks import run
        >>> def program(comm):
        ...     comm.send(f"from rank {comm.rank}", destination=1 - comm.rank)
        ...     return comm.recv(source=1 - comm.rank)
        >>> run(program, ranks=2)
        ['from rank 1', 'from rank 0']
        """
        destination, tag = self._peer("destination", destination), _tag(tag)
        data, meta = _as_message(value)
        counters = self._transport.counters
        counters.messages_sent[self._transport.members[destination]] += 1
        self._transport.post(destination, MESSAGE, tag, data, meta)

    def recv(self, source: int, tag: int = 0) -> Any:
        """Wait for the next message from ``source`` with this ``tag``; what was sent.

        Errors: a ``RankError`` if the run fails, by its deadline at the latest.
        """
        source, tag = self._peer("source", source), _tag(tag)
        message = self._transport.receive(source, MESSAGE, tag)
        value, size = _from_message(message), message.data.nbytes
        message.done()
        counters, sender = self._transport.counters, self._transport.members[source]
        counters.messages_received[sender] += 1
        call = Call(counters.calls, "recv", tuple(self._transport.members))
        counters.received_from(sender, size, call, self._received, tag, False, message.sent_s)
        self._received += 1
        return value

    def sendrecv(self, value: Any, destination: int, source: int, tag: int = 0) -> Any:
        """Send to one rank and receive from another.

        >>> from dtlib.ranks import run
        >>> run(lambda comm: comm.sendrecv(comm.rank, 1 - comm.rank, 1 - comm.rank), ranks=2)
        [1, 0]
        """
        self._peer("source", source)  # before anything leaves
        self.send(value, destination, tag)
        return self.recv(source, tag)

    # All ranks together

    def barrier(self) -> None:
        """Return when every rank is here."""
        self._transport.meet("called barrier()")

    def split(self, color: int, key: int = 0) -> Communicator:
        """A communicator of all ranks with the same ``color``, ordered by ``key``, then by rank.

        On a described network its members stay where they are.

        >>> from dtlib.ranks import run
        >>> def program(comm):
        ...     part = comm.split(color=comm.rank % 2)
        ...     return part.size, int(part.all_reduce(comm.rank))
        >>> run(program, ranks=4)
        [(2, 2), (2, 4), (2, 2), (2, 4)]
        """
        limits = {"at_least": -LARGEST_COLOR, "at_most": LARGEST_COLOR}
        color, key = whole_number("color", color, **limits), whole_number("key", key, **limits)
        table = [
            pickle.loads(brought)
            for brought in self._transport.meet("called split()", pickle.dumps((color, key)))
        ]
        group = [member for member in range(self.size) if table[member][0] == color]
        group.sort(key=lambda member: (table[member][1], member))
        number = sorted({entry[0] for entry in table}).index(color)
        return Communicator(self._transport.split(group, number))

    def empty(self, shape: int | tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
        """An uninitialized array in the memory that suits the engine's collectives best.

        On engine "local" that is memory which all ranks see: an ``all_reduce`` of such an array is
        not copied first.
        """
        sides = shape if isinstance(shape, (tuple, list)) else (shape,)
        sides = tuple(whole_number("shape", side, at_least=0) for side in sides)
        try:
            dtype = np.dtype(dtype)
        except TypeError:
            raise TypeError(f"dtype must be one of numpy's, got {shown(dtype)}") from None
        return self._transport.empty(sides, dtype)

    def all_reduce(
        self,
        array: Any,
        op: str = "sum",
        algorithm: str | Schedule = "fastest",
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """The ``op`` ("sum" or "mean") of everybody's ``array``, on every rank, in its shape.

        The result is ``out`` if given: of the shape and dtype of the result; it may be ``array``.

        >>> from dtlib.ranks import run
        >>> run(lambda comm: comm.all_reduce([1, 10 * comm.rank]), ranks=2)
        [array([ 2, 10]), array([ 2, 10])]
        """
        array, op = _summable(array), choice("op", op, ("sum", "mean"))
        dtype, result_dtype = sum_and_result_dtypes(array.dtype, op)
        if out is not None and not (isinstance(out, np.ndarray) and out.flags.writeable):
            raise TypeError(f"out must be an array that can be written to, got {shown(out)}")
        if out is not None and (out.shape, out.dtype) != (array.shape, result_dtype):
            raise ValueError(
                f"out must have shape {array.shape} and dtype {result_dtype}, "
                f"got {out.shape} and {out.dtype}"
            )
        schedule = self._schedule("all_reduce", algorithm, dtype, array.size * dtype.itemsize)
        if schedule is None:
            return self._transport.own("all_reduce", dtype).all_reduce(array, op, out)
        total = self._carry_out(schedule, array.astype(dtype, copy=False), op)
        return _finished(total, op, self.size, result_dtype, out)

    def reduce_scatter(
        self, array: Any, op: str = "sum", algorithm: str | Schedule = "fastest"
    ) -> np.ndarray:
        """This rank's rows of the sum or mean of everybody's ``array``, as torch has it.

        The first axis is cut into ``size`` runs of rows, as equal as can be
        (``dtlib.formulas.partition.chunk_bounds``); rank r gets run r, and the other axes stay.

        >>> from dtlib.ranks import run
        >>> run(lambda comm: comm.reduce_scatter([[1, 2], [3, 4]]), ranks=2)
        [array([[2, 4]]), array([[6, 8]])]
        """
        array, op = _summable(array), choice("op", op, ("sum", "mean"))
        dtype, result_dtype = sum_and_result_dtypes(array.dtype, op)
        schedule = self._schedule("reduce_scatter", algorithm, dtype, array.size * dtype.itemsize)
        if schedule is None:
            return self._transport.own("reduce_scatter", dtype).reduce_scatter(rows_of(array), op)
        total = self._carry_out(schedule, rows_of(array).astype(dtype, copy=False), op)
        return _finished(total, op, self.size, result_dtype)

    def all_gather(self, array: Any, algorithm: str | Schedule = "fastest") -> np.ndarray:
        """Everybody's ``array``, one after the other along the first axis, by rank.

        >>> from dtlib.ranks import run
        >>> run(lambda comm: comm.all_gather([[comm.rank, 7]]), ranks=2)
        [array([[0, 7],
               [1, 7]]), array([[0, 7],
               [1, 7]])]
        """
        array = rows_of(_movable(array))
        schedule = self._schedule("all_gather", algorithm, array.dtype, array.nbytes * self.size)
        if schedule is None:
            return self._transport.own("all_gather", array.dtype).all_gather(array)
        return self._carry_out(schedule, array)

    def all_to_all(self, array: Any, algorithm: str | Schedule = "fastest") -> np.ndarray:
        """Run ``rank`` of the rows of everybody's ``array``, one after the other, by rank.

        The first axis is cut as in ``reduce_scatter``.

        >>> from dtlib.ranks import run
        >>> run(lambda comm: comm.all_to_all([10 * comm.rank, 10 * comm.rank + 1]), ranks=2)
        [array([ 0, 10]), array([ 1, 11])]
        """
        array = rows_of(_movable(array))
        schedule = self._schedule("all_to_all", algorithm, array.dtype, array.nbytes)
        if schedule is None:
            return self._transport.own("all_to_all", array.dtype).all_to_all(array)
        return self._carry_out(schedule, array)

    def broadcast(
        self, array: Any = None, root: int = 0, algorithm: str | Schedule = "fastest"
    ) -> np.ndarray:
        """The ``array`` of ``root``, on every rank; the others need not give one.

        >>> from dtlib.ranks import run
        >>> run(lambda comm: comm.broadcast([1, 2] if comm.rank == 0 else None), ranks=2)
        [array([1, 2]), array([1, 2])]
        """
        root = self._peer("root", root)
        if array is None and self.rank == root:
            raise ValueError(f"array must be given by the root, rank {root}, got None")
        array = None if array is None else _movable(array)
        known = b"" if array is None else pickle.dumps((array.shape, array.dtype.str))
        told = self._transport.meet(f"called broadcast(root={root})", known)[root]
        shape, dtype = pickle.loads(told)
        if array is not None and known != told:
            raise ValueError(
                f"broadcast: this rank has an array with shape {array.shape} and dtype "
                f"{array.dtype}, but the root's is with shape {shape} and dtype {np.dtype(dtype)}; "
                "only the root has to give one"
            )
        template = np.empty(shape, dtype) if array is None else array
        schedule = self._schedule("broadcast", algorithm, template.dtype, template.nbytes, root)
        if schedule is None:
            own = self._transport.own("broadcast", template.dtype)
            return own.broadcast(template, root)
        return self._carry_out(schedule, template)

    @contextmanager
    def span(self, name: str, /, **labels: str | float) -> Iterator[None]:
        """Put what is done inside into the result's ``spans``, beside the transfers of the trace.

        ``with comm.span("forward", micro_batch=3): ...`` is one ``Span`` named "forward". Labels
        are text or numbers.
        """
        instance("name", name, str)
        for label, value in labels.items():
            instance(label, value, str, int, float, np.integer, np.floating)
        counters, start_s = self._transport.counters, time.perf_counter()
        try:
            yield
        finally:
            counters.mark(name, labels, start_s)

    # How a collective is carried out

    def _schedule(
        self,
        collective: str,
        algorithm: str | Schedule,
        dtype: np.dtype,
        payload_bytes: int,
        root: int = 0,
    ) -> Schedule | None:
        """The schedule to run; None for the engine's own collective."""
        if isinstance(algorithm, Schedule):
            wanted = (collective, self.size, root)
            if (algorithm.collective, algorithm.ranks, algorithm.root) != wanted:
                raise ValueError(
                    f"algorithm must be a schedule for {collective} on {self.size} ranks with root "
                    f"{root}, got {algorithm!r} with root {algorithm.root}"
                )
            return algorithm
        choice("algorithm", algorithm, ("fastest", *ALGORITHMS[collective]))
        if algorithm != "fastest":
            return plan.schedule_of(collective, algorithm, self.size, root=root)
        if self._transport.own(collective, dtype) is not None:
            return None
        network = self._transport.network
        if network is None or root:
            return plan.schedule_of(collective, DEFAULTS[collective], self.size, root=root)
        return fastest(collective, self.size, payload_bytes, network)

    def _carry_out(self, schedule: Schedule, array: np.ndarray, op: str = "") -> np.ndarray:
        """Run this rank's part of a schedule; the result as ``simulators.execute`` has it."""
        said = f"{op}, " * bool(op) + f"algorithm={schedule.name!r}"
        self._transport.meet(
            f"called {schedule.collective}({said}, #{plan.fingerprint(schedule):08x}) "
            f"with shape {array.shape} and dtype {array.dtype}"
        )
        return plan.carry_out(self._transport, schedule, array)

    def _peer(self, name: str, rank: int) -> int:
        return whole_number(name, rank, at_least=0, at_most=self.size - 1)


def _finished(
    total: np.ndarray, op: str, size: int, dtype: np.dtype, out: np.ndarray | None = None
) -> np.ndarray:
    """What ``op`` makes of a sum over ``size`` ranks, in ``dtype``; in ``out`` if given."""
    if op == "mean":
        out = np.empty(total.shape, dtype) if out is None else out
        return np.divide(total, size, out=out, casting="same_kind")
    if out is None:
        return total
    out[...] = total
    return out


def _tag(tag: int) -> int:
    return whole_number("tag", tag, at_least=0, at_most=LARGEST_COLOR)


def _as_message(value: Any) -> tuple[np.ndarray, bytes]:
    """A value as contiguous data, and what makes it a value again (nothing: it is a pickle)."""
    if type(value) is np.ndarray and value.dtype.kind in MOVABLE:
        return np.ascontiguousarray(value), pickle.dumps((value.dtype.str, value.shape))
    return np.frombuffer(serialization.dumps(value), np.uint8), b""


def _from_message(message: Message) -> Any:
    if not message.meta:
        return serialization.loads(message.data)
    dtype, shape = pickle.loads(message.meta)
    return np.ndarray(shape, dtype, bytearray(message.data))


def _array(array: Any) -> np.ndarray:
    try:
        return np.asarray(array)
    except ValueError:  # rows of different lengths
        raise ValueError(f"array must have rows of one length, got {shown(array)}") from None


def _movable(array: Any) -> np.ndarray:
    array = _array(array)
    if array.dtype.kind not in MOVABLE:
        raise TypeError(
            f"array has dtype {array.dtype}, which ranks cannot exchange as bytes; "
            "send and recv take any object"
        )
    return array


def _summable(array: Any) -> np.ndarray:
    array = _array(array)
    if array.dtype.kind == "b":
        return array.astype(np.int64)  # as numpy.sum has it; adding booleans only says "any"
    if array.dtype.kind not in SUMMABLE:
        raise TypeError(
            f"array has dtype {array.dtype}, which does not add up; "
            "use an integer, floating, complex or timedelta dtype"
        )
    return array
