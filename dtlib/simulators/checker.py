"""Is a schedule right, and how much does each rank send? Both by counting, without any values."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dtlib.arguments import instance, shown, whole_number
from dtlib.network import Network
from dtlib.simulators.clock import has_places
from dtlib.simulators.execute import contributions
from dtlib.simulators.schedule import Schedule

__all__ = [
    "Fault",
    "Report",
    "count_bytes_by_tier",
    "count_bytes_received",
    "count_bytes_sent",
    "check",
]


class Fault(NamedTuple):
    """A chunk that does not hold what it should: the ranks whose contribution is missing, or there
    repeatedly.
    """

    rank: int
    chunk: int
    missing: tuple[int, ...]
    repeated: tuple[int, ...]

    def __str__(self) -> str:
        parts = [
            f"{what} the contribution of rank{'s' * (len(who) > 1)} {', '.join(map(str, who))}"
            for what, who in (("lacks", self.missing), ("counts more than once", self.repeated))
            if who
        ]
        return f"rank {self.rank}, chunk {self.chunk}: {' and '.join(parts)}"


@dataclass(frozen=True)
class Report:
    """The verdict on a schedule; ``ok``, or ``faults`` in the order of rank and chunk. ``str`` of
    it is readable.
    """

    name: str
    faults: tuple[Fault, ...]

    @property
    def ok(self) -> bool:
        return not self.faults

    def __str__(self) -> str:
        if self.ok:
            return f"{self.name}: every rank ends with every contribution exactly once"
        shown = [f"  {fault}" for fault in self.faults[:5]]
        more = [f"  and {len(self.faults) - 5} more"] if len(self.faults) > 5 else []
        return "\n".join([f"{self.name} is wrong in {len(self.faults)} places:", *shown, *more])


def check(schedule: Schedule) -> Report:
    """Follow every contribution through ``schedule`` and compare the end with what its collective
    promises.

    Holds for every payload size, since it never looks at one. Memory grows as ranks^2 x chunks,
    which is at most 2**30.

    >>> from dtlib.simulators.collectives import make
    >>> print(check(make("all_reduce", "ring", 8)))
    ring: every rank ends with every contribution exactly once
    >>> from dtlib.simulators.schedule import Transfer
    >>> one_way = [[Transfer(0, 1, 0, reduce=True)]]
    >>> print(check(Schedule("one way", "all_reduce", ranks=2, chunks=1, steps=one_way)))
    one way is wrong in 1 places:
      rank 0, chunk 0: lacks the contribution of rank 1
    """
    end = deque(contributions(schedule), maxlen=1).pop()
    wanted = schedule.held_before().T  # by [chunk, contributor]
    wrong = (end != wanted).any(axis=-1) & schedule.due_after()
    faults = tuple(
        Fault(
            int(rank),
            int(chunk),
            missing=tuple(np.flatnonzero(end[rank, chunk] < wanted[chunk]).tolist()),
            repeated=tuple(np.flatnonzero(end[rank, chunk] > wanted[chunk]).tolist()),
        )
        for rank, chunk in np.argwhere(wrong)
    )
    return Report(schedule.name, faults)


def count_bytes_sent(schedule: Schedule, payload_bytes: int) -> np.ndarray:
    """The bytes each rank sends, exactly, by rank.

    >>> from dtlib.simulators.collectives import make
    >>> count_bytes_sent(make("all_reduce", "ring", 4), 1000)
    array([1500, 1500, 1500, 1500])
    """
    return _bytes_by("source", schedule, payload_bytes)


def count_bytes_received(schedule: Schedule, payload_bytes: int) -> np.ndarray:
    """The bytes each rank receives, exactly, by rank."""
    return _bytes_by("destination", schedule, payload_bytes)


def count_bytes_by_tier(
    schedule: Schedule, network: Network, payload_bytes: int
) -> dict[str, np.ndarray]:
    """The bytes each rank sends through each tier of ``network``, by the tier's name and by rank.

    On a placed network the ranks are its members.

    >>> from dtlib.simulators.collectives import make
    >>> nodes = Network.of_nodes(
    ...     2, inside_Bps=450e9, across_Bps=50e9, inside_latency_s=1e-6, across_latency_s=5e-6
    ... )
    >>> sent = count_bytes_by_tier(make("all_reduce", "ring", 4), nodes, 1000)
    >>> sent["inside"].tolist(), sent["across"].tolist()
    ([1500, 0, 1500, 0], [0, 1500, 0, 1500])
    """
    sizes = _sizes(schedule, payload_bytes)
    has_places(network, schedule.ranks)
    total = np.zeros((len(network.tiers), schedule.ranks), dtype=np.int64)
    for step in schedule.steps:
        np.add.at(
            total, (network.tier_of(step.source, step.destination), step.source), sizes[step.chunk]
        )
    return dict(zip((tier.name for tier in network.tiers), total, strict=True))


def _sizes(schedule: Schedule, payload_bytes: int) -> np.ndarray:
    """The bytes of each chunk; refused where those of all transfers could pass an int64."""
    instance("schedule", schedule, Schedule, such_as="make('all_reduce', 'ring', 8)")
    sizes = schedule.chunk_sizes(whole_number("payload_bytes", payload_bytes, at_least=0))
    if schedule.transfers * int(sizes.max()) >= 2**63:
        raise ValueError(
            f"payload_bytes must be smaller for the bytes of {schedule.transfers} transfers to be "
            f"counted exactly, got {shown(payload_bytes)}"
        )
    return sizes


def _bytes_by(end: str, schedule: Schedule, payload_bytes: int) -> np.ndarray:
    sizes = _sizes(schedule, payload_bytes)
    total = np.zeros(schedule.ranks, dtype=np.int64)
    for step in schedule.steps:
        np.add.at(total, getattr(step, end), sizes[step.chunk])
    return total
