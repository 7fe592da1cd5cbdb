"""Runs a schedule in this process: on arrays, or on the question of who contributed to what.

Both are one loop over ``advance``, on a state indexed by [rank, chunk]: elements of the arrays in
the one case, counts by contributor in the other.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dtlib.arguments import instance, shown, whole_number
from dtlib.simulators.schedule import Schedule, Transfer, rows_of

__all__ = ["Event", "Run", "advance", "contributions", "execute"]


class Event(NamedTuple):
    """One transfer as it happened, with its bytes; ranks are those of the whole run.

    On real ranks an event also says what it was part of: the ``collective`` (of one rank's calls
    the one with number ``call``), the ``members`` of the communicator; and when it was sent and
    when it was done, in seconds since the run began.
    """

    step: int
    source: int
    destination: int
    chunk: int
    reduce: bool
    bytes: int
    collective: str = ""
    members: tuple[int, ...] = ()
    call: int = 0
    start_s: float | None = None
    end_s: float | None = None


@dataclass(frozen=True, eq=False)
class Run:
    """What a schedule did to arrays: the ``results`` by rank, and the log that a picture is drawn
    from.
    """

    schedule: Schedule
    results: list[np.ndarray]
    chunk_bytes: np.ndarray

    @cached_property
    def events(self) -> list[Event]:
        """Every transfer, in order."""
        return [
            Event(number, *transfer, int(self.chunk_bytes[transfer[2]]))
            for number, step in enumerate(self.schedule.steps)
            for transfer in zip(*(column.tolist() for column in step), strict=True)
        ]

    @cached_property
    def contributors(self) -> np.ndarray:
        """Counts by [step, rank, chunk, contributor]; entry 0 is the start, entry k + 1 follows
        step k.
        """
        return np.stack([state.copy() for state in contributions(self.schedule)])

    @property
    def holdings(self) -> np.ndarray:
        """How many contributions each chunk is the sum of, by [step, rank, chunk]; 0 where nothing
        is held.
        """
        return self.contributors.sum(axis=-1)


MOST_COUNTS = 2**30  # 4 GiB of them
MANY = 2**30 - 1  # the sum of two still fits in an int32


def saturating(held: np.ndarray, sent: np.ndarray) -> np.ndarray:
    """Their sum up to ``MANY``: a wrong schedule can double for ever, and must not wrap around to
    1.
    """
    return np.minimum(held + sent, MANY)


def advance(
    state: np.ndarray,
    step: Transfer,
    add: Callable[[np.ndarray, np.ndarray], np.ndarray] = operator.add,
) -> None:
    """Carry out one step in place on ``state``, whose first two axes are rank and chunk."""
    sent = state[step.source, step.chunk]  # a copy: what every sender held when the step began
    copied = ~step.reduce
    state[step.destination[copied], step.chunk[copied]] = sent[copied]
    for transfer in np.flatnonzero(step.reduce):  # one by one: two may add to the same place
        place = step.destination[transfer], step.chunk[transfer]
        state[place] = add(state[place], sent[transfer])


def contributions(schedule: Schedule) -> Iterator[np.ndarray]:
    """Who contributed to what, at the start and after every step: counts by [rank, chunk,
    contributor].

    The array is the same one every time; copy it to keep it. It has at most 2**30 counts, each of
    which stays at ``MANY`` once it is there.
    """
    instance("schedule", schedule, Schedule, such_as="make('all_reduce', 'ring', 8)")
    whole_number(
        "ranks^2 x chunks of the schedule", schedule.ranks**2 * schedule.chunks, at_most=MOST_COUNTS
    )
    state = np.zeros((schedule.ranks, schedule.chunks, schedule.ranks), dtype=np.int32)
    rank, chunk = np.nonzero(schedule.held_before())
    state[rank, chunk, rank] = 1
    yield state
    for step in schedule.steps:
        advance(state, step, saturating)
        yield state


def execute(schedule: Schedule, arrays: Sequence[Any]) -> Run:
    """Run ``schedule`` on one array per rank; all have the same shape and dtype, and are not
    changed.

    The results of all_reduce and broadcast have the shape of the inputs. The others work along the
    first axis: run r of the sum's rows (reduce_scatter), all arrays one after the other
    (all_gather), run r of the rows of every array (all_to_all); ``chunk_bounds`` cuts the rows into
    runs. Sums are in the arrays' own dtype.

    >>> from dtlib.simulators.collectives import make
    >>> arrays = [np.array([1, 2, 3]), np.array([10, 20, 30])]
    >>> execute(make("all_reduce", "ring", 2), arrays).results
    [array([11, 22, 33]), array([11, 22, 33])]
    """
    instance("schedule", schedule, Schedule, such_as="make('all_reduce', 'ring', 8)")
    arrays = _matching(arrays, schedule.ranks)
    first = arrays[0] if schedule.keeps_shape else rows_of(arrays[0])
    shape, dtype = first.shape, first.dtype
    sizes = schedule.chunk_elements(shape)
    # Chunks differ by at most one row; padded to equal length they make one array.
    filled = np.arange(sizes.max()) < sizes[:, None]
    state = np.zeros((schedule.ranks, *filled.shape), dtype)
    before, after = schedule.held_before(), schedule.due_after()
    for rank in np.flatnonzero(before.any(axis=1)):
        state[rank][before[rank, :, None] & filled] = arrays[rank].ravel()
    for step in schedule.steps:
        advance(state, step)
    results = [state[rank][after[rank, :, None] & filled] for rank in range(schedule.ranks)]
    results = [
        result.reshape(schedule.result_shape(shape, np.flatnonzero(due)))
        for result, due in zip(results, after, strict=True)
    ]
    return Run(schedule, results, sizes * dtype.itemsize)


def _matching(arrays: Sequence[Any], ranks: int) -> list[np.ndarray]:
    if (
        not isinstance(arrays, (Sequence, np.ndarray))
        or isinstance(arrays, (str, bytes))
        or len(arrays) != ranks
    ):
        got = f"{len(arrays)} of them" if hasattr(arrays, "__len__") else shown(arrays)
        raise ValueError(
            f"arrays must be a list with one array for each of the {ranks} ranks, got {got}"
        )
    arrays = [np.asarray(array) for array in arrays]
    for rank, array in enumerate(arrays):
        if array.dtype.kind not in "iufc":
            raise TypeError(
                f"arrays: rank {rank} has dtype {array.dtype}, which does not add up; "
                "use an integer, floating or complex dtype"
            )
        if (array.shape, array.dtype) != (arrays[0].shape, arrays[0].dtype):
            raise ValueError(
                f"arrays: rank {rank} has shape {array.shape} and dtype {array.dtype}, but rank 0 "
                "has "
                f"shape {arrays[0].shape} and dtype {arrays[0].dtype}"
            )
    return arrays
