"""A collective as data: steps of transfers between ranks.

A rank's buffer is cut into numbered chunks. A transfer sends one chunk from one rank to another,
which adds it to what it holds (reduce) or replaces it (copy). The transfers of one step happen at
once: all of them read what the ranks held when the step began. A schedule is a list of such steps,
and says nothing about values, bytes or time. Interpreters do: ``execute`` runs it on arrays,
``checker`` proves it right, ``clock`` times it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dtlib.arguments import choice, instance, shown, store, whole_number
from dtlib.formulas.partition import chunk_bounds

__all__ = ["CONTRACTS", "MOST_TRANSFERS", "Contract", "Schedule", "Transfer", "rows_of"]


class Transfer(NamedTuple):
    """``chunk`` goes from ``source`` to ``destination``, which adds it (``reduce``) or replaces its
    own.

    Each field is one value, or an array with one value per transfer: ``Transfer(rank, rank + 1,
    0)`` with ``rank = np.arange(3)`` is three transfers. A schedule keeps each of its steps as one
    Transfer of four arrays.
    """

    source: int | np.ndarray
    destination: int | np.ndarray
    chunk: int | np.ndarray
    reduce: bool | np.ndarray = False


class Contract(NamedTuple):
    """What a collective promises: who holds which chunk ``before``, and who must hold it ``after``.

    Both are conditions on (rank, chunk, schedule). One rule judges every collective: a chunk that
    is due somewhere must hold, exactly once, the contribution of every rank that held it before.
    For that each chunk has to move ``transfers`` (ranks) times.
    """

    before: Callable[[Any, Any, Schedule], Any]
    after: Callable[[Any, Any, Schedule], Any]
    transfers: Callable[[int], int]
    chunks: Callable[[int], int] | None = None


def everywhere(rank: Any, chunk: Any, schedule: Schedule) -> Any:
    return True


def at_its_number(rank: Any, chunk: Any, schedule: Schedule) -> Any:
    return chunk == rank


def at_the_root(rank: Any, chunk: Any, schedule: Schedule) -> Any:
    return rank == schedule.root


# In an all_to_all, chunk i * ranks + j is the block that rank i has for rank j.
def at_its_sender(rank: Any, chunk: Any, schedule: Schedule) -> Any:
    return chunk // schedule.ranks == rank


def at_its_receiver(rank: Any, chunk: Any, schedule: Schedule) -> Any:
    return chunk % schedule.ranks == rank


CONTRACTS = {
    "all_reduce": Contract(everywhere, everywhere, transfers=lambda ranks: 2 * (ranks - 1)),
    "reduce_scatter": Contract(
        everywhere, at_its_number, transfers=lambda ranks: ranks - 1, chunks=lambda ranks: ranks
    ),
    "all_gather": Contract(
        at_its_number, everywhere, transfers=lambda ranks: ranks - 1, chunks=lambda ranks: ranks
    ),
    "broadcast": Contract(at_the_root, everywhere, transfers=lambda ranks: ranks - 1),
    "all_to_all": Contract(
        at_its_sender, at_its_receiver, transfers=lambda ranks: 1, chunks=lambda ranks: ranks**2
    ),
}

MOST_TRANSFERS = 50_000_000  # what memory holds, and a person waits for


def rows_of(array: np.ndarray) -> np.ndarray:
    """The array with a first axis to cut: a single number is a row of its own."""
    return array if array.ndim else array.reshape(1)


@dataclass(frozen=True, eq=False)
class Schedule:
    """Steps of transfers for a ``collective`` on ``ranks`` ranks whose buffer is cut into
    ``chunks`` chunks.

    ``steps`` is anything to loop over, such as a generator; each step is a ``Transfer`` or a list
    of them. A step that cannot be carried out (no such rank or chunk, a rank sending to itself, a
    copy into a place written twice) is an error here; one that can, but computes the wrong thing,
    is found by ``checker.check``. There are at most ``MOST_TRANSFERS`` (50 million) ranks, chunks
    and transfers, and the arrays of the steps are read-only.

    >>> swap = [[Transfer(0, 1, 0, reduce=True), Transfer(1, 0, 0, reduce=True)]]
    >>> Schedule("swap", "all_reduce", ranks=2, chunks=1, steps=swap).steps[0].destination
    array([1, 0])
    >>> wrong = [[Transfer(1, 2, 0)]]
    >>> Schedule("swap", "all_reduce", 2, 1, wrong)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: swap, step 0, transfer 0 (1 -> 2, chunk 0, copy): destination 2 does not exist, ...
    """

    name: str
    collective: str
    ranks: int
    chunks: int
    steps: tuple[Transfer, ...]
    root: int = 0

    def __post_init__(self) -> None:
        instance("name", self.name, str)
        choice("collective", self.collective, CONTRACTS)
        store(self, ranks=whole_number("ranks", self.ranks, at_most=MOST_TRANSFERS))
        store(
            self,
            chunks=whole_number("chunks", self.chunks, at_most=MOST_TRANSFERS),
            root=whole_number("root", self.root, at_least=0, at_most=self.ranks - 1),
        )
        needed = CONTRACTS[self.collective].chunks
        if needed and self.chunks != needed(self.ranks):
            raise ValueError(
                f"chunks must be {needed(self.ranks)} for {self.collective} on {self.ranks} ranks, "
                f"got {self.chunks}"
            )
        if callable(self.steps):
            raise TypeError(f"steps of {self.name} is a function: call it, steps=f({self.ranks})")
        if not isinstance(self.steps, Iterable):
            raise TypeError(
                f"steps of {self.name} must be a list of steps or a generator, got "
                f"{shown(self.steps)}: "
                "does the function yield its steps?"
            )
        store(
            self,
            steps=tuple(
                self._checked(number, transfers) for number, transfers in enumerate(self.steps)
            ),
        )
        whole_number(
            f"transfers of {self.name}", self.transfers, at_least=0, at_most=MOST_TRANSFERS
        )

    def __repr__(self) -> str:
        return (
            f"Schedule({self.name!r}, {self.collective!r}, ranks={self.ranks}, "
            f"chunks={self.chunks}, "
            f"{len(self.steps)} steps)"
        )

    @property
    def transfers(self) -> int:
        """How many there are in all steps."""
        return sum(len(step.source) for step in self.steps)

    def chunk_sizes(self, size: int) -> np.ndarray:
        """The size of each chunk of a payload of ``size`` (bytes or elements).

        The payload is one rank's full buffer, as nccl-tests counts it: the gathered result of an
        all_gather, the input of a reduce_scatter, everything one rank has to send (and keep) in an
        all_to_all.
        """
        if self.collective == "all_to_all":
            return np.tile(np.diff(chunk_bounds(size, self.ranks)), self.ranks)
        return np.diff(chunk_bounds(size, self.chunks))

    def chunk_elements(self, shape: tuple[int, ...]) -> np.ndarray:
        """The elements of each chunk where every rank has an array of this shape.

        An all_reduce and a broadcast cut the flat array. The others cut the first axis, so that
        their results keep the other axes: chunks are whole rows.
        """
        if self.keeps_shape:
            return self.chunk_sizes(math.prod(shape))
        return self._chunk_rows(shape) * math.prod(shape[1:])

    def result_shape(
        self, shape: tuple[int, ...], due: Sequence[int] | np.ndarray
    ) -> tuple[int, ...]:
        """The shape of the result of a rank that must hold the chunks ``due`` after."""
        if self.keeps_shape:
            return shape
        return int(self._chunk_rows(shape)[due].sum()), *shape[1:]

    @property
    def keeps_shape(self) -> bool:
        """Whether results have the shape of the inputs."""
        return self.collective in ("all_reduce", "broadcast")

    def _chunk_rows(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.chunk_sizes(shape[0] * (self.ranks if self.collective == "all_gather" else 1))

    def held_before(self) -> np.ndarray:
        """Which chunks each rank holds before the first step: booleans by [rank, chunk]."""
        return self._mask(CONTRACTS[self.collective].before)

    def due_after(self) -> np.ndarray:
        """Which chunks each rank must hold after the last step: booleans by [rank, chunk]."""
        return self._mask(CONTRACTS[self.collective].after)

    def _mask(self, condition: Callable[[Any, Any, Schedule], Any]) -> np.ndarray:
        rank, chunk = np.ogrid[: self.ranks, : self.chunks]
        return np.broadcast_to(condition(rank, chunk, self), (self.ranks, self.chunks))

    def _checked(self, number: int, transfers: Transfer | Iterable[Transfer]) -> Transfer:
        where = f"{self.name}, step {number}"
        step = _as_step(where, transfers)

        def refuse(wrong: np.ndarray, reason: Callable[[int], str]) -> None:
            if wrong.any():
                first = int(np.flatnonzero(wrong)[0])
                action = "reduce" if step.reduce[first] else "copy"
                raise ValueError(
                    f"{where}, transfer {first} ({step.source[first]} -> "
                    f"{step.destination[first]}, "
                    f"chunk {step.chunk[first]}, {action}): {reason(first)}"
                )

        limits = {"source": self.ranks, "destination": self.ranks, "chunk": self.chunks}
        for field, limit in limits.items():
            value = getattr(step, field)
            refuse(
                (value < 0) | (value >= limit),
                lambda i, f=field, v=value, n=limit: (
                    f"{f} {v[i]} does not exist, it must be 0 to {n - 1}"
                ),
            )
        refuse(step.source == step.destination, lambda i: "a rank cannot send to itself")
        refuse(
            _clashes(step, self.chunks),
            lambda i: (
                "this place is written twice in one step, and a copy and another write have no "
                "order"
            ),
        )
        for column in step:
            column.flags.writeable = False  # what was checked stays as it was
        return step


def _clashes(step: Transfer, chunks: int) -> np.ndarray:
    """Transfers that write where another one of the same step writes, unless both reduce: sums have
    no order.
    """
    place = step.destination.astype(np.int64) * chunks + step.chunk
    order = np.argsort(place, kind="stable")
    place, reduce = place[order], step.reduce[order]
    clash = np.zeros(len(place), dtype=bool)
    clash[order[1:]] = (place[1:] == place[:-1]) & ~(reduce[1:] & reduce[:-1])
    return clash


def _as_step(where: str, transfers: Transfer | Iterable[Transfer]) -> Transfer:
    if not isinstance(transfers, Iterable) or isinstance(transfers, (str, bytes)):
        raise TypeError(f"{where} must be a Transfer or a list of them, got {shown(transfers)}")
    transfers = [transfers] if isinstance(transfers, Transfer) else list(transfers)
    columns = [
        _columns(f"{where}, transfer {number}", transfer)
        for number, transfer in enumerate(transfers)
    ]
    if len(columns) == 1:
        return columns[0]
    if not columns:
        return _columns(where, Transfer(np.empty(0, dtype=np.int64), 0, 0))
    return Transfer(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def _columns(where: str, transfer: Transfer) -> Transfer:
    if not isinstance(transfer, Transfer):
        raise TypeError(
            f"{where} must be a Transfer(source, destination, chunk, reduce), got {shown(transfer)}"
        )
    arrays = [np.asarray(value) for value in transfer]
    for field, value, array in zip(Transfer._fields, transfer, arrays, strict=True):
        if array.dtype.kind not in ("b" if field == "reduce" else "iu") and array.size:
            wanted = "True or False" if field == "reduce" else "a whole number"
            raise TypeError(f"{where}: {field} must be {wanted}, got {shown(value)}")
    try:
        *indices, reduce = (array.reshape(-1) for array in np.broadcast_arrays(*arrays))
    except ValueError:
        shapes = dict(zip(Transfer._fields, (array.shape for array in arrays), strict=True))
        raise ValueError(f"{where}: the fields have shapes that do not match, {shapes}") from None
    return Transfer(*(index.astype(np.int64) for index in indices), reduce.astype(bool))
