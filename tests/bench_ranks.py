"""How fast collectives on real ranks are, beside one plain copy of the array per rank in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dtlib.simulators.ranks import Cluster
from dtlib.units import binary, duration

RANKS = (2, 4, 8)
SIZES = tuple(2**power for power in (10, 14, 16, 18, 20, 22, 24, 26, 28))
BUDGET_S = 1.0  # per size


def contenders(comm: Any, size: int) -> dict[str, Callable[[], object]]:
    """What is timed, on this rank. Another engine's all-reduce can join here, to be timed in the same processes."""
    ordinary, other = np.ones(size // 4, np.float32), np.empty(size // 4, np.float32)
    shared, result = comm.empty(size // 4, np.float32), comm.empty(size // 4, np.float32)
    shared[...], result[...] = 1, 0
    return {
        "copy": lambda: np.copyto(other, ordinary),
        "shared": lambda: comm.all_reduce(shared, out=result),
        "staged": lambda: comm.all_reduce(ordinary),
        "ring": lambda: comm.all_reduce(ordinary, algorithm="ring"),
    }


def timings(comm: Any, size: int, budget_s: float) -> dict[str, list[tuple[float, float]]]:
    """When this rank began and ended, by contender and repetition; all contenders take turns."""
    entries = contenders(comm, size)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in entries}
    repetitions = 3
    began = time.perf_counter()
    while len(times["copy"]) < repetitions:
        for name, work in entries.items():
            comm.barrier()
            start = time.perf_counter()
            work()
            times[name].append((start, time.perf_counter()))
        if len(times["copy"]) == 2:  # the first two warm up, and say how many there is time for
            round_s = float(comm.all_reduce(np.array((time.perf_counter() - began) / 2), op="mean"))
            repetitions = 2 + min(200, max(5, int(budget_s / round_s)))
    return {name: values[2:] for name, values in times.items()}


def medians(reports: list[dict[str, list[tuple[float, float]]]]) -> dict[str, float]:
    """The median over repetitions of the time from the first rank's beginning to the last one's end."""
    spans = {name: np.array([report[name] for report in reports]) for name in reports[0]}
    return {name: float(np.median(span[:, :, 1].max(axis=0) - span[:, :, 0].min(axis=0)))
            for name, span in spans.items()}


def start_up() -> None:
    starts, again = [], []
    for _ in range(5):
        began = time.perf_counter()
        with Cluster(4) as cluster:
            cluster.run(lambda comm: None)
            starts.append(time.perf_counter() - began)
            for _ in range(20):
                began = time.perf_counter()
                cluster.run(lambda comm: None)
                again.append(time.perf_counter() - began)
    print(f"four ranks: first run after {duration(np.median(starts))}, another after {duration(np.median(again))}")


def main() -> None:
    start_up()
    print(f"all_reduce of float32, against one plain copy per rank ({'/'.join(map(str, RANKS))} ranks)")
    print(f"{'ranks':>5} {'size':>8} {'copy':>10} {'shared':>10} {'/copy':>6} {'staged':>10} {'/copy':>6} "
          f"{'ring':>10} {'/copy':>6}")
    for ranks in RANKS:
        with Cluster(ranks) as cluster:
            for size in SIZES:
                if 6 * size > cluster.region_bytes:
                    continue
                times = medians(list(cluster.run(timings, (size, BUDGET_S), deadline_s=120)))
                copy_s = times.pop("copy")
                print(f"{ranks:>5} {binary(size):>8} {duration(copy_s):>10} " + " ".join(
                    f"{duration(time_s):>10} {time_s / copy_s:>6.2f}" for time_s in times.values()), flush=True)


if __name__ == "__main__":
    main()
