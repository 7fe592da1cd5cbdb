"""An all-reduce on real ranks, measured beside what the schedule and the clock predict."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtlib.arguments import instance, whole_number
from dtlib.network import Network
from dtlib.ranks import Cluster
from dtlib.simulators.checker import check, count_bytes_sent
from dtlib.simulators.clock import time_s
from dtlib.simulators.execute import execute
from dtlib.simulators.schedule import Schedule

__all__ = ["Measurement", "in_process", "measurements"]


@dataclass(frozen=True)
class Measurement:
    """One all-reduce: what the busiest rank sent and how long it took, and the same predicted from
    the schedule.

    ``predicted_s`` is None where no network is described: a laptop's own memory is not modeled
    here.
    """

    algorithm: str
    ranks: int
    payload_bytes: int
    sent_bytes: int
    predicted_bytes: int
    time_s: float
    predicted_s: float | None


def all_reduce_seconds(comm: Any, payload_bytes: int, schedule: Schedule) -> float:
    """The program each rank runs: everybody is ready, then one all-reduce; seconds until this rank
    has the sum.
    """
    array = np.full(payload_bytes, comm.rank + 1, np.uint8)
    comm.barrier()
    start = time.perf_counter()
    total = comm.all_reduce(array, algorithm=schedule)
    taken = time.perf_counter() - start
    expected = (
        comm.size * (comm.size + 1) // 2 % 256
    )  # a byte wraps around, and one byte an element makes sizes exact
    if payload_bytes and (total[0], total[-1]) != (expected, expected):
        raise ArithmeticError(
            f"the sum of ranks 1 to {comm.size} came out as {total[0]} and {total[-1]}"
        )
    return taken


def measurements(
    cluster: Cluster,
    payload_bytes: int,
    schedule: Schedule,
    *,
    network: Network | None = None,
    rounds: int = 5,
    deadline_s: float = 60.0,
) -> Iterator[Measurement]:
    """Run ``schedule`` ``rounds`` times on the ranks of ``cluster``; after each, the measurement so
    far.

    Times are medians, and a run takes as long as its slowest rank. On a placed ``network``
    the ranks of the cluster are its members. A schedule that is not an all-reduce is refused before
    any work, with what the checker says of it.
    """
    payload_bytes = whole_number("payload_bytes", payload_bytes, at_least=0)
    rounds = whole_number("rounds", rounds)
    report = check(schedule)
    if schedule.collective != "all_reduce" or schedule.ranks != cluster.ranks or not report.ok:
        raise ValueError(
            f"schedule must be an all_reduce on {cluster.ranks} ranks, got {schedule!r}: {report}"
        )
    predicted_bytes = int(count_bytes_sent(schedule, payload_bytes).max())
    predicted_s = None if network is None else time_s(schedule, network, payload_bytes)
    times_s: list[float] = []
    for _ in range(rounds):
        result = cluster.run(
            all_reduce_seconds, (payload_bytes, schedule), network=network, deadline_s=deadline_s
        )
        times_s.append(max(result))
        yield Measurement(
            schedule.name,
            cluster.ranks,
            payload_bytes,
            int(result.sent_bytes.sum(axis=1).max()),
            predicted_bytes,
            statistics.median(times_s),
            predicted_s,
        )


def in_process(schedule: Schedule, payload_bytes: int) -> Measurement:
    """The same schedule on arrays in this process, for a place that has no others, such as a
    browser.

    The result and the bytes are checked as on real ranks; the time is that of one process doing
    everybody's work.
    """
    instance("schedule", schedule, Schedule, such_as="make('all_reduce', 'ring', 8)")
    payload_bytes = whole_number("payload_bytes", payload_bytes, at_least=0)
    predicted_bytes = int(count_bytes_sent(schedule, payload_bytes).max())
    start = time.perf_counter()
    done = execute(
        schedule, [np.full(payload_bytes, rank + 1, np.uint8) for rank in range(schedule.ranks)]
    )
    taken_s = time.perf_counter() - start
    sent = np.zeros(schedule.ranks, np.int64)
    for event in done.events:
        sent[event.source] += event.bytes
    return Measurement(
        schedule.name,
        schedule.ranks,
        payload_bytes,
        int(sent.max()),
        predicted_bytes,
        taken_s,
        None,
    )
